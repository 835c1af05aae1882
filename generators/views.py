"""Views: which artifact contents a prompt shows. Names are always shown.

A view is a pure function (state, reference action) -> Observation; its docstring is its rule on the cards. To
add one, write the function, add it to VIEWS, name it in the declaration of a data set, and give it task files
in `eval_tasks/harness`.
Source: section 3.2 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from stsr.generators.environment import State
from stsr.generators.tables import Table
from stsr.generators.tasks import Recipe


class Observation(NamedTuple):
    """What a prompt shows of the artifacts."""

    artifacts: tuple[tuple[str, Table | None], ...]
    """(name, contents) in the order shown; None stands for contents that are hidden."""

    @property
    def visible(self) -> list[str]:
        """Names whose contents are shown."""
        return [name for name, table in self.artifacts if table is not None]


View = Callable[[State, Recipe], Observation]


def _showing(state: State, names: Collection[str]) -> Observation:
    return Observation(
        tuple((name, table if name in names else None) for name, table in state.artifacts.items())
    )


def full(state: State, reference: Recipe) -> Observation:
    """All contents. Consults nothing."""
    return _showing(state, state.artifacts.keys())


def compact(state: State, reference: Recipe) -> Observation:
    """Contents of the reference action's inputs only (equation 1). Consults the target."""
    return _showing(state, reference.inputs)


def recent2(state: State, reference: Recipe) -> Observation:
    """Contents of the two artifacts created last. Consults the history only."""
    return _showing(state, list(state.artifacts)[-2:])


VIEWS: dict[str, View] = {"full": full, "compact": compact, "recent2": recent2}


def view(name: str) -> View:
    """The view called `name`. Raises ValueError that names the alternatives."""
    try:
        return VIEWS[name]
    except KeyError:
        raise ValueError(f"unknown view {name!r}; there are {', '.join(VIEWS)}") from None
