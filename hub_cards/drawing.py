"""The dependency graph of a task on a grid, for previews: what is done, what can run, what comes later."""

from __future__ import annotations

from typing import Literal, NamedTuple

from stsr.generators.environment import State
from stsr.generators.tasks import Candidates, Recipe

WIDTH = 5
"""Columns of the drawing; a longer chain goes on in the next row."""

Kind = Literal["source", "done", "target", "ready", "future"]


class Node(NamedTuple):
    """An artifact in the drawing of the task."""

    name: str
    tool: str
    """Tool that makes it, for example "sort"; "" for a source."""
    kind: Kind
    shown_by: str
    """Numbers of the recipes shown that would make it, for example "2"."""
    column: int
    row: int
    parents: tuple[str, ...]


def draw(state: State, shown: Candidates) -> list[Node]:
    """Artifacts of the task on a grid: connected ones together, groups side by side where they fit."""
    task = state.task
    makers = {task.recipes[index].output: task.recipes[index] for index in task.gold}
    shown_by = {
        name: "+".join(str(n) for n, recipe in enumerate(shown.shown, 1) if recipe.output == name)
        for name in makers
    }
    nodes, left, top, height = [], 0, 0, 0
    for source, _ in task.sources:
        at = _grid(source, {name: recipe.inputs[0] for name, recipe in makers.items()})
        width = 1 + max(column for column, _ in at.values())
        if left + width > WIDTH:
            left, top, height = 0, top + height, 0
        for name, (column, row) in at.items():
            recipe = makers.get(name)
            nodes.append(
                Node(
                    name,
                    recipe.tool.partition("_")[0] if recipe else "",
                    _kind(name, recipe, state),
                    shown_by.get(name, ""),
                    left + column,
                    top + row,
                    recipe.inputs if recipe else (),
                )
            )
        left, height = left + width, max(height, 1 + max(row for _, row in at.values()))
    return nodes


def _kind(name: str, recipe: Recipe | None, state: State) -> Kind:
    if recipe is None:
        return "source"
    if name in state.artifacts:
        return "done"
    if name == state.reference.output:
        return "target"
    return "ready" if state.artifacts.keys() >= set(recipe.inputs) else "future"


def _grid(source: str, parent: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Name -> (column, row) of a source and all that follows from it.

    >>> _grid("s0", {"a1": "s0", "a2": "s0", "a3": "a2"})
    {'s0': (0, 0), 'a1': (1, 0), 'a2': (1, 1), 'a3': (2, 1)}
    """
    at: dict[str, tuple[int, int]] = {}
    rows = 0

    def put(name: str, column: int) -> None:
        nonlocal rows
        at[name] = (column, rows)
        below = [child for child, its in parent.items() if its == name]
        for number, child in enumerate(below):
            rows += number > 0
            put(child, column + 1)

    put(source, 0)
    if max(column for column, _ in at.values()) < WIDTH:
        return at
    return {name: (number % WIDTH, number // WIDTH) for number, name in enumerate(at)}
