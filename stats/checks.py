"""What numbers and rows of a table must not mix; each refusal names the cells and what differs.

Nothing to run. Invariant: a number is over one cell of each kind unless its declaration says what it spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from stsr.eval_tasks.records import Cell, differing
from stsr.stats.cells import describe, some
from stsr.stats.numbers import words
from stsr.stats.outcomes import CellError
from stsr.stats.specs import Label, TableSpec

SHARED = ("model_revision", "data", "data_revision", "chat_template", "dtype", "backend")
"""What all cells of one row must share."""


def check_cells(
    spec: TableSpec, labels: Mapping[str, Label], over: pd.DataFrame, cells: Sequence[Cell]
) -> None:
    """A number is over one cell, or over cells that differ in what its declaration spans."""
    if over["cell"].nunique() == 1:
        return
    found = over[["kind", "cell"]].drop_duplicates()
    spans = {*spec.pool, *(["seed"] if spec.ranges else [])}
    may = {"adapter", "adapter_revision"} if "seed" in spans else set()
    for _, numbers in found.groupby("kind", observed=True)["cell"]:
        first, *others = (cells[number] for number in numbers)
        for other in others:
            differ = [name for name in differing(first, other) if name not in may | spans]
            if differ or not spans:
                what = _told(first, other, differ)
                raise CellError(
                    f"{spec.id}, {words(labels)}: two cells for one number; they differ in {what}"
                )


def _told(a: Cell, b: Cell, names: Sequence[str]) -> str:
    return "; ".join(f"{name}: {getattr(a, name)!r} and {getattr(b, name)!r}" for name in names)


def check_row(spec: TableSpec, labels: Mapping[str, Label], row: pd.DataFrame, cells: Sequence[Cell]) -> None:
    """Cells of one row share versions and, at one horizon and kind, tasks."""
    used = [cells[number] for number in row["cell"].unique()]
    for other in used[1:]:
        differ = [name for name in differing(used[0], other) if name in SHARED]
        if differ:
            raise CellError(
                f"{spec.id}, {words(labels)}: not comparable: {describe(used[0])} and {describe(other)} "
                f"differ in {_told(used[0], other, differ)}"
            )
    tasks: dict[tuple[Label, ...], dict[int, set[int]]] = {}
    places = row[["kind", "family", "split", "horizon", "cell", "task_seed"]].drop_duplicates()
    for *place, cell, task in places.itertuples(index=False):
        tasks.setdefault(tuple(place), {}).setdefault(cell, set()).add(task)
    for by_cell in tasks.values():
        (first, its), *others = by_cell.items()
        for cell, found in others:
            if found != its:
                only = "; ".join(
                    f"only in {describe(cells[side])}: {some(sorted(map(str, more))) or '–'}"
                    for side, more in ((first, its - found), (cell, found - its))
                )
                raise CellError(f"{spec.id}, {words(labels)}: unequal task sets: {only}")
