"""Records of table workflows and of ScienceWorld alike: a line says by its schema which it is. Pure.

    for record in read(Path("out/records").rglob("*.jsonl")):
        ...

Invariant: what `records` and `scienceworld_records` refuse is refused here in their words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from stsr.eval_tasks import records, scienceworld_records
from stsr.eval_tasks.records import DecisionRecord, EpisodeRecord, read_lines
from stsr.eval_tasks.scienceworld_records import FreeRunRecord, LocalRecord

Record = DecisionRecord | EpisodeRecord | LocalRecord | FreeRunRecord


def from_json(line: str, where: str = "record") -> Record:
    """The record in a line. Raises RecordError that names `where` for anything else."""
    # A quote within a prompt is escaped, so these stand for the field alone.
    simulated = f'"{scienceworld_records.SCHEMA}"' in line
    return scienceworld_records.from_json(line, where) if simulated else records.from_json(line, where)


def to_json(record: Record) -> str:
    """One line of JSON, keys sorted, without the newline."""
    if isinstance(record, LocalRecord | FreeRunRecord):
        return scienceworld_records.to_json(record)
    return records.to_json(record)


def read(paths: Iterable[Path]) -> Iterator[Record]:
    """All records of the files, in order. Raises RecordError for a broken line or an id twice in one cell."""
    return read_lines(paths, from_json)
