"""The paper's tables as declarations (`paper.yaml`), and how records fill them: numbers in one tidy frame.

    table = build(SPECS["table-3"], frame, strict=True)
    table.numbers           # labels, metric, value, interval, p, unit, null, the paper's value

Invariants: a number is over one cell of one kind unless its declaration says what it spans; cells of one row
share tasks, data, template, dtype, backend and versions, or `CellError` names what differs; the paper's
values are never mixed into ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from stsr.eval_tasks.records import Cell
from stsr.eval_tasks.scienceworld_records import subset_and_budget
from stsr.generators.scienceworld.catalogue import MOST_ACTIONS
from stsr.stats.cells import some
from stsr.stats.checks import check_cells, check_row
from stsr.stats.estimators import holm, paired_bootstrap, seeds_summary, sign_flip
from stsr.stats.frame import Frame
from stsr.stats.hierarchy import Crossed, crossed_interaction
from stsr.stats.metrics import METRICS, PAIRED, unit_scores
from stsr.stats.numbers import Number, beside_paper, from_value, order_key, words
from stsr.stats.outcomes import CellError, cell_id
from stsr.stats.results import Proportion
from stsr.stats.specs import ContrastSpec, Label, TableSpec


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
        check_row(spec, labels, row, frame.cells)
        made, absent = _row(spec, labels, row, frame.cells)
        numbers += [] if absent else made
        missing += absent
        complete += not absent
    if spec.summary:
        summaries = _summaries(spec, part, keys)
    if strict and (missing or not complete):
        many, which = len(missing) or "all", some(missing) or "no records"
        raise CellError(f"{spec.id}: missing cells ({many}): {which}")
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
            over = _of_metric(metric, group)
            at = {**labels, **place}
            if over.empty or (METRICS[metric].kinds == PAIRED and over["kind"].nunique() < len(PAIRED)):
                missing.append(f"{metric} of {words(at)}")
                numbers.append(beside_paper(spec, Number(spec.id, at, metric, None)))
            else:
                check_cells(spec, at, over, cells)
                made = _number(spec, at, metric, over)
                given = "; ".join([made.conditioning, *_shortened(over, cells)])
                made = made._replace(conditioning=given, cells=_ids(over, cells), kinds=_kinds(metric, over))
                numbers.append(beside_paper(spec, made))
    numbers += _contrasts(spec, labels, row, cells, missing)
    return numbers, missing


def _shortened(over: pd.DataFrame, cells: Sequence[Cell]) -> list[str]:
    """What is to be said of free runs of ScienceWorld that were cut short."""
    conditions = {cells[number].condition for number in over["cell"].unique()}
    budgets = sorted({subset_and_budget(condition)[1] for condition in conditions} - {""})
    return [f"episodes cut at {budget}, no replication of the paper's {MOST_ACTIONS}" for budget in budgets]


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
        numbers.append(beside_paper(spec, made))
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


def _select(row: pd.DataFrame, place: Mapping[str, Label]) -> pd.DataFrame:
    keep = np.ones(len(row), dtype=bool)
    for name, value in place.items():
        keep &= (row[name] == value).to_numpy(dtype=bool)
    return row[keep]


def _of_metric(metric: str, group: pd.DataFrame) -> pd.DataFrame:
    return group[group["kind"].isin(METRICS[metric].kinds)]


def _ids(group: pd.DataFrame, cells: Sequence[Cell]) -> tuple[str, ...]:
    return tuple(cell_id(cells[number]) for number in group["cell"].unique())


def _kinds(metric: str, group: pd.DataFrame) -> tuple[str, ...]:
    found = set(group["kind"].unique())
    return tuple(kind for kind in METRICS[metric].kinds if kind in found)


def _number(spec: TableSpec, labels: dict[str, Label], metric: str, over: pd.DataFrame) -> Number:
    if spec.ranges:
        each = [METRICS[metric].of(part) for _, part in over.groupby("seed", observed=True)]
        found = [value for value in each if isinstance(value, Proportion)]
        low, high = min(v.k for v in found), max(v.k for v in found)
        text = f"{low}" if low == high else f"{low}–{high}"
        made = from_value(spec.id, labels, metric, found[0])
        return made._replace(
            value=None,
            low=None,
            high=None,
            k=None,
            n=found[0].n,
            text=text,
            method=f"range of counts over {len(found)} training seed(s), no interval",
        )
    number = from_value(spec.id, labels, metric, METRICS[metric].of(over))
    if "seed" in spec.pool and over["seed"].nunique() > 1:
        return number._replace(
            low=None,
            high=None,
            method=f"{over['seed'].nunique()} training seeds together, as the paper prints it; no interval",
        )
    return number


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
        check_cells(spec, {**labels, **cell}, _of_metric(contrast.metric, _select(row, cell)), cells)
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
        kinds=_kinds(contrast.metric, used),
    )


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
