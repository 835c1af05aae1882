"""Records as a data set: parquet for looking and loading, and the very record files.

    with prepare(Path("out/records"), "me/stsr-records") as ready:
        publish_folder(ready.folder, "me/stsr-records", "dataset", ...)

    load_dataset("me/stsr-records", "decisions")      # or another of SCHEMAS
    any_records.read(Path(snapshot).rglob("*.jsonl")) # what `stsr report` and `stsr regrade` read

Invariant: the same records give the same bytes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stsr.eval_tasks import any_records, records, scienceworld_records
from stsr.eval_tasks.any_records import Record
from stsr.eval_tasks.records import DecisionRecord, EpisodeRecord, RecordError
from stsr.eval_tasks.scienceworld_records import FreeRunRecord, LocalRecord

TEXT, WHOLE, YES = pa.string(), pa.int64(), pa.bool_()
TURN = pa.struct(
    {
        "prompt": TEXT,
        "output": TEXT,
        "call": TEXT,
        "verdict": TEXT,
        "error": TEXT,
        "remaining": WHOLE,
        "prompt_tokens": WHOLE,
        "output_tokens": WHOLE,
        "candidates": pa.list_(TEXT),
        "reference": TEXT,
        "canonical": YES,
    }
)
ACTION_TURN = pa.struct([*TURN, ("action", TEXT), ("feedback", TEXT), ("score", WHOLE)])
CELL = pa.struct(
    {field: WHOLE if field == "horizon" else TEXT for field in records.Cell.__dataclass_fields__}
)
COMMON = {"id": TEXT, "kind": TEXT, "task": TEXT, "fingerprint": TEXT}
SIMULATED = {**COMMON, "family": TEXT, "bin": TEXT, "horizon": WHOLE}
SCHEMAS = {
    "decisions": pa.schema(
        {
            **COMMON,
            "stage": WHOLE,
            "agree": YES,
            "progress": YES,
            "logprobs": pa.list_(pa.float64()),
            "turn": TURN,
            "cell": CELL,
        }
    ),
    "episodes": pa.schema(
        {
            **COMMON,
            "success": YES,
            "verified": WHOLE,
            "calls": WHOLE,
            "rejections": WHOLE,
            "noncanonical": WHOLE,
            "injected": pa.list_(TEXT),
            "turns": pa.list_(TURN),
            "cell": CELL,
        }
    ),
    "scienceworld_decisions": pa.schema(
        {**SIMULATED, "stage": WHOLE, "agree": YES, "extraction": TEXT, "turn": ACTION_TURN, "cell": CELL}
    ),
    "scienceworld_episodes": pa.schema(
        {
            **SIMULATED,
            "success": YES,
            "ended": TEXT,
            "calls": WHOLE,
            "score": WHOLE,
            "best": WHOLE,
            "rejections": WHOLE,
            "later_success": YES,
            "later_increase": YES,
            "extraction": TEXT,
            "simulator": TEXT,
            "jar_sha256": TEXT,
            "turns": pa.list_(ACTION_TURN),
            "cell": CELL,
        }
    ),
}
"""Config -> columns. A turn's `call` is JSON text: its parameters differ from tool to tool."""
CONFIGS = {
    DecisionRecord: "decisions",
    EpisodeRecord: "episodes",
    LocalRecord: "scienceworld_decisions",
    FreeRunRecord: "scienceworld_episodes",
}
"""Type of record -> its config."""


class Ready(NamedTuple):
    """A folder to publish."""

    folder: Path
    summary: str
    """For example "400 decisions and 20 episodes"."""


@contextmanager
def prepare(folder: Path, repo: str) -> Iterator[Ready]:
    """A temporary folder with the records below `folder` as a data set called `repo`.

    Raises RecordError for a broken record, for one twice in its cell, and if there are none.
    """
    paths = sorted(folder.rglob("*.jsonl"))
    found = list(any_records.read(paths))
    if not found:
        raise RecordError(f"{folder} holds no records (*.jsonl)")
    split = {name: [record for record in found if type(record) is kind] for kind, name in CONFIGS.items()}
    configs = {name: some for name, some in split.items() if some}
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        for name, some in configs.items():
            pq.write_table(
                pa.Table.from_pylist([_row(record) for record in some], SCHEMAS[name]),
                out / f"{name}.parquet",
            )
        for path in paths:
            target = out / "records" / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        (out / "README.md").write_text(_card(repo, configs, found), encoding="utf-8")
        counted = [f"{len(some)} {name.replace('_', ' ')}" for name, some in configs.items()]
        yield Ready(out, " and ".join(counted))


def _row(record: Record) -> dict[str, Any]:
    row = asdict(record)
    for turn in row.get("turns", [row.get("turn")]):
        turn["call"] = None if turn["call"] is None else json.dumps(turn["call"], sort_keys=True)
    return row


def _card(repo: str, configs: Iterable[str], found: list[Record]) -> str:
    listed = "".join(f"- config_name: {name}\n  data_files: {name}.parquet\n" for name in configs)
    cells = Counter((record.kind, record.cell) for record in found)
    lines = [
        f"| {cell.adapter or 'untuned'} | {cell.model} | {kind} | {cell.tasks} | {cell.view} "
        f"| {cell.condition or '-'} | {cell.split} | {count} |"
        for (kind, cell), count in sorted(cells.items(), key=str)
    ]
    revisions = sorted({(record.cell.data, record.cell.data_revision) for record in found})
    return f"""\
---
license: apache-2.0
tags: [stsr, evaluation-records]
configs:
{listed}---

# {repo.rpartition("/")[2]}

Records of evaluations on table workflows or ScienceWorld: every decision and every episode, with exact
prompts, raw outputs, parsed calls and verdicts. `records/` holds the same as the JSON lines that
`stsr report` and `stsr regrade` read (schema {records.SCHEMA} or {scienceworld_records.SCHEMA}).

| adapter | base | kind | tasks | view | condition | split | records |
|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}

Data: {", ".join(f"{data} at {revision}" for data, revision in revisions)}.
"""
