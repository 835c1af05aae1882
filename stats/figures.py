"""Figures: the crossover as lines over test views, and oracle accuracy stage by stage. PNG (200 dpi) and SVG.

    picture = interaction(crossover, Path("figures/free-run"))     # writes free-run.png and free-run.svg

Invariants: training views differ in colour (Okabe-Ito), marker and dash, so that grey print and colour-blind
readers lose nothing; bars and bands are Wilson 95%; the same input gives the same bytes (no dates, no random
ids).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stsr.stats.cells import AnyCell, OracleCell
from stsr.stats.crossover import Crossover, SeedCrossover
from stsr.stats.results import Proportion

# matplotlib types its keys as a Literal of every parameter there is, hence Any.
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "svg.hashsalt": "stsr",
}
LABELS = {"free_run": "free-run success", "oracle_prefix": "oracle-prefix accuracy"}


class Look(NamedTuple):
    """How one series is drawn."""

    color: str
    marker: str
    linestyle: str | tuple[int, tuple[float, ...]]
    markersize: float
    markerfacecolor: str


# Okabe-Ito vermillion and blue, and a grey: they differ in lightness too. A ring around a smaller square
# stays visible where the two lines lie on each other, as they do at 100%.
TRAINED = (Look("#D55E00", "o", "-", 6.5, "white"), Look("#0072B2", "s", "--", 3.5, "#0072B2"))
UNTUNED = Look("#555555", "^", ":", 4, "#555555")


class Picture(NamedTuple):
    """A figure on disk with the line under it and the text that stands in for it."""

    png: Path
    svg: Path
    caption: str
    alt: str


def interaction(crossover: Crossover, stem: Path) -> Picture:
    """One panel a training seed: x = test view, one line a training view, Wilson 95% bars."""
    views, count = crossover.spec.views, len(crossover.seeds)
    columns = min(3, count)
    rows = -(-count // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.2 + 2.1 * max(columns, 2), 0.8 + 2.6 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for axes, seed in zip(panels, crossover.seeds, strict=False):
            for label, by_view, look, shift in _series(crossover, seed):
                shown = [(x, by_view[view].headline) for x, view in enumerate(views) if view in by_view]
                _bars(axes, [x + shift for x, _ in shown], [cell for _, cell in shown], label, look)
            axes.set_title(f"training seed {seed.seed}", fontsize=9)
            axes.set(xticks=[0, 1], xticklabels=views, xlim=(-0.3, 1.3), xlabel="test view")
        for axes in panels[count:]:
            axes.set_axis_off()
        cell = crossover.seeds[0].cells[views].headline
        for axes in panels[::columns]:
            axes.set(ylim=(-4, 104), ylabel=f"{LABELS[crossover.kind]}\n(% of {cell.n} {cell.unit}s)")
        legend(figure)
        label = LABELS[crossover.kind].capitalize()
        caption = f"{label} under each test view. Bars: {cell.method}; unit: {cell.unit}."
        return save(figure, stem, caption, _interaction_alt(crossover))


def stage_curves(crossover: Crossover, stem: Path) -> Picture:
    """Oracle accuracy at stages 1..H: one row a training seed, one column a test view, Wilson 95% bands.

    Raises TypeError for a crossover of free runs, which have no stages.
    """
    views, horizon = crossover.spec.views, crossover.spec.horizon
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.4, 0.8 + 2.1 * len(crossover.seeds)), layout="constrained")
        grid = figure.subplots(len(crossover.seeds), 2, sharex=True, sharey=True, squeeze=False)
        for row, seed in zip(grid, crossover.seeds, strict=True):
            for axes, test in zip(row, views, strict=True):
                for label, by_view, look, _ in _series(crossover, seed):
                    if test in by_view:
                        _band(axes, _stages(by_view[test]), label, look)
                axes.set_title(f"training seed {seed.seed}, tested on {test}", fontsize=9)
        cell, step = next(iter(crossover.seeds[0].cells.values())), max(1, horizon // 8)
        for axes in grid[-1]:
            axes.set(xlabel="stage", xticks=range(1, horizon + 1, step), xlim=(0.5, horizon + 0.5))
        for axes in grid[:, 0]:
            axes.set(ylim=(-4, 104), ylabel=f"oracle accuracy\n(% of {len(crossover.tasks)} tasks)")
        legend(figure)
        caption = f"Oracle-prefix accuracy at each stage. Bands: {_stages(cell)[0].method}; unit: task."
        return save(figure, stem, caption, _stages_alt(crossover))


def _series(crossover: Crossover, seed: SeedCrossover) -> list[tuple[str, dict[str, AnyCell], Look, float]]:
    """Label, test view -> cell, look and sideways shift of each line, so that equal points stay apart."""
    views = crossover.spec.views
    series = [
        (f"trained on {train}", {test: seed.cells[train, test] for test in views}, look, shift)
        for train, look, shift in zip(views, TRAINED, (-0.04, 0.04), strict=True)
    ]
    if crossover.untuned:
        series.append(("untuned base", crossover.untuned, UNTUNED, 0.12))
    return series


def _stages(cell: AnyCell) -> list[Proportion]:
    if not isinstance(cell, OracleCell):
        raise TypeError(f"stage curves need oracle-prefix cells, not {cell.kind}")
    return cell.stages()


def _percentages(shown: Sequence[Proportion]) -> tuple[list[float], list[float], list[float]]:
    """Estimates and bounds of defined proportions, in percent."""
    return (
        [100 * (p.estimate or 0.0) for p in shown],
        [100 * (p.low or 0.0) for p in shown],
        [100 * (p.high or 0.0) for p in shown],
    )


def _bars(axes: Axes, xs: list[float], shown: Sequence[Proportion], label: str, look: Look) -> None:
    middle, low, high = _percentages(shown)
    axes.errorbar(
        xs,
        middle,
        yerr=[
            [m - bound for m, bound in zip(middle, low, strict=True)],
            [bound - m for m, bound in zip(middle, high, strict=True)],
        ],
        label=label,
        capsize=3,
        linewidth=1.4,
        elinewidth=1.0,
        clip_on=False,
        **look._asdict(),
    )


def _band(axes: Axes, shown: Sequence[Proportion], label: str, look: Look) -> None:
    stages = list(range(1, len(shown) + 1))
    middle, low, high = _percentages(shown)
    axes.fill_between(stages, low, high, color=look.color, alpha=0.15, linewidth=0)
    axes.plot(stages, middle, label=label, linewidth=1.3, clip_on=False, **look._asdict())


def legend(figure: Figure) -> None:
    """One legend above all panels, in one row where it fits."""
    # A series may be missing from a panel: the untuned base may have been run under one view only.
    found = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels, handles = list(found), list(found.values())
    # One row if it fits (about 0.075 inch a letter and 0.6 a handle), else one column.
    fits = sum(0.6 + 0.075 * len(label) for label in labels) < figure.get_figwidth()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=len(labels) if fits else 1, frameon=False
    )


def save(figure: Figure, stem: Path, caption: str, alt: str) -> Picture:
    """Writes the figure as PNG and SVG, without dates or versions in them."""
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    figure.savefig(png, dpi=200, metadata={"Software": None})
    figure.set_layout_engine("none")  # the same layout again
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return Picture(png, svg, caption, alt)


def _interaction_alt(crossover: Crossover) -> str:
    parts = []
    for seed in crossover.seeds:
        cells = [
            f"trained {train} tested {test} {cell.headline.k}/{cell.headline.n}"
            for (train, test), cell in seed.cells.items()
        ]
        parts.append(f"Training seed {seed.seed}: {', '.join(cells)}.")
    return f"Line plot of {LABELS[crossover.kind]} over test views. {' '.join(parts)}"


def _stages_alt(crossover: Crossover) -> str:
    parts = []
    for seed in crossover.seeds:
        for (train, test), cell in seed.cells.items():
            stages = _stages(cell)
            lowest = min(range(len(stages)), key=lambda i: stages[i].k)
            low, last = stages[lowest], stages[-1]
            parts.append(
                f"Seed {seed.seed} trained {train} tested {test}: stage 1 {stages[0].k}/{stages[0].n}, "
                f"lowest {low.k}/{low.n} at stage {lowest + 1}, last stage {last.k}/{last.n}."
            )
    return f"Line plots of oracle-prefix accuracy by stage. {' '.join(parts)}"
