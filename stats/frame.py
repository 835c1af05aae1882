"""The frame of outcomes: a pandas row for each decision or episode, with labels to group by.

    frame = label(read(paths), [Arm("Qwen/Qwen3-1.7B", adapter="stsr/...", trained="full")])

Invariant: within one kind, cell and task no decision or episode stands twice, and every task of a cell has as
many decisions as the others. Rows of models that no arm names are left out and can be listed (`unnamed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from stsr.eval_tasks.records import Cell
from stsr.stats.cells import describe, some
from stsr.stats.outcomes import CellError, Outcome, task_seed, task_variant

NAMES = {"Qwen/Qwen3-1.7B": "1.7B", "Qwen/Qwen3-8B": "8B", "Qwen/Qwen3.8-27B": "27B"}
"""Base model id -> what the paper calls it."""
UNTUNED = "untuned"
BLOCK = 4
"""Stages in a block of Table 14's second part."""


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
    frame = pd.DataFrame(rows, columns=list(Outcome._fields))
    frame["cell"] = np.array([index[row.cell] for row in rows], dtype=np.int64)
    about = pd.DataFrame([{**asdict(cell), **_labels(arm)} for cell, arm in places.items()])
    for name in about.columns:
        # Codes rather than strings: two hundred thousand rows share some hundred cells.
        frame[name] = pd.Categorical.from_codes(*_coded(about[name].to_numpy()[frame["cell"]]))
    tasks = {task: (task_seed(task), task_variant(task)) for task in frame["task"].unique()}
    frame["task_seed"] = frame["task"].map({task: seed for task, (seed, _) in tasks.items()})
    frame["variant"] = frame["task"].map({task: variant for task, (_, variant) in tasks.items()})
    frame["block"] = ((frame["stage"] - 1) // BLOCK * BLOCK + 1).map(lambda first: f"{first}–{first + 3}")
    frame["condition"] = _conditions(frame)
    frame["matched"] = frame["trained_horizon"].astype(int) == frame["horizon"].astype(int)
    _check(frame, list(places))
    return Frame(frame, list(places))


def unnamed(outcomes: Sequence[Outcome], arms: Iterable[Arm]) -> list[Cell]:
    """Cells of models, adapters or revisions that no arm names."""
    known = list(arms)
    return [cell for cell in dict.fromkeys(row.cell for row in outcomes) if _arm_of(cell, known) is None]


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


def _labels(arm: Arm) -> dict[str, object]:
    return {
        "base": arm.shown,
        "trained": arm.trained,
        "training": arm.training or arm.trained,
        "trained_horizon": arm.trained_horizon if arm.trained_horizon is not None else 0,
        "seed": arm.seed if arm.seed is not None else 0,
        "step": arm.step if arm.step is not None else 0,
        "final": arm.final,
    }


def _coded(values: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    codes, categories = pd.factorize(values, sort=False)
    return codes, categories


def _conditions(frame: pd.DataFrame) -> pd.Series[str]:
    """What a control family varies: its view, or the variant of its tasks."""
    family = frame["family"].astype(str)
    by_variant = family.isin(["state-load", "scienceworld"])
    number = frame["variant"].str.rsplit("-", n=1).str[-1]
    condition = frame["view"].astype(str).where(~by_variant, frame["variant"])
    return condition.where(family != "distractors", number + " distractor(s)")


def _check(frame: pd.DataFrame, cells: Sequence[Cell]) -> None:
    place = ["kind", "cell", "task", "stage"]
    twice = frame[frame.duplicated(place)]
    if len(twice):
        first, cell = twice.iloc[0], cells[twice.iloc[0]["cell"]]
        raise CellError(f"{first['id']}: {first['task']} stage {first['stage']} twice in {describe(cell)}")
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
    definitions = frame.drop_duplicates(["data", "task", "fingerprint"])
    two = definitions[definitions.duplicated(["data", "task"], keep=False)]
    if len(two):
        first = two.iloc[0]
        found = sorted(set(two.loc[two["task"] == first["task"], "fingerprint"]))
        raise CellError(f"{first['task']} of {first['data']} has fingerprints {some(found)}")
