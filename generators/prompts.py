"""The prompt: one function from what is shown to chat messages.

One user message and no system turn, so that every harness and chat template renders it alike. The order is
fixed: static head, artifacts in creation order, recipes, budget, previous error. Each turn then repeats most
of the turn before it word for word, which prefix caches reward. The wording is sized so that token counts
under the Qwen3 tokenizer come near the paper's means (tests/generators/test_token_calibration.py).
"""

from __future__ import annotations

from typing import TypedDict

from stsr.generators.environment import State
from stsr.generators.tables import Table, compact_json
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

GOAL_INSTRUCTION = """\
A recipe can run when all of its inputs exist and its output does not exist yet. Any other call is \
rejected: it changes nothing, costs one call, and its error is shown to you. Several recipes can run now. \
Choose the one that serves the goal. Reply with its call only: one JSON object with the keys tool, inputs, \
output and params, exactly as the recipe is printed.
"""

ID_INSTRUCTION = """\
A recipe can run when all of its inputs exist and its output does not exist yet. Choose the recipe that can \
run now. Reply with its id only, as in {"recipe":"r1"}.
"""


class Message(TypedDict):
    """One chat turn."""

    role: str
    content: str


CHAT_TEMPLATE_KWARGS = {"enable_thinking": False}
"""Rows carry these, so that training renders the very tokens that evaluation sends."""


def text(
    observation: Observation, recipes: list[str], remaining: int, error: str, instruction: str, goal: str = ""
) -> str:
    """The user message. `recipes` are printed calls; `error` is "" when the previous call was accepted."""
    state = "\n".join([f"{name}: {contents(shown)}" for name, shown in observation.artifacts])
    if observation.hint:
        state += f"\n\nrelevance_hint: {', '.join(observation.hint)}"
    if goal:
        state += f"\n\nGoal: {goal}"
    shown = "\n".join(recipes)
    return (
        f"{TOOLS_TEXT}\n{instruction}\nState:\n{state}\n\nRecipes:\n{shown}\n\n"
        f"Calls left: {remaining}\nPrevious error: {error or 'none'}"
    )


def contents(shown: Table | str | None) -> str:
    """What stands behind an artifact's name."""
    if isinstance(shown, Table):
        return shown.text
    return "available" if shown is None else shown


def _id_text(observation: Observation, shown: Candidates, state: State) -> str:
    """The message of the interface with ids, which is short and prints no tables."""
    recipes = "\n".join(
        f"r{number}: {recipe.text if observation.reply == 'id' else recipe.output}"
        for number, recipe in enumerate(shown.shown, 1)
    )
    artifacts = ", ".join(name for name, _ in observation.artifacts)
    return f"{ID_INSTRUCTION}\nArtifacts: {artifacts}\n\nRecipes:\n{recipes}\n\nCalls left: {state.remaining}"


def render(observation: Observation, shown: Candidates, state: State) -> list[Message]:
    """Chat messages for a decision: exactly one, from the user."""
    if observation.reply != "call":
        return [{"role": "user", "content": _id_text(observation, shown, state)}]
    recipes = [recipe.text for recipe in shown.shown]
    goal = state.task.goal
    instruction = GOAL_INSTRUCTION if goal else INSTRUCTION
    content = text(observation, recipes, state.remaining, state.error, instruction, goal)
    return [{"role": "user", "content": content}]


def answer(observation: Observation, shown: Candidates) -> str:
    """The right reply: the target's call, or its id where the prompt gives ids."""
    if observation.reply != "call":
        return compact_json({"recipe": f"r{shown.target_index + 1}"})
    return shown.shown[shown.target_index].text
