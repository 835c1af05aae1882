"""Outcomes: one light row for each decision or episode, of tables or of ScienceWorld. Prompts stay on disk.

    rows = [outcome(record) for record in records.read(paths)]      # `reading.read(paths)` is faster

Every table and figure starts from these rows. A new kind of record needs one more branch in `outcome`.
Invariant: a row is complete and in range, or there is an error that names its id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from stsr.eval_tasks.records import Cell

TASK_ID = re.compile(r"^[^/]+/(\d+)(?:~.+)?$")
"""family-hH/seed or family-hH/seed~variant (generators.tasks.Task.id)."""


class CellError(ValueError):
    """Records that cannot be compared or counted. The message names the cell, the task and what is wrong."""


class Outcome(NamedTuple):
    """One decision or one episode. A field that its kind does not have is None."""

    kind: str
    """"oracle_prefix" (ScienceWorld: a local decision), "free_run", "choice" (one pivotal choice) or
    "matched_error" (an episode after an injected rejection)."""
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
    bin: str = ""
    """ScienceWorld: short, medium or long, by the length of the reference path."""
    score: float | None = None
    """Episode of ScienceWorld: final score, -100..100."""
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
    match = TASK_ID.match(task)
    if not match:
        raise CellError(f"task id {task!r} is not family-hH/seed or family-hH/seed~variant")
    return int(match[1])


def cell_id(cell: Cell) -> str:
    """Ten hex digits that name a cell in links, for example `episodes.html#cell=...`.

    >>> from stsr.eval_tasks.records import Cell
    >>> cell_id(Cell("base", "r", "me/h4", "a", "d", "r", "test", "chain", 4, "full", "none", "f", "HF"))
    '8efd60d7ea'
    """
    return hashlib.sha256(json.dumps(asdict(cell), sort_keys=True).encode()).hexdigest()[:10]


def outcome(record: Any) -> Outcome:
    """The row of a record of `records` or `scienceworld_records`, or of anything with the same fields.

    Raises CellError, naming the id, unless its values are whole and in range.
    """
    return _BRANCHES[record.kind](record)


def _decision(record: Any) -> Outcome:
    _check_decision(record, record.cell.horizon)
    legal = record.turn.verdict == "accepted"
    if record.agree and not legal:
        raise CellError(f"{record.id}: agrees, but its call was rejected: {record.turn.verdict}")
    return _row(
        record,
        stage=record.stage,
        agree=record.agree,
        legal=legal,
        tokens=record.turn.prompt_tokens,
    )


def _local(record: Any) -> Outcome:
    """A local decision of ScienceWorld, whose call is sent to no simulator."""
    _check_decision(record, record.horizon)
    return _row(
        record, stage=record.stage, agree=record.agree, tokens=record.turn.prompt_tokens, bin=record.bin
    )


def _check_decision(record: Any, horizon: int) -> None:
    if not _is_count(record.stage, 1, horizon):
        raise CellError(f"{record.id}: stage {record.stage!r} is not in 1..{horizon}")
    if not isinstance(record.agree, bool):
        raise CellError(f"{record.id}: agree is {record.agree!r}, not true or false")


def _episode(record: Any) -> Outcome:
    """An episode's summary must be whole numbers in range and agree with its turns."""
    horizon = record.cell.horizon
    _check_success(record)
    if not _is_count(record.verified, 0, horizon):
        raise CellError(f"{record.id}: verified is {record.verified!r}, not a whole number in 0..{horizon}")
    if record.success and record.verified != horizon:
        raise CellError(f"{record.id}: success with {record.verified} of {horizon} operations verified")
    return _row(
        record,
        success=record.success,
        verified=record.verified,
        calls=record.calls,
        rejections=record.rejections,
        reasons=_rejections(record),
    )


def _simulated(record: Any) -> Outcome:
    """A free run of ScienceWorld."""
    _check_success(record)
    if record.success != (record.score == 100):
        raise CellError(f"{record.id}: success is {record.success}, but its score is {record.score}")
    return _row(
        record,
        success=record.success,
        calls=record.calls,
        rejections=record.rejections,
        reasons=_rejections(record, accepted=SIMULATED),
        bin=record.bin,
        score=record.score,
        increased=record.later_increase,
    )


def _check_success(record: Any) -> None:
    if not isinstance(record.success, bool):
        raise CellError(f"{record.id}: success is {record.success!r}, not true or false")


SIMULATED = ("accepted", "ambiguous", "cancelled")
"""Verdicts on calls that ScienceWorld's parser did not reject."""


def _rejections(record: Any, accepted: Sequence[str] = ("accepted",)) -> tuple[tuple[str, int], ...]:
    """Rejected calls by reason. Raises CellError unless the summary counts what the turns hold."""
    reasons = Counter(turn.verdict for turn in record.turns if turn.verdict not in accepted)
    for name, said, counted in (
        ("calls", record.calls, len(record.turns)),
        ("rejections", record.rejections, reasons.total()),
    ):
        if not _is_count(said, 0, counted) or said != counted:
            raise CellError(f"{record.id}: {name} is {said!r}, but its turns hold {counted}")
    return tuple(reasons.items())


def _row(record: Any, **values: Any) -> Outcome:
    """The fields that every kind has, and those of its own."""
    kind = KINDS.get(record.kind, record.kind)
    return Outcome(kind, record.cell, record.id, record.task, record.fingerprint, **values)


def _is_count(value: object, low: int, high: int) -> bool:
    """JSON may hold NaN, 3.0 or true where the schema says int; none of them is a count."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


KINDS = {"scienceworld_local": "oracle_prefix", "scienceworld_free_run": "free_run"}
"""Kind of record -> kind of outcome, where they differ."""
_BRANCHES = {
    "oracle_prefix": _decision,
    "choice": _decision,
    "free_run": _episode,
    "matched_error": _episode,
    "scienceworld_local": _local,
    "scienceworld_free_run": _simulated,
}
