"""The tidy frame of a report: a row for each number, with labels, interval, unit, null and the paper's value.

    tidy(numbers).to_csv("numbers.csv")

Nothing is rounded here. Undefined is empty. Proportions and effects are fractions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

import pandas as pd

from stsr.stats.cells import AnyCell, OracleCell
from stsr.stats.crossover import Contrast, Crossover
from stsr.stats.numbers import Number
from stsr.stats.outcomes import cell_id
from stsr.stats.results import Proportion
from stsr.stats.specs import LABELS, Label

COLUMNS = (
    *("kind", "seed", "trained_on", "tested_on", "adapter", "adapter_revision"),
    *("unit", "k", "n", "percent", "low", "high", "level"),
    *("post4_k", "post4_n", "clean_k", "clean_n"),
    *("progress_percent", "mean_calls", "rejection_k", "recovery_k", "recovery_n"),
)


def tidy(numbers: Sequence[Number]) -> pd.DataFrame:
    """All numbers as one frame: a column for each label and each field."""
    columns = [name for name in Number._fields if name not in ("table", "labels", "cells", "kinds")]
    rows = [
        {
            "table": n.table,
            **{name: n.labels.get(name) for name in LABELS},
            **{name: getattr(n, name) for name in columns},
            "cells": " ".join(n.cells),
            "kinds": " ".join(n.kinds),
        }
        for n in numbers
    ]
    return pd.DataFrame(rows, columns=["table", *LABELS, *columns, "cells", "kinds"], dtype=object)


def of_crossover(crossover: Crossover) -> Iterator[Number]:
    """The numbers of one kind of a crossover: cells, contrasts and interaction."""
    table = f"crossover-{crossover.kind}"
    for seed in crossover.seeds:
        for (train, test), cell in seed.cells.items():
            yield from _cell(table, cell, {"trained": train, "view": test, "seed": seed.seed})
        for contrast in (*seed.contrasts, seed.interaction):
            cells = tuple(cell_id(cell.cell) for cell in seed.cells.values())
            at: dict[str, Label] = {"seed": seed.seed, "contrast": contrast.name}
            yield _effect(table, contrast, at, cells)._replace(kinds=(crossover.kind,))
    for test, cell in crossover.untuned.items():
        yield from _cell(table, cell, {"trained": "untuned", "view": test})


def _cell(table: str, cell: AnyCell, labels: dict[str, Label]) -> Iterator[Number]:
    where = cell.cell
    at = {
        **labels,
        "base": where.model,
        "horizon": where.horizon,
        "family": where.family,
        "split": where.split,
    }
    ids = (cell_id(where),)
    if isinstance(cell, OracleCell):
        oracle = cell.metrics()
        found = {"oracle": oracle.accuracy, "post4": oracle.post4, "clean": oracle.clean_path}
        means: dict[str, float] = {}
    else:
        free = cell.metrics()
        found = {"success": free.success, "rejection": free.rejection, "recovery": free.recovery}
        means = {"progress": 100 * free.progress, "calls": free.calls}
    for metric, value in found.items():
        yield _proportion(table, at, metric, value, ids)._replace(kinds=(cell.kind,))
    for metric, mean in means.items():
        unit, given, null = cell.headline.unit, cell.headline.conditioning, cell.headline.null
        yield Number(
            table, at, metric, mean, n=len(cell.tasks), unit=unit, conditioning=given, null=null,
            method="mean", cells=ids, kinds=(cell.kind,),
        )  # fmt: skip


def _proportion(
    table: str, labels: dict[str, Label], metric: str, value: Proportion | None, cells: tuple[str, ...]
) -> Number:
    if value is None:
        return Number(table, labels, metric, None, cells=cells)
    return Number(
        table, labels, metric, value.estimate, value.low, value.high, value.k, value.n, unit=value.unit,
        conditioning=value.conditioning, null=value.null, method=value.method, cells=cells,
    )  # fmt: skip


def _effect(table: str, contrast: Contrast, labels: dict[str, Label], cells: tuple[str, ...]) -> Number:
    _, interval, test = contrast
    return Number(
        table, labels, "effect", interval.estimate, interval.low, interval.high, n=interval.n, p=test.p,
        unit=interval.unit, conditioning=interval.conditioning, null=interval.null, method=interval.method,
        test=f"{test.method}, {test.alternative}; null: {test.null}", cells=cells,
    )  # fmt: skip


def crossover_csv(crossovers: dict[str, Crossover]) -> str:
    """One row a cell; what is undefined, or belongs to the other kind, is empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for crossover in crossovers.values():
        for seed in crossover.seeds:
            for (train, test), cell in seed.cells.items():
                writer.writerow({"seed": seed.seed, "trained_on": train, "tested_on": test, **_row(cell)})
        for test, cell in crossover.untuned.items():
            writer.writerow({"trained_on": "untuned", "tested_on": test, **_row(cell)})
    return stream.getvalue()


def _row(cell: AnyCell) -> dict[str, object]:
    head = cell.headline
    row: dict[str, object] = {
        "kind": cell.kind,
        "adapter": cell.cell.adapter,
        "adapter_revision": cell.cell.adapter_revision,
        "unit": head.unit,
        "level": head.level,
        **_counts("", head),
        "percent": _four(head.estimate),
        "low": _four(head.low),
        "high": _four(head.high),
    }
    if isinstance(cell, OracleCell):
        oracle = cell.metrics()
        return {**row, **_counts("post4_", oracle.post4), **_counts("clean_", oracle.clean_path)}
    free = cell.metrics()
    return {
        **row,
        "progress_percent": _four(free.progress),
        "mean_calls": f"{free.calls:.4f}",
        "rejection_k": free.rejection.k,
        **_counts("recovery_", free.recovery),
    }


def _counts(prefix: str, proportion: Proportion | None) -> dict[str, object]:
    return {} if proportion is None else {f"{prefix}k": proportion.k, f"{prefix}n": proportion.n}


def _four(value: float | None) -> str:
    """A fraction in percent with four decimals, or nothing."""
    return "" if value is None else f"{100 * value:.4f}"
