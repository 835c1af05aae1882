"""Rollouts through lm-eval: right models, wrong models, broken backends, and lock step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import lm_eval
import pytest
from lm_eval.api.model import CachingLM
from lm_eval.models.huggingface import HFLM

from stsr.eval_tasks.bench import UnequalError, benchmark, requests
from stsr.eval_tasks.rollout import PromptTooLongError, stsr_rollout
from stsr.generators import chain

Run = Callable[..., dict[str, Any]]
GARBAGE = [
    "",
    "no idea",
    "<think>",
    "{",
    "[]",
    "null",
    '{"tool": NaN}',
    '{"tool":"sort_rows","tool":"sort_rows"}',
    "[" * 5000,
    '{"tool":"sort_rows","inputs":["s0"],"output":"a1","params":{}}',
]


@pytest.mark.parametrize("horizon", [4, 8, 16])
def test_a_perfect_model_scores_one_on_everything(scripts: Any, run: Run, horizon: int) -> None:
    names = [f"stsr_{kind}_h{horizon}_{view}" for kind in ("oracle", "free_run") for view in VIEWS]
    found = run(scripts.lm(scripts.perfect), *names)["results"]
    for name in names:
        scores = {key.removesuffix(",none"): value for key, value in found[name].items()}
        if "oracle" in name:
            assert [scores[key] for key in ("agreement", "legal", "clean_path")] == [1.0, 1.0, 1.0]
            assert math.isnan(scores["post4"]) if horizon == 4 else scores["post4"] == 1.0
        else:
            assert [scores[key] for key in ("success", "progress", "rejection")] == [1.0, 1.0, 0.0]
            assert scores["calls"] == horizon
            assert scores["calls_stderr"] == 0.0  # every episode took exactly H calls
            assert math.isnan(scores["recovery"])


VIEWS = ("full", "compact", "recent2")


def test_a_model_that_follows_the_distractor(scripts: Any, run: Run, results: Any) -> None:
    found = run(scripts.lm(scripts.distracted), "stsr_oracle_h8_full", "stsr_free_run_h8_full")
    oracle, free = (
        {key.removesuffix(",none"): value for key, value in found["results"][name].items()}
        for name in ("stsr_oracle_h8_full", "stsr_free_run_h8_full")
    )
    assert [oracle[key] for key in ("agreement", "post4", "legal", "clean_path")] == [0.0] * 4
    assert [free[key] for key in ("success", "progress", "rejection", "recovery")] == [0.0, 0.0, 1.0, 0.0]
    assert free["calls"] == 16  # the whole budget
    for episode in results(found, "stsr_free_run_h8_full"):
        assert {turn["verdict"] for turn in episode["turns"]} <= {"output-exists", "missing-input"}
        assert [turn["remaining"] for turn in episode["turns"]] == list(range(16, 0, -1))


def test_garbage_is_malformed_and_never_raises(scripts: Any, run: Run, results: Any) -> None:
    def babble(prompt: str) -> str:
        return GARBAGE[scripts.see(prompt).calls_left % len(GARBAGE)]

    found = run(scripts.lm(babble), "stsr_free_run_h8_recent2", "stsr_oracle_h8_recent2")
    assert found["results"]["stsr_oracle_h8_recent2"]["agreement,none"] == 0.0
    for episode in results(found, "stsr_free_run_h8_recent2"):
        assert not episode["success"]
        assert episode["calls"] == episode["rejections"] == 16
        said = {turn["output"]: turn["verdict"] for turn in episode["turns"]}
        assert said.pop(GARBAGE[-1]) == "unknown-recipe"
        assert set(said.values()) == {"malformed"}


def test_mistakes_cost_a_call_are_shown_and_can_be_recovered_from(
    scripts: Any, run: Run, results: Any
) -> None:
    found = run(scripts.lm(scripts.blundering), "stsr_free_run_h16_compact")
    episodes = results(found, "stsr_free_run_h16_compact")
    verdicts = {turn["verdict"] for episode in episodes for turn in episode["turns"]}
    assert {"accepted", "malformed", "unknown-recipe"} < verdicts
    assert verdicts & {"output-exists", "missing-input"}
    for episode in episodes:
        # Calls left 32, 31, 30*, 29, 28, 27*, ...: a mistake in every third call, so 16 right ones take 24
        # less the mistake that would follow the last.
        assert (episode["success"], episode["calls"], episode["rejections"]) == (True, 23, 7)
        for turn, following in zip(episode["turns"], episode["turns"][1:], strict=False):
            shown = following["prompt"].rsplit("Previous error: ")[1]
            assert shown.startswith(turn["error"] or "none")
    assert found["results"]["stsr_free_run_h16_compact"]["recovery,none"] == 1.0


def test_a_free_run_on_the_gold_path_sees_the_published_prompts(scripts: Any, run: Run, results: Any) -> None:
    names = [f"stsr_{kind}_h8_{view}" for kind in ("oracle", "free_run") for view in VIEWS]
    found = run(scripts.lm(scripts.perfect), *names)
    for view in VIEWS:
        published = [probe["turn"]["prompt"] for probe in results(found, f"stsr_oracle_h8_{view}")]
        episodes = results(found, f"stsr_free_run_h8_{view}")
        assert [turn["prompt"] for episode in episodes for turn in episode["turns"]] == published


# -- lock step


@pytest.mark.parametrize("policy", ["perfect", "distracted", "blundering"])
def test_lock_step_equals_one_episode_at_a_time(scripts: Any, policy: str) -> None:
    tasks = [chain.generate(horizon, seed) for horizon in (4, 8, 16) for seed in range(62000, 62004)]
    lm = scripts.lm(getattr(scripts, policy))
    asked = [request for view in VIEWS for request in requests(tasks, view, lm.apply_chat_template)]
    single = [stsr_rollout(scripts.lm(lm.policy), [request], disable_tqdm=True)[0] for request in asked]
    assert stsr_rollout(lm, asked, disable_tqdm=True) == single
    assert len(lm.batches) == max(json.loads(result)["calls"] for result in single)  # one call a round


def test_lock_step_equals_one_episode_at_a_time_on_a_random_model(network: Any, tok: Any) -> None:
    lm = HFLM(pretrained=network, tokenizer=tok, batch_size=4)
    figures = benchmark(lm, horizon=4, view="full", seeds=range(62000, 62004), max_gen_toks=24)
    assert figures.calls == 32  # it knows nothing: four budgets of eight
    texts = stsr_rollout(lm, requests([chain.generate(4, 62000)], "full", lm.apply_chat_template, 24))
    assert (
        len({turn["output"] for turn in json.loads(texts[0])["turns"]}) > 1
    )  # the text does depend on the prompt


def test_a_measurement_of_unequal_transcripts_is_an_error(scripts: Any) -> None:
    """An LM that answers a batch otherwise than a single prompt. All four episodes differ."""

    class Fickle(scripts.lm):  # type: ignore[misc, name-defined]
        def generate_until(self, requests: list[Any]) -> list[str]:
            self.policy = scripts.perfect if len(requests) == 1 else scripts.distracted
            return list(super().generate_until(requests))

    message = "in 4 of 4 episodes under full, such as chain-h4/62000$"
    with pytest.raises(UnequalError, match=message):
        benchmark(Fickle(scripts.perfect), horizon=4, view="full", seeds=range(62000, 62004))


def test_equal_greedy_prompts_are_asked_once(scripts: Any) -> None:
    lm = scripts.lm(scripts.perfect)
    task = chain.generate(4, 62000)
    asked = requests([task, task], "full", lm.apply_chat_template)
    first, second, padding = stsr_rollout(lm, [*asked, asked[0]], disable_tqdm=True)
    assert first == second == padding
    assert [len(batch) for batch in lm.batches] == [1] * 4


def test_use_cache_answers_a_second_run(scripts: Any, load: Any, tmp_path: Any) -> None:
    def numbers(lm: Any) -> Any:
        cached = CachingLM(lm, str(tmp_path / "cache.db"))
        tasks = load("stsr_oracle_h4_full", "stsr_free_run_h4_full")
        found = lm_eval.evaluate(cached, {"tasks": tasks}, bootstrap_iters=0, apply_chat_template=True)
        cached.dbdict.close()
        return found["samples"]

    first, second = scripts.lm(scripts.blundering), scripts.lm(scripts.blundering)
    assert numbers(first) == numbers(second)
    assert first.batches
    assert not second.batches


def test_auto_batch_size_is_looked_for_once(network: Any, tok: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lm, looked = HFLM(pretrained=network, tokenizer=tok, batch_size="auto"), []
    monkeypatch.setattr(lm, "_detect_batch_size", lambda given=None, at=0: looked.append(given) or 2)
    asked = requests([chain.generate(4, seed) for seed in (1, 2)], "compact", lm.apply_chat_template, 4)
    stsr_rollout(lm, asked, disable_tqdm=True)
    assert len(looked) == 1
    assert lm.batch_size == "auto"


# -- broken backends


def test_an_error_of_the_backend_propagates(scripts: Any, run: Run) -> None:
    def failing(prompt: str) -> str:
        if scripts.see(prompt).calls_left < 14:
            raise ConnectionError("the server went away")
        return scripts.perfect(prompt)

    with pytest.raises(ConnectionError, match="went away"):
        run(scripts.lm(failing), "stsr_free_run_h8_full")


def test_a_missing_answer_is_an_error_and_not_a_wrong_answer(scripts: Any, run: Run) -> None:
    with pytest.raises(RuntimeError, match="None instead of text"):
        run(scripts.lm(lambda prompt: None), "stsr_oracle_h4_full")
    lm = scripts.lm(scripts.perfect)
    lm.generate_until = lambda requests: [scripts.perfect(request.args[0]) for request in requests[1:]]
    with pytest.raises(ValueError, match="shorter"):
        run(lm, "stsr_oracle_h4_full")


@pytest.mark.parametrize("name", ["stsr_oracle_h16_full", "stsr_free_run_h16_full"])
def test_a_prompt_that_does_not_fit_is_refused_before_the_first_call(
    network: Any, tok: Any, run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = HFLM(pretrained=network, tokenizer=tok, max_length=800)
    monkeypatch.setattr(lm, "generate_until", lambda *_: pytest.fail("a call was made"))
    with pytest.raises(
        PromptTooLongError, match=r"chain-h16/6200\d.* exceed the backend's max_length of 800"
    ):
        run(lm, name)
