"""The report's last section: data, base, adapters, record files and versions, and how to compute it again.

Nothing to run. Invariant: paths outside the records' own folder never reach the page.
"""

from __future__ import annotations

import os
import platform
import shlex
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from stsr.eval_tasks.records import Cell
from stsr.generators.files import file_sha256
from stsr.stats.cells import describe
from stsr.stats.outcomes import Outcome, cell_id
from stsr.stats.render import Link, Table
from stsr.stats.sections import Section
from stsr.stats.words import DASH

COMMAND = "command"
"""A provenance entry of this name replaces the command that recomputes the report."""


def provenance_section(
    paths: Sequence[Path],
    outcomes: Sequence[Outcome],
    used: Sequence[tuple[str, Cell]],
    provenance: dict[str, str],
    link: Link,
) -> Section:
    """Where each number comes from: data, base, adapters, files and versions, and how to compute it again."""
    cells = list(dict.fromkeys(cell for _, cell in used))
    revisions = {cell.adapter: cell.adapter_revision for cell in cells if cell.adapter}
    shared = {
        "data": [f"{c.data} at {c.data_revision}, split {c.split}, family {c.family}" for c in cells],
        "base": [f"{c.model} at {c.model_revision}" for c in cells],
        "evaluation": [f"{c.backend}, {c.dtype}, chat template {c.chat_template}" for c in cells],
    }
    rows = [
        *((name, value) for name, values in shared.items() for value in dict.fromkeys(values)),
        *((f"adapter {name}", revision or DASH) for name, revision in sorted(revisions.items())),
        *((name, value) for name, value in sorted(provenance.items()) if name != COMMAND),
        ("versions here", ", ".join(_versions())),
    ]
    places = dict.fromkeys((row.kind, row.cell) for row in outcomes)
    unused = [f"{kind} {describe(cell)}" for kind, cell in places if (kind, cell) not in set(used)]
    names = _names(paths)
    lines = Counter(row.file for row in outcomes)
    note = f"Cells in the files that this report does not use: {'; '.join(unused) or 'none'}."
    table = Table("Sources", ("what", "value"), tuple(rows), note, 2)
    files = Table(
        "Record files",
        ("file", "lines", "SHA-256"),
        tuple((n, str(lines[str(p)]), file_sha256(p)) for n, p in zip(names, paths, strict=True)),
        "One line is one decision or one episode, with its prompt, output and verdict.",
        3,
    )
    by_path = {str(path): name for path, name in zip(paths, names, strict=True)}
    command = f"python -m stsr.stats.report --inputs inputs.json --out again {shlex.join(names)}"
    return Section(
        id="provenance",
        title="Where each number comes from",
        paragraphs=("To compute it again from the record files:",),
        tables=(table, files, _cell_records(outcomes, used, by_path, link)),
        command=provenance.get(COMMAND, command),
    )


def _cell_records(
    outcomes: Sequence[Outcome], used: Sequence[tuple[str, Cell]], names: dict[str, str], link: Link
) -> Table:
    """Where the decisions and episodes of each cell stand; numbers link here unless there is a viewer."""
    found: dict[tuple[str, Cell], list[Outcome]] = {place: [] for place in used}
    for row in outcomes:
        if (row.kind, row.cell) in found:
            found[row.kind, row.cell].append(row)
    rows, anchors, links = [], [], []
    for (kind, cell), records in found.items():
        lines: dict[str, list[int]] = {}
        for row in records:
            lines.setdefault(row.file, []).append(row.line)
        spans = [f"{names[file]}:{min(of)}–{max(of)}" for file, of in lines.items()]
        id = cell_id(cell)
        ids = f"{records[0].id} … {records[-1].id}"
        rows.append((id, f"{kind} {describe(cell)}", str(len(records)), "; ".join(spans), ids))
        anchors.append(anchor(id, kind))
        target = link(id, kind)
        links.append(("" if target.startswith("#") else target, "", "", "", ""))
    note = "Lines count from 1; the ids are those of the first and the last record."
    head = ("cell", "what", "records", "file and lines", "ids")
    return Table("Records of each cell", head, tuple(rows), note, 5, tuple(links), tuple(anchors))


def anchor(cell: str, kind: str) -> str:
    """The id of a cell's line in the table of records."""
    return f"cell-{cell}-{kind}"


def _names(paths: Sequence[Path]) -> list[str]:
    """File names relative to the folder that holds them all: the rest of a path is nobody's business."""
    full = [path.resolve() for path in paths]
    root = os.path.commonpath([path.parent for path in full])
    return [path.relative_to(root).as_posix() for path in full]


def _versions() -> list[str]:
    """Of what made the records, as far as it is installed here, and of what made the report."""
    packages = (
        "stsr",
        "torch",
        "transformers",
        "lm-eval",
        "numpy",
        "scipy",
        "pandas",
        "matplotlib",
        "jinja2",
    )
    there = [f"{name} {metadata.version(name)}" for name in packages if _installed(name)]
    return [f"python {platform.python_version()}", *there]


def _installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False
