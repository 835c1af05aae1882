"""From records to cells: per-task outcomes of one model, adapter, data set, view and kind of evaluation.

    cells = load([Path("records/oracle.jsonl"), Path("records/free.jsonl")])
    for cell in cells:
        print(cell.cell.adapter, cell.cell.view, cell.metrics())

Invariant: a cell's arrays are in order of task id and complete. A missing decision, a task twice, NaN, or a
count that contradicts another one is a CellError that names the record; nothing is dropped or filled in.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stsr.eval_tasks import records
from stsr.eval_tasks.records import Cell, Record
from stsr.stats.estimators import recovery, wilson
from stsr.stats.outcomes import CellError, Outcome, outcome
from stsr.stats.reading import read
from stsr.stats.results import GIVEN_PROBES, Proportion

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

MAY_DIFFER = frozenset({"adapter", "adapter_revision", "view"})
"""The fields of a cell that a crossover varies. All others must be equal among the cells that it compares."""
POST_4 = 4
"""Post-4 accuracy is over stages 5..H (paper, section 3.2)."""
ONE_DECISION = frozenset({"distractors", "factorial"})
"""Families whose tasks ask one decision each, at a stage of their own (generators.controls)."""


class OracleMetrics(NamedTuple):
    """Oracle-prefix numbers of one cell."""

    accuracy: Proportion
    """Right decisions of all decisions; unit: decision."""
    post4: Proportion | None
    """The same over stages 5..H; None where H <= 4."""
    clean_path: Proportion
    """Tasks with all H decisions right; unit: task."""


class FreeRunMetrics(NamedTuple):
    """Free-run numbers of one cell. Unit: task (one episode each)."""

    success: Proportion
    """Episodes with every required artifact verified."""
    progress: float
    """Mean fraction of required operations verified."""
    calls: float
    """Mean attempted calls, rejected ones included."""
    rejection: Proportion
    """Episodes with at least one rejected call."""
    recovery: Proportion | None
    """Successes among those; None when there are none."""
    reasons: dict[str, int]
    """Rejected calls by reason."""


@dataclass(frozen=True, eq=False)
class OracleCell:
    """Oracle-prefix decisions of one cell."""

    cell: Cell
    tasks: tuple[str, ...]
    """Task ids, sorted."""
    fingerprints: tuple[str, ...]
    """Fingerprint of each task."""
    agree: BoolArray
    """[n_tasks, H]: right at each stage; [n_tasks, 1] for a family of ONE_DECISION."""
    kind: str = "oracle_prefix"

    @property
    def counts(self) -> IntArray:
        """[n_tasks]: right decisions of each task, of `trials`."""
        return np.asarray(self.agree.sum(axis=1), dtype=np.int64)

    @property
    def trials(self) -> int:
        """Decisions a task: H, or 1."""
        return int(self.agree.shape[1])

    @property
    def headline(self) -> Proportion:
        """The cell's k of n: right decisions."""
        return self.metrics().accuracy

    def metrics(self) -> OracleMetrics:
        """The paper's oracle-prefix metrics."""
        late = self.agree[:, POST_4:]
        return OracleMetrics(
            accuracy=_decisions(self.agree),
            post4=_decisions(late) if late.shape[1] else None,
            clean_path=wilson(int(self.agree.all(axis=1).sum()), len(self.tasks)),
        )

    def stages(self) -> list[Proportion]:
        """Accuracy at each stage 1..H over tasks, whose decisions at one stage are one each."""
        return [wilson(int(column.sum()), len(self.tasks)) for column in self.agree.T]


@dataclass(frozen=True, eq=False)
class FreeRunCell:
    """Free-run episodes of one cell, one a task."""

    cell: Cell
    tasks: tuple[str, ...]
    """Task ids, sorted."""
    fingerprints: tuple[str, ...]
    """Fingerprint of each task."""
    success: BoolArray
    """[n_tasks]"""
    verified: IntArray
    """[n_tasks]: verified required operations, 0..H."""
    calls: IntArray
    """[n_tasks]: attempted calls."""
    rejections: IntArray
    """[n_tasks]: rejected calls."""
    reasons: dict[str, int]
    """Rejected calls by reason, most frequent first."""
    kind: str = "free_run"

    @property
    def counts(self) -> IntArray:
        """[n_tasks]: 1 for success, of `trials`."""
        return self.success.astype(np.int64)

    @property
    def trials(self) -> int:
        """Episodes a task: 1."""
        return 1

    @property
    def headline(self) -> Proportion:
        """The cell's k of n: successes."""
        return self.metrics().success

    def metrics(self) -> FreeRunMetrics:
        """The paper's free-run metrics."""
        rejected = self.rejections > 0
        return FreeRunMetrics(
            success=wilson(int(self.success.sum()), len(self.tasks)),
            progress=float(self.verified.mean()) / self.cell.horizon,
            calls=float(self.calls.mean()),
            rejection=wilson(int(rejected.sum()), len(self.tasks)),
            recovery=recovery(int((self.success & rejected).sum()), int(rejected.sum())),
            reasons=self.reasons,
        )


AnyCell = OracleCell | FreeRunCell


def _decisions(agree: BoolArray) -> Proportion:
    return wilson(int(agree.sum()), agree.size, unit="decision", conditioning=GIVEN_PROBES)


def describe(cell: Cell) -> str:
    """A cell in a few words, for messages and tables.

    >>> from stsr.eval_tasks.records import Cell
    >>> describe(Cell("base", "r", "me/h4", "a", "d", "r", "test", "chain", 4, "full", "none", "f", "HF"))
    'H4 full, adapter me/h4'
    """
    condition = f", {cell.condition}" if cell.condition and not cell.horizon else ""
    named = f"H{cell.horizon}" if cell.horizon else cell.family
    model = f"adapter {cell.adapter}" if cell.adapter else "base alone"
    return f"{named} {cell.view}{condition}, {model}"


def load(paths: Iterable[Path]) -> list[AnyCell]:
    """All cells of record files, oracle-prefix ones first. Raises CellError, RecordError for a bad line."""
    return from_outcomes(read(paths))


def group(all_records: Iterable[Record]) -> list[AnyCell]:
    """Cells of the records, in order of kind, horizon, adapter, view. Raises CellError."""
    return from_outcomes(map(outcome, all_records))


def from_outcomes(rows: Iterable[Outcome]) -> list[AnyCell]:
    """Cells of oracle-prefix and free-run outcomes, in the order of `group`; not of ScienceWorld. Raises
    CellError."""
    found: defaultdict[tuple[str, Cell], list[Outcome]] = defaultdict(list)
    for row in rows:
        if row.kind in ("oracle_prefix", "free_run") and row.cell.family != "scienceworld":
            found[row.kind, row.cell].append(row)
    cells: list[AnyCell] = [
        _oracle_cell(cell, part) if kind == "oracle_prefix" else _free_run_cell(cell, part)
        for (kind, cell), part in found.items()
    ]
    order = [field.name for field in fields(Cell)]
    return sorted(
        cells,
        key=lambda c: (c.kind != "oracle_prefix", c.cell.horizon, *(str(getattr(c.cell, f)) for f in order)),
    )


def _oracle_cell(cell: Cell, found: Sequence[Outcome]) -> OracleCell:
    stages: defaultdict[str, dict[int, bool]] = defaultdict(dict)
    fingerprints: dict[str, str] = {}
    for row in found:
        _same_fingerprint(fingerprints, row)
        if row.stage in stages[row.task]:
            raise CellError(f"{row.id}: stage {row.stage} of {row.task} twice in {describe(cell)}")
        if cell.family in ONE_DECISION and stages[row.task]:
            raise CellError(f"{row.id}: a second decision of {row.task} in {describe(cell)}")
        stages[row.task][row.stage] = bool(row.agree)
    tasks = tuple(sorted(stages))
    if cell.family in ONE_DECISION:
        asked = {task: list(stages[task]) for task in tasks}
    else:
        asked = {task: list(range(1, cell.horizon + 1)) for task in tasks}
    missing = [f"{task}#{stage}" for task in tasks for stage in asked[task] if stage not in stages[task]]
    if missing:
        raise CellError(f"{describe(cell)}: missing decisions ({len(missing)}): {some(missing)}")
    agree = np.array([[stages[task][stage] for stage in asked[task]] for task in tasks])
    return OracleCell(cell, tasks, tuple(fingerprints[task] for task in tasks), agree)


def _free_run_cell(cell: Cell, found: Sequence[Outcome]) -> FreeRunCell:
    by_task: dict[str, Outcome] = {}
    fingerprints: dict[str, str] = {}
    reasons: Counter[str] = Counter()
    for row in found:
        _same_fingerprint(fingerprints, row)
        if row.task in by_task:
            raise CellError(f"{row.id}: {row.task} twice in {describe(cell)}")
        by_task[row.task] = row
        reasons.update(dict(row.reasons))
    tasks = tuple(sorted(by_task))
    episodes = [by_task[task] for task in tasks]
    return FreeRunCell(
        cell=cell,
        tasks=tasks,
        fingerprints=tuple(fingerprints[task] for task in tasks),
        success=np.array([e.success for e in episodes]),
        verified=np.array([e.verified for e in episodes]),
        calls=np.array([e.calls for e in episodes]),
        rejections=np.array([e.rejections for e in episodes]),
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
    )


def _same_fingerprint(fingerprints: dict[str, str], row: Outcome) -> None:
    known = fingerprints.setdefault(row.task, row.fingerprint)
    if known != row.fingerprint:
        raise CellError(
            f"{row.id}: fingerprint {row.fingerprint}, but {known} elsewhere in {describe(row.cell)}"
        )


def some(names: Sequence[str], limit: int = 5) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def check_comparable(cells: Sequence[AnyCell]) -> None:
    """Raises CellError unless all cells share all but adapter and view, and those of one kind share tasks."""
    first = cells[0]
    for other in cells[1:]:
        mixed = [name for name in records.differing(first.cell, other.cell) if name not in MAY_DIFFER]
        if mixed:
            values = "; ".join(
                f"{name}: {getattr(first.cell, name)!r} and {getattr(other.cell, name)!r}" for name in mixed
            )
            raise CellError(
                f"not comparable: {describe(first.cell)} and {describe(other.cell)} differ in {values}"
            )
    for kind in sorted({cell.kind for cell in cells}):
        _check_same_tasks([cell for cell in cells if cell.kind == kind])
    known: dict[str, str] = {}
    for cell in cells:
        for task, fingerprint in zip(cell.tasks, cell.fingerprints, strict=True):
            if known.setdefault(task, fingerprint) != fingerprint:
                raise CellError(
                    f"{task} has fingerprint {fingerprint} in {cell.kind} {describe(cell.cell)}, "
                    f"elsewhere {known[task]}"
                )


def _check_same_tasks(cells: Sequence[AnyCell]) -> None:
    first = cells[0]
    for other in cells[1:]:
        if other.tasks != first.tasks:
            only_first = sorted(set(first.tasks) - set(other.tasks))
            only_other = sorted(set(other.tasks) - set(first.tasks))
            raise CellError(
                f"{first.kind}: unequal task sets: only in {describe(first.cell)}: {some(only_first) or '–'}"
                f"; only in {describe(other.cell)}: {some(only_other) or '–'}"
            )
