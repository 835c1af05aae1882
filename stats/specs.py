"""Declared tables: the dataclasses of `paper.yaml`, and the file itself as `SPECS`.

Nothing to run. Invariant: an unknown key or metric, or a contrast that a table lacks, is an error at import.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

import yaml

from stsr.stats.metrics import METRICS
from stsr.stats.results import Alternative

Label = str | int | bool
LABELS = (
    *("base", "training", "trained", "trained_horizon", "seed", "step", "family", "split", "horizon", "view"),
    *("condition", "block", "contrast"),
)
"""Columns of the frame, and "contrast", that tables may group by; also the tidy frame's label columns."""


@dataclass(frozen=True)
class ContrastSpec:
    """A sum of cells with whole-number weights, paired by task."""

    name: str
    terms: list[tuple[int, dict[str, Label]]]
    """(weight, labels of the cell)."""
    metric: str = "success"
    unit: str = "task"
    """"task", or "task_seed" where a seed gives several tasks."""
    alternative: Alternative = "two-sided"
    holm: int = 0
    """Number of registered comparisons that the p value is adjusted for; 0 is none."""


@dataclass(frozen=True)
class TableSpec:
    """One table. Values of the labels `rows` are found in the records, those of `columns` are given."""

    id: str
    topic: str
    """Section of the report."""
    title: str
    rows: list[str]
    where: dict[str, list[Label]] = field(default_factory=dict)
    """Label or column of the frame -> values that rows may have; default: every family but ScienceWorld."""
    named: dict[str, dict[str, Label]] = field(default_factory=dict)
    """Values of the label "training" -> what outcomes they stand for. One outcome may stand in two rows."""
    columns: dict[str, list[Label]] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=lambda: ["oracle_prefix", "free_run", "choice"])
    contrasts: list[ContrastSpec] = field(default_factory=list)
    pool: list[str] = field(default_factory=list)
    """Labels that a number spans, against the rule of one cell. Over seeds it then has no interval."""
    ranges: bool = False
    """Show the range over training seeds instead of a number."""
    first_tasks: int = 0
    """Use the first so many task seeds alone; 0 is all."""
    common_tasks: bool = False
    """Use the tasks that all cells of a row have, for checkpoints that were tested on fewer than the end."""
    task_seeds: list[int] = field(default_factory=list)
    """First and last task seed, where families share a split."""
    summary: str = ""
    """Contrast to summarise over training seeds."""
    paper: list[list[list[Any]]] = field(default_factory=list)
    """Blocks of the paper's values: a head of labels and metrics, then rows."""
    beside_any_base: bool = False
    """Show the paper's values, which are of one base here, beside those of every base."""
    note: str = ""


def _load() -> dict[str, TableSpec]:
    raw = yaml.safe_load(resources.files("stsr.stats").joinpath("paper.yaml").read_text(encoding="utf-8"))
    specs = [_spec(entry) for entry in raw]
    return {spec.id: spec for spec in specs}


def _spec(entry: Mapping[str, Any]) -> TableSpec:
    known = {f.name for f in fields(TableSpec)}
    if unknown := sorted(set(entry) - known):
        raise ValueError(f"table {entry.get('id')!r}: unknown keys {', '.join(unknown)}")
    contrasts = [
        ContrastSpec(**{**c, "terms": [(int(w), dict(cell)) for w, cell in c["terms"]]})
        for c in entry.get("contrasts", [])
    ]
    spec = TableSpec(**{**entry, "contrasts": contrasts})
    for name in [*spec.metrics, *(contrast.metric for contrast in contrasts)]:
        if name not in METRICS:
            raise ValueError(f"table {spec.id!r}: unknown metric {name!r}; there are {', '.join(METRICS)}")
    if spec.summary and spec.summary not in [contrast.name for contrast in contrasts]:
        raise ValueError(f"table {spec.id!r}: no contrast {spec.summary!r} to summarise")
    return spec


SPECS = _load()
"""Table id -> declaration, in the paper's order."""
