"""hypothesis strategies: tasks of every family, and states that a run can reach."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from stsr.generators.environment import State, gold_prefix, step
from stsr.generators.rows import FAMILIES
from stsr.generators.tasks import Task


@st.composite
def tasks(draw: st.DrawFn, families: Iterable[str] = FAMILIES) -> Task:
    """A task of one of `families`, at any horizon, seed and variant that it has."""
    family = FAMILIES[draw(st.sampled_from(list(families)))]
    horizon, variant = draw(st.sampled_from(family.horizons)), draw(st.sampled_from(family.variants))
    return family.generate(horizon, draw(st.integers(0, 10**9)), variant)


@st.composite
def states(draw: st.DrawFn, families: Iterable[str] = FAMILIES) -> State:
    """A state of a free run: some gold calls, then some recipes of the task, right or wrong."""
    task = draw(tasks(families))
    state = gold_prefix(task, draw(st.integers(0, task.horizon - 1)))
    for index in draw(st.lists(st.integers(0, len(task.recipes) - 1), max_size=4)):
        state = step(state, task.recipes[index].text).state
    return state
