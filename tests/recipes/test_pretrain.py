"""Protects: pretraining resumes exactly, and the shipped base model is what its card says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stsr.generators.declaration import load
from stsr.generators.rows import decision_rows, generate
from stsr.recipes import pretrain
from stsr.recipes.chat import QWEN3_TEMPLATE
from stsr.recipes.curriculum import Example, example
from stsr.recipes.experiment import recipes_folder

DECLARED = load(pretrain.Recipe, recipes_folder() / "pretraining/tiny-base.yaml")
BASE = recipes_folder() / "bases/tiny"
SMALL = replace(
    DECLARED,
    vocabulary=400,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    head_dim=16,
    tokenizer_examples=20,
    held_out_examples=4,
    steps=6,
    examples_per_step=4,
    microbatches=2,
    checkpoint_every=2,
)


@pytest.fixture(scope="module")
def base():
    return AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32), AutoTokenizer.from_pretrained(
        BASE
    )


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def card(facts):
    return f"{facts['parameters']} parameters"


def test_an_interrupted_run_ends_as_an_uninterrupted_one(tmp_path, monkeypatch):
    pretrain.pretrain(SMALL, tmp_path / "whole", card)
    honest, done = pretrain.train_step, []

    def dies_at_step_3(*arguments):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(1)
        return honest(*arguments)

    monkeypatch.setattr(pretrain, "train_step", dies_at_step_3)
    with pytest.raises(KeyboardInterrupt):
        pretrain.pretrain(SMALL, tmp_path / "resumed", card)
    monkeypatch.setattr(pretrain, "train_step", honest)
    assert not (tmp_path / "resumed").exists()
    with pytest.raises(pretrain.PretrainError, match=r"another recipe \(other learning_rate\); delete it"):
        pretrain.pretrain(replace(SMALL, learning_rate=1.0), tmp_path / "resumed", card)
    facts = pretrain.pretrain(SMALL, tmp_path / "resumed", card)
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "resumed")
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert pretrain.pretrain(SMALL, tmp_path / "resumed", card) == facts
    assert (tmp_path / "resumed/README.md").read_text() == card(facts)


def test_microbatches_change_nothing_but_rounding():
    tok = pretrain.build_tokenizer(SMALL)
    after = []
    for parts in (1, 4):
        recipe = replace(SMALL, microbatches=parts)
        model = pretrain.build_model(recipe, tok)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        pretrain.train_step(model, tok, optimizer, recipe, 0)
        after.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*after, rtol=1e-4, atol=1e-6)  # sums of float32 in another order


def test_only_the_completion_and_its_end_carry_loss():
    tok = pretrain.build_tokenizer(SMALL)
    ids, labels = pretrain.encode(
        tok, [Example("only", "a prompt", '{"x":1}'), Example("only", "longer prompt", "y")]
    )
    for row, label, answer in zip(ids, labels, ('{"x":1}', "y"), strict=True):
        assert tok.decode(row[label != pretrain.IGNORED]) == f"{answer}<|im_end|>"


def test_a_folder_with_anything_else_is_left_alone(tmp_path):
    with pytest.raises(pretrain.PretrainError, match="holds no pretrained model"):
        pretrain.pretrain(SMALL, tmp_path, card)


def test_the_shipped_weights_are_small_and_free_of_pickles():
    assert {path.suffix for path in BASE.iterdir()} <= {".safetensors", ".json", ".jinja", ".md"}
    assert (BASE / "model.safetensors").stat().st_size <= 8_000_000
    assert json.loads((BASE / "config.json").read_text())["architectures"] == ["Qwen3ForCausalLM"]


def test_the_shipped_model_is_the_declared_one(base):
    model, tok = base
    assert 2_000_000 <= sum(p.numel() for p in model.parameters()) <= 4_000_000
    assert json.loads((BASE / "pretrain.json").read_text())["recipe"] == json.loads(
        json.dumps({name: getattr(DECLARED, name) for name in DECLARED.__dataclass_fields__})
    )
    assert tok.chat_template == QWEN3_TEMPLATE
    assert tok.eos_token == "<|im_end|>"
    assert model.config.eos_token_id == tok.eos_token_id


def test_the_shipped_tokenizer_encodes_any_text(base):
    text = 'Ünïcödé \x00\x7f 日本語 {"a":[-12,3]}\n\t<|im_start|>'
    assert base[1].decode(base[1](text)["input_ids"]) == text


def test_it_copies_a_supplied_recipe(base):
    # Required: at least 98% of supplied recipes (the paper's probe gave 167 of 168).
    found = [example(index, "supplied", 1.0) for index in range(800)]
    supplied = [made for made in found if made.kind == "only"][:60]
    assert pretrain.accuracy(base[0], base[1], supplied)["only"] >= 0.98


def test_untuned_it_is_at_chance_on_the_projects_prompt(base):
    rows = [
        row for seed in range(62_000, 62_020) for row in decision_rows(generate("chain", 4, seed), ["full"])
    ]
    asked = [Example("oracle", row["prompt"][0]["content"], row["completion"][0]["content"]) for row in rows]
    assert 0.35 <= pretrain.accuracy(base[0], base[1], asked)["oracle"] <= 0.60
