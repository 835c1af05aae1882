"""From lm-eval's logged samples to records. Pure: anyone's `lm_eval --log_samples` file will do.

    cell = Cell(model="Qwen/Qwen3-1.7B", ..., horizon=16, view="compact", ...)
    records = records_from_samples(read_samples(Path("samples_stsr_oracle_h16_compact_....jsonl")), cell)

Invariant: a record is what the environment said during the run, unchanged; nothing is scored again here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stsr.eval_tasks.records import SCHEMA, Cell, Record, RecordError, from_json


def read_samples(path: Path) -> Iterator[dict[str, Any]]:
    """The samples of a file that `lm_eval --log_samples` wrote, one JSON object a line."""
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def record_of(result: Mapping[str, Any], cell: Cell, where: str) -> Record:
    """The record of one result of a rollout, whose family, horizon and view must be the cell's.

    Raises RecordError, which begins with `where`, for anything else.
    """
    try:
        line = json.dumps({**result, "cell": asdict(cell), "schema": SCHEMA})
    except (ValueError, TypeError) as error:
        raise RecordError(f"{where}: not a result of an stsr task: {error!r}") from error
    record = from_json(line, where)
    whose = f"{cell.family}-h{cell.horizon}"
    if not record.id.startswith(f"{whose}/") or not record.id.endswith(f"@{cell.view}"):
        raise RecordError(f"{where}: {record.id} is not of the cell's {whose} under {cell.view}")
    return record


def result_of(record: Any) -> dict[str, Any]:
    """The inverse of `record_of`, for any kind of record: its fields without `cell` and `schema`."""
    return {key: value for key, value in asdict(record).items() if key not in ("cell", "schema")}


def records_from_samples(samples: Iterable[Mapping[str, Any]], cell: Cell) -> list[Record]:
    """Records of one task's samples, in document order.

    `samples` are lm-eval's, logged or in memory: `doc_id` and `resps` are read. `cell` says what was
    evaluated, since lm-eval's samples don't. Raises RecordError for a sample that is not one of our rollouts,
    that belongs to another family, horizon or view than the cell, or whose id occurs twice.
    """
    records, seen = [], set()
    for sample in sorted(samples, key=lambda sample: int(sample["doc_id"])):
        where = f"sample {sample['doc_id']}"
        try:
            result = json.loads(sample["resps"][0][0])
            keys = {**result}
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise RecordError(f"{where}: not a result of an stsr task: {error!r}") from error
        record = record_of(keys, cell, where)
        if record.id in seen:
            raise RecordError(f"{where}: {record.id} stands twice in the samples")
        seen.add(record.id)
        records.append(record)
    return records
