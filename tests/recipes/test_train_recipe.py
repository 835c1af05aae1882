"""Recipes: nothing in a file is ignored or left to a default, and pairs differ in the view alone."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import ModelConfig, SFTConfig, get_quantization_config

from stsr.generators.declaration import DeclarationError, read
from stsr.hub_cards.bases import nf4
from stsr.recipes.sft_recipe import Own, TrainError, read_recipe, resolve

FOLDER = Path(__file__).parents[2] / "recipes/sft"
RECIPES = sorted([*FOLDER.glob("*.yaml"), *FOLDER.with_name("scienceworld").glob("*.yaml")])
TINY = FOLDER / "tiny.yaml"


def names(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_there_are_recipes() -> None:
    bases = {"tiny", "smollm2-135m", "qwen3-1.7b", "qwen3-8b", "qwen3.8-27b"}
    assert bases <= {path.stem for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_key_is_a_field_of_exactly_one_dataclass(path: Path) -> None:
    """`model_name_or_path` and `model_revision` are TRL's names for keys that we type more strictly."""
    for key in read_recipe(path):
        homes = [kind.__name__ for kind in (Own, ModelConfig, SFTConfig) if key in names(kind)]
        expected = 2 if key in ("model_name_or_path", "model_revision") else 1
        assert len(homes) == expected, (key, homes)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_values_reach_trl(path: Path, tmp_path: Path) -> None:
    raw = read_recipe(path)
    recipe = resolve(path, view="full", seed=1, overrides={"use_cpu": True})
    model, args = recipe.model_config(), recipe.sft_config(tmp_path)
    for key in names(ModelConfig) & raw.keys():
        assert getattr(model, key) == raw[key], key
    for key in (names(SFTConfig) & raw.keys()) - {"seed", "data_seed", "use_cpu", "report_to"}:
        assert getattr(args, key) == raw[key], key
    assert (args.seed, args.data_seed, args.report_to) == (1, 1, [])
    assert args.gradient_checkpointing == raw["activation_checkpointing"]  # what TRL reads


PAPER = [path for path in RECIPES if not path.stem.startswith("tiny")]
TARGETS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


@pytest.mark.parametrize("path", [*PAPER, FOLDER / "tiny-h16.yaml"], ids=lambda path: path.stem)
def test_values_that_all_runs_of_the_paper_share(path: Path) -> None:
    """Section 5: 100 updates, microbatch 1, linear, LoRA r16 alpha 32 dropout .05 on seven matrices."""
    raw = read_recipe(path)
    assert (raw["max_steps"], raw["per_device_train_batch_size"]) == (100, 1)
    assert raw["lr_scheduler_type"] == "linear"
    assert (raw["lora_r"], raw["lora_alpha"], raw["lora_dropout"]) == (16, 32, 0.05)
    assert set(raw["lora_target_modules"]) == TARGETS
    assert (raw["max_grad_norm"], raw["weight_decay"], raw["warmup_steps"]) == (1.0, 0.0, 0)
    early = [5, 10] if path.stem == "qwen3.8-27b" else []
    assert raw["save_at_steps"] == [*early, 20, 40, 60, 80, 100]
    assert raw["adapter_dtype"] == "float32"


@pytest.mark.parametrize(
    ("name", "rows", "update", "max_length", "config", "seed"),
    [
        ("qwen3-1.7b", 800, 8, 2048, "h16-full", 20260910),
        ("qwen3-1.7b-h4", 800, 8, 2048, "h4-full", 20260910),
        ("qwen3-1.7b-h4-transfer", 800, 8, 1024, "h4-full", 20260910),
        ("qwen3-1.7b-h8", 800, 8, 2048, "h8-full", 20260910),
        ("qwen3-1.7b-choice", 3200, 8, 2048, "choice-h16-full", 20261001),
        ("qwen3-8b", 800, 8, 1536, "h16-full", 20260920),
        ("qwen3-8b-h4", 800, 8, 768, "h4-full", 20260910),  # 640 in the paper, with shorter prompts
        ("qwen3-8b-h8", 800, 8, 1024, "h8-full", 20260910),
        ("qwen3.8-27b", 3200, 64, 1536, "h16-full", 20260910),
        ("qwen3.8-27b-h4", 800, 8, 1536, "h4-full", 20260910),
        ("qwen3.8-27b-h8", 1600, 8, 1536, "h8-full", 20260910),
    ],
)
def test_values_of_tables_10_to_12(
    name: str, rows: int, update: int, max_length: int, config: str, seed: int
) -> None:
    recipe = resolve(FOLDER / f"{name}.yaml", view="full")
    assert (recipe.own.train_rows, recipe.rows_per_update) == (rows, update)
    assert (recipe.own.data_config, recipe.trl["seed"]) == (config, seed)
    assert (recipe.trl["max_length"], recipe.trl["learning_rate"]) == (max_length, 2e-4)
    assert (recipe.trl["dtype"], recipe.trl["bf16"]) == ("bfloat16", True)
    assert recipe.trl["activation_checkpointing"]


@pytest.mark.parametrize(
    ("name", "base", "evaluated", "optimizer"),
    [
        ("qwen3-1.7b", "Qwen/Qwen3-1.7B", "bfloat16", "adamw_torch"),
        ("qwen3-8b", "Qwen/Qwen3-8B", "bfloat16", "paged_adamw_8bit"),
        ("qwen3.8-27b", "Qwen/Qwen3.8-27B", "nf4", "paged_adamw_8bit"),
    ],
)
def test_bases_of_the_paper(name: str, base: str, evaluated: str, optimizer: str) -> None:
    """Section 5: the 8B adapters are trained on NF4 and evaluated in BF16, the 27B ones on NF4."""
    recipe = resolve(FOLDER / f"{name}.yaml", view="full")
    assert recipe.own.model_name_or_path == base
    assert re.fullmatch("[0-9a-f]{40}", recipe.own.model_revision or "")
    assert (recipe.own.evaluate_in, recipe.trl["optim"]) == (evaluated, optimizer)
    quantization = get_quantization_config(recipe.model_config())
    if optimizer == "adamw_torch":
        assert quantization is None
    else:
        assert (quantization.bnb_4bit_quant_type, quantization.bnb_4bit_use_double_quant) == ("nf4", True)
        assert quantization.bnb_4bit_compute_dtype == torch.bfloat16
        assert quantization.to_dict().items() >= nf4().to_dict().items()


# Variants


def test_a_variant_lies_over_the_recipe_that_it_extends(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY.read_text())
    variant = tmp_path / "variant.yaml"
    variant.write_text("extends: tiny.yaml\nmax_length: 640\n")
    whole, over = (resolve(path, view="full").flat() for path in (TINY, variant))
    assert {key for key in whole if whole[key] != over[key]} == {"max_length"}
    assert over["max_length"] == 640
    (tmp_path / "deeper.yaml").write_text("extends: variant.yaml\nmax_length: 480\n")
    with pytest.raises(DeclarationError, match=r"extends variant\.yaml, a variant itself: extend tiny\.yaml"):
        resolve(tmp_path / "deeper.yaml", view="full")
    variant.write_text("extends: tinny.yaml\n")
    with pytest.raises(DeclarationError, match=r"tinny\.yaml: cannot be read"):
        resolve(variant, view="full")
    variant.write_text("extends: tiny.yaml\nmax_lenght: 640\n")
    with pytest.raises(DeclarationError, match=r"variant\.yaml: unknown key 'max_lenght'; did you mean"):
        resolve(variant, view="full")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_variant_states_what_differs_and_names_its_adapters(path: Path) -> None:
    stated = read(path)
    if "extends" in stated:
        whole = read(path.parent / str(stated.pop("extends")))
        assert not {key for key in stated if whole[key] == stated[key]}
        assert {"adapter_name", "data_config"} <= stated.keys()


def test_adapters_have_names_of_their_own() -> None:
    names = [resolve(path, view="full", seed=3).own.adapter_name for path in RECIPES]
    assert len(set(names)) == len(names)
    assert {"stsr/tiny-h4-full", "stsr/qwen3-1.7b-h16-full-s3", "stsr/qwen3.8-27b-h8-full-s3"} <= set(names)


@pytest.mark.parametrize("view", ["recent2", "mix-full-compact", "mix-full-random"])
def test_other_views_and_mixtures_are_views_of_the_same_recipe(view: str) -> None:
    recipe = resolve(FOLDER / "qwen3-1.7b.yaml", view=view, seed=20260920)
    assert recipe.own.data_config == f"h16-{view}"
    assert recipe.own.adapter_name == f"stsr/qwen3-1.7b-h16-{view}-s20260920"
    assert (recipe.own.train_rows, recipe.presentations) == (800, 800)


def test_views_of_scienceworld_belong_to_its_data_alone() -> None:
    recipe = FOLDER / "qwen3.8-27b-scienceworld.yaml"
    assert resolve(recipe, view="compact-recent2").own.data_config == "compact-recent2"
    with pytest.raises(TrainError, match="unknown view 'candidates'; there are full, compact-ref"):
        resolve(recipe, view="candidates")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_pair_differs_in_the_keys_that_name_the_view(path: Path) -> None:
    full, cue = (resolve(path, view=view, seed=5).flat() for view in ("full", "full-cue"))
    assert {key for key in full if full[key] != cue[key]} == {"view", "data_config", "adapter_name"}
    assert full["data_config"].replace("full", "full-cue") == cue["data_config"]


@pytest.mark.parametrize(
    ("given", "seed", "data_seed"),
    [
        ({}, 20260910, 20260910),
        ({"seed": 3}, 3, 3),
        ({"seed": 3, "data_seed": 4}, 3, 4),
        ({"data_seed": 4}, 20260910, 4),
    ],
)
def test_seeds(given: dict[str, int], seed: int, data_seed: int) -> None:
    flat = resolve(TINY, view="full", **given).flat()
    assert (flat["seed"], flat["data_seed"]) == (seed, data_seed)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"lora_rr": 16}, r"unknown key 'lora_rr'; did you mean 'lora_r'\?"),
        ({"data_config_name": "x"}, "unknown key 'data_config_name'; did you mean 'data_config'"),
        ({"learning_rate": "2e-4"}, r"learning_rate: expected float, found '2e-4' \(YAML reads"),
        ({"max_steps": True}, "max_steps: expected int, found True"),
        ({"lora_target_modules": [1]}, "lora_target_modules: expected .*, found"),
        ({"train_rows": "800"}, "train_rows: expected int, found '800'"),
        ({"output_dir": "x"}, "'output_dir' does not belong in a recipe: the run's folder"),
        ({"push_to_hub": True}, "'push_to_hub' does not belong"),
        (
            {"gradient_checkpointing": True},
            "does not belong in a recipe: .* calls it activation_checkpointing",
        ),
        ({"packing": True}, "packing must be False"),
        ({"train_sampling_strategy": "group_by_length"}, "must be 'random'"),
        ({"trust_remote_code": True}, "trust_remote_code must be False"),
    ],
)
def test_keys_and_types_that_are_refused(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        resolve(TINY, view="full", overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"train_rows": 802}, "not a multiple of the 4 rows of an update.*use 800 or 804"),
        ({"train_rows": 600}, "more often than others: use max_steps 150 or 300, or train_rows 800"),
        ({"max_steps": 300}, "use max_steps 200 or 400, or train_rows 1200"),
        ({"save_at_steps": [20, 201]}, r"save_at_steps holds 201, which is not in 1\.\.200"),
        ({"adapter_dtype": "float16"}, "must be float32 or bfloat16"),
        ({"evaluate_in": "int8"}, "evaluate_in is one of float32, bfloat16, float16, nf4, not 'int8'"),
        ({"data_config": "h4-full"}, r"has no \{view\}"),
    ],
)
def test_numbers_that_are_refused(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        resolve(TINY, view="full", overrides=overrides)


def test_an_unknown_view_names_the_known_ones() -> None:
    with pytest.raises(TrainError, match="unknown view 'fulll'; there are full, compact, recent2"):
        resolve(TINY, view="fulll")


def test_a_key_may_not_be_left_to_a_default(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    lines = [line for line in TINY.read_text().splitlines() if not line.startswith("weight_decay:")]
    path.write_text("\n".join(lines))
    with pytest.raises(DeclarationError, match="the key 'weight_decay' is missing"):
        resolve(path, view="full")


def test_processes_share_an_update(tmp_path: Path) -> None:
    recipe = resolve(FOLDER / "qwen3-1.7b.yaml", view="full", overrides={"use_cpu": True})
    assert recipe.sft_config(tmp_path, processes=4).gradient_accumulation_steps == 2
    with pytest.raises(TrainError, match="3 processes cannot share gradient_accumulation_steps 8 evenly"):
        recipe.sft_config(tmp_path, processes=3)
