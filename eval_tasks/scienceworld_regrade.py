"""Scores ScienceWorld's raw outputs again, without a simulator: what it said to each action is recorded.

    again = episode(record)            # None: the model would act otherwise today; run it again

A local decision is asked of the frozen catalogue. A free run can be scored again while today's extraction
reads the same actions from its outputs, and today's stop rules end it at the same call. Its prompts are not
made again: they show what only the simulator knows.

Invariant: outputs, prompts, actions, feedback, scores and cells are copied, never computed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from stsr.eval_tasks.records import RecordError
from stsr.eval_tasks.scienceworld import Local, judged, scored
from stsr.eval_tasks.scienceworld_records import FreeRunRecord, LocalRecord, Record, record_of
from stsr.generators.scienceworld.actions import EXTRACTION, extract
from stsr.generators.scienceworld.catalogue import Workflow, read_catalogue
from stsr.generators.scienceworld.rows import decision_rows, parse_row_id
from stsr.generators.scienceworld.states import reference_after


def decision(record: LocalRecord) -> Record:
    """The record as it is scored today. Raises RecordError if the catalogue has another workflow."""
    _workflow(record)
    (row,) = (row for row in _rows(record.task, parse_row_id(record.id).view) if row["stage"] == record.stage)
    turn, local = record.turn, Local(row)
    local.take(
        turn.output,
        prompt=turn.prompt,
        prompt_tokens=turn.prompt_tokens,
        output_tokens=turn.output_tokens,
    )
    return record_of(local.result(), record.cell, record.id)


def episode(record: FreeRunRecord) -> Record | None:
    """The record as it is scored today; None where today's rules read another action or stop elsewhere.

    Raises RecordError if the catalogue has another workflow.
    """
    workflow, turns = _workflow(record), []
    for number, turn in enumerate(record.turns):
        if extract(turn.output) != turn.action:
            return None
        made = [past.action for past in record.turns[:number]]
        reference = reference_after(workflow, made) if workflow else ""
        turns.append(judged(replace(turn, reference=reference)))
        if bool(scored(turns)["ended"]) != (number + 1 == len(record.turns)):
            return None
    return replace(record, **scored(turns), extraction=EXTRACTION, turns=turns)


def _workflow(record: LocalRecord | FreeRunRecord) -> Workflow | None:
    """The record's workflow; None for an official test variation, of which no path is known."""
    if not record.fingerprint:
        return None
    workflow = read_catalogue().workflows.get(record.task)
    if workflow is None or workflow.fingerprint != record.fingerprint:
        raise RecordError(
            f"{record.id}: the catalogue has no {record.task} with the fingerprint {record.fingerprint}; "
            "score it with the version that made it"
        )
    return workflow


@lru_cache(maxsize=64)
def _rows(task: str, view: str) -> list[dict[str, Any]]:
    return list(decision_rows(read_catalogue().workflows[task], [view]))
