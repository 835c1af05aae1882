"""The report: one self-contained HTML page, the same as Markdown and LaTeX, and every number as tidy CSV.

    python -m stsr.stats.report --inputs inputs.json --out report records/*.jsonl

`inputs.json` is {"spec": {"horizon", "views", "adapters", "base"} or null, "arms": [{"model", "adapter",
...}], "tables": ["table-3", ...] or ["all"], "provenance": {name: value}}, and may name a page of episodes.
Every report leaves its own beside it, so the command printed at its end recomputes it. The folder is a static
Space: its README.md names the page.

Invariants: every number comes from the record files; the page loads nothing from outside; files are written
to a temporary folder and moved into place, the page last, so a reader never sees half a report.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stsr.eval_tasks.records import Cell
from stsr.stats import curves, figures
from stsr.stats.cells import from_outcomes
from stsr.stats.crossover import Crossover, CrossoverSpec, belongs, build
from stsr.stats.curves import Effect
from stsr.stats.frame import Arm, arms_from, label
from stsr.stats.outcomes import CellError, Outcome, cell_id
from stsr.stats.provenance import anchor, provenance_section
from stsr.stats.reading import read
from stsr.stats.render import Link, html, latex, markdown
from stsr.stats.sections import (
    PAPER,
    Section,
    behaviour_section,
    crossover_section,
    finding,
    limits,
    paper_section,
    reason_counts,
)
from stsr.stats.specs import SPECS
from stsr.stats.tables import Built
from stsr.stats.tables import build as build_table
from stsr.stats.tidy import crossover_csv, of_crossover, tidy
from stsr.stats.topics import topic_sections


class Episodes(NamedTuple):
    """A page that shows recorded calls, beside the report."""

    page: str
    """Its address, relative to the report."""
    cells: frozenset[tuple[str, str]]
    """Id and kind of the cells on it. Numbers of other cells link to the report's table of records."""


def write_report(
    records: list[Path],
    spec: CrossoverSpec | None,
    provenance: dict[str, str],
    out: Path,
    *,
    arms: Sequence[Arm] = (),
    tables: Sequence[str] = (),
    episodes: Episodes | None = None,
) -> Path:
    """Writes the page, its Markdown, LaTeX, CSV, inputs and figures into `out`; returns the page.

    `spec` is a crossover to report in full, or None. `tables` are ids of `specs.SPECS`: a cell that one of
    them lacks is an error; "all" makes every table that the records complete a row of. `arms` label adapters;
    by default those of `spec`. `provenance` adds rows to the table of where the numbers come from; what the
    records say is read from them.

    Raises CellError or RecordError, ValueError for an unknown table, and then writes nothing.
    """
    if spec is None and not tables:
        raise ValueError("nothing to report: give a crossover or tables")
    outcomes = read(records)
    crossovers = _crossovers(spec, outcomes)
    arms = arms or (_arms(spec) if spec else ())
    built = _tables(outcomes, arms, tables)
    if not built and not crossovers:
        raise CellError("the records complete no row of any table")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".report-") as temporary:
        draft = Path(temporary)
        (draft / "figures").mkdir()
        link = _linker(episodes)
        sections = _crossover_sections(crossovers, draft / "figures", link)
        sections += topic_sections(built, draft / "figures", link)
        if crossovers:
            sections.append(paper_section(next(iter(crossovers.values()))))
        used = _used(outcomes, crossovers, built)
        sections.append(provenance_section(records, outcomes, used, provenance, link))
        numbers = [n for crossover in crossovers.values() for n in of_crossover(crossover)]
        numbers += [n for one in built for n in one.numbers]
        page = {**_words(spec, crossovers, built), "sections": sections}
        inputs = {
            "spec": asdict(spec) if spec else None,
            "arms": [asdict(arm) for arm in arms],
            "tables": list(tables),
            "episodes": {"page": episodes.page, "cells": sorted(episodes.cells)} if episodes else None,
            "provenance": provenance,
        }
        (draft / "numbers.csv").write_text(
            tidy(numbers).to_csv(index=False, lineterminator="\n"), encoding="utf-8"
        )
        if crossovers:
            (draft / "crossover.csv").write_text(crossover_csv(crossovers), encoding="utf-8")
        (draft / "inputs.json").write_text(json.dumps(inputs, indent=2) + "\n", encoding="utf-8")
        (draft / "tables").mkdir()
        for table in (table for section in sections for table in section.tables if table.id):
            (draft / "tables" / f"{table.id}.tex").write_text(latex(table), encoding="utf-8")
        for name in ("README.md", "report.md", "report.html"):
            (draft / name).write_text(_render(name, page), encoding="utf-8")
        _publish(draft, out)
    return out / "report.html"


def _crossovers(spec: CrossoverSpec | None, outcomes: Sequence[Outcome]) -> dict[str, Crossover]:
    """The declared crossover over its own cells; of all cells if it has none, for the message."""
    if spec is None:
        return {}
    own = [row for row in outcomes if belongs(spec, row.cell)]
    return build(spec, from_outcomes(own or outcomes))


def _arms(spec: CrossoverSpec) -> list[Arm]:
    """The crossover's adapters and its base as arms."""
    return [Arm(spec.base)] + [
        Arm(
            spec.base,
            adapter=adapter,
            trained=view,
            trained_horizon=spec.horizon,
            trained_family=spec.family,
            seed=seed,
        )
        for seed, pair in spec.adapters.items()
        for view, adapter in pair.items()
    ]


def _tables(outcomes: Sequence[Outcome], arms: Sequence[Arm], tables: Sequence[str]) -> list[Built]:
    """The tables asked for, in the paper's order."""
    if not tables:
        return []
    unknown = sorted(set(tables) - {*SPECS, "all"})
    if unknown:
        raise ValueError(f"unknown tables {', '.join(unknown)}; there are all, {', '.join(SPECS)}")
    frame = label(outcomes, arms)
    wanted = [spec for id, spec in SPECS.items() if "all" in tables or id in tables]
    found = [build_table(spec, frame, strict=spec.id in tables) for spec in wanted]
    return [one for one in found if one is not None]


def _linker(episodes: Episodes | None) -> Link:
    """Links a number to its own calls on the page of episodes, or to the line here that names its records."""

    page, cells = episodes or ("", frozenset())

    def link(cell: str, kind: str) -> str:
        shown = (cell, kind) in cells
        return f"{page}#cell={cell}&kind={kind}" if shown else f"#{anchor(cell, kind)}"

    return link


def _used(
    outcomes: Sequence[Outcome], crossovers: dict[str, Crossover], built: Sequence[Built]
) -> list[tuple[str, Cell]]:
    """(kind, cell) of what the report counts, in the order of the records."""
    numbers = [number for one in built for number in one.numbers]
    own = {(kind, id) for number in numbers for kind in number.kinds for id in number.cells}
    own |= {(cell.kind, cell_id(cell.cell)) for one in crossovers.values() for cell in one.all_cells()}
    places = dict.fromkeys((row.kind, row.cell) for row in outcomes)
    named = {cell: cell_id(cell) for _, cell in places}
    return [(kind, cell) for kind, cell in places if (kind, named[cell]) in own]


def _crossover_sections(crossovers: dict[str, Crossover], folder: Path, link: Link) -> list[Section]:
    made = [crossover_section(c, _pictures(c, folder), link) for c in crossovers.values()]
    if "free_run" in crossovers:
        free = crossovers["free_run"]
        pictures = [curves.reasons(reason_counts(free), folder / "rejections", "Rejected calls by reason")]
        made.append(behaviour_section(free, pictures, link))
    return made


def _words(
    spec: CrossoverSpec | None, crossovers: dict[str, Crossover], built: Sequence[Built]
) -> dict[str, object]:
    """Title, finding and limits of the page."""
    if spec is not None:
        main = next(iter(crossovers.values()))
        title = f"Crossover of {' and '.join(spec.views)} views at H{spec.horizon}"
        return {"title": title, "finding": finding(main), "limits": limits(main)}
    numbers = [n for one in built for n in one.numbers]
    beside = sum(bool(n.paper) for n in numbers)
    return {
        "title": "Tables of the paper, from the records at hand",
        "finding": f"{_counted(built, 'table')}, {_counted(numbers, 'number')}; {beside} with the paper's "
        f"value beside ours ({PAPER}).",
        "limits": "Intervals and p values are over tasks and hold for the adapters evaluated here. The "
        "paper's values are of other adapters and software: a difference is not an error of either.",
    }


def _counted(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _publish(draft: Path, out: Path) -> None:
    """Moves every file of the draft into place, the page last."""
    files = [path for path in draft.rglob("*") if path.is_file()]
    for file in sorted(files, key=lambda path: (path.name == "report.html", path)):
        target = out / file.relative_to(draft)
        target.parent.mkdir(exist_ok=True)
        os.replace(file, target)


def _pictures(crossover: Crossover, folder: Path) -> list[figures.Picture]:
    name = crossover.kind.replace("_", "-")
    pictures = [figures.interaction(crossover, folder / f"{name}-interaction")]
    effects = [
        Effect(f"{c.name}\n(seed {seed.seed})", c.interval.estimate, c.interval.low, c.interval.high)
        for seed in crossover.seeds
        for c in (*seed.contrasts, seed.interaction)
    ]
    title = f"Contrasts of {'free-run success' if crossover.kind == 'free_run' else 'oracle-prefix accuracy'}"
    pictures.append(curves.forest(effects, folder / f"{name}-forest", title))
    if crossover.kind == "oracle_prefix":
        pictures.append(figures.stage_curves(crossover, folder / f"{name}-stages"))
    return pictures


def _render(name: str, page: dict[str, object]) -> str:
    environment = Environment(
        loader=PackageLoader("stsr.stats"),
        autoescape=name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inline"] = _inline
    environment.filters["html"] = lambda table: Markup(html(table))
    environment.filters["markdown"] = markdown
    return environment.get_template(f"{name}.jinja").render(page)


def _inline(svg: Path) -> str:
    """An SVG file as a data URI."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode("ascii")


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: see the head of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m stsr.stats.report", description="Write a report from record files."
    )
    parser.add_argument("--inputs", type=Path, required=True, help="JSON with spec and provenance")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("records", type=Path, nargs="+", help="record files (JSON lines)")
    options = parser.parse_args(arguments)
    inputs = json.loads(options.inputs.read_text(encoding="utf-8"))
    print(
        write_report(
            options.records,
            _spec(inputs["spec"]) if inputs["spec"] else None,
            inputs["provenance"],
            options.out,
            arms=arms_from(inputs.get("arms", [])),
            tables=inputs.get("tables", []),
            episodes=_episodes(inputs.get("episodes")),
        )
    )


def _spec(raw: dict[str, Any]) -> CrossoverSpec:
    return CrossoverSpec(
        horizon=raw["horizon"],
        views=tuple(raw["views"]),
        adapters={int(seed): pair for seed, pair in raw["adapters"].items()},
        base=raw["base"],
        family=raw["family"],
        split=raw["split"],
    )


def _episodes(raw: dict[str, Any] | None) -> Episodes | None:
    return Episodes(raw["page"], frozenset((id, kind) for id, kind in raw["cells"])) if raw else None


if __name__ == "__main__":
    main()
