"""Chains: map, sort, filter, select, repeated over one table until H operations are done.

Invariants (ours where the paper is silent): every step visibly changes its table, values stay in -99..99,
no table is empty, and at each stage exactly one recipe can run.
Source: section 3.1 and appendix A.1 of the paper.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from stsr.generators.randomness import Stream, keyed
from stsr.generators.tables import LIMIT, TOOLS, Table
from stsr.generators.tasks import Family, Recipe, Task

CYCLE = ("map_column", "sort_rows", "filter_rows", "select_columns")
NAMES = ("id", "x", "y", "z")


class DeadEnd(Exception):
    """No parameters would change the table; the caller starts over with fresh numbers."""


def generate(horizon: int, seed: int, variant: str = "", family: str = "chain") -> Task:
    """The chain of `horizon` operations for `seed`; families built on chains give their own name.

    >>> task = generate(4, 62000)
    >>> [recipe.tool for recipe in task.recipes], task.id
    (['map_column', 'sort_rows', 'filter_rows', 'select_columns'], 'chain-h4/62000')
    """
    for attempt in count():
        try:
            source, recipes = chain(horizon, keyed(family, seed, "task", horizon, attempt))
        except DeadEnd:
            continue
        return Task(family, horizon, seed, (("s0", source),), recipes, tuple(range(horizon)), variant)
    raise AssertionError("unreachable")


def chain(horizon: int, stream: Stream) -> tuple[Table, tuple[Recipe, ...]]:
    """Source table and recipes s0 -> a1 -> ... -> a{horizon}; any horizon from 1. Raises DeadEnd."""
    filters = sum(CYCLE[step % 4] == "filter_rows" for step in range(horizon))
    table = source = draw_source(stream, filters)
    calls = []
    for step in range(horizon):
        tool = CYCLE[step % 4]
        filters -= tool == "filter_rows"
        params = draw_params(tool, table, filters, stream)
        changed = TOOLS[tool](table, params)
        if changed == table:
            raise DeadEnd
        calls.append((tool, params))
        table = changed
    names = ["s0", *(f"a{step}" for step in range(1, horizon + 1))]
    return source, tuple(
        Recipe(tool, (names[step],), names[step + 1], params) for step, (tool, params) in enumerate(calls)
    )


def draw_source(stream: Stream, filters: int) -> Table:
    """A table with enough rows for each filter to drop one and leave two."""
    columns = NAMES[: stream.between(3, 4)]
    height = stream.between(max(4, filters + 2), 8)
    rows = tuple((row + 1, *(stream.between(-9, 9) for _ in columns[1:])) for row in range(height))
    return Table(columns, rows)


def draw_params(tool: str, table: Table, filters_left: int, stream: Stream) -> dict[str, Any]:
    """Parameters for `tool` on `table`. `filters_left` later filters still need a row each to drop."""
    column = stream.choice(table.columns)
    if tool == "map_column":
        values = table.column(column)
        low, high = -LIMIT - min(values), LIMIT - max(values)
        room = [value for value in range(max(-9, low), min(9, high) + 1) if value]
        return {"column": column, "operation": "add", "value": stream.choice(room)}
    if tool == "sort_rows":
        return {"column": column, "order": stream.choice(("ascending", "descending")), "ties": "keep"}
    if tool == "filter_rows":
        bound = _bound(table.column(column), filters_left, stream)
        return {"column": column, "operator": "at_least", "value": bound}
    if len(table.columns) > 2:
        return {"columns": stream.shuffled(table.columns)[:-1], "others": "drop"}
    return {"columns": list(reversed(table.columns)), "others": "drop"}


def _bound(values: list[int], filters_left: int, stream: Stream) -> int:
    """A value of the column that drops at least one row and keeps at least filters_left + 2."""
    ordered, rows = sorted(values), len(values)
    bounds = [
        bound for bound in sorted(set(values)) if filters_left + 2 <= rows - ordered.index(bound) < rows
    ]
    if not bounds:
        raise DeadEnd
    return stream.choice(bounds)


FAMILY = Family(
    "chain",
    (4, 8, 16),
    ("",),
    generate,
    "Map, sort, filter, select over one table, repeated; one step is ready.",
)
