"""A number of a table: its labels, interval, test and cells, and the paper's value beside it.

Run the examples: `python -m doctest -v stats/numbers.py`

Invariant: the paper's values are never mixed into ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from stsr.stats.metrics import Mean, Value
from stsr.stats.specs import LABELS, Label, TableSpec

FIRST = ("none", "untuned", "full", "compact")
"""Words that come first, in this order; other labels sort as they are."""


class Number(NamedTuple):
    """One number of a table. Proportions and effects are fractions; means are in their own unit."""

    table: str
    labels: dict[str, Label]
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    k: int | None = None
    n: int | None = None
    p: float | None = None
    p_adjusted: float | None = None
    text: str = ""
    """What to print where it is not one value, for example a range."""
    unit: str = ""
    conditioning: str = ""
    null: str = ""
    method: str = ""
    test: str = ""
    """Method and null of the p value."""
    paper: str = ""
    """The paper's value as it prints it."""
    paper_low: float | None = None
    paper_high: float | None = None
    paper_p: float | None = None
    cells: tuple[str, ...] = ()
    """Ids of the cells that it is over, for links."""
    kinds: tuple[str, ...] = ()
    """Kinds of the outcomes that it is over, the one to link to last."""


def order_key(value: Label) -> tuple[int, tuple[float, ...], str]:
    """Sorts none, untuned, full and compact before other words; a word that begins with a number by its size.

    >>> sorted(["27B", "compact", "8B", "block", "full"], key=order_key)
    ['8B', '27B', 'full', 'compact', 'block']
    >>> sorted(["4x16", "8x8", "4x8", "none"], key=order_key)
    ['none', '4x8', '4x16', '8x8']
    """
    word = str(value)
    if word in FIRST[:1]:
        return (0, (), word)
    if word[:1].isdigit():
        return (1, tuple(map(float, re.findall(r"\d+(?:\.\d+)?", word))), word)
    return (2, (FIRST.index(word) if word in FIRST else len(FIRST),), word)


def words(labels: Mapping[str, Label]) -> str:
    """Labels in a few words.

    >>> words({"base": "1.7B", "horizon": 16, "seed": 1})
    '1.7B, horizon 16, seed 1'
    """
    named = ("horizon", "seed", "step", "view", "trained", "block")
    return ", ".join(f"{name} {value}" if name in named else str(value) for name, value in labels.items())


def from_value(table: str, labels: dict[str, Label], metric: str, value: Value) -> Number:
    if value is None:
        return Number(table, labels, metric, None)
    if isinstance(value, Mean):
        return Number(
            table,
            labels,
            metric,
            value.value,
            n=value.n,
            unit=value.unit,
            conditioning=value.conditioning,
            null=value.null,
            method=value.method,
        )
    return Number(
        table,
        labels,
        metric,
        value.estimate,
        value.low,
        value.high,
        value.k,
        value.n,
        unit=value.unit,
        conditioning=value.conditioning,
        null=value.null,
        method=value.method,
    )


def beside_paper(spec: TableSpec, number: Number) -> Number:
    """The number with the paper's value beside it, where its labels are the paper's."""
    for head, *rows in spec.paper:
        if number.metric not in head:
            continue
        keys = [name for name in head if name in LABELS and not (name == "base" and spec.beside_any_base)]
        if any(key not in number.labels for key in keys):
            continue
        wanted = [number.labels[key] for key in keys]
        for row in rows:
            entry = dict(zip(head, row, strict=True))
            if [entry[key] for key in keys] == wanted:
                return number._replace(
                    paper="–" if entry[number.metric] is None else str(entry[number.metric]),
                    paper_low=entry.get("low"),
                    paper_high=entry.get("high"),
                    paper_p=entry.get("p"),
                )
    return number
