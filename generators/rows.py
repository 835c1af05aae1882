"""Rows of a data set: one decision on the gold path under one view, or one whole task.

Ids carry family, horizon, seed, stage and view: `chain-h16/62017#7@compact`. Invariant: the rows of one
decision under two views are equal in every field but `id`, `view` and `prompt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stsr.generators import chain
from stsr.generators.environment import Rejected, State, start, step
from stsr.generators.prompts import CHAT_TEMPLATE_KWARGS, render
from stsr.generators.tasks import Task, candidates, to_json
from stsr.generators.views import view as find_view

GENERATORS = {chain.FAMILY: chain.generate}
"""Family -> generator."""

Row = dict[str, Any]


class RowId(NamedTuple):
    """The parts of a row id."""

    family: str
    horizon: int
    seed: int
    stage: int
    view: str


def parse_row_id(row_id: str) -> RowId:
    """Takes a row id apart. Raises ValueError that shows the form and names known families and views.

    >>> parse_row_id("chain-h16/62017#7@compact")
    RowId(family='chain', horizon=16, seed=62017, stage=7, view='compact')
    """
    match = re.fullmatch(r"([a-z][a-z-]*)-h(\d+)/(\d+)#(\d+)@([a-z0-9+-]+)", row_id)
    if match is None:
        raise ValueError(f"{row_id!r} is not a row id such as chain-h16/62017#7@compact")
    parts = RowId(match[1], int(match[2]), int(match[3]), int(match[4]), match[5])
    if parts.family not in GENERATORS:
        raise ValueError(f"unknown family {parts.family!r}; there are {', '.join(GENERATORS)}")
    if not 1 <= parts.stage <= parts.horizon:
        raise ValueError(f"{row_id}: stage {parts.stage} is not in 1..{parts.horizon}")
    find_view(parts.view)
    return parts


def generate(family: str, horizon: int, seed: int) -> Task:
    """One task. An unknown family or horizon is a ValueError that names the alternatives."""
    if family not in GENERATORS:
        raise ValueError(f"unknown family {family!r}; there are {', '.join(GENERATORS)}")
    return GENERATORS[family](horizon, seed)


def gold_states(task: Task) -> list[State]:
    """The H states before each gold action, replayed through the environment.

    Raises RuntimeError if a gold call is rejected or the path does not end in success: the task is broken.
    """
    state, states = start(task), []
    for index in task.gold:
        states.append(state)
        outcome = step(state, task.recipes[index].text)
        if isinstance(outcome, Rejected):
            raise RuntimeError(f"{task.id}: gold call rejected: {outcome.state.error}")
        state = outcome.state
    if not state.success:
        raise RuntimeError(f"{task.id}: the gold path does not solve the task")
    return states


def decision_rows(task: Task, views: Sequence[str]) -> Iterator[Row]:
    """One row a stage and view, stages in order; replay-verified."""
    shows = [(name, find_view(name)) for name in views]
    for stage, state in enumerate(gold_states(task), 1):
        shown, reference = candidates(task, stage), state.reference
        common = {
            "task": task.id,
            "fingerprint": task.fingerprint,
            "family": task.family,
            "horizon": task.horizon,
            "seed": task.seed,
            "stage": stage,
            "completion": [{"role": "assistant", "content": reference.text}],
            "candidates": [recipe.text for recipe in shown.shown],
            "target_index": shown.target_index,
            "distractor": shown.distractor_kind,
            "calls_left": state.remaining,
            "chat_template_kwargs": CHAT_TEMPLATE_KWARGS,
        }
        for name, show in shows:
            yield {
                "id": f"{task.id}#{stage}@{name}",
                "view": name,
                "prompt": render(show(state, reference), shown, state),
                **common,
            }


def task_row(task: Task) -> Row:
    """The whole task; `tasks.from_json(row["id"], row["definition"])` rebuilds it."""
    return {
        "id": task.id,
        "fingerprint": task.fingerprint,
        "family": task.family,
        "horizon": task.horizon,
        "seed": task.seed,
        "definition": to_json(task),
    }
