"""Paired choices: two calls can run at each stage, and the contents of a table say which one is right.

At stage k both candidates read s{k-1} and write a{k}: one drops the rows with a negative value, the other
sorts by key. The goal asks for the first if the table has a negative value and for the second otherwise. A
wrong call runs and moves on to the next stage, but its output is not the required one, so the task can no
longer succeed. All sources are independent of each other and exist from the start.

Two variants share a seed. They differ in one cell of one table, at the pivotal stage: -1 in "negative", +1
in "positive". So the right call flips there, and nothing else changes.
Source: section 3.1 and appendix A.9 of the paper; the tables, names and parameters are ours.
"""

from __future__ import annotations

from stsr.generators.randomness import Stream, keyed
from stsr.generators.tables import Table
from stsr.generators.tasks import Family, Recipe, Task, draw_pair

GOAL = (
    "If the input table has a negative value, drop the rows with a negative value; otherwise sort its rows "
    "by key."
)
FILTER = {"column": "net", "operator": "at_least", "value": 0}
SORT = {"column": "key", "order": "ascending", "ties": "keep order"}
"""Worded so that both calls have the same number of tokens under the declared tokenizers; builds check it."""


def generate(horizon: int, seed: int, variant: str) -> Task:
    """One task of the pair `seed`; `variant` is "negative" or "positive".

    >>> negative, positive = (generate(16, 72000, variant) for variant in FAMILY.variants)
    >>> [a == b for a, b in zip(negative.gold, positive.gold)].count(False), negative.shown == positive.shown
    (1, True)
    """
    stream = keyed("choice", seed, "task", horizon)
    pivot = 1 + stream.below(horizon)
    sources, recipes, gold, shown = [], [], [], []
    for stage in range(1, horizon + 1):
        negatives = stream.below(2) * stream.between(1, 2) if stage != pivot else 0
        table = _table(stream, negatives)
        if stage == pivot:
            table = _flip(table, stream, -1 if variant == "negative" else 1)
        name, output = f"s{stage - 1}", f"a{stage}"
        sources.append((name, table))
        recipes += [
            Recipe("filter_rows", (name,), output, FILTER),
            Recipe("sort_rows", (name,), output, SORT),
        ]
        drop, sort = len(recipes) - 2, len(recipes) - 1
        gold.append(drop if min(table.column("net")) < 0 else sort)
        pair = draw_pair("choice", seed, horizon, stage, drop, [sort])
        shown.append(pair)
    return Task(
        "choice",
        horizon,
        seed,
        tuple(sources),
        tuple(recipes),
        tuple(gold),
        variant,
        GOAL,
        tuple(shown),
        pivot,
    )


def _table(stream: Stream, negatives: int) -> Table:
    """Four to six rows, keys not in order, `negatives` rows below zero and the others above."""
    height = stream.between(4, 6)
    keys = list(range(1, height + 1))
    while (dealt := stream.shuffled(keys)) == keys:
        pass
    below = set(stream.shuffled(range(height))[:negatives])
    values = [-stream.between(1, 9) if row in below else stream.between(1, 9) for row in range(height)]
    return Table(("key", "net"), tuple(zip(dealt, values, strict=True)))


def _flip(table: Table, stream: Stream, value: int) -> Table:
    """`table` with one net value, the same for both variants, replaced."""
    at = stream.below(len(table.rows))
    rows = tuple((key, value if row == at else net) for row, (key, net) in enumerate(table.rows))
    return Table(table.columns, rows)


FAMILY = Family(
    "choice",
    (16,),
    ("negative", "positive"),
    generate,
    "Two calls can run at each stage, and the input's contents say which is right; two tasks make a pair.",
)
