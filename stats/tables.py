"""The paper's tables as declarations (`paper.yaml`), and how records fill them: numbers in one tidy frame.

    table = build(SPECS["table-3"], frame, strict=True)
    table.numbers           # labels, metric, value, interval, p, unit, null, the paper's value

Invariants: a number is over one cell of one kind unless its declaration says what it spans; cells of one row
share tasks, data, template, dtype, backend and versions, or `CellError` names what differs; the paper's
values are never mixed into ours.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import pandas as pd

from stsr.eval_tasks.records import Cell
from stsr.stats.cells import describe, some
from stsr.stats.estimators import holm, paired_bootstrap, seeds_summary, sign_flip
from stsr.stats.frame import Frame
from stsr.stats.hierarchy import Crossed, crossed_interaction
from stsr.stats.metrics import METRICS, Mean, Value, unit_scores
from stsr.stats.outcomes import CellError, cell_id
from stsr.stats.results import Proportion
from stsr.stats.specs import LABELS, ContrastSpec, Label, TableSpec

SHARED = ("model_revision", "data", "data_revision", "chat_template", "dtype", "backend")
"""What all cells of one row must share."""
FIRST = ("untuned", "full", "compact")
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


def order_key(value: Label) -> tuple[int, float, str]:
    """Sorts untuned, full and compact before other words; numbers, also those that begin a word, by size.

    >>> sorted(["27B", "compact", "8B", "block", "full"], key=order_key)
    ['8B', '27B', 'full', 'compact', 'block']
    """
    word = str(value)
    if number := re.match(r"\d+(\.\d+)?", word):
        return (0, float(number[0]), word)
    return (1, FIRST.index(word) if word in FIRST else len(FIRST), word)


@dataclass(frozen=True)
class Built:
    """A filled table."""

    spec: TableSpec
    numbers: list[Number]
    missing: list[str]
    """What has no records, in words. Rows that miss something are left out."""
    summaries: list[Summarised]


class Summarised(NamedTuple):
    """An interaction over the training seeds of one row."""

    labels: dict[str, Label]
    each: list[float]
    mean: float | None
    sd: float | None
    crossed: Crossed


def build(spec: TableSpec, frame: Frame, *, strict: bool = False) -> Built | None:
    """Fills a table; None where no row is complete. With `strict`, missing cells are a CellError.

    Raises CellError for cells that a number or a row must not mix.
    """
    part = _where(spec, frame.rows)
    keys = [name for name in spec.rows if name != "contrast"]
    numbers: list[Number] = []
    missing: list[str] = []
    summaries: list[Summarised] = []
    complete = 0
    for labels, row in _groups(part, keys):
        if spec.common_tasks:
            every = row["cell"].nunique()
            row = row[row.groupby("task_seed")["cell"].transform("nunique") == every]
        _check_row(spec, labels, row, frame.cells)
        made, absent = _row(spec, labels, row, frame.cells)
        numbers += [] if absent else made
        missing += absent
        complete += not absent
    if spec.summary:
        summaries = _summaries(spec, part, keys)
    if strict and (missing or not complete):
        raise CellError(f"{spec.id}: {len(missing) or 'all'} cells missing: {some(missing) or 'no records'}")
    return Built(spec, numbers, missing, summaries) if complete else None


def _where(spec: TableSpec, frame: pd.DataFrame) -> pd.DataFrame:
    keep = frame["kind"].isin(spec.kinds)
    if "family" not in spec.where:
        keep &= frame["family"] != "scienceworld"
    for name, values in spec.where.items():
        keep &= frame[name].isin(values)
    if spec.task_seeds:
        keep &= frame["task_seed"].between(*spec.task_seeds)
    part = frame[keep]
    if spec.first_tasks:
        seeds = sorted(part["task_seed"].unique())[: spec.first_tasks]
        part = part[part["task_seed"].isin(seeds)]
    if not spec.named:
        return part
    parts = [_select(part, place).assign(training=name) for name, place in spec.named.items()]
    return pd.concat(parts)


def _groups(part: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, Label], pd.DataFrame]]:
    if part.empty:
        return
    if not keys:
        yield {}, part
        return
    found = part.groupby(list(keys), observed=True, sort=False)
    for values, group in sorted(found, key=lambda item: [order_key(value) for value in item[0]]):
        yield dict(zip(keys, values, strict=True)), group


def _row(
    spec: TableSpec, labels: dict[str, Label], row: pd.DataFrame, cells: Sequence[Cell]
) -> tuple[list[Number], list[str]]:
    numbers: list[Number] = []
    missing: list[str] = []
    for values in itertools.product(*spec.columns.values()):
        place = dict(zip(spec.columns, values, strict=True))
        group = _select(row, place)
        for metric in spec.metrics:
            over = group[group["kind"].isin(METRICS[metric].kinds)]
            at = {**labels, **place}
            if over.empty:
                missing.append(f"{metric} of {words(at)}")
                numbers.append(_paper(spec, Number(spec.id, at, metric, None)))
            else:
                _check_cells(spec, at, over, cells)
                numbers.append(_paper(spec, _number(spec, at, metric, over, cells)))
    numbers += _contrasts(spec, labels, row, cells, missing)
    return numbers, missing


def _contrasts(
    spec: TableSpec, labels: dict[str, Label], row: pd.DataFrame, cells: Sequence[Cell], missing: list[str]
) -> list[Number]:
    """The row's contrasts, Holm-adjusted where registered; adds what they miss to `missing`."""
    numbers: list[Number] = []
    for contrast in spec.contrasts:
        at = {**labels, "contrast": contrast.name}
        absent = [
            f"{contrast.metric} of {words({**labels, **cell})}"
            for _, cell in contrast.terms
            if _of_metric(contrast.metric, _select(row, cell)).empty
        ]
        missing += [place for place in absent if place not in missing]
        made = Number(spec.id, at, "effect", None) if absent else _contrast(spec, contrast, at, row, cells)
        numbers.append(_paper(spec, made))
    return _holm(spec, numbers)


def _holm(spec: TableSpec, numbers: list[Number]) -> list[Number]:
    """Adjusts registered contrasts. A comparison of the family that is not here counts as p = 1, which never
    makes another p smaller than Holm would."""
    family = [i for i, contrast in enumerate(spec.contrasts) if contrast.holm and numbers[i].p is not None]
    if not family:
        return numbers
    raw = [p for i in family if (p := numbers[i].p) is not None]
    absent = max(spec.contrasts[i].holm for i in family) - len(raw)
    adjusted = dict(zip(family, holm(raw + [1.0] * absent).p, strict=False))
    return [n._replace(p_adjusted=adjusted.get(i)) for i, n in enumerate(numbers)]


def words(labels: Mapping[str, Label]) -> str:
    """Labels in a few words.

    >>> words({"base": "1.7B", "horizon": 16, "seed": 1})
    '1.7B, horizon 16, seed 1'
    """
    named = ("horizon", "seed", "step", "view", "trained", "block")
    return ", ".join(f"{name} {value}" if name in named else str(value) for name, value in labels.items())


def _select(row: pd.DataFrame, place: Mapping[str, Label]) -> pd.DataFrame:
    keep = np.ones(len(row), dtype=bool)
    for name, value in place.items():
        keep &= (row[name] == value).to_numpy(dtype=bool)
    return row[keep]


def _of_metric(metric: str, group: pd.DataFrame) -> pd.DataFrame:
    return group[group["kind"].isin(METRICS[metric].kinds)]


def _ids(group: pd.DataFrame, cells: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(cell_id(cells[number]) for number in group["cell"].unique())


def _number(
    spec: TableSpec, labels: dict[str, Label], metric: str, over: pd.DataFrame, cells: Sequence[Cell]
) -> Number:
    ids = _ids(over, cells)
    if spec.ranges:
        each = [METRICS[metric].of(part) for _, part in over.groupby("seed", observed=True)]
        found = [value for value in each if isinstance(value, Proportion)]
        low, high = min(v.k for v in found), max(v.k for v in found)
        text = f"{low}" if low == high else f"{low}–{high}"
        made = _from_value(spec.id, labels, metric, found[0])
        return made._replace(
            value=None,
            low=None,
            high=None,
            k=None,
            n=found[0].n,
            text=text,
            cells=ids,
            method=f"range of counts over {len(found)} training seed(s), no interval",
        )
    number = _from_value(spec.id, labels, metric, METRICS[metric].of(over))._replace(cells=ids)
    if "seed" in spec.pool and over["seed"].nunique() > 1:
        return number._replace(
            low=None,
            high=None,
            method=f"{over['seed'].nunique()} training seeds together, as the paper prints it; no interval",
        )
    return number


def _from_value(table: str, labels: dict[str, Label], metric: str, value: Value) -> Number:
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


def differences(contrast: ContrastSpec, row: pd.DataFrame) -> tuple[np.ndarray, int]:
    """Whole-number difference of each unit, and the most that one term can score.

    Raises CellError for terms with unequal units.
    """
    total, most, known = np.zeros(0), 0, None
    for weight, cell in contrast.terms:
        index, scores, size = unit_scores(
            contrast.metric, _of_metric(contrast.metric, _select(row, cell)), contrast.unit
        )
        if known is None:
            known, most, total = index, size, np.zeros(len(index))
        elif list(index) != list(known) or size != most:
            only = sorted(set(map(str, known)) ^ set(map(str, index)))
            raise CellError(
                f"{contrast.name}: unequal task sets: {some(only) or f'{most} and {size} outcomes a unit'}"
            )
        total = total + weight * scores
    return total, most


def _contrast(
    spec: TableSpec,
    contrast: ContrastSpec,
    labels: dict[str, Label],
    row: pd.DataFrame,
    cells: Sequence[Cell],
) -> Number:
    used = pd.concat([_of_metric(contrast.metric, _select(row, cell)) for _, cell in contrast.terms])
    for _, cell in contrast.terms:
        _check_cells(spec, {**labels, **cell}, _of_metric(contrast.metric, _select(row, cell)), cells)
    total, most = differences(contrast, row)
    unit = "seed" if contrast.unit == "task_seed" else "task"
    interval = paired_bootstrap(total / most, lambda drawn: drawn.mean(axis=1), unit=unit)
    test = sign_flip(total, alternative=contrast.alternative, unit=unit)
    return Number(
        spec.id,
        labels,
        "effect",
        interval.estimate,
        interval.low,
        interval.high,
        n=interval.n,
        p=test.p,
        unit=unit,
        conditioning=interval.conditioning,
        null=interval.null,
        method=interval.method,
        test=f"{test.method}, {test.alternative}; null: {test.null}",
        cells=_ids(used, cells),
    )


def _check_cells(
    spec: TableSpec, labels: Mapping[str, Label], over: pd.DataFrame, cells: Sequence[Cell]
) -> None:
    """A number is over one cell, or over cells that differ in what its declaration spans."""
    numbers = over.groupby("kind", observed=True)["cell"].unique()
    spans = {*spec.pool, *(["seed"] if spec.ranges else [])}
    may = {"adapter", "adapter_revision"} if "seed" in spans else set()
    for found in numbers:
        first = cells[found[0]]
        for other in found[1:]:
            differ = [
                f.name
                for f in fields(first)
                if f.name not in may | spans and getattr(first, f.name) != getattr(cells[other], f.name)
            ]
            if differ or not spans:
                what = "; ".join(
                    f"{n}: {getattr(first, n)!r} and {getattr(cells[other], n)!r}" for n in differ
                )
                raise CellError(
                    f"{spec.id}, {words(labels)}: two cells for one number; they differ in {what}"
                )


def _check_row(
    spec: TableSpec, labels: Mapping[str, Label], row: pd.DataFrame, cells: Sequence[Cell]
) -> None:
    """Cells of one row share versions and, at one horizon and kind, tasks."""
    used = [cells[number] for number in row["cell"].unique()]
    for other in used[1:]:
        differ = [name for name in SHARED if getattr(used[0], name) != getattr(other, name)]
        if differ:
            what = "; ".join(f"{n}: {getattr(used[0], n)!r} and {getattr(other, n)!r}" for n in differ)
            raise CellError(
                f"{spec.id}, {words(labels)}: not comparable: {describe(used[0])} and {describe(other)} "
                f"differ in {what}"
            )
    groups = row.groupby(["kind", "family", "split", "horizon"], observed=True)
    for _, group in groups:
        tasks = {number: frozenset(part.unique()) for number, part in group.groupby("cell")["task_seed"]}
        first = next(iter(tasks))
        for number, found in tasks.items():
            if found != tasks[first]:
                sides = ((first, tasks[first] - found), (number, found - tasks[first]))
                only = "; ".join(
                    f"only in {describe(cells[side])}: {some(sorted(map(str, more))) or '–'}"
                    for side, more in sides
                )
                raise CellError(f"{spec.id}, {words(labels)}: unequal task sets: {only}")


def _summaries(spec: TableSpec, part: pd.DataFrame, keys: Sequence[str]) -> list[Summarised]:
    contrast = next(c for c in spec.contrasts if c.name == spec.summary)
    made: list[Summarised] = []
    for labels, group in _groups(part, [key for key in keys if key != "seed"]):
        rows = []
        for _, row in _groups(group, ["seed"]):
            if all(len(_of_metric(contrast.metric, _select(row, cell))) for _, cell in contrast.terms):
                total, most = differences(contrast, row)
                rows.append(total / most)
        if rows and len({len(row) for row in rows}) == 1:
            each = [float(row.mean()) for row in rows]
            summary = seeds_summary(each)
            made.append(
                Summarised(labels, each, summary.mean, summary.sd, crossed_interaction(np.stack(rows)))
            )
    return made


def _paper(spec: TableSpec, number: Number) -> Number:
    """The number with the paper's value beside it, where its labels are the paper's."""
    for head, *rows in spec.paper:
        if number.metric not in head:
            continue
        keys = [name for name in head if name in LABELS]
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
