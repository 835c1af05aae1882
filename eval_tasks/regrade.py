"""Scores the raw outputs of records again, after a change of parser or verifier.

    changes = regrade_folder(Path("out/records"), Path("out/regraded"))

Each task is generated from its id, and must have the recorded fingerprint; each raw output then goes through
today's environment. A free run can be scored again only while the model saw what it would see today: where a
verdict changed, later prompts would have been others, and the episode is left out and reported. Records of
ScienceWorld are in scienceworld_regrade.py.

Invariant: outputs, prompts, lengths and cells are copied, never computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from stsr.eval_tasks import any_records, scienceworld_regrade
from stsr.eval_tasks.any_records import Record
from stsr.eval_tasks.episodes import ERROR_AFTER, Choice, Episode, Probe
from stsr.eval_tasks.records import DecisionRecord, EpisodeRecord, RecordError, Turn
from stsr.eval_tasks.samples import record_of
from stsr.eval_tasks.scienceworld_records import FreeRunRecord, LocalRecord
from stsr.generators.environment import gold_prefix
from stsr.generators.rows import decision_rows, generate, parse_row_id
from stsr.generators.tasks import Task


class Changes(NamedTuple):
    """What came out."""

    total: int
    """Records scored again."""
    changed: list[str]
    """One line a record whose score changed, or that must be run again."""


def regrade_folder(folder: Path, out: Path) -> Changes:
    """Scores every record file below `folder` again, into the same places below `out`.

    Raises RecordError for a broken record, for a task that today's generators make otherwise, and if there
    is nothing to do or `out` has such a file already.
    """
    paths = sorted(folder.rglob("*.jsonl"))
    if not paths:
        raise RecordError(f"{folder} holds no record files (*.jsonl)")
    total, changed = 0, []
    for path in paths:
        target = out / path.relative_to(folder)
        if target.exists():
            raise RecordError(f"{target} is there already; choose another folder")
        lines = []
        for record in any_records.read([path]):
            again = regrade(record)
            if again is None:
                changed.append(f"{record.id}: the model would see other prompts today; run it again")
                continue
            if told := _difference(record, again):
                changed.append(f"{record.id}: {told}")
            lines.append(f"{any_records.to_json(again)}\n")
        total += len(lines)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(lines), encoding="utf-8")
    return Changes(total, changed)


def regrade(record: Record) -> Record | None:
    """The record as today's environment scores it; None where the model would have seen other prompts."""
    if isinstance(record, LocalRecord):
        return scienceworld_regrade.decision(record)
    if isinstance(record, FreeRunRecord):
        return scienceworld_regrade.episode(record)
    task = _task(record.task)
    if task.fingerprint != record.fingerprint:
        raise RecordError(
            f"{record.id}: its task has fingerprint {record.fingerprint}, generated today it has "
            f"{task.fingerprint}; score it with the version that made it"
        )
    if isinstance(record, DecisionRecord):
        return _decision(record, task)
    return _episode(record, task)


def _decision(record: DecisionRecord, task: Task) -> Record:
    view = parse_row_id(record.id).view
    (row,) = (row for row in _rows(task.id, view) if row["stage"] == record.stage)
    state, turn = gold_prefix(task, record.stage - 1), record.turn
    if record.kind == "choice":
        choice = Choice(row, state)
        choice.rank(record.logprobs or [], prompt=turn.prompt, prompt_tokens=turn.prompt_tokens)
        return record_of(choice.result(), record.cell, record.id)
    probe = Probe(row, state)
    probe.take(
        turn.output,
        prompt=turn.prompt,
        prompt_tokens=turn.prompt_tokens,
        output_tokens=turn.output_tokens,
    )
    return record_of(probe.result(), record.cell, record.id)


def _episode(record: EpisodeRecord, task: Task) -> Record | None:
    error_after = ERROR_AFTER if record.kind == "matched_error" else None
    episode = Episode(task, record.id.rpartition("@")[2], error_after=error_after)
    for turn in record.turns:
        if episode.finished or not all(
            shown["content"] in _said(turn.prompt) for shown in episode.messages()
        ):
            return None
        episode.take(
            turn.output,
            prompt=turn.prompt,
            prompt_tokens=turn.prompt_tokens,
            output_tokens=turn.output_tokens,
        )
    return record_of(episode.result(), record.cell, record.id) if episode.finished else None


def _said(prompt: str) -> str:
    """The prompt with the escapes undone that the messages to a chat server have."""
    return f"{prompt}\n{prompt.encode().decode('unicode_escape', 'ignore')}" if "\\n" in prompt else prompt


@lru_cache(maxsize=64)
def _task(task_id: str) -> Task:
    parts = parse_row_id(f"{task_id}#1@full")
    return generate(parts.family, parts.horizon, parts.seed, parts.variant)


@lru_cache(maxsize=64)
def _rows(task_id: str, view: str) -> list[dict[str, object]]:
    return list(decision_rows(_task(task_id), [view]))


def _difference(before: Record, after: Record) -> str:
    """What changed of the scores; fields that the first schema lacked don't count."""
    same = replace(after, schema=before.schema)
    if same == before:
        return ""
    told = [
        f"{name} {getattr(before, name)} -> {getattr(after, name)}"
        for name in SCORES
        if getattr(before, name, None) != getattr(after, name, None)
    ]
    told += [
        f"call {number} {old.verdict} -> {new.verdict}"
        for number, (old, new) in enumerate(zip(_turns(before), _turns(after), strict=True), 1)
        if (old.verdict, old.call) != (new.verdict, new.call)
    ]
    return ", ".join(told)


SCORES = (
    *("agree", "success", "ended", "verified", "calls", "score", "rejections"),
    *("later_success", "later_increase"),
)
"""Fields that a change is told of, in the records that have them."""


def _turns(record: Record) -> Sequence[Turn]:
    return [record.turn] if isinstance(record, DecisionRecord | LocalRecord) else record.turns
