"""Protects: the ids, the pairing of views, and the gold path in the rows."""

import pytest

from stsr.generators import chain
from stsr.generators.environment import gold_prefix, step
from stsr.generators.rows import FAMILIES, decision_rows, generate, gold_states, parse_row_id, task_row
from stsr.generators.tasks import Recipe, from_json
from stsr.generators.views import ID_VIEWS, VIEWS


def test_ids_carry_family_seed_stage_and_view():
    rows = list(decision_rows(chain.generate(4, 62_000), ["full", "compact"]))
    assert [row["id"] for row in rows[:3]] == [
        "chain-h4/62000#1@full",
        "chain-h4/62000#1@compact",
        "chain-h4/62000#2@full",
    ]
    assert len(rows) == 8


def test_rows_of_one_decision_differ_in_the_prompt_only():
    rows = list(decision_rows(chain.generate(16, 62_001), list(VIEWS)))
    for at in range(0, len(rows), len(VIEWS)):
        first, *others = rows[at : at + len(VIEWS)]
        for row in others:
            own = {"id", "view", "prompt"} | ({"completion"} if row["view"] in ID_VIEWS else set())
            assert {key for key in row if row[key] != first[key]} <= own


def test_a_reply_by_id_names_the_place_of_the_target():
    for row in decision_rows(generate("interface", 16, 10_000), ["recipe-ids", "output-ids"]):
        assert row["completion"][0]["content"] == f'{{"recipe":"r{row["target_index"] + 1}"}}'


def test_pivot_only_leaves_the_pivot():
    task = generate("choice", 16, 72_000, "negative")
    (row,) = decision_rows(task, ["full"], pivot_only=True)
    assert row["id"] == f"choice-h16/72000~negative#{task.pivot}@full"
    assert row["distractor"] == "ready"


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_of_every_family_can_be_taken_apart(name):
    family = FAMILIES[name]
    task = family.generate(family.horizons[0], 5, family.variants[-1])
    for row in decision_rows(task, ["full"]):
        parts = parse_row_id(row["id"])
        assert generate(parts.family, parts.horizon, parts.seed, parts.variant) == task
        assert (parts.stage, parts.view) == (row["stage"], "full")


def test_completions_replayed_in_order_solve_the_task():
    task = chain.generate(8, 62_002)
    state = gold_prefix(task, 0)
    for row in decision_rows(task, ["full"]):
        assert row["candidates"][row["target_index"]] == row["completion"][0]["content"]
        assert row["calls_left"] == 16 - row["stage"] + 1
        state = step(state, row["completion"][0]["content"]).state
    assert state.success


def test_a_published_task_gives_the_same_rows():
    task = chain.generate(8, 62_003)
    published = task_row(task)
    assert list(decision_rows(from_json(published["id"], published["definition"]), ["full"])) == list(
        decision_rows(task, ["full"])
    )


def test_a_broken_gold_path_is_an_error():
    task = chain.generate(4, 62_000)
    wrong = Recipe("sort_rows", ("a9",), "a2", dict(task.recipes[1].params))
    broken = type(task)("chain", 4, 1, task.sources, (task.recipes[0], wrong, *task.recipes[2:]), task.gold)
    with pytest.raises(RuntimeError, match="chain-h4/1: gold call rejected"):
        gold_states(broken)


@pytest.mark.parametrize(
    ("row_id", "message"),
    [
        ("nonsense", "is not a row id such as"),
        ("chain-h4/62000#1", "is not a row id such as"),
        ("chian-h4/62000#1@full", "unknown family 'chian'; there are chain"),
        ("chain-h4/62000#5@full", r"stage 5 is not in 1\.\.4"),
        ("chain-h4/62000#1@fll", "unknown view 'fll'"),
    ],
)
def test_a_bad_row_id_is_one_clear_line(row_id, message):
    with pytest.raises(ValueError, match=message):
        parse_row_id(row_id)
