"""Rows of a data set: one decision on the gold path under one view, or one whole task.

Ids carry family, horizon, seed, stage and view: `chain-h16/62017#7@compact`. Invariant: the rows of one
decision under two views are equal in every field but `id`, `view` and `prompt`, and `completion` where a view
asks for the recipe's id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stsr.generators import branching, chain, choice, controls, neutral
from stsr.generators.environment import Rejected, State, start, step
from stsr.generators.prompts import CHAT_TEMPLATE_KWARGS, answer, render
from stsr.generators.tasks import Family, Task, candidates, to_json
from stsr.generators.views import view as find_view

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        chain.FAMILY,
        neutral.FAMILY,
        branching.FAMILY,
        choice.FAMILY,
        *controls.FAMILIES,
    )
}
"""Every family by name."""

Row = dict[str, Any]


class RowId(NamedTuple):
    """The parts of a row id."""

    family: str
    horizon: int
    seed: int
    variant: str
    stage: int
    view: str


def parse_row_id(row_id: str) -> RowId:
    """Takes a row id apart. Raises ValueError that shows the form and names known families and views.

    >>> parse_row_id("chain-h16/62017#7@compact")
    RowId(family='chain', horizon=16, seed=62017, variant='', stage=7, view='compact')
    """
    match = re.fullmatch(r"([a-z][a-z-]*)-h(\d+)/(\d+)(?:~([a-z0-9-]+))?#(\d+)@([a-z0-9-]+)", row_id)
    if match is None:
        raise ValueError(f"{row_id!r} is not a row id such as chain-h16/62017#7@compact")
    parts = RowId(match[1], int(match[2]), int(match[3]), match[4] or "", int(match[5]), match[6])
    find_family(parts.family)
    if not 1 <= parts.stage <= parts.horizon:
        raise ValueError(f"{row_id}: stage {parts.stage} is not in 1..{parts.horizon}")
    find_view(parts.view)
    return parts


def find_family(name: str) -> Family:
    """The family called `name`. Raises ValueError that names the alternatives."""
    if name not in FAMILIES:
        raise ValueError(f"unknown family {name!r}; there are {', '.join(FAMILIES)}")
    return FAMILIES[name]


def generate(family: str, horizon: int, seed: int, variant: str = "") -> Task:
    """One task. An unknown family, horizon or variant is a ValueError that names the alternatives."""
    return find_family(family).generate(horizon, seed, variant)


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


def decision_rows(task: Task, views: Sequence[str], pivot_only: bool = False) -> Iterator[Row]:
    """One row a stage and view, stages in order; replay-verified. `pivot_only` leaves the pivot's stage."""
    shows, task_id, fingerprint = [(name, find_view(name)) for name in views], task.id, task.fingerprint
    for stage, state in enumerate(gold_states(task), 1):
        if pivot_only and stage != task.pivot:
            continue
        shown, reference = candidates(task, stage), state.reference
        common = {
            "task": task_id,
            "fingerprint": fingerprint,
            "family": task.family,
            "horizon": task.horizon,
            "seed": task.seed,
            "stage": stage,
            "candidates": [recipe.text for recipe in shown.shown],
            "target_index": shown.target_index,
            "distractor": shown.distractor_kind,
            "calls_left": state.remaining,
            "chat_template_kwargs": CHAT_TEMPLATE_KWARGS,
        }
        for name, show in shows:
            observation = show(state, reference)
            yield {
                "id": f"{task_id}#{stage}@{name}",
                "view": name,
                "prompt": render(observation, shown, state),
                "completion": [{"role": "assistant", "content": answer(observation, shown)}],
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
