"""Shared beginnings and candidates tried first change the time that a run takes and nothing else."""

from __future__ import annotations

import copy
import doctest
import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from stsr.eval_tasks import shared_prefix
from stsr.eval_tasks.bench import requests
from stsr.eval_tasks.rollout import render, run, stsr_rollout
from stsr.eval_tasks.shared_prefix import SharedPrefixLM
from stsr.generators import chain, choice
from stsr.generators.rows import decision_rows

VIEWS = ("full", "compact", "recent2")


def ask(lm: HFLM, prompts: list[str], tokens: int = 16) -> list[str]:
    arguments = {"until": [], "max_gen_toks": tokens, "do_sample": False}
    asked = [Instance("generate_until", {}, (prompt, arguments), 0, ("t", 0, 1)) for prompt in prompts]
    return list(lm.generate_until(asked, disable_tqdm=True))


def scores(lm: HFLM, pairs: list[tuple[str, str]]) -> list[tuple[float, bool]]:
    asked = [Instance("loglikelihood", {}, pair, 0, ("t", 0, 1)) for pair in pairs]
    return list(lm.loglikelihood(asked, disable_tqdm=True))


@pytest.mark.parametrize("batch_size", [1, 5])
def test_rollouts_equal_those_of_hflm(network: Any, tok: Any, batch_size: int) -> None:
    """Batches of prompts of many lengths: horizons and views mixed, rejections on the way."""
    ours, theirs = (
        cls(pretrained=network, tokenizer=tok, batch_size=batch_size) for cls in (SharedPrefixLM, HFLM)
    )
    tasks = [chain.generate(horizon, 62000) for horizon in (4, 16)]
    asked = [request for view in VIEWS for request in requests(tasks, view, ours.apply_chat_template, 8)]
    asked = asked if batch_size > 1 else asked[:1]
    results = run(ours, asked, disable_tqdm=True)
    assert results == run(theirs, asked, disable_tqdm=True)
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
    assert run(ours, asked, disable_tqdm=True) == run(theirs, asked, disable_tqdm=True)
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


# -- candidates


@pytest.fixture(scope="module")
def tiny() -> Any:
    """The shipped base model, which has learnt to copy one of the calls that are shown."""
    folder = str(files("stsr.recipes") / "bases/tiny")
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return network, AutoTokenizer.from_pretrained(folder)


def both(model: Any, batch_size: int = 4) -> tuple[SharedPrefixLM, HFLM]:
    network, tokenizer = model
    options = {"pretrained": network, "tokenizer": tokenizer, "batch_size": batch_size}
    return SharedPrefixLM(**options), HFLM(**options)


def same(ours: SharedPrefixLM, theirs: HFLM, asked: list[Any]) -> list[str]:
    told = run(ours, asked, disable_tqdm=True)
    assert told == run(theirs, asked, disable_tqdm=True)
    return told


@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_settled_answers_are_those_of_greedy_decoding(tiny: Any, batch_size: int) -> None:
    ours, theirs = both(tiny, batch_size)
    tasks = [chain.generate(4, 62000)] if batch_size == 1 else [chain.generate(h, 62000) for h in (4, 8)]
    views = VIEWS[:1] if batch_size == 1 else VIEWS
    same(ours, theirs, [r for view in views for r in requests(tasks, view, ours.apply_chat_template, 48)])
    assert ours.settled > 0


def test_a_random_model_settles_nothing_and_answers_alike(network: Any, tok: Any) -> None:
    ours, theirs = both((network, tok), 8)
    same(
        ours,
        theirs,
        requests([chain.generate(8, 1), chain.generate(8, 2)], "full", ours.apply_chat_template, 8),
    )
    assert ours.settled == 0
    assert ours.decoded > 0


def test_what_is_offered_decides_about_time_alone(tiny: Any) -> None:
    """The target is not consulted: whatever is offered, the answers are the same."""
    ours, theirs = both(tiny)
    (told,) = same(
        ours, theirs, requests([chain.generate(4, 62000)], "compact", ours.apply_chat_template, 48)
    )
    settled = ours.settled
    assert settled > 0
    prompts = {turn["prompt"]: turn["output"] for turn in json.loads(told)["turns"]}
    for offers in (["nonsense"], [], [""]):
        ours.offers = dict.fromkeys(prompts, offers)
        assert ask(ours, list(prompts), 48) == list(prompts.values())
    assert ours.settled == settled
    ours.offers = {prompt: [answer[:-1], f"{answer} ", answer] for prompt, answer in prompts.items()}
    assert ask(ours, list(prompts), 48) == list(prompts.values())
    assert ours.settled > settled


def test_what_the_limit_cuts_is_cut(tiny: Any) -> None:
    ours, theirs = both(tiny)
    same(ours, theirs, requests([chain.generate(4, 62000)], "compact", ours.apply_chat_template, 5))
    assert ours.settled == 0


def test_settings_that_change_greedy_decoding_take_hflms_way(tiny: Any) -> None:
    other = copy.deepcopy(tiny[0])
    other.generation_config.repetition_penalty = 1.3
    ours, theirs = both((other, tiny[1]))
    same(ours, theirs, requests([chain.generate(4, 62000)], "compact", ours.apply_chat_template, 24))
    assert ours.settled == 0


def test_a_near_tie_is_not_settled(network: Any, tok: Any) -> None:
    ours, _ = both((network, tok))
    eps = torch.finfo(torch.float32).eps
    logits = torch.tensor([[0.0, 16.0, 16.0 * (1 + 4 * eps)], [0.0, 16.0, 16.1]])
    assert ours._argmax(logits) == ([2, 2], [False, True])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("head", ["", "State: a1 a2 a3 " * 8])
def test_texts_side_by_side_are_as_if_alone(
    model: Any, tok: Any, network: Any, attention: str, head: str
) -> None:
    """Logits of one pass over prompts and texts, against a pass over each prompt with each text."""
    alone = AutoModelForCausalLM.from_pretrained(model, attn_implementation=attention).eval()
    lm = SharedPrefixLM(pretrained=alone, tokenizer=tok, batch_size=4)
    rows = [tok(f"{head}{tail}")["input_ids"] for tail in ("one tail and more of it", "x")]
    texts = [[tok(text)["input_ids"] for text in some] for some in (["a b c", "a", "b c d e"], ["zz"])]
    found = lm._compute(rows, texts, max(map(len, rows)))
    common = sum(len({*tokens}) == 1 for tokens in zip(*rows, strict=False))
    assert found.shared == (common if common >= 32 else 0)
    assert bool(found.shared) == bool(head)
    for row, some, ahead in zip(rows, texts, found.ahead, strict=True):
        for text, steps in zip(some, ahead, strict=True):
            with torch.inference_mode():
                logits = network(input_ids=torch.tensor([row + text])).logits[0, len(row) - 1 :]
            torch.testing.assert_close(steps, logits, atol=1e-3, rtol=1e-4)


def passes(model: Any, ask: Callable[[], object]) -> int:
    """Forward passes of the network while `ask` runs."""
    count = [0]
    hook = model.get_input_embeddings().register_forward_hook(lambda *_: count.__setitem__(0, count[0] + 1))
    ask()
    hook.remove()
    return count[0]


def test_a_batch_of_settled_answers_takes_one_pass(tiny: Any) -> None:
    ours, theirs = both(tiny, 4)
    rows = [row for seed in (62000, 62001) for row in decision_rows(chain.generate(4, seed), ["compact"])]
    prompts = [str(render(row["prompt"], ours.apply_chat_template)) for row in rows]
    ours.offers = dict(zip(prompts, (row["candidates"] for row in rows), strict=True))
    longest = max(len(ours.tok_encode(text, add_special_tokens=False)) for text in ask(theirs, prompts, 48))
    # The shared beginning, and two batches of four.
    assert passes(tiny[0], lambda: ask(ours, prompts, 48)) == 3
    assert (ours.settled, ours.decoded) == (8, 0)
    # Decoding takes a pass a token, and one for the end, for each of two batches.
    assert passes(tiny[0], lambda: ask(theirs, prompts, 48)) in range(longest + 2, 2 * (longest + 1) + 1)


def test_lm_evals_own_backend_goes_this_way(tiny: Any) -> None:
    _, theirs = both(tiny, 4)
    asked = requests([chain.generate(4, 62000)], "compact", theirs.apply_chat_template, 48)
    answers: list[list[str]] = []
    few = passes(tiny[0], lambda: answers.append(stsr_rollout(theirs, asked, disable_tqdm=True)))
    many = passes(tiny[0], lambda: answers.append(run(theirs, asked, disable_tqdm=True)))
    assert answers[0] == answers[1]
    assert few < many
    assert type(theirs) is HFLM


@pytest.mark.parametrize("config", [LlamaConfig, GPT2Config, MistralConfig])
def test_other_decoders(config: Any, tok: Any) -> None:
    """Llama rotates positions, GPT-2 has learnt ones, Mistral's window takes HFLM's way."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    kept = {"eos_token_id": tok.eos_token_id, "bos_token_id": None, "pad_token_id": tok.pad_token_id}
    heads = {} if config is GPT2Config else {"num_key_value_heads": 2, "max_position_embeddings": 4096}
    shape = config(**sizes, **kept, **heads, vocab_size=len(tok), n_positions=4096)
    other = AutoModelForCausalLM.from_config(shape).eval()
    for parameter in other.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.5)
    ours, theirs = both((other, tok))
    assert ours._plain == (config is not MistralConfig)
    same(ours, theirs, requests([chain.generate(4, 1)], "compact", ours.apply_chat_template, 12))
    rows = decision_rows(chain.generate(4, 1), ["compact"])
    prompts = [str(render(row["prompt"], ours.apply_chat_template)) for row in rows]
    pairs = [(prompt, reply) for prompt in prompts for reply in ("a b c", "x", "a b d e")]
    found, known = (scores(lm, pairs) for lm in (ours, theirs))
    assert [score for score, _ in found] == pytest.approx([score for score, _ in known], abs=1e-2, rel=1e-4)


@pytest.mark.slow
def test_passes_with_the_tokens_of_qwen3(qwen3_tokenizer: Any) -> None:
    """A call has some 20 tokens there. A network that has learnt 16 replies by heart is a tuned model."""
    rows = [row for seed in range(4) for row in decision_rows(chain.generate(4, seed), ["compact"])]
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"eos_token_id": qwen3_tokenizer.eos_token_id, "pad_token_id": qwen3_tokenizer.pad_token_id}
    network = Qwen3ForCausalLM(
        Qwen3Config(**sizes, **ends, num_key_value_heads=2, head_dim=32, vocab_size=len(qwen3_tokenizer))
    )
    ours, theirs = both((network, qwen3_tokenizer), 16)
    prompts = [str(render(row["prompt"], ours.apply_chat_template)) for row in rows]
    learn(network, qwen3_tokenizer, prompts, [row["completion"][0]["content"] for row in rows])
    ours.offers = dict(zip(prompts, (row["candidates"] for row in rows), strict=True))
    answers: list[list[str]] = []
    few = passes(network, lambda: answers.append(ask(ours, prompts, 64)))
    many = passes(network, lambda: answers.append(ask(theirs, prompts, 64)))
    assert answers[0] == answers[1] == [row["completion"][0]["content"] for row in rows]
    assert ours.settled == 16
    assert few == 2  # the shared beginning, and the batch
    assert many >= 10 * few


def learn(network: Any, tokenizer: Any, prompts: list[str], replies: list[str]) -> None:
    """Teaches the network each prompt's reply, by heart. Tokens that stand nowhere keep a logit of zero."""
    ends = [f"{reply}{tokenizer.eos_token}" for reply in replies]
    texts = [f"{prompt}{end}" for prompt, end in zip(prompts, ends, strict=True)]
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
    tails = [len(tokenizer(end)["input_ids"]) for end in ends]
    used = batch["input_ids"].unique()
    places = torch.full((len(tokenizer),), -100)
    places[used] = torch.arange(len(used))
    labels = places[batch["input_ids"][:, -max(tails) :]]
    for row, tail in zip(labels, tails, strict=True):
        row[: max(tails) - tail] = -100
    network.model.embed_tokens.requires_grad_(False)
    head = torch.nn.Parameter(network.lm_head.weight[used].detach().clone())
    optimizer = torch.optim.AdamW([*network.model.layers.parameters(), head], lr=1e-2)
    for _ in range(400):
        states = network.model(**batch).last_hidden_state[:, -max(tails) - 1 : -1]
        logits = torch.nn.functional.pad(states @ head.T, (0, 1))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        if loss < 0.01:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.lm_head.weight.data = torch.zeros_like(network.lm_head.weight).index_copy(0, used, head.data)
    network.eval()


@pytest.mark.slow
@pytest.mark.parametrize("tuned", [False, True])
def test_two_thousand_prompts(tiny: Any, tuned: bool) -> None:
    """2,016 probes of chains under three views: the shipped base, and the base under a LoRA that moves it."""
    network, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    if tuned:
        torch.manual_seed(3)
        settings = LoraConfig(
            r=4, target_modules=["q_proj", "o_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
        )
        network = get_peft_model(network, settings).eval()
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.data *= 0.3
    ours, theirs = both((network, tokenizer), 16)
    rows = [
        row
        for horizon, seeds in ((4, 144), (8, 90), (16, 45))
        for seed in range(64000, 64000 + seeds)
        for row in decision_rows(chain.generate(horizon, seed), [VIEWS[seed % 3]])
    ]
    prompts = [str(render(row["prompt"], ours.apply_chat_template)) for row in rows]
    ours.offers = dict(zip(prompts, (row["candidates"] for row in rows), strict=True))
    assert len(set(prompts)) == 2016
    assert ask(ours, prompts, 64) == ask(theirs, prompts, 64)
    assert ours.settled + ours.decoded == 2016


# -- likelihood


@pytest.mark.parametrize("batch_size", [1, 4])
def test_likelihoods_equal_those_of_hflm(tiny: Any, batch_size: int) -> None:
    ours, theirs = both(tiny, batch_size)
    rows = [
        row
        for variant in ("negative", "positive")
        for row in decision_rows(choice.generate(16, 72000, variant), ["full", "compact"], pivot_only=True)
    ]
    pairs = [
        (str(render(row["prompt"], ours.apply_chat_template)), reply)
        for row in rows
        for reply in row["candidates"]
    ]
    pairs.append((pairs[0][0], "x"))
    found, known = (scores(lm, pairs) for lm in (ours, theirs))
    assert [score for score, _ in found] == pytest.approx([score for score, _ in known], abs=2e-4)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in known]


def test_examples_in_the_docstrings() -> None:
    assert doctest.testmod(shared_prefix).failed == 0
