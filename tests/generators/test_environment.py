"""Protects: any string is a legal input, each fault has its own reason, and success means all of it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stsr.generators import chain
from stsr.generators.environment import (
    REASONS,
    Accepted,
    Rejected,
    agrees,
    gold_prefix,
    parse_call,
    start,
    step,
)
from stsr.generators.rows import FAMILIES
from stsr.generators.tables import Table
from tests.generators.strategies import states

TASK = chain.generate(8, 62_000)
GOLD = [recipe.text for recipe in TASK.recipes]


def call(**changes):
    return json.dumps({**TASK.recipes[0].as_json(), **changes})


@given(states(), st.data())
@settings(max_examples=300)
def test_no_text_raises_and_a_rejection_changes_nothing_but_the_count(state, data):
    """In every family, after any calls."""
    calls = st.sampled_from([recipe.text for recipe in state.task.recipes])
    texts = (
        st.text()
        | calls
        | st.builds(lambda call, end: call[:end], calls, st.integers(-9, -1))
        | st.builds(lambda call, at, more: call[:at] + more + call[at:], calls, st.integers(0, 99), st.text())
        | st.from_regex(r"[\[\]{}:,\"\dtfn]*")
    )
    outcome = step(state, data.draw(texts))
    assert outcome.state.remaining == max(0, state.remaining - 1)
    if isinstance(outcome, Rejected):
        assert outcome.reason in REASONS
        assert list(outcome.state.artifacts.items()) == list(state.artifacts.items())
        assert outcome.state.makers == state.makers
        assert outcome.state.verified == state.verified
        assert outcome.state.error
        assert outcome.state.stage == state.stage
    else:
        assert len(outcome.state.artifacts) == len(state.artifacts) + 1
        assert outcome.state.error == ""
        assert outcome.state.verified >= state.verified


MALFORMED = {
    "empty": "",
    "prose": "I would sort the rows.",
    "array": "[1, 2]",
    "array before the call": f"[] {GOLD[0]}",
    "truncated": GOLD[0][:-1],
    "missing key": json.dumps({k: v for k, v in TASK.recipes[0].as_json().items() if k != "params"}),
    "extra key": call(note="x"),
    "NaN": GOLD[0].replace('"s0"', "NaN"),
    "infinity": call(params={"column": "x"}).replace('"x"', "Infinity"),
    "duplicate key": GOLD[0].replace('{"tool"', '{"tool":"x","tool"', 1),
    "tool is a number": call(tool=1),
    "inputs is a string": call(inputs="s0"),
    "inputs holds a number": call(inputs=[0]),
    "output is null": call(output=None),
    "params is a list": call(params=[]),
    "a float": call(params={**TASK.recipes[0].params, "value": 1.0}),
    "a boolean": call(params={**TASK.recipes[0].params, "value": True}),
    "nested params": call(params={"column": {"name": "x"}}),
    "deep nesting": '{"tool":' + "[" * 200_000,
    "a huge number": call().replace('"s0"', "9" * 5000),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_output_is_rejected_as_malformed(text):
    outcome = step(start(TASK), text)
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "malformed"


@pytest.mark.parametrize(
    "text",
    [
        GOLD[0],
        f"  \n{GOLD[0]}\n",
        f"The call is:\n```json\n{GOLD[0]}\n```\nDone.",
        f"{GOLD[0]} {GOLD[1]}",
        json.dumps(TASK.recipes[0].as_json(), indent=2),
        json.dumps(dict(reversed(TASK.recipes[0].as_json().items()))),
    ],
    ids=["plain", "space around", "fenced", "two calls", "indented", "keys in another order"],
)
def test_a_call_counts_as_json_not_as_text(text):
    outcome = step(start(TASK), text)
    assert isinstance(outcome, Accepted)
    assert list(outcome.state.artifacts) == ["s0", "a1"]
    assert agrees(start(TASK), text)


def test_each_reason_has_its_case():
    state = gold_prefix(TASK, 2)
    cases = {
        GOLD[2].replace("filter_rows", "sort_rows"): "unknown-recipe",
        json.dumps({**TASK.recipes[2].as_json(), "output": "a99"}): "unknown-recipe",
        GOLD[0]: "output-exists",
        GOLD[5]: "missing-input",
        "no": "malformed",
    }
    for text, reason in cases.items():
        outcome = step(state, text)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == reason
    spent = replace(state, remaining=0)
    outcome = step(spent, GOLD[2])
    assert isinstance(outcome, Rejected)
    assert outcome.reason == "budget-exhausted"
    assert outcome.state.remaining == 0


def test_the_error_names_what_is_wrong_and_an_accepted_call_clears_it():
    state = step(start(TASK), GOLD[4]).state
    assert state.error == "missing-input: a4 does not exist yet"
    assert step(state, GOLD[0]).state.error == ""
    assert step(gold_prefix(TASK, 1), GOLD[0]).state.error == "output-exists: a1 exists already"


def test_a_free_run_ends_with_success_or_with_the_budget():
    assert start(TASK).remaining == 16
    done = gold_prefix(TASK, 8)
    assert done.success
    assert done.finished
    assert done.remaining == 8
    state = start(TASK)
    for _ in range(16):
        assert not state.finished
        state = step(state, "no").state
    assert state.finished
    assert not state.success
    assert state.verified == frozenset()


@given(st.integers(0, 10**9), st.integers(0, 15), st.sampled_from(FAMILIES["choice"].variants))
@settings(max_examples=30)
def test_a_goal_wrong_call_runs_moves_on_and_dooms_the_run(seed, calls, variant):
    """Section A.9. The run goes on to its end, all outputs exist, and it is no success."""
    task = FAMILIES["choice"].generate(16, seed, variant)
    state = gold_prefix(task, calls)
    wrong = next(r for r in task.recipes if r.output == state.reference.output and r != state.reference)
    assert not agrees(state, wrong.text)
    outcome = step(state, wrong.text)
    assert isinstance(outcome, Accepted)
    assert outcome.state.stage == min(calls + 2, 16)
    assert step(outcome.state, state.reference.text).reason == "output-exists"
    state = outcome.state
    for index in task.gold[calls + 1 :]:
        state = step(state, task.recipes[index].text).state
    assert state.finished
    assert not state.success
    assert state.verified == set(task.gold) - {task.gold[calls]}


@given(st.integers(0, 10**9), st.sampled_from([8, 16]), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_any_order_of_ready_recipes_solves_a_branching_task(seed, horizon, random):
    """Appendix D.1: legal, though only the lowest ready recipe agrees with the canonical target."""
    state = start(FAMILIES["branching"].generate(horizon, seed))
    while not state.finished:
        legal = [i for i, r in enumerate(state.task.recipes) if isinstance(step(state, r.text), Accepted)]
        assert [i for i in legal if agrees(state, state.task.recipes[i].text)] == legal[:1]
        state = step(state, state.task.recipes[random.choice(legal)].text).state
    assert state.success
    assert state.remaining == horizon


def test_agreement_needs_the_reference_and_a_legal_call():
    state = gold_prefix(TASK, 3)
    assert agrees(state, GOLD[3])
    assert not agrees(state, GOLD[2])
    assert not agrees(state, GOLD[4])
    assert not agrees(replace(state, remaining=0), GOLD[3])


@settings(max_examples=60)
@given(st.data())
def test_any_corruption_of_an_artifact_costs_its_verification(data):
    done = gold_prefix(TASK, 8)
    name = data.draw(st.sampled_from(list(done.artifacts)))
    table = done.artifacts[name]
    kind = data.draw(
        st.sampled_from(["cell", "row dropped", "row doubled", "columns renamed", "gone", "maker"])
    )
    rows, at = list(table.rows), data.draw(st.integers(0, len(table.rows) - 1))
    artifacts, makers = dict(done.artifacts), dict(done.makers)
    if kind == "cell":
        rows[at] = (rows[at][0] + data.draw(st.sampled_from([-1, 1])), *rows[at][1:])
    elif kind == "row dropped":
        del rows[at]
    elif kind == "row doubled":
        rows.append(rows[at])
    artifacts[name] = Table(table.columns, tuple(rows))
    if kind == "columns renamed":
        artifacts[name] = Table(tuple(f"{c}_" for c in table.columns), table.rows)
    if kind == "gone":
        del artifacts[name]
    if kind == "maker" and name != "s0":
        makers[name] = (makers[name] + 1) % 8
    corrupt = replace(done, artifacts=artifacts, makers=makers)
    if kind == "maker" and name == "s0":
        assert corrupt.success
    else:
        first = 0 if name == "s0" else int(name[1:]) - 1
        assert corrupt.verified == frozenset(range(first))  # it, and all that descends from it
        assert not corrupt.success


def test_a_final_artifact_without_its_ancestors_is_not_success():
    done = gold_prefix(TASK, 8)
    only_last = replace(done, artifacts={"s0": done.artifacts["s0"], "a8": done.artifacts["a8"]})
    assert only_last.verified == frozenset()


@given(st.text(alphabet=st.characters(codec=None), max_size=50))
def test_the_parser_survives_every_character(text):
    parse_call(text)
    parse_call(f'{{"tool":"{text}","inputs":[],"output":"","params":{{}}}}')
    parse_call('{"tool":"\\ud800","inputs":[],"output":"","params":{}}')
    step(start(TASK), '{"tool":"\\ud800","inputs":[],"output":"","params":{}}')
