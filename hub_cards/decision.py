"""One decision for people: the state under a view, and each recipe on offer with what would become of it.

    look = look_under("compact", state, candidates(state.task, state.stage))
    options(look, state, candidates(state.task, state.stage))

`stsr preview` and the page of episodes draw these. Invariant: what a recipe would do is asked of `step`.
"""

from __future__ import annotations

from typing import NamedTuple

from stsr.generators.environment import Accepted, State, step
from stsr.generators.prompts import contents as prompt_contents
from stsr.generators.prompts import render
from stsr.generators.tables import Table
from stsr.generators.tasks import Candidates, Recipe
from stsr.generators.views import View, view


class Artifact(NamedTuple):
    """One artifact as a view shows it."""

    name: str
    table: Table
    """What it holds, shown or not."""
    text: str | None
    """What the prompt shows in the table's place; None if it shows the table or hides it."""
    shown: bool
    cue: bool
    """Whether the prompt names it as relevant."""
    read: bool
    """Whether the target reads it."""


class Look(NamedTuple):
    """The state under one view."""

    name: str
    view: View
    artifacts: tuple[Artifact, ...]
    """In the order shown."""
    moved: bool
    """Whether that is another order than that of creation."""
    prompt: str

    @property
    def shows(self) -> str:
        """How much is shown, for example "1 of 7"."""
        count = f"{sum(artifact.shown for artifact in self.artifacts)} of {len(self.artifacts)}"
        return count + (", in another order" if self.moved else "")


class Option(NamedTuple):
    """One of the recipes shown."""

    number: int
    """From 1, in the order shown."""
    recipe: Recipe
    printed: str
    """As the prompt prints it."""
    words: str
    """What it does."""
    target: bool
    kind: str
    """"target", or what is wrong with it: "finished", "future" or "ready"."""
    reason: str
    """What the environment makes of the call, as a sentence."""
    makes: Table | None
    """What its output would hold; None if it cannot run."""


def look_under(name: str, state: State, shown: Candidates) -> Look:
    """The state as the view `name` shows it. Raises ValueError for an unknown view."""
    observation = view(name)(state, state.reference)
    artifacts = tuple(
        Artifact(
            name=artifact,
            table=state.artifacts[artifact],
            text=contents if isinstance(contents, str) else None,
            shown=contents is not None and state.artifacts[artifact].text[:-1] in prompt_contents(contents),
            cue=artifact in observation.hint,
            read=artifact in state.reference.inputs,
        )
        for artifact, contents in observation.artifacts
    )
    moved = [artifact for artifact, _ in observation.artifacts] != list(state.artifacts)
    return Look(name, view(name), artifacts, moved, render(observation, shown, state)[0]["content"])


def options(look: Look, state: State, shown: Candidates) -> list[Option]:
    """The recipes on offer, in the order shown; `look` is the state under the prompt's view."""
    printed = look.prompt.partition("Recipes:\n")[2].splitlines()
    return [_option(index, printed[index], shown, state) for index in range(len(shown.shown))]


def _option(index: int, printed: str, shown: Candidates, state: State) -> Option:
    recipe, target = shown.shown[index], index == shown.target_index
    outcome = step(state, recipe.text)
    makes = outcome.state.artifacts[recipe.output] if isinstance(outcome, Accepted) else None
    if target:
        kind, reason = "target", f"It can run now, and it is step {state.stage} of the reference path."
    elif isinstance(outcome, Accepted):
        kind, reason = "ready", f"It can run now, but step {state.stage} of the reference path is another."
        if state.task.recipe_index[recipe.key] not in state.task.gold:
            reason = f"It can run now, but its {recipe.output} is not the right one: "
            reason += "after it the task can no longer succeed."
    else:
        kind = "finished" if outcome.reason == "output-exists" else "future"
        reason = f"It would be rejected: {outcome.state.error.partition(': ')[2]}."
    return Option(index + 1, recipe, printed, in_words(recipe), target, kind, reason, makes)


def in_words(recipe: Recipe) -> str:
    """What a recipe does, for people.

    >>> in_words(Recipe("sort_rows", ("a1",), "a2", {"column": "x", "order": "descending", "ties": "keep"}))
    'sort a1 by x, descending, into a2'
    """
    name, params, source = recipe.output, recipe.params, ", ".join(recipe.inputs)
    if recipe.tool == "map_column":
        return f"add {params['value']} to {params['column']} of {source}, into {name}"
    if recipe.tool == "sort_rows":
        return f"sort {source} by {params['column']}, {params['order']}, into {name}"
    if recipe.tool == "filter_rows":
        return f"keep the rows of {source} with {params['column']} at least {params['value']}, in {name}"
    return f"keep {', '.join(params['columns'])} of {source}, in {name}"
