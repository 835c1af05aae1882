"""The report's words and tables, written from a crossover's numbers; `report.py` puts them into files.

Run the examples: `python -m doctest -v stats/sections.py`

Invariants: every table has a note with unit, conditioning and null, taken from the results themselves;
undefined prints as an en dash; no sentence claims more than its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stsr.stats.cells import AnyCell, FreeRunCell, OracleCell
from stsr.stats.crossover import Contrast, Crossover, SeedCrossover
from stsr.stats.figures import Picture
from stsr.stats.outcomes import cell_id
from stsr.stats.render import Link, Table
from stsr.stats.results import Proportion
from stsr.stats.words import DASH, bounds, k_of_n, listed, p_value, percent, points

PLACE = ("seed", "trained on", "tested on")


@dataclass(frozen=True)
class Section:
    """A titled part of the report."""

    id: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    command: str = ""
    """A shell command, shown verbatim."""


def effect_range(contrast: Contrast) -> str:
    """The interval of a contrast, in points."""
    return f"{points(contrast.interval.low)} to {points(contrast.interval.high)}"


def finding(crossover: Crossover) -> str:
    """What the crossover found, in one sentence, for one seed or several."""
    spec, seeds = crossover.spec, crossover.seeds
    first, second = spec.views
    example = seeds[0].cells[first, first]
    where = f"{len(crossover.tasks)} H{spec.horizon} {example.cell.family} tasks ({example.cell.split} split)"
    free = crossover.kind == "free_run"
    what, scored = ("free runs", "successes") if free else ("oracle-prefix probes", "right decisions")
    effects = listed([points(seed.interaction.interval.estimate) for seed in seeds])
    if len(seeds) == 1:
        interaction = seeds[0].interaction
        spread = (
            f"95% task bootstrap {effect_range(interaction)}, sign-flip p = {p_value(interaction.test.p)}; "
            f"one adapter pair, training seed {seeds[0].seed}"
        )
    else:
        spread = (
            f"training seeds {listed([str(seed.seed) for seed in seeds])}; "
            f"mean {points(crossover.interaction.mean)}, sample SD {percent(crossover.interaction.sd)}"
        )
    counts = ", ".join(
        f"{train}→{test} {listed([k_of_n(seed.cells[train, test].headline) for seed in seeds])}"
        for train in (second, first)
        for test in (second, first)
    )
    return (
        f"In {what} of {spec.base} adapters on {where}, the training-view by test-view interaction was "
        f"{effects} percentage points ({spread}); {scored}, trained→tested: {counts}."
    )


def limits(crossover: Crossover) -> str:
    """What the finding does not say."""
    count = len(crossover.seeds)
    seeds = "One training seed does" if count == 1 else f"{count} training seeds do"
    return (
        "Intervals and p values are over tasks and hold for the adapters evaluated here. "
        f"{seeds} not speak for other seeds, nor this report for other bases, horizons or tasks."
    )


def crossover_section(crossover: Crossover, pictures: Sequence[Picture], link: Link) -> Section:
    """Cells, contrasts, interaction and figures of one kind of evaluation."""
    free = crossover.kind == "free_run"
    explained = (
        "The model's own calls drive the environment until success or until its budget of twice the horizon "
        "is spent. Success: every required artifact verified, contents and ancestry."
        if free
        else "Each decision is asked after restoring the gold prefix: a wrong answer never affects the next "
        "one. Clean path: all decisions of a task right. Post-4: stages 5 and later."
    )
    return Section(
        id=crossover.kind.replace("_", "-"),
        title="Free run" if free else "Oracle prefix",
        paragraphs=(explained,),
        tables=(
            _free_run_cells(crossover, link) if free else _oracle_cells(crossover, link),
            _contrasts(crossover),
            _interactions(crossover),
        ),
        pictures=tuple(pictures),
    )


def _places(crossover: Crossover) -> list[tuple[tuple[str, str, str], AnyCell]]:
    """((seed, training view, test view), cell) in reading order, the untuned base last."""
    trained = [
        ((str(seed.seed), train, test), cell)
        for seed in crossover.seeds
        for (train, test), cell in seed.cells.items()
    ]
    return trained + [((DASH, "untuned", test), cell) for test, cell in crossover.untuned.items()]


def _links(crossover: Crossover, width: int, link: Link) -> tuple[tuple[str, ...], ...]:
    """A link to the records of each row's cell, on the first number after its place."""
    before, after = [""] * len(PLACE), [""] * (width - len(PLACE) - 1)
    targets = [link(cell_id(cell.cell), cell.kind) for _, cell in _places(crossover)]
    return tuple((*before, target, *after) for target in targets)


def _free_run_cells(crossover: Crossover, link: Link) -> Table:
    rows = []
    for place, cell in _places(crossover):
        success = cell.headline
        rows.append((*place, k_of_n(success), percent(success.estimate), bounds(success)))
    return Table(
        id="free-run-cells",
        links=_links(crossover, 6, link),
        caption="Successes by training view and test view",
        head=(*PLACE, "success", "%", "95% interval"),
        rows=tuple(rows),
        note=_note(crossover.seeds[0].cells[crossover.spec.views].headline),
        words=3,
    )


def _oracle_cells(crossover: Crossover, link: Link) -> Table:
    rows = []
    for place, cell in _places(crossover):
        assert isinstance(cell, OracleCell)
        right, post4, clean = cell.metrics()
        late = percent(post4.estimate) if post4 else DASH
        decisions = (k_of_n(right), percent(right.estimate), bounds(right), late)
        rows.append((*place, *decisions, k_of_n(clean), bounds(clean)))
    return Table(
        id="oracle-prefix-cells",
        links=_links(crossover, 9, link),
        caption="Right decisions and clean paths by training view and test view",
        head=(*PLACE, "right", "%", "95% interval", "post-4 %", "clean path", "of clean paths"),
        rows=tuple(rows),
        note=f"Right, post-4: {_note(right)} Clean path: {_note(clean)}",
        words=3,
    )


def _contrasts(crossover: Crossover) -> Table:
    rows = tuple(
        (str(seed.seed), c.name, points(c.interval.estimate), effect_range(c), p_value(c.test.p))
        for seed in crossover.seeds
        for c in (*seed.contrasts, seed.interaction)
    )
    return Table(
        id=f"{crossover.kind.replace('_', '-')}-contrasts",
        caption="Paired contrasts of trained→tested cells, in percentage points",
        head=("seed", "contrast", "effect", "95% interval", "p (two-sided)"),
        rows=rows,
        note=_contrast_note(crossover.seeds),
        words=2,
    )


def _contrast_note(seeds: Sequence[SeedCrossover]) -> str:
    contrasts = [c for seed in seeds for c in (*seed.contrasts, seed.interaction)]
    interval, test = contrasts[0].interval, contrasts[0].test
    methods = listed(sorted({c.test.method for c in contrasts}))
    text = (
        f"Unit: {interval.unit} (n = {interval.n}). Given: {interval.conditioning}. "
        f"Interval: {interval.method}; null: {interval.null}. p: {methods}; null: {test.null}. "
        "Tests are exploratory and not adjusted for their number."
    )
    if any(c.interval.low == c.interval.high for c in contrasts):
        text += (
            " An interval of zero width means that every task shows the same difference, "
            "not that there is no uncertainty."
        )
    return text


def _interactions(crossover: Crossover) -> Table:
    f, c = crossover.spec.views
    summary = crossover.interaction
    deltas = ", ".join(points(seed.interaction.interval.estimate) for seed in crossover.seeds)
    return Table(
        caption=f"Interaction over training seeds: ({c}→{c} − {c}→{f}) − ({f}→{c} − {f}→{f}), trained→tested",
        head=("seeds", "each", "mean", "sample SD"),
        rows=((str(summary.n), deltas, points(summary.mean), percent(summary.sd)),),
        note=f"Unit: {summary.unit}. Given: {summary.conditioning}. Null: {summary.null}.",
        words=0,
    )


def behaviour_section(crossover: Crossover, pictures: Sequence[Picture], link: Link) -> Section:
    """Calls, progress, rejections, recovery and reasons of the free runs."""
    rows, reasons = [], []
    for place, cell in _places(crossover):
        assert isinstance(cell, FreeRunCell)
        m = cell.metrics()
        rows.append((*place, f"{m.calls:.2f}", percent(m.progress), k_of_n(m.rejection), k_of_n(m.recovery)))
        reasons.append((*place, ", ".join(f"{name} {count}" for name, count in m.reasons.items()) or DASH))
    success = crossover.seeds[0].cells[crossover.spec.views].headline
    given = f"Given: {success.conditioning}. Null: {success.null}."
    return Section(
        id="behaviour",
        title="Calls, rejections and recovery",
        tables=(
            Table(
                "Mean calls, mean progress, episodes with a rejected call, and successes among those",
                (*PLACE, "calls", "progress %", "rejection", "recovery"),
                tuple(rows),
                f"Unit: {success.unit} (n = {success.n}); for recovery, an episode with a rejected call, "
                f"{DASH} where there is none. {given} "
                "Policies meet different errors with different budgets left: recovery does not rank them.",
                3,
                links=_links(crossover, 7, link),
                id="behaviour",
            ),
            Table(
                "Rejected calls by reason",
                (*PLACE, "reason and count"),
                tuple(reasons),
                f"Unit: rejected call. {given}",
                4,
            ),
        ),
        pictures=tuple(pictures),
    )


def reason_counts(crossover: Crossover) -> list[tuple[str, dict[str, int]]]:
    """(place, rejected calls by reason) of each free-run cell."""
    return [
        (f"{place[1]}→{place[2]}" + (f"\n(seed {place[0]})" if place[0] != DASH else ""), cell.reasons)
        for place, cell in _places(crossover)
        if isinstance(cell, FreeRunCell)
    ]


PAPER_TABLE_3 = (
    ("20260910", "45/50", "24/50", "0/50", "50/50", "+142"),
    ("20260926", "49/50", "50/50", "0/50", "50/50", "+98"),
    ("20260927", "35/50", "46/50", "0/50", "50/50", "+78"),
)
PAPER_TABLE_16 = (
    ("full", "full", "99.1", "17/20", "18.40"),
    ("full", "compact", "96.9", "15/20", "20.40"),
    ("compact", "full", "32.2", "0/20", "32.00"),
    ("compact", "compact", "100.0", "20/20", "16.00"),
)
PAPER = "arXiv 2610.15407v1"


def paper_section(crossover: Crossover) -> Section:
    """The paper's own Tables 3 and 16, set apart from ours."""
    spec = crossover.spec
    same = spec.base == "Qwen/Qwen3-1.7B" and spec.horizon == 16
    comparison = (
        "same base and horizon, other adapters, tasks and software: a replication, not the same measurement"
        if same
        else "another model or horizon, so the two are not comparable"
    )
    return Section(
        id="paper",
        title="For reference: the paper's own values",
        paragraphs=(
            f"These numbers are the paper's ({PAPER}: Qwen3-1.7B, H16), copied, not computed here. "
            f"This report is of {spec.base} at H{spec.horizon}: {comparison}.",
        ),
        tables=(
            Table(
                "Paper, Table 3: free-run successes, and interaction in percentage points",
                ("seed", "full→full", "full→compact", "compact→full", "compact→compact", "interaction"),
                PAPER_TABLE_3,
                "Trained→tested. The paper's mean over seeds: 106 points, sample SD 32.7. "
                "Unit: task. Given: its adapters. Null: none.",
                1,
            ),
            Table(
                "Paper, Table 16: original seed, 20 tasks",
                ("trained on", "tested on", "oracle %", "success", "mean calls"),
                PAPER_TABLE_16,
                "The paper's interaction: 110 points, 95% task bootstrap 85 to 135, two-sided sign-flip "
                f"p = {p_value(1.53e-5)} (Table 18). Unit: task. Given: its adapters. "
                "Null of the test: signs exchangeable.",
                2,
            ),
        ),
    )


def _note(result: Proportion) -> str:
    return (
        f"Unit: {result.unit} (n = {result.n}). Given: {result.conditioning}. Interval: {result.method}. "
        f"Null: {result.null}."
    )
