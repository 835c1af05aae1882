"""ScienceWorld's tables: 9, 27 to 30, and the diagnostics of section 4.7, ours beside the paper's.

    python -m stsr.stats.scienceworld --arms arms.json --out report records/*.jsonl

`arms.json` is a list of {"adapter", "training", "seed", "step"}: what each adapter of the records was trained
on. The base alone has the adapter "". The folder gets `scienceworld.md` and `scienceworld.html`.

Invariants: every number comes from the records; a row appears only if there are records for it; undefined
prints as an en dash. Counts are added over seeds, which answer the same states and tasks. Percentages over
decisions carry no interval: decisions of one workflow are not independent.
Source: section 4.7 and appendix F of the paper.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stsr.eval_tasks.scienceworld_records import FreeRunRecord, LocalRecord, Record, read
from stsr.stats.estimators import spearman
from stsr.stats.render import Table, html, markdown
from stsr.stats.words import DASH

BINS = ("short", "medium", "long")
HELD_OUT, DEVELOPMENT, PILOT = "test", "development", "pilot"
HORIZON_ARMS = ("short-only", "mixed-horizon")
CROSSOVER_ARMS = ("full", "compact")
THRESHOLD = 0.8

PAPER_9 = {"short-only": ("69.83", "46/90", "95.96"), "mixed-horizon": ("81.61", "27/90", "89.58")}
PAPER_27 = {
    ("full", "full"): ("54.17", "66.89", "71.74", "77.73", "79.39"),
    ("compact", "compact"): ("51.67", "64.85", "71.44", "77.27", "78.64"),
    ("compact", "full"): ("53.48", "64.70", "70.45", "73.79", "76.89"),
}
"""(trained, tested) -> steps 20, 40, 60, 80, 100."""
STEPS = (20, 40, 60, 80, 100)
PAPER_UNTUNED = {"full": "155/440", "compact": "154/440"}
PAPER_28 = {
    ("full", "full"): ("79.39", "7/30"),
    ("full", "compact"): ("75.08", "0/30"),
    ("compact", "full"): ("76.89", "8/30"),
    ("compact", "compact"): ("78.64", "6/30"),
}
PAPER_29 = {
    ("short-only", "short"): ("87.02", "26/30", "87.50"),
    ("short-only", "medium"): ("65.40", "15/30", "71.17"),
    ("short-only", "long"): ("65.64", "5/30", "45.87"),
    ("mixed-horizon", "short"): ("81.89", "13/30", "67.77"),
    ("mixed-horizon", "medium"): ("82.96", "9/30", "64.80"),
    ("mixed-horizon", "long"): ("80.67", "5/30", "44.63"),
}
PAPER_30 = {
    ("full", "full"): ("14/30", "1/14", "4/14"),
    ("full", "compact"): ("12/30", "0/12", "2/12"),
    ("compact", "full"): ("18/30", "4/18", "12/18"),
    ("compact", "compact"): ("19/30", "6/19", "9/19"),
}
PAPER_DIAGNOSTICS = {
    "short-only": ("27/37", "19/53", "0.489", "0.542", "3/90", "3/3"),
    "mixed-horizon": ("17/56", "10/34", "0.128", "0.225", "2/90", "2/2"),
}


@dataclass(frozen=True)
class Arm:
    """What an adapter was trained on."""

    adapter: str
    """Hub id or path, as in the records; "" for the base alone."""
    training: str
    """"full", "compact", "short-only", "mixed-horizon" or "untuned"."""
    seed: int
    step: int = 100


@dataclass(frozen=True)
class Labelled:
    """A record and its arm."""

    record: Record
    arm: Arm

    @property
    def tested(self) -> str:
        """The view of the prompts; every compact view is "compact" here."""
        return "compact" if self.record.cell.view.startswith("compact") else self.record.cell.view

    @property
    def where(self) -> str:
        """The split, or "pilot"."""
        return self.record.cell.condition or self.record.cell.split


def label(records: Iterable[Record], arms: Sequence[Arm]) -> list[Labelled]:
    """Records with their arms. Raises ValueError for an adapter that no arm names."""
    known = {arm.adapter: arm for arm in arms}
    found = []
    for record in records:
        if record.cell.adapter not in known:
            raise ValueError(f"{record.id}: no arm for the adapter {record.cell.adapter!r}")
        found.append(Labelled(record, known[record.cell.adapter]))
    return found


# -- numbers


def local(rows: Iterable[Labelled]) -> list[LocalRecord]:
    """The local decisions among them."""
    return [row.record for row in rows if isinstance(row.record, LocalRecord)]


def runs(rows: Iterable[Labelled]) -> list[FreeRunRecord]:
    """The free runs among them."""
    return [row.record for row in rows if isinstance(row.record, FreeRunRecord)]


def share(k: int, n: int) -> str:
    """ "k/n", or a dash for nothing.

    >>> share(26, 30), share(0, 0)
    ('26/30', '–')
    """
    return f"{k}/{n}" if n else DASH


def mean(values: Sequence[float], scale: float = 1.0) -> str:
    """Mean with two decimals, or a dash for nothing.

    >>> mean([1.0, 0.0, 0.0], 100), mean([])
    ('33.33', '–')
    """
    return f"{scale * sum(values) / len(values):.2f}" if values else DASH


def agreement(rows: Sequence[Labelled]) -> str:
    """Percent of local decisions that agree. All seeds answer the same states, so this is their mean too."""
    return mean([float(record.agree) for record in local(rows)], 100)


def completion(rows: Sequence[Labelled]) -> str:
    """Free runs that reached 100, of all."""
    found = runs(rows)
    return share(sum(record.success for record in found), len(found))


def no_rejection(rows: Sequence[Labelled]) -> str:
    """Percent of calls that the parser did not reject."""
    calls = sum(record.calls for record in runs(rows))
    rejected = sum(record.rejections for record in runs(rows))
    return f"{100 * (1 - rejected / calls):.2f}" if calls else DASH


@dataclass(frozen=True)
class Pair:
    """One workflow under one adapter: its local decisions and its free run, paired."""

    local: float
    """Share of reference states that agree."""
    clean: bool
    """All of them agree."""
    success: bool
    score: int


def pairs(rows: Sequence[Labelled]) -> list[Pair]:
    """Workflows of which an adapter has every local decision and the free run under one view."""
    decisions: dict[tuple[str, str, str], list[LocalRecord]] = {}
    for record in local(rows):
        decisions.setdefault((record.cell.adapter, record.cell.view, record.task), []).append(record)
    found = []
    for run in runs(rows):
        own = decisions.get((run.cell.adapter, run.cell.view, run.task), [])
        if own and len(own) == own[0].horizon:
            agreed = sum(record.agree for record in own)
            found.append(Pair(agreed / len(own), agreed == len(own), run.success, run.score))
    return found


# -- tables

Rows = Sequence[Labelled]


def _pick(rows: Rows, *tests: Callable[[Labelled], bool]) -> list[Labelled]:
    return [row for row in rows if all(test(row) for test in tests)]


def _trained(name: str, step: int = 100) -> Callable[[Labelled], bool]:
    return lambda row: row.arm.training == name and row.arm.step == step


def _on(where: str) -> Callable[[Labelled], bool]:
    return lambda row: row.where == where


def _tested(view: str) -> Callable[[Labelled], bool]:
    return lambda row: row.tested == view


def _long(name: str) -> Callable[[Labelled], bool]:
    return lambda row: row.record.bin == name


def _beside(ours: Sequence[str], paper: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for pair in zip(ours, paper, strict=True) for text in pair)


def _heads(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, whose) for name in names for whose in ("ours", "paper"))


def _table(caption: str, words: Sequence[str], names: Sequence[str], lines: list[tuple[str, ...]], note: str,
           name: str) -> Table | None:  # fmt: skip
    head: tuple[str | tuple[str, str], ...] = (*(("", word) for word in words), *_heads(*names))
    return Table(caption, head, tuple(lines), note, len(words), id=name) if lines else None


def table_9(rows: Rows) -> Table | None:
    """Held-out workflows: local agreement, completion, calls without a parser rejection."""
    lines = []
    for training, paper in PAPER_9.items():
        if own := _pick(rows, _trained(training), _on(HELD_OUT)):
            lines.append((training, *_beside((agreement(own), completion(own), no_rejection(own)), paper)))
    return _table(
        "Table 9: 30 held-out workflows",
        ["training"],
        ["local %", "completion", "no parser rejection %"],
        lines,
        "Local: decisions along the reference paths, added over seeds. Completion: free runs that reached "
        "100 within 100 calls. Last: share of all calls.",
        "scienceworld-9",
    )


def table_27(rows: Rows) -> Table | None:
    """Agreement on development states by optimizer step."""
    lines = []
    for (training, tested), paper in PAPER_27.items():
        for step, value in zip(STEPS, paper, strict=True):
            own = _pick(rows, _trained(training, step), _on(DEVELOPMENT), _tested(tested))
            if own:
                lines.append((f"{training}→{tested}", str(step), *_beside((agreement(own),), (value,))))
    for tested, value in PAPER_UNTUNED.items():
        own = _pick(rows, _trained("untuned", 0), _on(DEVELOPMENT), _tested(tested))
        if own:
            agreed = share(sum(record.agree for record in local(own)), len(local(own)))
            lines.append((f"untuned→{tested}", "0", *_beside((agreed,), (value,))))
    return _table(
        "Table 27: agreement on 440 development states",
        ["trained→tested", "step"],
        ["agreement %"],
        lines,
        "Mean over training seeds, which all answer the same states. Checkpoints are chosen on these states.",
        "scienceworld-27",
    )


def table_28(rows: Rows) -> Table | None:
    """The crossover at the end of training."""
    lines = []
    for (training, tested), paper in PAPER_28.items():
        cell = _pick(rows, _trained(training), _tested(tested))
        own = (agreement(_pick(cell, _on(DEVELOPMENT))), completion(_pick(cell, _on(PILOT))))
        if own != (DASH, DASH):
            lines.append((training, tested, *_beside(own, paper)))
    return _table(
        "Table 28: crossover of views",
        ["trained", "tested"],
        ["development %", "pilot completion"],
        lines,
        "The two columns are of different tasks and are not paired.",
        "scienceworld-28",
    )


def table_29(rows: Rows) -> Table | None:
    """Held-out workflows by length of the reference path."""
    lines = []
    for (training, length), paper in PAPER_29.items():
        own = _pick(rows, _trained(training), _on(HELD_OUT), _long(length))
        if own:
            raw = mean([float(record.score) for record in runs(own)])
            clipped = mean([float(record.clipped) for record in runs(own)])
            beside = _beside((agreement(own), completion(own), f"{raw} ({clipped})"), paper)
            lines.append((training, length, *beside))
    return _table(
        "Table 29: natural horizons",
        ["training", "length"],
        ["local %", "completion", "mean score"],
        lines,
        "Score: final, raw, and in brackets with a failure's -100 counted as 0; the paper does not say which "
        "its is. Length goes with the task family, so this is no effect of length alone.",
        "scienceworld-29",
    )


def table_30(rows: Rows) -> Table | None:
    """What follows a parser rejection in the pilot."""
    lines = []
    for (training, tested), paper in PAPER_30.items():
        found = runs(_pick(rows, _trained(training), _on(PILOT), _tested(tested)))
        if found:
            hit = [record for record in found if record.rejections]
            success, increase = (
                share(sum(bool(getattr(record, name)) for record in hit), len(hit))
                for name in ("later_success", "later_increase")
            )
            own = (share(len(hit), len(found)), success, increase)
            lines.append((training, tested, *_beside(own, paper)))
    return _table(
        "Table 30: after a parser rejection",
        ["trained", "tested"],
        ["rejection episodes", "later success", "later score increase"],
        lines,
        "Policies meet different errors at different times; these fractions compare no views.",
        "scienceworld-30",
    )


def diagnostics(rows: Rows) -> Table | None:
    """Local agreement against the free run of the same workflow and adapter."""
    lines = []
    for training, paper in PAPER_DIAGNOSTICS.items():
        found = pairs(_pick(rows, _trained(training), _on(HELD_OUT)))
        if not found:
            continue
        high = [pair for pair in found if pair.local >= THRESHOLD]
        low = [pair for pair in found if pair.local < THRESHOLD]
        clean = [pair for pair in found if pair.clean]
        own = (
            share(sum(pair.success for pair in high), len(high)),
            share(sum(pair.success for pair in low), len(low)),
            *(_rho(found, [float(getattr(pair, name)) for pair in found]) for name in ("success", "score")),
            share(len(clean), len(found)),
            share(sum(pair.success for pair in clean), len(clean)),
        )
        lines.append((training, *_beside(own, paper)))
    return _table(
        "Section 4.7: local decisions and free runs of the same workflows",
        ["training"],
        [
            "success, local ≥ 80%",
            "success, local < 80%",
            "rho with success",
            "rho with score",
            "clean paths",
            "clean and success",
        ],
        lines,
        "A pair is a workflow under one adapter. Spearman's rho is descriptive: workflows repeat over seeds.",
        "scienceworld-diagnostics",
    )


def _rho(found: Sequence[Pair], values: Sequence[float]) -> str:
    if len(found) < 2:
        return DASH
    rho = spearman([pair.local for pair in found], list(values)).rho
    return DASH if rho is None else f"{rho:.3f}"


TABLES = (table_9, table_27, table_28, table_29, table_30, diagnostics)


def write(records: Iterable[Record], arms: Sequence[Arm], out: Path) -> list[Table]:
    """Writes every table that the records complete a row of; returns them."""
    rows = label(records, arms)
    made = [table for build in TABLES if (table := build(rows)) is not None]
    if not made:
        raise ValueError("nothing to report: no record belongs to a table")
    out.mkdir(parents=True, exist_ok=True)
    text = "# ScienceWorld\n\n" + "\n\n".join(
        f"## {table.caption}\n\n{markdown(table)}\n\n{table.note}" for table in made
    )
    page = "<!doctype html><meta charset=utf-8><title>ScienceWorld</title><h1>ScienceWorld</h1>" + "".join(
        f"<h2>{table.caption}</h2>{html(table)}<p>{table.note}</p>" for table in made
    )
    (out / "scienceworld.md").write_text(text + "\n", encoding="utf-8")
    (out / "scienceworld.html").write_text(page + "\n", encoding="utf-8")
    return made


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write ScienceWorld's tables from records.")
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--arms", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    arms = [Arm(**arm) for arm in json.loads(given.arms.read_text(encoding="utf-8"))]
    made = write(read(given.records), arms, given.out)
    print(f"{given.out / 'scienceworld.md'} holds {len(made)} tables.")


if __name__ == "__main__":
    main()
