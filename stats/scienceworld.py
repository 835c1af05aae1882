"""ScienceWorld's tables alone: 9, 27 to 30, and the diagnostics of section 4.7, ours beside the paper's.

    python -m stsr.stats.scienceworld --arms arms.json --out report records/*.jsonl

`arms.json` is a list of {"adapter", "training", "seed", "step"}: what each adapter of the records was trained
on. The base alone has the adapter "". The folder gets `scienceworld.md` and `scienceworld.html`. The tables
are those of `paper.yaml`; `stsr report` makes them too, beside the others.

Invariants: every number comes from the records; a row appears only if there are records for all of it.
Source: section 4.7 and appendix F of the paper.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stsr.eval_tasks.scienceworld_records import Record, read
from stsr.stats import frame
from stsr.stats.display import tables_of
from stsr.stats.outcomes import Outcome, outcome
from stsr.stats.render import Table, html, markdown
from stsr.stats.specs import SPECS
from stsr.stats.tables import build

TOPIC = "ScienceWorld"


@dataclass(frozen=True)
class Arm:
    """What an adapter was trained on."""

    adapter: str
    """Hub id or path, as in the records; "" for the base alone."""
    training: str
    """"full", "compact", "short-only", "mixed-horizon" or "untuned"."""
    seed: int
    step: int = 100


def frame_arms(arms: Iterable[Arm], models: Iterable[str], last: int = 100) -> list[frame.Arm]:
    """The arms on each base, for `frame.label`; step `last` ends the training."""
    return [
        frame.Arm(
            model=model,
            adapter=arm.adapter,
            trained=arm.training,
            trained_family="scienceworld",
            seed=arm.seed,
            step=arm.step,
            final=arm.step == last or not arm.adapter,
        )
        for model in dict.fromkeys(models)
        for arm in arms
    ]


def tables(outcomes: Sequence[Outcome], arms: Sequence[Arm]) -> list[Table]:
    """Every table that the outcomes complete a row of. Raises ValueError for an adapter that no arm names."""
    named = {arm.adapter for arm in arms}
    for row in outcomes:
        if row.cell.adapter not in named:
            raise ValueError(f"{row.id}: no arm for the adapter {row.cell.adapter!r}")
    if not outcomes:
        return []
    labelled = frame.label(outcomes, frame_arms(arms, (row.cell.model for row in outcomes)))
    specs = [spec for spec in SPECS.values() if spec.topic == TOPIC]
    built = [one for spec in specs if (one := build(spec, labelled)) is not None]
    return [table for one in built for table in tables_of(one, lambda cell, kind: "")]


def write(records: Iterable[Record], arms: Sequence[Arm], out: Path) -> list[Table]:
    """Writes every table that the records complete a row of; returns them."""
    made = tables([outcome(record) for record in records], arms)
    if not made:
        raise ValueError("nothing to report: no record belongs to a table")
    out.mkdir(parents=True, exist_ok=True)
    text = f"# {TOPIC}\n\n" + "\n\n".join(
        f"## {table.caption}\n\n{markdown(table)}\n\n{table.note}" for table in made
    )
    page = f"<!doctype html><meta charset=utf-8><title>{TOPIC}</title><h1>{TOPIC}</h1>" + "".join(
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
