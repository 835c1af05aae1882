"""Crossover: train on one of two views, test on both; per seed a 2x2, its contrasts and their interaction.

    spec = CrossoverSpec(horizon=16, views=("full", "compact"), base="Qwen/Qwen3-1.7B",
                         adapters={20260910: {"full": "stsr/h16-full-s20260910", "compact": "..."}})
    crossover = build(spec, load(paths))["free_run"]

Invariant: the task is the unit; seeds are reported one by one with mean and sample SD, and never pooled.
Cells that differ in more than adapter and view, or in their tasks, are refused (`cells.check_comparable`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stsr.eval_tasks.records import Cell
from stsr.stats.cells import AnyCell, check_comparable, describe
from stsr.stats.estimators import (
    BOOTSTRAP_DRAWS,
    BOOTSTRAP_SEED,
    FloatArray,
    difference_of_differences,
    paired_bootstrap,
    seeds_summary,
    sign_flip,
)
from stsr.stats.outcomes import CellError
from stsr.stats.results import Interval, PairedTest, Summary
from stsr.stats.words import listed

KINDS = ("free_run", "oracle_prefix")


@dataclass(frozen=True)
class CrossoverSpec:
    """What a crossover compares. Raises ValueError if it isn't one."""

    horizon: int
    """Number of required operations."""
    views: tuple[str, str]
    """The two views; the interaction is what the second adds over the first."""
    adapters: dict[int, dict[str, str]]
    """Training seed -> training view -> adapter id as it stands in the records."""
    base: str
    """Base model id as it stands in the records."""
    family: str = "chain"
    """Family of the test tasks."""
    split: str = ""
    """Split of the test tasks; "" where the records hold one alone."""

    def __post_init__(self) -> None:
        if len(self.views) != 2 or self.views[0] == self.views[1]:
            raise ValueError(f"a crossover needs two different views, got {self.views}")
        if not self.adapters:
            raise ValueError("a crossover needs at least one training seed")
        for seed, pair in self.adapters.items():
            if set(pair) != set(self.views):
                raise ValueError(f"seed {seed}: adapters for views {sorted(pair)}, not {sorted(self.views)}")
        ids = [adapter for pair in self.adapters.values() for adapter in pair.values()]
        for adapter in ids:
            if not adapter or ids.count(adapter) > 1:
                raise ValueError(f"adapter {adapter!r} must be named exactly once")


class Contrast(NamedTuple):
    """One paired comparison of cells over the same tasks. Effects are fractions; times 100, points."""

    name: str
    """Its cells as training view→test view, for example "compact→full − full→full"."""
    interval: Interval
    """Effect with its task bootstrap interval."""
    test: PairedTest
    """Two-sided sign-flip test over tasks."""


@dataclass(frozen=True)
class SeedCrossover:
    """The 2x2 of one adapter pair."""

    seed: int
    """Training seed."""
    cells: dict[tuple[str, str], AnyCell]
    """(training view, test view) -> cell."""
    contrasts: tuple[Contrast, ...]
    """Second minus first training view under each test view, then second minus first test view under each
    training view: the order of the paper's Table 18."""
    interaction: Contrast
    """Difference of differences."""


@dataclass(frozen=True)
class Crossover:
    """One kind of evaluation over all seeds."""

    kind: str
    """"free_run" or "oracle_prefix"."""
    spec: CrossoverSpec
    """What was compared."""
    tasks: tuple[str, ...]
    """The tasks that every cell holds."""
    seeds: tuple[SeedCrossover, ...]
    """In order of training seed."""
    interaction: Summary
    """Mean and sample SD of the seeds' interactions, as fractions."""
    untuned: dict[str, AnyCell]
    """Test view -> cell of the base alone, where its records exist."""

    def all_cells(self) -> list[AnyCell]:
        """Every cell of the crossover, the untuned base last."""
        return [cell for seed in self.seeds for cell in seed.cells.values()] + list(self.untuned.values())


def build(
    spec: CrossoverSpec,
    cells: Sequence[AnyCell],
    *,
    draws: int = BOOTSTRAP_DRAWS,
    seed: int = BOOTSTRAP_SEED,
) -> dict[str, Crossover]:
    """A crossover for each kind that has records: {"free_run": ..., "oracle_prefix": ...}.

    Cells of other horizons, views, families, splits, bases or adapters are left alone. Raises CellError for a
    missing cell, for two cells of one place (say, two backends), and for cells that cannot be compared.
    """
    used = [cell for cell in cells if belongs(spec, cell.cell)]
    if not used:
        found = ", ".join(sorted({f"{c.cell.model} {describe(c.cell)}" for c in cells})) or "no cells"
        views = listed(spec.views)
        raise CellError(f"no cell of base {spec.base} at H{spec.horizon} under {views}; found: {found}")
    check_comparable(used)
    _check_revisions(used)
    kinds = [kind for kind in KINDS if any(cell.kind == kind and cell.cell.adapter for cell in used)]
    if not kinds:
        raise CellError(f"no cell of an adapter of base {spec.base} at H{spec.horizon} in {spec.views}")
    return {kind: _build_kind(spec, kind, used, draws, seed) for kind in kinds}


def belongs(spec: CrossoverSpec, cell: Cell) -> bool:
    """Whether a cell is one of the crossover's, or of its base alone."""
    adapters = {"", *(adapter for pair in spec.adapters.values() for adapter in pair.values())}
    return (
        cell.model == spec.base
        and (cell.family, cell.horizon, cell.condition) == (spec.family, spec.horizon, "")
        and spec.split in ("", cell.split)
        and cell.view in spec.views
        and cell.adapter in adapters
    )


def _check_revisions(cells: Sequence[AnyCell]) -> None:
    """One adapter must not enter with one revision under one view and another one under the other."""
    revisions: dict[str, str] = {}
    for cell in cells:
        known = revisions.setdefault(cell.cell.adapter, cell.cell.adapter_revision)
        if known != cell.cell.adapter_revision:
            raise CellError(
                f"adapter {cell.cell.adapter} has two revisions: {known} and {cell.cell.adapter_revision}"
            )


def _build_kind(spec: CrossoverSpec, kind: str, cells: Sequence[AnyCell], draws: int, seed: int) -> Crossover:
    places = {(cell.cell.adapter, cell.cell.view): cell for cell in cells if cell.kind == kind}
    wanted = {
        (training_seed, train, test): (adapter, test)
        for training_seed, pair in sorted(spec.adapters.items())
        for train, adapter in pair.items()
        for test in spec.views
    }
    missing = [
        f"seed {s} trained {train} tested {test} ({place[0]})"
        for (s, train, test), place in wanted.items()
        if place not in places
    ]
    if missing:
        raise CellError(f"{kind}: missing cells ({len(missing)}): {'; '.join(missing)}")
    seeds = tuple(
        _build_seed(spec, s, {k[1:]: places[v] for k, v in wanted.items() if k[0] == s}, draws, seed)
        for s in sorted(spec.adapters)
    )
    return Crossover(
        kind=kind,
        spec=spec,
        tasks=next(iter(places.values())).tasks,
        seeds=seeds,
        interaction=seeds_summary([s.interaction.interval.estimate for s in seeds]),
        untuned={view: places["", view] for view in spec.views if ("", view) in places},
    )


def _build_seed(
    spec: CrossoverSpec, training_seed: int, cells: dict[tuple[str, str], AnyCell], draws: int, seed: int
) -> SeedCrossover:
    f, c = spec.views
    corners = [cells[f, f], cells[f, c], cells[c, f], cells[c, c]]
    trials = corners[0].trials
    # [n_tasks, 4] counts of successes out of `trials`: whole numbers keep the sign-flip test exact.
    counts = np.stack([cell.counts for cell in corners], axis=1).astype(np.float64)

    def contrast(name: str, difference: Callable[[FloatArray], FloatArray]) -> Contrast:
        per_task = difference(counts)
        interval = paired_bootstrap(
            per_task, lambda drawn: drawn.mean(axis=1) / trials, draws=draws, seed=seed
        )
        return Contrast(name, interval, sign_flip(per_task))

    ff, fc, cf, cc = range(4)
    return SeedCrossover(
        seed=training_seed,
        cells=cells,
        contrasts=(
            contrast(f"{c}→{f} − {f}→{f}", lambda x: x[..., cf] - x[..., ff]),
            contrast(f"{c}→{c} − {f}→{c}", lambda x: x[..., cc] - x[..., fc]),
            contrast(f"{f}→{c} − {f}→{f}", lambda x: x[..., fc] - x[..., ff]),
            contrast(f"{c}→{c} − {c}→{f}", lambda x: x[..., cc] - x[..., cf]),
        ),
        interaction=contrast(
            "difference of differences",
            lambda x: difference_of_differences(x[..., ff], x[..., fc], x[..., cf], x[..., cc]),
        ),
    )
