"""Sharing the prompts' common beginning changes the time that a run takes and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from stsr.eval_tasks.bench import requests
from stsr.eval_tasks.rollout import stsr_rollout
from stsr.eval_tasks.shared_prefix import SharedPrefixLM
from stsr.generators import chain

VIEWS = ("full", "compact", "recent2")


def ask(lm: HFLM, prompts: list[str], tokens: int = 16) -> list[str]:
    arguments = {"until": [], "max_gen_toks": tokens, "do_sample": False}
    asked = [Instance("generate_until", {}, (prompt, arguments), 0, ("t", 0, 1)) for prompt in prompts]
    return list(lm.generate_until(asked, disable_tqdm=True))


@pytest.mark.parametrize("batch_size", [1, 5])
def test_rollouts_equal_those_of_hflm(network: Any, tok: Any, batch_size: int) -> None:
    """Batches of prompts of many lengths: horizons and views mixed, rejections on the way."""
    ours, theirs = (
        cls(pretrained=network, tokenizer=tok, batch_size=batch_size) for cls in (SharedPrefixLM, HFLM)
    )
    tasks = [chain.generate(horizon, 62000) for horizon in (4, 16)]
    asked = [request for view in VIEWS for request in requests(tasks, view, ours.apply_chat_template, 8)]
    asked = asked if batch_size > 1 else asked[:1]
    results = stsr_rollout(ours, asked, disable_tqdm=True)
    assert results == stsr_rollout(theirs, asked, disable_tqdm=True)
    shortest = min(turn["prompt_tokens"] for result in results for turn in json.loads(result)["turns"])
    assert len(ours._prefix) > shortest / 2  # it did share


def test_with_an_adapter(model: Any, tok: Any) -> None:
    torch.manual_seed(1)
    tuned = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model),
        LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"),
    ).eval()
    ours, theirs = (cls(pretrained=tuned, tokenizer=tok, batch_size=4) for cls in (SharedPrefixLM, HFLM))
    asked = requests([chain.generate(4, seed) for seed in (1, 2)], "full", ours.apply_chat_template, 8)
    assert stsr_rollout(ours, asked, disable_tqdm=True) == stsr_rollout(theirs, asked, disable_tqdm=True)
    assert ours._prefix


def test_the_shared_beginning_shrinks_and_may_vanish(network: Any, tok: Any) -> None:
    ours, theirs = (cls(pretrained=network, tokenizer=tok, batch_size=4) for cls in (SharedPrefixLM, HFLM))
    head = "State: a1 a2 a3 " * 8
    lengths = []
    for prompts in (
        [f"{head} one tail"],
        [f"{head} other", f"{head} one tail and more"],
        [head[:-20], f"{head} x"],
        ["nothing in common", f"{head} y"],
        [f"{head} z"],
    ):
        assert ask(ours, prompts) == ask(theirs, prompts)
        lengths.append(len(ours._prefix))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[2] >= 32


def test_other_kinds_of_layers_take_hflms_way(small_qwen3: Any, tok: Any) -> None:
    sliding = small_qwen3(use_sliding_window=True, sliding_window=64, max_window_layers=1)
    assert set(sliding.config.layer_types) == {"full_attention", "sliding_attention"}
    ours, theirs = (cls(pretrained=sliding, tokenizer=tok, batch_size=4) for cls in (SharedPrefixLM, HFLM))
    prompts = ["State: a1 a2 a3 " * 20 + tail for tail in ("one", "two and more")]
    assert ask(ours, prompts) == ask(theirs, prompts)
    assert not ours._prefix
