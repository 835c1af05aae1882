"""Rows of the published data set: one decision under one view, or one whole workflow. Pure.

Ids carry family, variation, stage and view: `scienceworld-freeze/1#12@compact-ref`. Invariant: the rows of
one decision under two views are equal in every field but `id`, `view` and `prompt`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stsr.generators.prompts import CHAT_TEMPLATE_KWARGS
from stsr.generators.scienceworld.catalogue import Workflow
from stsr.generators.scienceworld.prompts import render
from stsr.generators.scienceworld.states import state_at
from stsr.generators.scienceworld.variations import parse
from stsr.generators.scienceworld.views import view as find_view

Row = dict[str, Any]


class RowId(NamedTuple):
    """The parts of a row id."""

    task: str
    stage: int
    view: str


def parse_row_id(row_id: str) -> RowId:
    """Takes a row id apart. Raises ValueError that shows the form or names what is unknown.

    >>> parse_row_id("scienceworld-freeze/1#12@compact-ref")
    RowId(task='scienceworld-freeze/1', stage=12, view='compact-ref')
    """
    match = re.fullmatch(r"([a-z-]+/\d+)#(\d+)@([a-z0-9-]+)", row_id)
    if match is None:
        raise ValueError(f"{row_id!r} is not a row id such as scienceworld-freeze/1#12@full")
    parts = RowId(match[1], int(match[2]), match[3])
    parse(parts.task)
    find_view(parts.view)
    return parts


def decision_rows(workflow: Workflow, views: Sequence[str]) -> Iterator[Row]:
    """One row a stage and view, stages in order."""
    shows = [(name, find_view(name)) for name in views]
    for stage, step in enumerate(workflow.steps, 1):
        state = state_at(workflow, stage)
        common = {
            "task": workflow.id,
            "fingerprint": workflow.fingerprint,
            "family": workflow.family,
            "horizon": len(workflow.steps),
            "bin": workflow.bin,
            "official": workflow.task.official,
            "seed": workflow.variation,
            "stage": stage,
            "score": state.calls[-1].outcome.score if state.calls else 0,
            "calls_left": state.remaining,
            "completion": [{"role": "assistant", "content": step.action}],
            "chat_template_kwargs": CHAT_TEMPLATE_KWARGS,
        }
        for name, show in shows:
            prompt = render(show(state, step.action))
            yield {"id": f"{workflow.id}#{stage}@{name}", "view": name, "prompt": prompt, **common}


def workflow_row(workflow: Workflow) -> Row:
    """The whole workflow; `definition` is its canonical JSON, with every state along the path."""
    return {
        "id": workflow.id,
        "fingerprint": workflow.fingerprint,
        "family": workflow.family,
        "horizon": len(workflow.steps),
        "bin": workflow.bin,
        "official": workflow.task.official,
        "seed": workflow.variation,
        "definition": json.dumps(workflow.to_json(), sort_keys=True, ensure_ascii=False),
    }


def variation_row(task: str) -> Row:
    """A task of which only the number is known: an official test variation."""
    variation = parse(task)
    return {
        "id": task,
        "family": variation.family,
        "seed": variation.number,
        "official": variation.official,
    }
