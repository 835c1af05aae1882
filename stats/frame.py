"""The frame of outcomes: a pandas row for each decision or episode, with labels to group by.

    frame = label(read(paths), [Arm("Qwen/Qwen3-1.7B", adapter="stsr/...", trained="full")])

Invariant: within one kind, cell and task no decision or episode stands twice, and every task of a cell has as
many decisions as the others. Rows of models that no arm names are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from stsr.eval_tasks.records import Cell
from stsr.eval_tasks.scienceworld_records import subset_and_budget
from stsr.stats.cells import describe, some
from stsr.stats.outcomes import CellError, Outcome, task_seed

NAMES = {"Qwen/Qwen3-1.7B": "1.7B", "Qwen/Qwen3-8B": "8B", "Qwen/Qwen3.8-27B": "27B"}
"""Base model id -> what the paper calls it."""
UNTUNED = "untuned"
BLOCK = 4
"""Stages in a block of Table 14's second part."""
OUTCOME = tuple(name for name in Outcome._fields if name not in ("cell", "id", "reasons", "file", "line"))
"""Columns from outcomes; what only links and messages need stays out of the frame."""


@dataclass(frozen=True)
class Arm:
    """A trained adapter, one of its checkpoints, or a base alone, with the labels that tables show."""

    model: str
    """Base model id as it stands in the records."""
    name: str = ""
    """What tables call the base; by default the paper's name, or the end of the id."""
    adapter: str = ""
    """Adapter id as it stands in the records; "" for the base alone."""
    adapter_revision: str = ""
    """Its revision as it stands in the records; "" for any."""
    trained: str = UNTUNED
    """Training view or mixture; "untuned" for the base alone."""
    training: str = ""
    """What tables call the training data, for example "short only"; by default `trained`."""
    trained_horizon: int | None = None
    """Horizon of the training workflows."""
    trained_family: str = "chain"
    """Family of the training workflows."""
    seed: int | None = None
    """Training seed."""
    step: int | None = None
    """Optimizer step of a checkpoint."""
    final: bool = True
    """The checkpoint at the end of training; the others only enter learning curves."""

    @property
    def shown(self) -> str:
        """What tables call the base."""
        return self.name or NAMES.get(self.model, self.model.rsplit("/", 1)[-1])


class Frame(NamedTuple):
    """Outcomes with labels. The cells stand beside the rows: pandas would copy them with each operation."""

    rows: pd.DataFrame
    """A row for each decision or episode; its column `cell` counts in `cells`."""
    cells: list[Cell]


def label(outcomes: Sequence[Outcome], arms: Iterable[Arm]) -> Frame:
    """The frame: columns of `Outcome`, of its cell, of its arm, and those derived from the task id.

    Raises CellError if two arms claim one cell, for a decision or episode twice, for a task with fewer
    decisions than the others of its cell, or for a task with two fingerprints.
    """
    known = list(arms)
    cells = list(dict.fromkeys(row.cell for row in outcomes))
    places = {cell: arm for cell in cells if (arm := _arm_of(cell, known)) is not None}
    if not places:
        found = ", ".join(sorted({f"{cell.model} {describe(cell)}" for cell in cells})) or "no records"
        raise CellError(f"no record is of a named arm; found: {found}")
    rows = [row for row in outcomes if row.cell in places]
    index = {cell: number for number, cell in enumerate(places)}
    number = np.array([index[row.cell] for row in rows], dtype=np.int64)
    frame = pd.DataFrame({name: [getattr(row, name) for row in rows] for name in OUTCOME})
    frame["cell"] = number
    for name in ("kind", "task", "fingerprint", "bin"):
        frame[name] = frame[name].astype("category")
    _check(frame, list(places))
    about = pd.DataFrame([_labels(cell, arm) for cell, arm in places.items()])
    for name in about.columns:
        # Codes rather than strings: two hundred thousand rows share some hundred cells.
        frame[name] = _of_codes(about[name], number)
    tasks = pd.Series(frame["task"].cat.categories)
    frame["task_seed"] = tasks.map(task_seed).to_numpy()[frame["task"].cat.codes]
    first = (frame["stage"] - 1) // BLOCK * BLOCK + 1
    blocks = {start: f"{start}–{start + BLOCK - 1}" for start in first.unique()}
    frame["block"] = first.map(blocks).astype("category")
    if frame["bin"].cat.categories.any():
        binned = frame["condition"].astype(str).where(frame["bin"] == "", frame["bin"].astype(str))
        frame["condition"] = binned.astype("category")
    return Frame(frame.drop(columns=["fingerprint", "bin"]), list(places))


def arms_from(raw: Sequence[dict[str, Any]]) -> list[Arm]:
    """Arms from a JSON or YAML list. Raises ValueError that names an unknown key or a missing model."""
    known = {field.name for field in fields(Arm)}
    for number, entry in enumerate(raw):
        unknown = sorted(set(entry) - known)
        if unknown or "model" not in entry:
            what = f"unknown key {unknown[0]!r}" if unknown else "no model"
            raise ValueError(f"arm {number}: {what}; an arm has {', '.join(sorted(known))}")
    return [Arm(**entry) for entry in raw]


def _arm_of(cell: Cell, arms: Sequence[Arm]) -> Arm | None:
    found = [
        arm
        for arm in arms
        if (arm.model, arm.adapter) == (cell.model, cell.adapter)
        and arm.adapter_revision in ("", cell.adapter_revision)
    ]
    if len(found) > 1:
        raise CellError(f"{describe(cell)} at {cell.adapter_revision}: {len(found)} arms claim it: {found}")
    return found[0] if found else None


def _labels(cell: Cell, arm: Arm) -> dict[str, object]:
    """What tables group by: a control's condition is its view unless the cell says otherwise, and
    ScienceWorld's pilot counts as a split."""
    simulated = cell.family == "scienceworld"
    whole = cell.condition in ("", "choice", "matched-error") or simulated
    subset = subset_and_budget(cell.condition)[0] if simulated else ""
    family_and_horizon = (arm.trained_family, arm.trained_horizon)
    return {
        "family": cell.family,
        "horizon": cell.horizon,
        "split": subset or cell.split,
        "view": "compact" if simulated and cell.view.startswith("compact") else cell.view,
        "condition": cell.view if whole else cell.condition,
        "matched": family_and_horizon == (cell.family, cell.horizon),
        "base": arm.shown,
        "trained": arm.trained,
        "training": arm.training or arm.trained,
        "trained_horizon": arm.trained_horizon if arm.trained_horizon is not None else 0,
        "seed": arm.seed if arm.seed is not None else 0,
        "step": arm.step if arm.step is not None else 0,
        "final": arm.final,
    }


def _of_codes(by_cell: pd.Series, number: np.ndarray[Any, Any]) -> pd.Categorical:
    """The label of each row, from that of each cell."""
    codes, categories = pd.factorize(by_cell.to_numpy(), sort=False)
    return pd.Categorical.from_codes(codes[number], categories)


def _check(frame: pd.DataFrame, cells: Sequence[Cell]) -> None:
    place = ["kind", "cell", "task", "stage"]
    twice = frame[frame.duplicated(place)]
    if len(twice):
        first, cell = twice.iloc[0], cells[twice.iloc[0]["cell"]]
        raise CellError(
            f"{first['kind']} of {first['task']} stage {first['stage']} twice in {describe(cell)}"
        )
    counts = frame.groupby(["kind", "cell", "task"], observed=True).size()
    most = counts.groupby(level=["kind", "cell"]).transform("max")
    for kind, number, _ in counts[counts < most].index[:1]:
        cell = cells[number]
        if cell.horizon:  # ScienceWorld's paths have their natural lengths and say 0
            fewer = counts[counts < most].loc[kind, number]
            raise CellError(
                f"{kind} {describe(cell)}: decisions missing: tasks with fewer than "
                f"{most.loc[kind, number].max()}: {some([f'{task} has {n}' for task, n in fewer.items()])}"
            )
    _check_definitions(frame, cells)


def _check_definitions(frame: pd.DataFrame, cells: Sequence[Cell]) -> None:
    """A task of a data set is one task, whatever its cell."""
    known: dict[tuple[str, str], str] = {}
    places = frame.drop_duplicates(["cell", "task", "fingerprint"])
    for number, task, fingerprint in places[["cell", "task", "fingerprint"]].itertuples(index=False):
        data = cells[number].data
        other = known.setdefault((data, task), fingerprint)
        if other != fingerprint:
            raise CellError(f"{task} of {data} has fingerprints {some(sorted((other, fingerprint)))}")
