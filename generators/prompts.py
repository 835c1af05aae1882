"""The prompt: one function from what is shown to chat messages.

One user message and no system turn, so that every harness and chat template renders it alike. The order is
fixed: static head, artifacts in creation order, recipes, budget, previous error. Each turn then repeats most
of the turn before it word for word, which prefix caches reward. The wording is sized so that token counts
under the Qwen3 tokenizer come near the paper's means (tests/generators/test_token_calibration.py).
"""

from __future__ import annotations

from typing import TypedDict

from stsr.generators.environment import State
from stsr.generators.tasks import Candidates
from stsr.generators.views import Observation

TOOLS_TEXT = """\
You run a table workflow by calling tools. Each call reads artifacts that exist and creates one new artifact.

Tools:
- map_column adds a whole number to every value of one column. Parameters: column, operation, value.
- sort_rows orders the rows by one column; ties keep their order. Parameters: column, order, ties.
- filter_rows keeps the rows whose value in one column is at least a bound. Parameters: column, \
operator, value.
- select_columns keeps the named columns in the given order and drops the others. Parameters: columns, others.

The state lists every artifact that exists. If it says available, the artifact exists but its \
contents are hidden.
"""

INSTRUCTION = """\
A recipe can run when all of its inputs exist and its output does not exist yet. Any other call is \
rejected: it changes nothing, costs one call, and its error is shown to you. Choose the recipe that can run \
now. Reply with its call only: one JSON object with the keys tool, inputs, output and params, exactly as \
the recipe is printed.
"""


class Message(TypedDict):
    """One chat turn."""

    role: str
    content: str


CHAT_TEMPLATE_KWARGS = {"enable_thinking": False}
"""Rows carry these, so that training renders the very tokens that evaluation sends."""


def text(observation: Observation, recipes: list[str], remaining: int, error: str, instruction: str) -> str:
    """The user message. `recipes` are printed calls; `error` is "" when the previous call was accepted."""
    state = "\n".join(
        f"{name}: {'available' if table is None else table.text}" for name, table in observation.artifacts
    )
    shown = "\n".join(recipes)
    return (
        f"{TOOLS_TEXT}\n{instruction}\nState:\n{state}\n\nRecipes:\n{shown}\n\n"
        f"Calls left: {remaining}\nPrevious error: {error or 'none'}"
    )


def render(observation: Observation, shown: Candidates, state: State) -> list[Message]:
    """Chat messages for a decision: exactly one, from the user."""
    recipes = [recipe.text for recipe in shown.shown]
    content = text(observation, recipes, state.remaining, state.error, INSTRUCTION)
    return [{"role": "user", "content": content}]
