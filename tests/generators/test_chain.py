"""Protects: what protocol section 2 promises of chains."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stsr.generators import chain
from stsr.generators.rows import gold_states
from stsr.generators.tasks import candidates

CYCLE = ["map_column", "sort_rows", "filter_rows", "select_columns"]
tasks = st.builds(chain.generate, st.sampled_from([4, 8, 16]), st.integers(0, 10**9))


@given(tasks)
def test_every_step_changes_its_table_and_stays_in_bounds(task):
    tables = task.gold_tables
    assert [recipe.tool for recipe in task.recipes] == CYCLE * (task.horizon // 4)
    for recipe in task.recipes:
        before, after = tables[recipe.inputs[0]], tables[recipe.output]
        assert after != before
        assert after.rows
        assert after.columns
        assert all(-99 <= value <= 99 for row in after.rows for value in row)


@given(tasks)
def test_exactly_one_recipe_can_run_at_each_stage(task):
    for stage, state in enumerate(gold_states(task), 1):
        ready = [
            index
            for index, recipe in enumerate(task.recipes)
            if recipe.output not in state.artifacts and set(recipe.inputs) <= state.artifacts.keys()
        ]
        assert ready == [task.gold[stage - 1]]
        assert state.stage == stage


def test_no_two_seeds_give_one_task():
    prints = {chain.generate(h, seed).fingerprint for h in (4, 8, 16) for seed in range(1000)}
    assert len(prints) == 3000


def test_candidates_are_balanced_and_of_both_kinds():
    shown = [candidates(chain.generate(8, seed), stage) for seed in range(100) for stage in range(1, 9)]
    assert all(len({recipe.text for recipe in pair.shown}) == 2 for pair in shown)
    positions, kinds = Counter(p.target_index for p in shown), Counter(p.distractor_kind for p in shown)
    assert 350 < positions[0] < 450  # of 800; five standard deviations are 71
    assert 350 < kinds["finished"] < 450  # on average (stage - 1) of 7 others are finished: half


def test_the_distractor_depends_on_seed_and_stage_only():
    first, again = (candidates(chain.generate(16, 62_003), 7) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("horizon", [0, 1, 5, 32])
def test_other_horizons_are_refused_with_the_alternatives(horizon):
    with pytest.raises(ValueError, match="4, 8, 16"):
        chain.FAMILY.generate(horizon, 1)
