"""Scripted policies in every kind of task, against numbers worked out by hand. Three seeds a split."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., dict[str, Any]]


def scores(found: dict[str, Any], name: str) -> dict[str, float]:
    return {
        key.removesuffix(",none"): value
        for key, value in found["results"][name].items()
        if key.endswith(",none") and "stderr" not in key
    }


@pytest.fixture(scope="module")
def oracle(load: Any) -> Callable[..., Callable[[str], str]]:
    """oracle(*names): a policy that knows the published reply to each prompt of these tasks."""

    def oracle(*names: str) -> Callable[[str], str]:
        replies = {
            doc["prompt"][0]["content"]: doc["completion"][0]["content"]
            for task in load(*names).values()
            for doc in task.task_docs
        }
        return replies.__getitem__

    return oracle


def first(prompt: str) -> str:
    """Always the candidate that is shown first."""
    return prompt.split("Recipes:\n")[1].split("\n")[0]


def echo(prompt: str) -> str:
    """The prompt itself."""
    return prompt


def junk(prompt: str) -> str:
    """Brackets and braces without end."""
    return "[{" * 900 + "\x00\ud83d NaN}"


ORACLE_KINDS = [
    "stsr_oracle_h4_random50",
    "stsr_oracle_neutral_h8_names",
    "stsr_oracle_branching_h8_compact_filler",
    "stsr_oracle_choice_h16_full",
    "stsr_oracle_state_load_4x32",
    "stsr_oracle_prefix_h16_recent2",
    "stsr_interface_recipe_ids",
    "stsr_interface_output_ids",
    "stsr_interface_one_distractor",
    "stsr_distractors_three",
    "stsr_factorial",
    "stsr_supplied_recipe",
    "stsr_padding_padded_1200",
    "stsr_crossover_oracle_h16_full",
]


def test_the_published_replies_are_right_everywhere(oracle: Any, scripts: Any, run: Run) -> None:
    found = run(scripts.lm(oracle(*ORACLE_KINDS)), *ORACLE_KINDS)
    for name in ORACLE_KINDS:
        got = scores(found, name)
        assert got["agreement"] == got["legal"] == 1.0, name
        assert got.get("clean_path", 1.0) == 1.0, name
        assert got.get("noncanonical", 0.0) == 0.0, name
        assert got.get("progress", 1.0) == 1.0, name


def test_junk_and_echoes_are_wrong_and_never_raise(scripts: Any, run: Run) -> None:
    for policy in (junk, echo):
        found = run(scripts.lm(policy), *ORACLE_KINDS)
        for name in ORACLE_KINDS:
            got = scores(found, name)
            if policy is echo and name.endswith(("_ids", "_random50", "_names")):
                continue  # the first JSON of the prompt is its example of an id, or a recipe, not a table
            assert got["agreement"] == got["legal"] == 0.0, name


def test_ids_are_read_as_json_and_compared_with_the_completion(scripts: Any, run: Run, results: Any) -> None:
    name = "stsr_interface_recipe_ids"
    texts = {
        '{"recipe":"r1"}': True,
        ' Sure: { "recipe" : "r1" } and so on': True,
        '{"recipe":"r1","recipe":"r1"}': False,
        '{"recipe":1}': False,
        '{"recipe":"r9"}': False,
        '{"recipe":"r1","why":""}': False,
        '["r1"]': False,
        "r1": False,
    }
    share = None
    for text, counts in texts.items():
        found = run(scripts.lm(lambda prompt, text=text: text), name)
        got = scores(found, name)
        share = got["agreement"] if share is None else share
        assert got["agreement"] == (share if counts else 0.0), text
        for probe in results(found, name):
            assert probe["agree"] == (counts and probe["turn"]["reference"] == '{"recipe":"r1"}')
            assert probe["turn"]["candidates"] == ['{"recipe":"r1"}', '{"recipe":"r2"}']
    assert 0 < share < 1
    turn = results(run(scripts.lm(lambda prompt: '{"recipe":"r9"}'), name), name)[0]["turn"]
    assert (turn["verdict"], turn["call"]) == ("unknown-recipe", {"recipe": "r9"})


def test_the_first_candidate(scripts: Any, run: Run) -> None:
    names = ["stsr_supplied_recipe", "stsr_distractors_one", "stsr_distractors_three", "stsr_factorial"]
    found = run(scripts.lm(first), *names)
    agreement = {name: scores(found, name)["agreement"] for name in names}
    assert agreement == {
        "stsr_supplied_recipe": 1.0,  # there is no other
        "stsr_distractors_one": 0.5,  # twelve pairs of tools at two ranks
        "stsr_distractors_three": pytest.approx(4 / 24),  # first to fourth in 4, 8, 8 and 4 of 24
        "stsr_factorial": 0.5,
    }


# -- choice


def test_likelihood_choice(scripts: Any, run: Run, oracle: Any, results: Any) -> None:
    name = "stsr_choice_h16_full"
    found = run(scripts.lm(oracle(name)), name)
    assert scores(found, name) == {"choice": 1.0, "both": 1.0, "tie": 0.0}
    # The two tasks of a pair show the same candidates in the same order and differ in the right one.
    found = run(scripts.lm(first), name)
    assert scores(found, name) == {"choice": 0.5, "both": 0.0, "tie": 0.0}
    assert found["results"][name]["both_stderr,none"] == 0.0
    found = run(scripts.lm(junk), name)  # finds both equally likely
    assert scores(found, name) == {"choice": 0.0, "both": 0.0, "tie": 1.0}
    for choice in results(found, name):
        assert (choice["agree"], choice["turn"]["output"]) == (False, "")
        assert choice["logprobs"] == [-2.0, -2.0]


def test_the_gold_position_is_balanced(load: Any) -> None:
    docs = load("stsr_choice_h16_full")["stsr_choice_h16_full"].task_docs
    assert sorted(docs["target_index"]) == [0, 0, 0, 1, 1, 1]


def test_a_backend_that_gives_no_number_is_an_error(scripts: Any, run: Run) -> None:
    lm = scripts.lm(first)
    lm.loglikelihood = lambda requests: [(math.nan, False)] * len(requests)
    with pytest.raises(ValueError, match="the backend gave log-likelihoods"):
        run(lm, "stsr_choice_h16_compact")


# -- free runs


def test_a_wrong_choice_is_accepted_and_dooms(scripts: Any, run: Run, results: Any) -> None:
    name = "stsr_free_run_choice_h16_full"
    right: dict[str, str] = {}

    def wrong(prompt: str) -> str:
        seen = scripts.see(prompt)
        assert len(seen.ready) == 2
        table = prompt.split(f"\n{json.loads(seen.ready[0])['inputs'][0]}: ")[1].split("\n")[0]
        drop = any(row[1] < 0 for row in json.loads(table)["rows"])
        (chosen,) = (r for r in seen.ready if (json.loads(r)["tool"] == "filter_rows") != drop)
        right[prompt] = next(r for r in seen.ready if r != chosen)
        return chosen

    found = run(scripts.lm(wrong), name)
    assert scores(found, name) == {
        "success": 0.0,
        "progress": 0.0,
        "calls": 16.0,  # each of them moved on to the next stage; the episode ends when all outputs exist
        "rejection": 0.0,
        "recovery": pytest.approx(math.nan, nan_ok=True),
        "noncanonical": 16.0,
    }
    for episode in results(found, name):
        assert [turn["reference"] for turn in episode["turns"]] == [
            right[t["prompt"]] for t in episode["turns"]
        ]


def test_another_legal_order_is_never_a_rejection(scripts: Any, run: Run) -> None:
    """Takes a ready recipe that is not the canonical one wherever the prompt shows one."""

    def other(prompt: str) -> str:
        seen = scripts.see(prompt)
        return max(seen.ready, key=lambda text: (text != seen.target, text))

    names = ["stsr_oracle_branching_h8_full", "stsr_free_run_branching_h8_full"]
    found = run(scripts.lm(other), *names)
    probes, free = (scores(found, name) for name in names)
    assert probes["legal"] == probes["progress"] == 1.0
    assert 0 < probes["noncanonical"] < 1
    assert probes["agreement"] == pytest.approx(1 - probes["noncanonical"])
    assert (free["success"], free["progress"], free["rejection"], free["calls"]) == (1.0, 1.0, 0.0, 8.0)
    assert free["noncanonical"] > 0


def test_a_model_that_is_stuck(scripts: Any, run: Run) -> None:
    """It makes the first call of the gold path for ever: once right, then seven times rejected at H4."""

    def stuck(prompt: str) -> str:
        return f'{{"tool":"{tools[scripts.see(prompt).calls_left]}"}}'

    said: dict[str, str] = {}

    def same(prompt: str) -> str:
        table = prompt.split("\ns0: ")[1].split("\n")[0]
        return said.setdefault(table, scripts.see(prompt).target)

    tools = dict.fromkeys(range(9), "sort_rows")
    found = run(scripts.lm(same), "stsr_free_run_h4_full")
    assert scores(found, "stsr_free_run_h4_full") == {
        "success": 0.0,
        "progress": 0.25,
        "calls": 8.0,
        "rejection": 1.0,
        "recovery": 0.0,
    }
    found = run(scripts.lm(stuck), "stsr_free_run_neutral_h4_full")
    assert scores(found, "stsr_free_run_neutral_h4_full")["progress"] == 0.0


def test_matched_error(scripts: Any, run: Run, results: Any) -> None:
    """Table 7: after four gold actions and one rejected call, 27 of 32 calls are left; 12 of them suffice."""
    name = "stsr_matched_error_h16_full"
    found = run(scripts.lm(scripts.perfect), name)
    assert scores(found, name) == {"success": 1.0, "progress": 1.0, "calls": 12.0, "rejection": 0.0}
    for episode in results(found, name):
        assert episode["kind"] == "matched_error"
        assert episode["task"] in ("chain-h16/126000", "chain-h16/126001")  # the crossover's workflows
        assert len(episode["injected"]) == 5
        assert episode["injected"][3] == episode["injected"][4]
        first_turn = episode["turns"][0]
        assert first_turn["remaining"] == 27
        assert first_turn["prompt"].endswith(
            "Calls left: 27\nPrevious error: output-exists: a4 exists already"
        )
    found = run(scripts.lm(junk), name)
    assert scores(found, name) == {"success": 0.0, "progress": 0.25, "calls": 27.0, "rejection": 1.0}
