"""Figures over the numbers of tables: learning curves, load and horizon curves, a forest plot, reasons.

    picture = forest([("1.7B, seed 1", effect)], Path("figures/contrasts"))

The invariants of `figures` hold: series differ in colour, marker and dash; bars and bands are Wilson 95% or
the contrast's own interval; the same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stsr.stats.figures import STYLE, Look, Picture, legend, save
from stsr.stats.words import points

LOOKS = (
    Look("#D55E00", "o", "-", 6.0, "white"),
    Look("#0072B2", "s", "--", 4.0, "#0072B2"),
    Look("#009E73", "^", "-.", 5.0, "white"),
    Look("#CC79A7", "D", ":", 4.0, "#CC79A7"),
    Look("#555555", "v", (0, (6, 1.5)), 4.5, "white"),
    Look("#E69F00", "X", (0, (1, 1)), 5.0, "#E69F00"),
)
"""Okabe-Ito colours; each also has its own marker and dash."""
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++++")


class Point(NamedTuple):
    """One proportion at x; bounds are None where there is no interval. Fractions."""

    x: float
    value: float
    low: float | None
    high: float | None
    k: int | None = None
    n: int | None = None


Series = dict[str, list[Point]]
"""Label -> points in order of x."""


class Effect(NamedTuple):
    """One row of a forest plot. Fractions."""

    label: str
    value: float
    low: float
    high: float


def learning(curves: Series, ends: Series, stem: Path, title: str) -> Picture:
    """Figure 1: oracle accuracy by optimizer step with Wilson bands; beside it, endpoint success as bars.

    `ends` may be empty; its points' x is not used.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2 if ends else 5.0, 3.3), layout="constrained")
        panels = figure.subplots(1, 2 if ends else 1, squeeze=False, width_ratios=[3, 2] if ends else None)[0]
        _lines(panels[0], curves, band=True)
        steps = sorted({point.x for points_ in curves.values() for point in points_})
        panels[0].set(xlabel="optimizer step", ylabel="oracle accuracy (%)", ylim=(-4, 104), xticks=steps)
        if ends:
            _end_bars(panels[1], ends, list(curves))
        legend(figure)
        note = f"{title}. Left: oracle-prefix accuracy, bands Wilson 95% over decisions."
        if ends:
            note += " Right: free-run success at the end of training, bars Wilson 95% over tasks."
        return save(figure, stem, note, f"{title}. {_told(curves)} {_told(ends)}".strip())


def curves(
    panels: Sequence[tuple[str, Series]], xlabel: str, stem: Path, title: str, *, ticks: Sequence[float] = ()
) -> Picture:
    """One panel a metric over a common x, for example state load or horizon. Bars are Wilson 95%."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(1.2 + 3.0 * len(panels), 3.3), layout="constrained")
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (name, series) in zip(grid, panels, strict=True):
            _lines(axes, series, band=False)
            axes.set_title(name, fontsize=9)
            axes.set(xlabel=xlabel, ylim=(-4, 104))
            if ticks:
                axes.set_xticks(list(ticks))
        grid[0].set_ylabel("%")
        legend(figure)
        told = " ".join(f"{name}: {_told(series)}" for name, series in panels)
        return save(figure, stem, f"{title}. Bars: Wilson 95%.", f"{title}. {told}")


def forest(effects: Sequence[Effect], stem: Path, title: str) -> Picture:
    """Effects in percentage points with their 95% intervals, one a line, the first on top."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.9 + 0.34 * len(effects)), layout="constrained")
        axes = figure.subplots()
        for y, effect in enumerate(effects):
            whole = effect.label.startswith("difference") or "interaction" in effect.label
            color = "#D55E00" if whole else "#0072B2"
            low, middle, high = (100 * value for value in (effect.low, effect.value, effect.high))
            axes.plot([low, high], [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
            axes.plot(middle, y, "D" if whole else "o", color=color, markersize=6)
            text = f"{points(effect.value)}  [{points(effect.low)}, {points(effect.high)}]"
            axes.annotate(text, (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        axes.axvline(0, color="#333333", linewidth=0.8)
        axes.set(xlabel="percentage points", ylim=(len(effects) - 0.5, -0.5))
        axes.set_yticks(range(len(effects)), [effect.label for effect in effects])
        axes.grid(axis="x")
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        told = "; ".join(
            f"{_one_line(e.label)}: {points(e.value)}, {points(e.low)} to {points(e.high)}" for e in effects
        )
        note = f"{title}. Lines: 95% paired task bootstrap; diamonds: interactions."
        return save(figure, stem, note, f"Forest plot. {told}.")


def reasons(counts: Sequence[tuple[str, dict[str, int]]], stem: Path, title: str) -> Picture:
    """Rejected calls by reason: one bar a cell, one hatched colour a reason."""
    names = list(dict.fromkeys(name for _, found in counts for name in found))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 1.1 + 0.32 * len(counts)), layout="constrained")
        axes = figure.subplots()
        left = np.zeros(len(counts))
        for number, name in enumerate(names):
            width = np.array([found.get(name, 0) for _, found in counts], dtype=np.float64)
            look = LOOKS[number % len(LOOKS)]
            axes.barh(
                range(len(counts)), width, left=left, height=0.66, color=look.color, edgecolor="white",
                linewidth=0.6, hatch=HATCHES[number % len(HATCHES)], label=name,
            )  # fmt: skip
            left += width
        for y, total in enumerate(left):
            axes.annotate(f" {int(total)}", (total, y), va="center", fontsize=8)
        axes.set(xlabel="rejected calls", ylim=(len(counts) - 0.5, -0.5))
        axes.set_yticks(range(len(counts)), [label for label, _ in counts])
        axes.grid(axis="x")
        axes.grid(False, axis="y")
        axes.tick_params(axis="y", length=0)
        if names:
            legend(figure)
        told = "; ".join(
            f"{_one_line(label)}: {', '.join(f'{name} {n}' for name, n in found.items()) or 'none'}"
            for label, found in counts
        )
        return save(figure, stem, f"{title}. Unit: rejected call.", f"Rejected calls by reason. {told}.")


def _lines(axes: Axes, series: Series, *, band: bool) -> None:
    for (label, found), look in zip(series.items(), LOOKS * (1 + len(series) // len(LOOKS)), strict=False):
        x = [point.x for point in found]
        middle = [100 * point.value for point in found]
        low = [100 * (point.value if point.low is None else point.low) for point in found]
        high = [100 * (point.value if point.high is None else point.high) for point in found]
        if band:
            axes.fill_between(x, low, high, color=look.color, alpha=0.13, linewidth=0)
            axes.plot(x, middle, label=label, linewidth=1.5, clip_on=False, **look._asdict())
            continue
        below = [m - bound for m, bound in zip(middle, low, strict=True)]
        above = [bound - m for m, bound in zip(middle, high, strict=True)]
        axes.errorbar(
            x, middle, yerr=[below, above], label=label, capsize=2.5, linewidth=1.5, elinewidth=0.9,
            clip_on=False, **look._asdict(),
        )  # fmt: skip


def _end_bars(axes: Axes, ends: Series, order: Sequence[str]) -> None:
    labels = [label for label in order if label in ends] + [label for label in ends if label not in order]
    for x, label in enumerate(labels):
        point = ends[label][0]
        look = LOOKS[(order.index(label) if label in order else x) % len(LOOKS)]
        value, low, high = (100 * (bound or 0.0) for bound in (point.value, point.low, point.high))
        axes.bar(
            x, value, 0.62, color=look.color, alpha=0.85, hatch=HATCHES[x % len(HATCHES)], edgecolor="white"
        )
        axes.errorbar(x, value, yerr=[[value - low], [high - value]], color="#222222", capsize=3, linewidth=1)
        axes.annotate(
            f"{point.k}/{point.n}", (x, high), (0, 3), textcoords="offset points", ha="center", fontsize=8
        )
    # Room for four, so that one bar alone is no wall.
    edge = max(len(labels), 4) / 2
    middle = (len(labels) - 1) / 2
    axes.set(ylabel="free-run success (%)", ylim=(0, 112), yticks=range(0, 101, 20))
    axes.set_xlim(middle - edge, middle + edge)
    axes.set_xticks(range(len(labels)), [label.replace("→", "→\n") for label in labels], fontsize=8)


def _one_line(label: str) -> str:
    return label.replace("\n", " ")


def _told(series: Series) -> str:
    return " ".join(
        f"{label}: {', '.join(f'{point.x:g}: {100 * point.value:.1f}%' for point in found)}."
        for label, found in series.items()
    )
