"""Protects: the four tools do what the prompt says, compared with pandas."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stsr.generators.tables import TOOLS, Table

tables = (
    st.integers(1, 6)
    .flatmap(
        lambda height: st.lists(st.tuples(*[st.integers(-99, 99)] * 3), min_size=height, max_size=height)
    )
    .map(lambda rows: Table(("id", "x", "y"), tuple(rows)))
)


def frame(table: Table) -> pd.DataFrame:
    return pd.DataFrame(list(table.rows), columns=list(table.columns))


def same(table: Table, expected: pd.DataFrame) -> bool:
    return (
        list(table.columns) == list(expected.columns)
        and [list(row) for row in table.rows] == expected.values.tolist()
    )


@given(tables, st.sampled_from(["id", "x", "y"]), st.integers(-9, 9))
def test_map_column(table, column, value):
    expected = frame(table)
    expected[column] += value
    assert same(TOOLS["map_column"](table, {"column": column, "operation": "add", "value": value}), expected)


@given(tables, st.sampled_from(["id", "x", "y"]), st.booleans())
def test_sort_rows_keeps_the_order_of_ties(table, column, descending):
    order = "descending" if descending else "ascending"
    expected = frame(table).sort_values(column, ascending=not descending, kind="stable")
    assert same(TOOLS["sort_rows"](table, {"column": column, "order": order, "ties": "keep"}), expected)


@given(tables, st.sampled_from(["id", "x", "y"]), st.integers(-99, 99))
def test_filter_rows(table, column, value):
    expected = frame(table)
    expected = expected[expected[column] >= value]
    result = TOOLS["filter_rows"](table, {"column": column, "operator": "at_least", "value": value})
    assert same(result, expected)


@given(tables, st.permutations(["id", "x", "y"]), st.integers(1, 3))
def test_select_columns(table, names, count):
    kept = list(names)[:count]
    assert same(TOOLS["select_columns"](table, {"columns": kept, "others": "drop"}), frame(table)[kept])


def test_an_unknown_column_is_an_error():
    with pytest.raises(ValueError, match="not in"):
        Table(("x",), ((1,),)).column("y")
