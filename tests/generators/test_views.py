"""Protects: each view shows what section 3.2 of the paper and the cards say, and hides nothing else."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stsr.generators import chain
from stsr.generators.environment import State, gold_prefix
from stsr.generators.tables import Table
from stsr.generators.tasks import candidates, from_json, to_json
from stsr.generators.views import ID_VIEWS, VIEWS, filler, view
from tests.generators.strategies import states

TASK = chain.generate(4, 62_000)
ABOUT_ORDER = {"full-target-last", "full-shuffled"}
MAY_SEE_THE_TARGET = {
    "compact",
    "full-cue",
    "compact-cue",
    "decoy",
    "compact-filler",
    "full-target-last",
}
HASHED = ["random25", "random50", "random75", "block", "decoy", "full-shuffled"]


@pytest.mark.parametrize(
    ("name", "calls", "visible"),
    [
        ("full", 0, ["s0"]),
        ("full", 3, ["s0", "a1", "a2", "a3"]),
        ("full-cue", 3, ["s0", "a1", "a2", "a3"]),
        ("compact", 0, ["s0"]),
        ("compact", 3, ["a3"]),
        ("compact-cue", 3, ["a3"]),
        ("compact-filler", 3, ["a3"]),
        ("padded-600", 0, ["s0"]),
        ("padded-1200", 3, ["s0", "a1", "a2", "a3"]),
        ("recent2", 0, ["s0"]),
        ("recent2", 1, ["s0", "a1"]),
        ("recent2", 3, ["a2", "a3"]),
        ("names", 3, []),
        ("decoy", 0, []),
        ("recipe-ids", 3, []),
        ("output-ids", 3, []),
    ],
)
def test_what_is_visible(name, calls, visible):
    state = gold_prefix(TASK, calls)
    shown = view(name)(state, state.reference)
    assert shown.visible == visible
    assert [artifact for artifact, _ in shown.artifacts] == ["s0", "a1", "a2", "a3"][: calls + 1]


@given(states())
@settings(max_examples=150)
def test_names_are_all_shown_once_and_in_order_of_creation(state):
    for name, show in VIEWS.items():
        shown = [artifact for artifact, _ in show(state, state.reference).artifacts]
        assert sorted(shown) == sorted(state.artifacts)
        if name not in ABOUT_ORDER:
            assert shown == list(state.artifacts)


@given(states())
def test_what_is_shown_is_the_artifact_or_nothing_of_it(state):
    for name, show in VIEWS.items():
        for artifact, contents in show(state, state.reference).artifacts:
            if isinstance(contents, str):
                assert name == "compact-filler" or name.startswith("padded-")
            else:
                assert contents in (None, state.artifacts[artifact])


@given(states(), st.integers(0, 40), st.text())
def test_a_view_looks_at_the_artifacts_alone(state, remaining, error):
    """Not at the budget, an error, or what the task was called; equal states look equal."""
    same = replace(state, remaining=remaining, error=error)
    again = replace(state, task=from_json(state.task.id, to_json(state.task)))
    for show in VIEWS.values():
        expected = show(state, state.reference)
        assert show(same, same.reference) == expected
        assert show(again, again.reference) == expected


@given(states(), st.randoms(use_true_random=False))
def test_a_draw_does_not_depend_on_the_order_of_creation(state, random):
    """Two free runs that made the same artifacts in another order get equal masks."""
    names = list(state.artifacts)
    random.shuffle(names)
    other = replace(state, artifacts={name: state.artifacts[name] for name in names})
    for name in HASHED:
        one, two = (view(name)(s, s.reference) for s in (state, other))
        assert sorted(one.visible) == sorted(two.visible)
        if name == "full-shuffled":
            assert one == two


@given(states())
def test_only_views_that_say_so_consult_the_target(state):
    assert {name for name, facts in VIEWS.items() if "target" in facts.consults} == MAY_SEE_THE_TARGET
    for name in VIEWS.keys() - MAY_SEE_THE_TARGET:
        assert len({view(name)(state, recipe) for recipe in state.task.recipes}) == 1


@given(states(["choice"]))
def test_compact_of_a_choice_does_not_give_it_away(state):
    """Both candidates read the same input."""
    shown = {view("compact")(state, recipe).artifacts for recipe in candidates(state.task, state.stage).shown}
    assert len(shown) == 1


@given(states())
def test_views_that_consult_the_target_do_what_they_say(state):
    reference = state.reference
    held = [name for name in state.artifacts if name in reference.inputs]
    wrong = [name for name in state.artifacts if name not in reference.inputs]
    for name in ("compact", "compact-cue", "compact-filler"):
        assert view(name)(state, reference).visible == held
    for name in VIEWS:
        hint = view(name)(state, reference).hint
        assert hint == (reference.inputs if name.endswith("-cue") else ())
    last = view("full-target-last")(state, reference)
    assert [name for name, _ in last.artifacts] == wrong + held
    decoys = view("decoy")(state, reference).visible
    assert len(decoys) == min(1, len(wrong))
    assert set(decoys) <= set(wrong)


@given(states())
def test_what_a_filler_leaves_of_a_table(state):
    for table in state.artifacts.values():
        text = filler(table)
        assert not re.search(r"[1-9-]", text)
        assert len(re.findall(r"\d+", text)) == len(table.rows) * len(table.columns)
        assert re.findall(r"[\[\]{},:]", text) == re.findall(r"[\[\]{},:]", table.text)
        assert sum(map(str.isdigit, text)) == sum(map(str.isdigit, table.text.split("],", 1)[1]))


@given(states())
def test_a_block_is_half_of_the_names_in_sorted_order(state):
    ordered = sorted(state.artifacts)
    visible = view("block")(state, state.reference).visible
    hidden = [name for name in ordered if name not in visible]
    assert len(hidden) == len(ordered) // 2
    begin = ordered.index(hidden[0]) if hidden else 0
    assert hidden == ordered[begin : begin + len(hidden)]


@pytest.mark.parametrize("percent", [25, 50, 75])
def test_a_random_mask_hides_each_artifact_with_its_probability(percent):
    many = State(TASK, {f"a{number}": TASK.sources[0][1] for number in range(100_000)}, {}, 8)
    hidden = 100_000 - len(view(f"random{percent}")(many, TASK.recipes[0]).visible)
    assert abs(hidden - 1000 * percent) < 700  # five standard deviations


@given(states())
def test_candidates_shows_what_the_candidates_read(state):
    shown = candidates(state.task, state.stage).shown
    expected = {name for recipe in shown for name in recipe.inputs} & state.artifacts.keys()
    assert set(view("candidates")(state, state.reference).visible) == expected


def test_ids_are_asked_for_by_the_views_that_say_so():
    state = gold_prefix(TASK, 1)
    replies = {name: show(state, state.reference).reply for name, show in VIEWS.items()}
    assert {name for name, reply in replies.items() if reply != "call"} == set(ID_VIEWS)
    assert (replies["recipe-ids"], replies["output-ids"]) == ("id", "output-id")


def test_padding_stands_inside_the_first_table():
    state = gold_prefix(TASK, 2)
    (name, text), *rest = view("padded-600")(state, state.reference).artifacts
    table = state.artifacts["s0"].text
    assert name == "s0"
    assert text == f'{table[:-1]},"note":"{" ".join(["pad"] * 160)}"}}'
    assert rest == list(view("full")(state, state.reference).artifacts[1:])


def test_a_filler_by_hand():
    table = Table(("id", "x"), ((10, -1), (2, -99)))
    assert filler(table) == '{"columns":["c","c"],"rows":[[00,0],[0,00]]}'


def test_every_view_says_what_it_is_about():
    for facts in VIEWS.values():
        assert facts.keeps.endswith(".")
        assert facts.isolates.endswith(".")
        assert facts.rule == f"{facts.keeps} Consults {facts.consults}."


def test_an_unknown_view_names_the_alternatives():
    with pytest.raises(ValueError, match=f"unknown view 'fll'; there are {', '.join(VIEWS)}"):
        view("fll")


def test_a_state_without_wrong_artifacts_has_no_decoy():
    state = State(TASK, {"s0": TASK.sources[0][1]}, {}, 8)
    assert view("decoy")(state, TASK.recipes[0]).visible == []
