"""Episodes as agent traces: a JSONL file an episode, in the session format that the Hub's trace viewer reads.

    found = list(records.read(paths))
    export(found, find_tasks(found), cell_id, Path("out/traces"))
    # stsr publish out/traces --repo me/stsr-traces --type dataset

The first line is the session's header, every other one a message: the prompt, the reply with the call read
from it, and what the environment said. https://huggingface.co/docs/hub/session-traces-format documents the
format and the harness ids that the Hub recognizes; "stsr" is not among them, and how the Hub shows sessions
of an id that it doesn't know is not documented.

Invariant: replies stand word for word. Decisions have no course, and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from stsr.eval_tasks.records import Cell, EpisodeRecord, Record
from stsr.eval_tasks.replay import Moment, Player, Run, Tasks
from stsr.generators.tables import compact_json

HARNESS = "stsr"
"""Who made the trace."""
CARD = """\
---
pretty_name: Episodes on table workflows
license: apache-2.0
tags:
- agent-traces
- agents
- stsr
---
# Episodes on table workflows

{count} free runs of language models on table workflows, one file an episode, in the Hub's session trace
format. Each message of the user is a whole prompt: at every call the model is told anew all that it may know.
"""


class Exported(NamedTuple):
    """What was written."""

    sessions: int
    missing: int
    """Episodes left out since their tasks can't be had."""


def export(found: Iterable[Record], tasks: Tasks, cell_id: Callable[[Cell], str], out: Path) -> Exported:
    """Writes `sessions/CELL/TASK.jsonl` below `out`, a file an episode, and a card.

    Raises FileExistsError if `out` holds anything.
    """
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"{out} is not empty; choose another folder")
    player, sessions, missing = Player(tasks), 0, 0
    for record in found:
        if not isinstance(record, EpisodeRecord):
            continue
        if (record.task, record.fingerprint) not in tasks:
            missing += 1
            continue
        cell = cell_id(record.cell)
        path = out / "sessions" / cell / f"{record.task.replace('/', '-')}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = session(player.replay(record), f"{cell}/{record.id}")
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        sessions += 1
    out.mkdir(parents=True, exist_ok=True)
    (out / "README.md").write_text(CARD.format(count=f"{sessions:,}"), encoding="utf-8")
    return Exported(sessions, missing)


def session(run: Run, id: str) -> list[dict[str, Any]]:
    """The lines of one episode. `id` is the session's. Raises TypeError for a decision."""
    record = run.record
    if not isinstance(record, EpisodeRecord):
        raise TypeError(f"{record.id} is a decision, which has no course")
    model = record.cell.adapter or record.cell.model
    header = {
        "type": "session",
        "harness": HARNESS,
        "id": id,
        "name": f"{record.id}: {'success' if record.success else 'failed'}, {model}",
        "success": record.success,
        "verified": record.verified,
        "rejections": record.rejections,
        "injected": record.injected,
        "fingerprint": record.fingerprint,
        "cell": asdict(record.cell),
    }
    messages = [said for number, moment in enumerate(run.moments, 1) for said in _turn(moment, number, model)]
    return [header, *({"type": "message", "message": message} for message in messages)]


def _turn(moment: Moment, number: int, model: str) -> list[dict[str, Any]]:
    """Prompt, reply and answer of one call. A reply that holds no call has no result: a note answers it."""
    turn, prompt, answer = moment.turn, moment.look.prompt, moment.turn.error
    if moment.made:
        answer = f"{moment.made}: {moment.after.artifacts[moment.made].text}"
    reply: dict[str, Any] = {"role": "assistant", "content": turn.output, "model": model}
    asked = {"role": "user", "content": prompt if prompt in turn.prompt else turn.prompt}
    if turn.call is None:
        return [asked, reply, {"role": "system", "content": answer}]
    rest = {key: value for key, value in turn.call.items() if key != "tool"}
    function = {"name": turn.call["tool"], "arguments": compact_json(rest)}
    reply["toolCalls"] = [{"id": f"call-{number}", "function": function}]
    return [asked, reply, {"role": "tool", "toolCallId": f"call-{number}", "content": answer}]
