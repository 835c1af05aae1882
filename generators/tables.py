"""Tables of whole numbers and the four tools that turn one table into another.

Invariant: a tool is a pure function of its input table and parameters; tables never change.
Source: section 3.1 and appendix A.1 of the paper (map a column, sort rows, filter rows, select columns).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

LIMIT = 99
"""Every value stays in -LIMIT..LIMIT."""

Params = Mapping[str, Any]


_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


def compact_json(value: Any) -> str:
    """JSON as prompts show it: keys in the order given, no spaces."""
    return _ENCODE(value)


@lru_cache(maxsize=1024)
def _quoted(names: tuple[str, ...]) -> str:
    return compact_json(names)


@dataclass(frozen=True)
class Table:
    """Named columns and rows of integers; every row has one value per column.

    >>> Table(("x", "y"), ((1, -2), (3, 4))).text
    '{"columns":["x","y"],"rows":[[1,-2],[3,4]]}'
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]

    @cached_property
    def text(self) -> str:
        """The table as prompts show it. Cached: the rows of one task share their tables."""
        rows = str([list(row) for row in self.rows]).replace(" ", "")
        return f'{{"columns":{_quoted(self.columns)},"rows":{rows}}}'

    def column(self, name: str) -> list[int]:
        """The values of one column, top to bottom. Raises ValueError for an unknown column."""
        index = self.columns.index(name)
        return [row[index] for row in self.rows]


def map_column(table: Table, params: Params) -> Table:
    """Adds `value` to every value of `column`.

    >>> map_column(Table(("x", "y"), ((1, 5),)), {"column": "x", "operation": "add", "value": -3}).rows
    ((-2, 5),)
    """
    index, value = table.columns.index(params["column"]), params["value"]
    rows = tuple([(*row[:index], row[index] + value, *row[index + 1 :]) for row in table.rows])
    return Table(table.columns, rows)


def sort_rows(table: Table, params: Params) -> Table:
    """Orders rows by `column`, `order` "ascending" or "descending"; equal rows keep their order.

    >>> table = Table(("x", "y"), ((1, 1), (2, 2), (1, 3)))
    >>> sort_rows(table, {"column": "x", "order": "descending", "ties": "keep"}).rows
    ((2, 2), (1, 1), (1, 3))
    """
    values = itemgetter(table.columns.index(params["column"]))
    # Python's sort keeps the order of equal rows in reverse, too.
    rows = sorted(table.rows, key=values, reverse=params["order"] == "descending")
    return Table(table.columns, tuple(rows))


def filter_rows(table: Table, params: Params) -> Table:
    """Keeps the rows whose value in `column` is `value` or more.

    >>> table = Table(("x",), ((1,), (2,), (3,)))
    >>> filter_rows(table, {"column": "x", "operator": "at_least", "value": 2}).rows
    ((2,), (3,))
    """
    index, value = table.columns.index(params["column"]), params["value"]
    return Table(table.columns, tuple([row for row in table.rows if row[index] >= value]))


def select_columns(table: Table, params: Params) -> Table:
    """Keeps `columns`, in the order given.

    >>> select_columns(Table(("x", "y"), ((1, 2), (3, 4))), {"columns": ["y"], "others": "drop"}).rows
    ((2,), (4,))
    """
    indexes = [table.columns.index(name) for name in params["columns"]]
    return Table(tuple(params["columns"]), tuple([tuple([row[i] for i in indexes]) for row in table.rows]))


TOOLS: dict[str, Callable[[Table, Params], Table]] = {
    "map_column": map_column,
    "sort_rows": sort_rows,
    "filter_rows": filter_rows,
    "select_columns": select_columns,
}
