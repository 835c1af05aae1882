"""The report: one self-contained HTML page, the same as Markdown, and one tidy CSV row for each cell.

    python -m stsr.stats.report --inputs inputs.json --out report records/*.jsonl

`inputs.json` is {"spec": {"horizon", "views", "adapters", "base"}, "provenance": {name: value}}; every report
leaves its own beside it, so the command printed at its end recomputes it.

Invariants: every number comes from the record files; the page loads nothing from outside; files are written
to a temporary folder and moved into place, the page last, so a reader never sees half a report.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import json
import os
import platform
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from stsr.stats import figures
from stsr.stats.cells import AnyCell, OracleCell, describe, load
from stsr.stats.crossover import Crossover, CrossoverSpec, build
from stsr.stats.results import Proportion
from stsr.stats.sections import (
    DASH,
    Section,
    Table,
    behaviour_section,
    crossover_section,
    finding,
    limits,
    paper_section,
)

COMMAND = "command"
"""A provenance entry of this name replaces the command that recomputes the report."""
COLUMNS = (
    *("kind", "seed", "trained_on", "tested_on", "adapter", "adapter_revision"),
    *("unit", "k", "n", "percent", "low", "high", "level"),
    *("post4_k", "post4_n", "clean_k", "clean_n"),
    *("progress_percent", "mean_calls", "rejection_k", "recovery_k", "recovery_n"),
)


def write_report(records: list[Path], spec: CrossoverSpec, provenance: dict[str, str], out: Path) -> Path:
    """Writes report.html, report.md, crossover.csv, inputs.json and figures/ into `out`; returns the page.

    `provenance` adds rows to the table of where the numbers come from (code revision, recipe, ...); what the
    records say about base, adapters and data is read from them. Raises CellError or RecordError, and then
    writes nothing.
    """
    cells = load(records)
    crossovers = build(spec, cells)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".report-") as temporary:
        draft = Path(temporary)
        (draft / "figures").mkdir()
        main = next(iter(crossovers.values()))
        sections = [crossover_section(c, _pictures(c, draft / "figures")) for c in crossovers.values()]
        if "free_run" in crossovers:
            sections.append(behaviour_section(crossovers["free_run"]))
        sections += [paper_section(main), _provenance(records, cells, crossovers, provenance)]
        page: dict[str, object] = {
            "title": f"Crossover of {' and '.join(spec.views)} views at H{spec.horizon}",
            "finding": finding(main),
            "limits": limits(main),
            "sections": sections,
        }
        inputs = {"spec": asdict(spec), "provenance": provenance}
        (draft / "crossover.csv").write_text(_csv(crossovers), encoding="utf-8")
        (draft / "inputs.json").write_text(json.dumps(inputs, indent=2) + "\n", encoding="utf-8")
        for name in ("report.md", "report.html"):
            (draft / name).write_text(_render(name, page), encoding="utf-8")
        _publish(draft, out)
    return out / "report.html"


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
    environment.filters["cell"] = lambda text: text.replace("|", "\\|").replace("\n", " ")
    return environment.get_template(f"{name}.jinja").render(page)


def _inline(svg: Path) -> str:
    """An SVG file as a data URI."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode("ascii")


def _csv(crossovers: dict[str, Crossover]) -> str:
    """One row a cell; what is undefined, or belongs to the other kind, is empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for crossover in crossovers.values():
        for seed in crossover.seeds:
            for (train, test), cell in seed.cells.items():
                writer.writerow({"seed": seed.seed, "trained_on": train, "tested_on": test, **_row(cell)})
        for test, cell in crossover.untuned.items():
            writer.writerow({"trained_on": "untuned", "tested_on": test, **_row(cell)})
    return stream.getvalue()


def _row(cell: AnyCell) -> dict[str, object]:
    head = cell.headline
    row: dict[str, object] = {
        "kind": cell.kind,
        "adapter": cell.cell.adapter,
        "adapter_revision": cell.cell.adapter_revision,
        "unit": head.unit,
        "level": head.level,
        **_counts("", head),
        "percent": _four(head.estimate),
        "low": _four(head.low),
        "high": _four(head.high),
    }
    if isinstance(cell, OracleCell):
        oracle = cell.metrics()
        return {**row, **_counts("post4_", oracle.post4), **_counts("clean_", oracle.clean_path)}
    free = cell.metrics()
    return {
        **row,
        "progress_percent": _four(free.progress),
        "mean_calls": f"{free.calls:.4f}",
        "rejection_k": free.rejection.k,
        **_counts("recovery_", free.recovery),
    }


def _counts(prefix: str, proportion: Proportion | None) -> dict[str, object]:
    return {} if proportion is None else {f"{prefix}k": proportion.k, f"{prefix}n": proportion.n}


def _four(value: float | None) -> str:
    """A fraction in percent with four decimals, or nothing."""
    return "" if value is None else f"{100 * value:.4f}"


def _provenance(
    paths: Sequence[Path],
    cells: Sequence[AnyCell],
    crossovers: dict[str, Crossover],
    provenance: dict[str, str],
) -> Section:
    """Where each number comes from: data, base, adapters, files and versions, and how to compute it again."""
    used = [cell for crossover in crossovers.values() for cell in crossover.all_cells()]
    shared = used[0].cell
    revisions = {cell.cell.adapter: cell.cell.adapter_revision for cell in used if cell.cell.adapter}
    rows = [
        ("data", f"{shared.data} at {shared.data_revision}, split {shared.split}, family {shared.family}"),
        ("base", f"{shared.model} at {shared.model_revision}"),
        ("evaluation", f"{shared.backend}, {shared.dtype}, chat template {shared.chat_template}"),
        *((f"adapter {name}", revision or DASH) for name, revision in sorted(revisions.items())),
        *((name, value) for name, value in sorted(provenance.items()) if name != COMMAND),
        ("versions", ", ".join(_versions())),
    ]
    unused = [f"{cell.kind} {describe(cell.cell)}" for cell in cells if cell not in used]
    names = _names(paths)
    note = f"Cells in the files that this report does not use: {'; '.join(unused) or 'none'}."
    table = Table("Sources", ("what", "value"), tuple(rows), note, 2)
    files = Table(
        "Record files",
        ("file", "lines", "SHA-256"),
        tuple((name, *_file_facts(path)) for name, path in zip(names, paths, strict=True)),
        "One line is one decision or one episode, with its prompt, output and verdict.",
        3,
    )
    command = f"python -m stsr.stats.report --inputs inputs.json --out again {shlex.join(names)}"
    return Section(
        id="provenance",
        title="Where each number comes from",
        paragraphs=("To compute it again from the record files:",),
        tables=(table, files),
        command=provenance.get(COMMAND, command),
    )


def _names(paths: Sequence[Path]) -> list[str]:
    """File names relative to the folder that holds them all: the rest of a path is nobody's business."""
    full = [path.resolve() for path in paths]
    root = os.path.commonpath([path.parent for path in full])
    return [path.relative_to(root).as_posix() for path in full]


def _file_facts(path: Path) -> tuple[str, str]:
    content = path.read_bytes()
    return str(content.count(b"\n")), hashlib.sha256(content).hexdigest()


def _versions() -> list[str]:
    packages = ("stsr", "numpy", "scipy", "matplotlib", "jinja2")
    return [f"python {platform.python_version()}", *(f"{name} {metadata.version(name)}" for name in packages)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: see the head of this file."""
    parser = argparse.ArgumentParser(
        prog="python -m stsr.stats.report", description="Write a crossover report."
    )
    parser.add_argument("--inputs", type=Path, required=True, help="JSON with spec and provenance")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("records", type=Path, nargs="+", help="record files (JSON lines)")
    options = parser.parse_args(arguments)
    inputs = json.loads(options.inputs.read_text(encoding="utf-8"))
    raw = inputs["spec"]
    spec = CrossoverSpec(
        horizon=raw["horizon"],
        views=tuple(raw["views"]),
        adapters={int(seed): pair for seed, pair in raw["adapters"].items()},
        base=raw["base"],
    )
    print(write_report(options.records, spec, inputs["provenance"], options.out))


if __name__ == "__main__":
    main()
