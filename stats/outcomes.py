"""From record files to outcomes: one light row for each decision or episode. Prompts stay on disk.

    rows = read([Path("records/oracle.jsonl"), Path("records/free.jsonl")])

Every table and figure starts from these rows. A new kind of record needs one more branch in `outcome`.
Invariant: a row is complete and in range, or the read fails with an error that names file, line and id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from stsr.eval_tasks import records
from stsr.eval_tasks.records import Cell, DecisionRecord, EpisodeRecord, Record, RecordError

TASK_ID = re.compile(r"^[^/]+/(\d+)(?:~(.+))?$")
"""family-hH/seed or family-hH/seed~variant (generators.tasks.Task.id)."""


class CellError(ValueError):
    """Records that cannot be compared or counted. The message names the cell, the task and what is wrong."""


class Outcome(NamedTuple):
    """One decision or one episode. A field that its kind does not have is None."""

    kind: str
    """"oracle_prefix" or "free_run"; also "choice" (one pivotal choice) and "matched_error" (an episode after
    an injected rejection), whose records are read as soon as `eval_tasks.records` has them."""
    cell: Cell
    """What was evaluated, by what, on what."""
    id: str
    """Record id."""
    task: str
    """Task id."""
    fingerprint: str
    """Fingerprint of the task."""
    stage: int = 0
    """1..H for a decision; 0 for an episode."""
    agree: bool | None = None
    """Decision: the canonical action, and legal. Choice: the right call has the higher likelihood."""
    legal: bool | None = None
    """Decision: the environment accepted the call."""
    success: bool | None = None
    """Episode: every required artifact verified (ScienceWorld: score 100)."""
    verified: int | None = None
    """Episode: verified required operations."""
    calls: int | None = None
    """Episode: attempted calls; after a matched error, those after it."""
    rejections: int | None = None
    """Episode: rejected calls; after a matched error, the further ones."""
    reasons: tuple[tuple[str, int], ...] = ()
    """Episode: rejected calls by reason."""
    tokens: int | None = None
    """Decision: length of the prompt in tokens."""
    score: float | None = None
    """Episode of ScienceWorld: final score, 0..100."""
    increased: bool | None = None
    """Episode of ScienceWorld with a parser rejection: the score rose after it."""
    file: str = ""
    """File that the record stands in."""
    line: int = 0
    """Its line, from 1."""


def task_seed(task: str) -> int:
    """The seed in a task id. Raises CellError for an id of another form.

    >>> task_seed("state-load-h8/127003~4x16")
    127003
    """
    return int(_parts(task)[1])


def task_variant(task: str) -> str:
    """The variant in a task id, "" if it has none.

    >>> task_variant("state-load-h8/127003~4x16"), task_variant("chain-h4/62000")
    ('4x16', '')
    """
    return _parts(task)[2] or ""


def _parts(task: str) -> re.Match[str]:
    match = TASK_ID.match(task)
    if not match:
        raise CellError(f"task id {task!r} is not family-hH/seed or family-hH/seed~variant")
    return match


def cell_id(cell: Cell) -> str:
    """Ten hex digits that name a cell in links, for example `episodes.html#cell=...`.

    >>> from stsr.eval_tasks.records import Cell
    >>> cell_id(Cell("base", "r", "me/h4", "a", "d", "r", "test", "chain", 4, "full", "none", "f", "HF"))
    '8efd60d7ea'
    """
    return hashlib.sha256(json.dumps(asdict(cell), sort_keys=True).encode()).hexdigest()[:10]


def read(paths: Iterable[Path]) -> list[Outcome]:
    """Outcomes of all record files, in order. Raises RecordError for a bad line or an id twice in its cell,
    CellError for a value out of range."""
    found: list[Outcome] = []
    seen: set[tuple[str, str, Cell]] = set()
    known: dict[Cell, Cell] = {}
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                record = records.from_json(line, f"{path}:{number}")
                cell = known.setdefault(record.cell, record.cell)
                key = (record.kind, record.id, cell)
                if key in seen:
                    raise RecordError(f"{path}:{number}: {record.id} stands twice in its cell")
                seen.add(key)
                found.append(outcome(record)._replace(cell=cell, file=str(path), line=number))
    return found


def outcome(record: Record) -> Outcome:
    """The row of a record. Raises CellError, naming the id, unless its values are whole and in range."""
    if isinstance(record, DecisionRecord):
        return _decision(record)
    return _episode(record)


def _decision(record: DecisionRecord) -> Outcome:
    if not _is_count(record.stage, 1, record.cell.horizon):
        raise CellError(f"{record.id}: stage {record.stage!r} is not in 1..{record.cell.horizon}")
    if not isinstance(record.agree, bool):
        raise CellError(f"{record.id}: agree is {record.agree!r}, not true or false")
    legal = record.turn.verdict == "accepted"
    if record.agree and not legal:
        raise CellError(f"{record.id}: agrees, but its call was rejected: {record.turn.verdict}")
    return Outcome(
        kind=record.kind,
        cell=record.cell,
        id=record.id,
        task=record.task,
        fingerprint=record.fingerprint,
        stage=record.stage,
        agree=record.agree,
        legal=legal,
        tokens=record.turn.prompt_tokens,
    )


def _episode(record: EpisodeRecord) -> Outcome:
    """An episode's summary must be whole numbers in range and agree with its turns."""
    horizon = record.cell.horizon
    if not isinstance(record.success, bool):
        raise CellError(f"{record.id}: success is {record.success!r}, not true or false")
    if not _is_count(record.verified, 0, horizon):
        raise CellError(f"{record.id}: verified is {record.verified!r}, not a whole number in 0..{horizon}")
    if record.success and record.verified != horizon:
        raise CellError(f"{record.id}: success with {record.verified} of {horizon} operations verified")
    reasons = Counter(turn.verdict for turn in record.turns if turn.verdict != "accepted")
    for name, said, counted in (
        ("calls", record.calls, len(record.turns)),
        ("rejections", record.rejections, reasons.total()),
    ):
        if not _is_count(said, 0, counted) or said != counted:
            raise CellError(f"{record.id}: {name} is {said!r}, but its turns hold {counted}")
    return Outcome(
        kind=record.kind,
        cell=record.cell,
        id=record.id,
        task=record.task,
        fingerprint=record.fingerprint,
        success=record.success,
        verified=record.verified,
        calls=record.calls,
        rejections=record.rejections,
        reasons=tuple(reasons.items()),
    )


def _is_count(value: object, low: int, high: int) -> bool:
    """JSON may hold NaN, 3.0 or true where the schema says int; none of them is a count."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
