"""The 27B family: the text model of a multimodal checkpoint is trained, and its adapter fits both classes.

A random Qwen3.5 of four layers stands for Qwen3.8-27B, with the chat template of Qwen3.8 as TRL ships it.
"""

from __future__ import annotations

import copy
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
)

from stsr.hub_cards.adapters import MULTIMODAL, RENAMES, TEXT, AdapterError, load_strict
from stsr.recipes.train import train
from tests.recipes.training import RECIPES, local, read

IDS = torch.tensor([[5, 9, 40, 7, 300]])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, tok: Any) -> Path:
    """As the released one: weights and `architectures` of the multimodal class."""
    folder = tmp_path_factory.mktemp("multimodal")
    text = {
        "vocab_size": len(tok),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "initializer_range": 0.2,
        "eos_token_id": tok.eos_token_id,
        "pad_token_id": tok.pad_token_id,
    }
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    torch.manual_seed(0)
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision))
    model.save_pretrained(folder)
    tokenizer = copy.deepcopy(tok)
    tokenizer.chat_template = files("trl").joinpath("chat_templates/qwen3_8.jinja").read_text()
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def finished(
    checkpoint: Path, data: Path, cache: None, one_thread: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The 27B recipe without its quantisation: one update of 8 rows, one by one."""
    changes: dict[str, Any] = {
        **local(checkpoint, data),
        "data_config": "h4-{view}",
        "train_rows": 8,
        "max_steps": 1,
        "gradient_accumulation_steps": 8,
        "save_at_steps": [1],
        "use_cpu": True,
        "load_in_4bit": False,
        "evaluate_in": "float32",
        "optim": "adamw_torch",
        "lora_dropout": 0.0,
        "dtype": "float32",
        "bf16": False,
    }
    out = tmp_path_factory.mktemp("run")
    return train(RECIPES / "qwen3.8-27b.yaml", view="full", seed=7, data_seed=11, out=out, overrides=changes)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        value: torch.Tensor = model(input_ids=IDS).logits
    return value


def test_the_text_model_is_trained_and_the_run_says_so(finished: Path, checkpoint: Path) -> None:
    """One layer in four has full attention: 4 x 3 matrices of MLPs and 4 of attention, A and B of each."""
    assert type(AutoModelForCausalLM.from_pretrained(checkpoint)) is Qwen3_5ForCausalLM
    run = read(finished / "adapter", "run.json")
    assert run["base"]["class"] == TEXT
    assert run["proof"]["keys"] == 2 * (4 * 3 + 4)


def test_the_loss_is_weighted_by_tokens_in_this_family_too(
    finished: Path, checkpoint: Path, table: Any
) -> None:
    """Computed with plain transformers. The multimodal class alone would average the means of rows."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    by_id = {row["id"]: row for row in table["h4-full"]}
    shown = json.loads((finished / "adapter/exposure.jsonl").read_text().splitlines()[0])["rows"]
    losses = []
    for row in (by_id[name] for name in shown):
        context, whole = (
            tokenizer.apply_chat_template(
                messages, add_generation_prompt=generate, enable_thinking=False, return_dict=True
            )["input_ids"]
            for messages, generate in [(row["prompt"], True), (row["prompt"] + row["completion"], False)]
        )
        assert whole[: len(context)] == context
        target = torch.tensor(whole[len(context) :])
        with torch.no_grad():
            predicted = model(torch.tensor([whole])).logits[0, len(context) - 1 : -1]
        losses.append(torch.nn.functional.cross_entropy(predicted, target, reduction="none"))
    by_token, by_row = torch.cat(losses).mean(), torch.stack([loss.mean() for loss in losses]).mean()
    assert read(finished / "adapter", "run.json")["final_loss"] == pytest.approx(by_token.item(), abs=1e-4)
    assert abs(by_token - by_row) > 3e-4
    assert not Qwen3_5ForConditionalGeneration.accepts_loss_kwargs


def test_the_adapter_fits_the_multimodal_class_by_a_declared_renaming(
    finished: Path, checkpoint: Path
) -> None:
    adapter = finished / "adapter"
    text = load_strict(Qwen3_5ForCausalLM.from_pretrained(checkpoint), adapter)
    with pytest.warns(UserWarning, match=f"trained in {TEXT}, loaded into {MULTIMODAL}: weights renamed"):
        wrapped = load_strict(Qwen3_5ForConditionalGeneration.from_pretrained(checkpoint), adapter)
    assert torch.equal(logits(text), logits(wrapped))
    plain = logits(Qwen3_5ForConditionalGeneration.from_pretrained(checkpoint))
    assert not torch.equal(logits(wrapped), plain)


def test_without_the_renaming_peft_would_load_nothing_and_say_little(
    finished: Path, checkpoint: Path
) -> None:
    base = Qwen3_5ForConditionalGeneration.from_pretrained(checkpoint)
    plain = logits(base)
    with pytest.warns(UserWarning, match="missing adapter keys"):
        silent = PeftModel.from_pretrained(base, finished / "adapter")
    assert torch.equal(logits(silent), plain)
    with pytest.raises(AdapterError, match="32 weights are missing"):
        load_strict(
            Qwen3_5ForConditionalGeneration.from_pretrained(checkpoint), finished / "adapter", key_mapping={}
        )


def test_the_two_renamings_undo_each_other() -> None:
    key = "model.layers.3.mlp.up_proj.lora_A.weight"
    there, back = (dict(RENAMES[pair]) for pair in [(TEXT, MULTIMODAL), (MULTIMODAL, TEXT)])
    for renames, expected in [(there, key.replace("model.", "model.language_model.", 1)), (back, key)]:
        ((pattern, replacement),) = renames.items()
        renamed = re.sub(pattern, replacement, key)
        assert renamed == expected
        key = renamed
