"""Record files to outcomes. Types are checked as the JSON is read, and text that no table needs is skipped.

    rows = read([Path("records/oracle.jsonl"), Path("records/free.jsonl")])

The schema is that of the record dataclasses, prompts and outputs left as the bytes that they are: most of a
file is prompts. Invariant: all lines are whole and in range, or the read fails with an error that names file,
line and id.
"""

from __future__ import annotations

import functools
import json
import operator
import sys
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from stsr.eval_tasks import any_records, records, scienceworld_records
from stsr.eval_tasks.records import Cell, DecisionRecord, EpisodeRecord, RecordError, Turn
from stsr.eval_tasks.scienceworld_records import ActionTurn, FreeRunRecord, LocalRecord
from stsr.stats.outcomes import Outcome, outcome

SKIPPED = {
    *("prompt", "output", "call", "error", "candidates", "reference", "action", "feedback"),
    *("cell", "injected", "logprobs"),
}
"""Fields that are not parsed here."""


def read(paths: Iterable[Path]) -> list[Outcome]:
    """Outcomes of all record files, in order. Raises RecordError for a bad line or an id twice in its cell,
    CellError for a value out of range."""
    found: list[Outcome] = []
    seen: set[tuple[str, str, int]] = set()
    cells: dict[bytes, Cell] = {}
    numbers: dict[Cell, int] = {}
    for path in paths:
        with open(path, "rb") as lines:
            for number, line in enumerate(lines, 1):
                record = _record(line, f"{path}:{number}", cells)
                key = (record.kind, record.id, numbers.setdefault(record.cell, len(numbers)))
                if key in seen:
                    raise RecordError(f"{path}:{number}: {record.id} stands twice in its cell")
                seen.add(key)
                found.append(outcome(record)._replace(file=str(path), line=number))
    return found


def _record(line: bytes, where: str, cells: dict[bytes, Cell]) -> Any:
    """The record of a line; equal cells are one object. Raises RecordError."""
    try:
        record = DECODER.decode(line)
        key = bytes(record.cell)
        cell = cells.get(key)
        if cell is None:
            cell = cells[key] = Cell(**json.loads(key))
    except (msgspec.MsgspecError, TypeError) as error:
        raise _explained(line, where, error) from error
    record.cell = cell
    record.task, record.fingerprint = sys.intern(record.task), sys.intern(record.fingerprint)
    return record


def _explained(line: bytes, where: str, error: Exception) -> RecordError:
    """What the reader of whole records says of the line, or else `error` itself."""
    text = line.decode("utf-8", errors="replace")
    try:
        any_records.from_json(text, where)
    except RecordError as known:
        return known
    return RecordError(f"{where}: not a record: {error}")


def _light(record: type, kind: str = "", **types: Any) -> Any:
    """The dataclass `record` as a type to decode; its long fields are raw, and `types` replace others.

    With a `kind`, that is the tag that chooses it among the others.
    """
    hints = get_type_hints(record) | dict.fromkeys(SKIPPED, msgspec.Raw) | types
    made: list[Any] = []
    for field in fields(record):
        required = field.name in types or (field.default is MISSING and field.default_factory is MISSING)
        default = msgspec.Raw() if field.name in SKIPPED else field.default
        if field.name != "kind":
            made.append((field.name, hints[field.name], *(() if required else (default,))))
    return msgspec.defstruct(
        record.__name__,
        made,
        namespace={"kind": kind},
        tag_field="kind" if kind else None,
        tag=kind or None,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _lights(record: type, turn: Any, schema: Sequence[str]) -> list[Any]:
    """A type for each kind of a record."""
    types = {name: of for name, of in (("turn", turn), ("turns", list[turn])) if name in _names(record)}
    return [
        _light(record, kind, schema=Literal[*schema], **types)
        for kind in get_args(get_type_hints(record)["kind"])
    ]


def _names(record: type) -> list[str]:
    return [field.name for field in fields(record)]


_TABLE = (_light(Turn), records.READABLE)
_SIMULATOR = (_light(ActionTurn), (scienceworld_records.SCHEMA,))
_TYPES = [
    *_lights(DecisionRecord, *_TABLE),
    *_lights(EpisodeRecord, *_TABLE),
    *_lights(LocalRecord, *_SIMULATOR),
    *_lights(FreeRunRecord, *_SIMULATOR),
]
DECODER = msgspec.json.Decoder(functools.reduce(operator.or_, _TYPES))
