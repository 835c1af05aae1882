"""What the model sees in evaluation is what it saw in training, token by token."""

from __future__ import annotations

from typing import Any

import lm_eval
import pytest
import torch
from lm_eval.models.huggingface import HFLM

from stsr.generators import chain
from stsr.generators.rows import decision_rows

VIEWS = ("full", "compact", "recent2")


def seen(lm: HFLM, load: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The token ids that reach the model for each probe of a task, padding off, in document order."""
    contexts: dict[str, list[int]] = {}

    def generate(context: torch.Tensor, **_: Any) -> torch.Tensor:
        for ids in context.tolist():
            ids = [token for token in ids if token != lm.tokenizer.pad_token_id]
            contexts[lm.tokenizer.decode(ids)] = ids
        return torch.cat([context, torch.full((len(context), 1), lm.tokenizer.eos_token_id)], dim=1)

    monkeypatch.setattr(lm, "_model_generate", generate)
    task = load(name)[name]
    found = lm_eval.evaluate(lm, {"tasks": {name: task}}, bootstrap_iters=0, apply_chat_template=True)
    return [contexts[sample["arguments"][0][0]] for sample in found["samples"][name]]


def trained(tokenizer: Any, data: Any, horizon: int, view: str) -> list[list[int]]:
    """Each row's context as training renders it: the template over the prompt, with the row's arguments."""
    rows = [
        row for seed in range(62000, 62003) for row in decision_rows(chain.generate(horizon, seed), [view])
    ]
    return [
        tokenizer.apply_chat_template(
            row["prompt"], add_generation_prompt=True, return_dict=False, **row["chat_template_kwargs"]
        )
        for row in rows
    ]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("horizon", [4, 8, 16])
def test_evaluation_sends_the_tokens_of_training(
    network: Any, tok: Any, data: Any, load: Any, horizon: int, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = HFLM(pretrained=network, tokenizer=tok, batch_size=8, enable_thinking=False)
    sent = seen(lm, load, f"stsr_oracle_h{horizon}_{view}", monkeypatch)
    assert len(sent) == 3 * horizon
    assert sent == trained(tok, data, horizon, view)


def test_so_it_does_under_the_real_qwen3_tokenizer(
    network: Any, qwen3_tokenizer: Any, data: Any, load: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = HFLM(pretrained=network, tokenizer=qwen3_tokenizer, batch_size=8, enable_thinking=False)
    sent = seen(lm, load, "stsr_oracle_h16_full", monkeypatch)
    assert sent == trained(qwen3_tokenizer, data, 16, "full")


@pytest.mark.parametrize("thinking", [None, True])
def test_thinking_is_off_whatever_the_backend_was_told(
    network: Any, tok: Any, data: Any, load: Any, thinking: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = HFLM(
        pretrained=network,
        tokenizer=tok,
        batch_size=8,
        enable_thinking=thinking,
        think_end_token="</think>" if thinking else None,
    )
    assert seen(lm, load, "stsr_oracle_h4_compact", monkeypatch) == trained(tok, data, 4, "compact")


def test_records_count_the_tokens_that_were_sent(
    network: Any, tok: Any, data: Any, run: Any, results: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = HFLM(pretrained=network, tokenizer=tok, batch_size=8, enable_thinking=False)
    answer = tok("no idea")["input_ids"]

    def generate(context: torch.Tensor, **_: Any) -> torch.Tensor:
        tail = torch.tensor([[*answer, tok.eos_token_id]] * len(context))
        return torch.cat([context, tail], dim=1)

    monkeypatch.setattr(lm, "_model_generate", generate)
    turns = [probe["turn"] for probe in results(run(lm, "stsr_oracle_h4_full"), "stsr_oracle_h4_full")]
    assert [turn["prompt_tokens"] for turn in turns] == [len(ids) for ids in trained(tok, data, 4, "full")]
    assert {turn["output"] for turn in turns} == {"no idea"}
    assert {turn["output_tokens"] for turn in turns} == {len(answer)}


def test_system_text_and_cached_requests_are_refused(scripts: Any, load: Any) -> None:
    for option, message in (
        ({"system_instruction": "Be terse."}, "one user message"),
        (
            {"cache_requests": True},
            "stale",
        ),
    ):
        tasks = load("stsr_oracle_h4_full")
        with pytest.raises(ValueError, match=message):
            lm_eval.evaluate(
                scripts.lm(scripts.perfect), {"tasks": tasks}, apply_chat_template=True, **option
            )


def test_without_a_chat_template_the_prompt_is_the_bare_text(scripts: Any, load: Any, data: Any) -> None:
    lm = scripts.lm(scripts.perfect)
    found = lm_eval.evaluate(lm, {"tasks": load("stsr_oracle_h4_full")}, bootstrap_iters=0)
    row = next(decision_rows(chain.generate(4, 62000), ["full"]))
    assert lm.batches[0][0] == row["prompt"][0]["content"]
    assert found["results"]["stsr_oracle_h4_full"]["agreement,none"] == 1.0
