"""Protects: what holds of every family at every seed, not only at those that are published."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stsr.generators.environment import Accepted, start, step
from stsr.generators.rows import FAMILIES, decision_rows, generate
from stsr.generators.tasks import candidates, from_json, to_json
from stsr.generators.views import VIEWS
from tests.generators.independent import Replay, Tally, World, check_row
from tests.generators.strategies import tasks


@given(tasks())
@settings(max_examples=200)
def test_a_task_is_rebuilt_from_its_published_form(task):
    rebuilt = from_json(task.id, to_json(task))
    assert rebuilt == task
    assert rebuilt.fingerprint == task.fingerprint
    assert [recipe.text for recipe in rebuilt.recipes] == [recipe.text for recipe in task.recipes]
    for stage in range(1, task.horizon + 1):
        assert candidates(rebuilt, stage) == candidates(task, stage)


@given(tasks())
@settings(max_examples=60)
def test_every_row_under_every_view_is_right(task):
    """As judged by the second implementation."""
    replay, tally = Replay(task.id, to_json(task)), Tally()
    for row in decision_rows(task, list(VIEWS)):
        text = {name: row[name][0]["content"] for name in ("prompt", "completion")}
        check_row(replay, {**row, **text}, tally)


CHANGES = [
    lambda call: call,
    lambda call: {**call, "output": "a99"},
    lambda call: {**call, "inputs": []},
    lambda call: {**call, "inputs": call["inputs"] * 2},
    lambda call: {**call, "tool": "sort_rows"},
    lambda call: {**call, "params": {**call["params"], "value": 1}},
    lambda call: {**call, "params": {}},
]


@given(tasks(), st.data())
@settings(max_examples=150)
def test_two_implementations_of_the_environment_agree_on_any_run(task, data):
    """Call by call: what is rejected and why, what exists, what is verified, how many calls are left."""
    state, world = start(task), World(json.loads(to_json(task)))
    numbers = st.integers(0, len(task.recipes) - 1)
    likely = numbers | st.sampled_from(task.gold) | st.none()
    for _ in range(data.draw(st.integers(1, 2 * task.horizon + 2))):
        ready = world.ready()
        number = data.draw(likely)
        if number is None:  # on with it, so that runs get far
            number = ready[0] if ready else 0
        call = data.draw(st.sampled_from([CHANGES[0]] * 9 + CHANGES))(task.recipes[number].as_json())
        outcome = step(state, json.dumps(call))
        assert ("" if isinstance(outcome, Accepted) else outcome.reason) == world.submit(call)
        state = outcome.state
        assert {
            name: {"columns": list(table.columns), "rows": [list(row) for row in table.rows]}
            for name, table in state.artifacts.items()
        } == world.tables
        assert list(state.artifacts) == list(world.tables)
        assert state.verified == world.verified()
        assert state.remaining == world.left
        assert state.success == (world.verified() == set(world.gold))


@given(tasks())
def test_fingerprints_depend_on_content_alone(task):
    other = replace(task, seed=task.seed + 1)
    assert other.id != task.id
    assert other.fingerprint == task.fingerprint


def test_variants_of_a_seed_are_different_tasks():
    for family in FAMILIES.values():
        for horizon in family.horizons:
            made = [family.generate(horizon, 62_000, variant) for variant in family.variants]
            assert len({task.fingerprint for task in made}) == len(family.variants)
            assert len({task.id for task in made}) == len(family.variants)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_unknown_horizon_or_variant_names_the_alternatives(name):
    family = FAMILIES[name]
    with pytest.raises(ValueError, match=f"the family {name} has horizon {family.horizons[0]}"):
        generate(name, 5, 1, family.variants[0])
    with pytest.raises(ValueError, match=f"the family {name} has variants with .*; not 'nonsense'"):
        generate(name, family.horizons[0], 1, "nonsense")


def test_an_unknown_family_names_the_alternatives():
    with pytest.raises(
        ValueError, match="unknown family 'tree'; there are chain, neutral, branching, choice"
    ):
        generate("tree", 4, 1)
