"""Records of the ScienceWorld study: one JSON line for each local decision or free run. Pure.

Fields that mean the same as elsewhere are those of `records`; what a simulator adds is here. Rejection is the
parser's, by one exact string; nothing here judges anything else.

Invariant: a file holds each `id` at most once per cell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from stsr.eval_tasks.records import Cell, RecordError, Turn, reason
from stsr.generators.scienceworld.catalogue import MOST_ACTIONS

SCHEMA = "stsr.scienceworld-record/1"
Ended = Literal["success", "failed", "budget"]


@dataclass(frozen=True)
class ActionTurn(Turn):
    """One call of the model and what the simulator said about it. `error` is the feedback of a rejection."""

    action: str = ""
    """What was read from the output, by the record's extraction rule, and sent."""
    feedback: str = ""
    """The simulator's answer, word for word; "" in a local decision, which is sent to no simulator."""
    score: int = 0
    """The score after the call; in a local decision, the score before it."""


@dataclass(frozen=True)
class LocalRecord:
    """One decision of a reference path: the model is asked for the next action, no simulator runs."""

    id: str
    """Row id, for example "scienceworld-freeze/1#12@full"."""
    task: str
    fingerprint: str
    """Fingerprint of the workflow in the frozen catalogue."""
    family: str
    bin: str
    """short, medium or long, by the length of the reference path."""
    horizon: int
    """Length of the reference path."""
    stage: int
    """1 to horizon."""
    agree: bool
    """Exactly the reference action, but for case and white space."""
    extraction: str
    """Rule by which the action was read from the output."""
    turn: ActionTurn
    cell: Cell
    kind: Literal["scienceworld_local"] = "scienceworld_local"
    schema: str = SCHEMA


@dataclass(frozen=True)
class FreeRunRecord:
    """One free run: the model's own actions drive the simulator, at most 100 of them, in smoke runs fewer."""

    id: str
    """Episode id, for example "scienceworld-freeze/1@full"."""
    task: str
    fingerprint: str
    """Fingerprint of the workflow in the frozen catalogue; "" for an official test variation."""
    family: str
    bin: str
    """By the length of the reference path; "" for an official test variation."""
    horizon: int
    """Length of the reference path; 0 for an official test variation."""
    success: bool
    """The score reached 100, nothing less."""
    ended: Ended
    """By success, by a negative score, or with the last call of the budget."""
    calls: int
    """Calls of the model, rejected ones included."""
    score: int
    """Final score, raw: -100 to 100."""
    best: int
    """Highest score on the way, at least 0."""
    rejections: int
    """Calls whose feedback was the parser's rejection, exactly."""
    later_success: bool | None
    """In an episode with a rejection: whether it succeeded all the same. None without one."""
    later_increase: bool | None
    """In an episode with a rejection: whether the score ever rose above its value at the first. Else None."""
    extraction: str
    """Rule by which actions were read from outputs."""
    simulator: str
    """Version of the package scienceworld."""
    jar_sha256: str
    turns: list[ActionTurn]
    cell: Cell
    kind: Literal["scienceworld_free_run"] = "scienceworld_free_run"
    schema: str = SCHEMA

    @property
    def clipped(self) -> int:
        """Final score, at least 0. The paper does not say whether its means are of raw or clipped scores."""
        return max(self.score, 0)


Record = LocalRecord | FreeRunRecord


def condition_of(subset: str, most_calls: int) -> str:
    """`Cell.condition` of free runs: the subset of the official test variations, and a shortened budget.

    >>> condition_of("pilot", 100), condition_of("pilot", 8), condition_of("", 8)
    ('pilot', 'pilot, 8 calls', '8 calls')
    """
    shortened = "" if most_calls == MOST_ACTIONS else f"{most_calls} calls"
    return ", ".join(filter(None, (subset, shortened)))


def subset_and_budget(condition: str) -> tuple[str, str]:
    """The two parts of such a condition, "" where it has none.

    >>> subset_and_budget("pilot"), subset_and_budget("pilot, 8 calls"), subset_and_budget("8 calls")
    (('pilot', ''), ('pilot', '8 calls'), ('', '8 calls'))
    """
    found = re.fullmatch(r"([a-z]*)(?:, )?(\d+ calls)?", condition)
    return (found[1], found[2] or "") if found else (condition, "")


def to_json(record: Record) -> str:
    """One line of JSON, keys sorted, without the newline."""
    return json.dumps(asdict(record), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def from_json(line: str, where: str = "record") -> Record:
    """The inverse of `to_json`. Raises RecordError that names `where` for anything else."""
    try:
        raw: dict[str, Any] = json.loads(line)
        if raw["schema"] != SCHEMA:
            raise RecordError(f"{where}: schema {raw['schema']!r}, this version reads {SCHEMA}")
        raw["cell"] = Cell(**raw["cell"])
        if raw["kind"] == "scienceworld_local":
            return LocalRecord(**{**raw, "turn": ActionTurn(**raw["turn"])})
        if raw["kind"] == "scienceworld_free_run":
            return FreeRunRecord(**{**raw, "turns": [ActionTurn(**turn) for turn in raw["turns"]]})
    except RecordError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{where}: not a record: {reason(error)}") from error
    raise RecordError(f"{where}: unknown kind {raw['kind']!r}")


def record_of(result: Mapping[str, Any], cell: Cell, where: str) -> Record:
    """The record of a rollout's result. Raises RecordError, which begins with `where`, for anything else."""
    return from_json(json.dumps({**result, "cell": asdict(cell), "schema": SCHEMA}), where)
