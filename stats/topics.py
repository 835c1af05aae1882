"""Sections of the paper's tables, by topic, with their figures.

    sections, numbers = topic_sections(built, Path("figures"), link)

Nothing to run. Invariant: a figure draws numbers of the tables beside it, and no others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from stsr.stats import curves
from stsr.stats.curves import Effect, Point, Series
from stsr.stats.display import tables_of
from stsr.stats.figures import Picture
from stsr.stats.numbers import Number, order_key, words
from stsr.stats.render import Link
from stsr.stats.sections import Section
from stsr.stats.tables import Built


def topic_sections(built: Sequence[Built], folder: Path, link: Link) -> list[Section]:
    """One section a topic, in the order of `paper.yaml`."""
    topics: dict[str, list[Built]] = {}
    for one in built:
        topics.setdefault(one.spec.topic, []).append(one)
    by_id = {one.spec.id: one for one in built}
    return [
        Section(
            id=re.sub(r"\W+", "-", topic.lower()),
            title=topic,
            tables=tuple(table for one in found for table in tables_of(one, link)),
            pictures=tuple(picture for one in found for picture in _pictures(one, by_id, folder)),
        )
        for topic, found in topics.items()
    ]


def _pictures(built: Built, by_id: dict[str, Built], folder: Path) -> Iterator[Picture]:
    spec = built.spec
    if spec.id == "table-19":
        yield from _figure_1(built, by_id.get("table-16"), folder)
    if spec.id == "table-22":
        for base in dict.fromkeys(n.labels["base"] for n in built.numbers):
            series = _series(_only(built, {"base": base}), "step", "oracle", ["horizon"])
            yield curves.learning(series, {}, folder / f"learning-{base}", f"{base}, trained at each horizon")
    if spec.id == "table-13":
        yield _metric_panels(built, "tokens", "mean prompt tokens", folder / "state-load")
    if spec.id == "table-14":
        yield _metric_panels(built, "horizon", "horizon H", folder / "prefix-horizon")
    if spec.id == "table-14-blocks":
        yield _blocks(built, folder)
    effects = [n for n in built.numbers if n.metric == "effect" and n.value is not None]
    if "contrast" in spec.rows and effects:
        rows = [_effect(number) for number in effects]
        yield curves.forest(rows, folder / f"{spec.id}-forest", spec.title)


def _figure_1(curve: Built, ends: Built | None, folder: Path) -> Iterator[Picture]:
    """One figure for each model, horizon and training seed."""
    pairs = {(n.labels["base"], n.labels["horizon"], n.labels["seed"]) for n in curve.numbers}
    for base, horizon, seed in sorted(pairs, key=str):
        place = {"base": base, "horizon": horizon, "seed": seed}
        series = _series(_only(curve, place), "step", "oracle", ["trained", "view"])
        bars = _series(_only(ends, place), "horizon", "success", ["trained", "view"]) if ends else {}
        stem = folder / f"figure-1-{base}-h{horizon}-s{seed}"
        yield curves.learning(series, bars, stem, f"Crossover of training and test views, {words(place)}")


def _only(built: Built, place: dict[str, str | int | bool]) -> Built:
    kept = [n for n in built.numbers if all(n.labels.get(k) == v for k, v in place.items())]
    return Built(built.spec, kept, [], [])


def _series(built: Built, x: str, metric: str, names: Sequence[str]) -> Series:
    """Lines of one metric over a label with numbers, named by other labels."""
    found: Series = {}
    for number in sorted(built.numbers, key=lambda n: [order_key(n.labels[k]) for k in (*names, x)]):
        if number.metric == metric and number.value is not None:
            label = "→".join(f"H{v}" if k == "horizon" else str(v) for k in names for v in [number.labels[k]])
            found.setdefault(label, []).append(_point(number, float(number.labels[x])))
    return found


def _metric_panels(built: Built, x: str, xlabel: str, stem: Path) -> Picture:
    """Oracle accuracy and success, side by side, over a label or over another metric of the same row."""
    rows: dict[tuple[object, ...], dict[str, Number]] = {}
    for number in built.numbers:
        place = tuple(number.labels[name] for name in built.spec.rows)
        rows.setdefault(place, {})[number.metric] = number
    lines: dict[str, Series] = {"oracle-prefix accuracy": {}, "free-run success": {}}
    for found in rows.values():
        at = found["oracle"].labels
        where = found[x].value if x in found else at[x]
        named = ["base", "training", *(["view"] if x == "horizon" else [])]
        label = ", ".join(str(at[name]) for name in named)
        for title, metric in zip(lines, ("oracle", "success"), strict=True):
            if where is not None and found[metric].value is not None:
                lines[title].setdefault(label, []).append(_point(found[metric], float(where)))
    for series in lines.values():
        for points in series.values():
            points.sort()
    ticks = (
        sorted({p.x for s in lines.values() for found in s.values() for p in found}) if x == "horizon" else ()
    )
    return curves.curves(list(lines.items()), xlabel, stem, built.spec.title, ticks=ticks)


def _blocks(built: Built, folder: Path) -> Picture:
    series: Series = {}
    for number in built.numbers:
        if number.value is not None:
            first = int(str(number.labels["block"]).split("–")[0])
            label = ", ".join(str(number.labels[name]) for name in ("base", "training", "view"))
            series.setdefault(label, []).append(_point(number, first + 1.5))
    panels = [("oracle-prefix accuracy", series)]
    stem = folder / "prefix-blocks"
    return curves.curves(
        panels, "stage (middle of four)", stem, built.spec.title, ticks=(2.5, 6.5, 10.5, 14.5)
    )


def _point(number: Number, x: float) -> Point:
    return Point(x, number.value or 0.0, number.low, number.high, number.k, number.n)


def _effect(number: Number) -> Effect:
    assert number.value is not None
    where = {k: v for k, v in number.labels.items() if k != "contrast"}
    label = f"{number.labels['contrast']}\n({words(where)})"
    low = number.value if number.low is None else number.low
    high = number.value if number.high is None else number.high
    return Effect(label, number.value, low, high)
