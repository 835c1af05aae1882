"""Recipes: nothing in a file is ignored or left to a default, and pairs differ in the view alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from trl import ModelConfig, SFTConfig

from stsr.generators.declaration import DeclarationError
from stsr.recipes.sft_recipe import Own, TrainError, resolve

FOLDER = Path(__file__).parents[2] / "recipes/sft"
RECIPES = sorted(FOLDER.glob("*.yaml"))
TINY = FOLDER / "tiny.yaml"


def names(kind: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_there_are_recipes() -> None:
    assert {"tiny.yaml", "qwen3-1.7b.yaml"} <= {path.name for path in RECIPES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_key_is_a_field_of_exactly_one_dataclass(path: Path) -> None:
    """`model_name_or_path` and `model_revision` are TRL's names for keys that we type more strictly."""
    for key in yaml.safe_load(path.read_text()):
        homes = [kind.__name__ for kind in (Own, ModelConfig, SFTConfig) if key in names(kind)]
        expected = 2 if key in ("model_name_or_path", "model_revision") else 1
        assert len(homes) == expected, (key, homes)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_values_reach_trl(path: Path, tmp_path: Path) -> None:
    raw = yaml.safe_load(path.read_text())
    recipe = resolve(path, view="full", seed=1, overrides={"use_cpu": True})
    model, args = recipe.model_config(), recipe.sft_config(tmp_path)
    for key in names(ModelConfig) & raw.keys():
        assert getattr(model, key) == raw[key], key
    for key in (names(SFTConfig) & raw.keys()) - {"seed", "data_seed", "use_cpu", "report_to"}:
        assert getattr(args, key) == raw[key], key
    assert (args.seed, args.data_seed, args.report_to) == (1, 1, [])
    assert args.gradient_checkpointing == raw["activation_checkpointing"]  # what TRL reads


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_values_of_the_protocol(path: Path) -> None:
    """Section 5: 800 actions, 100 updates of 8, linear, LoRA r16 alpha 32 dropout .05 on seven matrices.

    The tiny recipe presents the same rows in 200 updates of 4.
    """
    raw = yaml.safe_load(path.read_text())
    steps, rows = (200, 4) if path == TINY else (100, 8)
    assert raw["train_rows"] == 800
    assert raw["max_steps"] == steps
    assert raw["per_device_train_batch_size"] * raw["gradient_accumulation_steps"] == rows
    assert raw["lr_scheduler_type"] == "linear"
    assert (raw["lora_r"], raw["lora_alpha"], raw["lora_dropout"]) == (16, 32, 0.05)
    targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(raw["lora_target_modules"]) == targets
    assert (raw["max_grad_norm"], raw["weight_decay"], raw["warmup_steps"]) == (1.0, 0.0, 0)
    assert raw["save_at_steps"] == [steps * part // 5 for part in range(1, 6)]
    assert raw["adapter_dtype"] == "float32"


def test_values_of_the_crossover() -> None:
    raw = yaml.safe_load((FOLDER / "qwen3-1.7b.yaml").read_text())
    assert raw["model_name_or_path"] == "Qwen/Qwen3-1.7B"
    assert (raw["learning_rate"], raw["max_length"], raw["data_config"]) == (2e-4, 2048, "h16-{view}")
    assert (raw["dtype"], raw["bf16"], raw["activation_checkpointing"]) == ("bfloat16", True, True)
    assert (raw["per_device_train_batch_size"], raw["gradient_accumulation_steps"]) == (1, 8)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_pair_differs_in_the_keys_that_name_the_view(path: Path) -> None:
    full, compact = (resolve(path, view=view, seed=5).flat() for view in ("full", "compact"))
    assert {key for key in full if full[key] != compact[key]} == {"view", "data_config", "adapter_name"}
    assert full["data_config"].replace("full", "compact") == compact["data_config"]


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


def test_the_adapter_is_named_for_view_and_seed() -> None:
    names = {resolve(path, view="full", seed=3).own.adapter_name for path in RECIPES}
    assert names >= {"stsr/tiny-h4-full", "stsr/qwen3-1.7b-h16-full-s3"}


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
        ({"train_rows": 1600}, "not whole epochs of train_rows 1600: use max_steps 400, or train_rows 800"),
        ({"max_steps": 300}, "use max_steps 200 or 400, or train_rows 1200"),
        ({"save_at_steps": [20, 201]}, r"save_at_steps holds 201, which is not in 1\.\.200"),
        ({"adapter_dtype": "float16"}, "must be float32 or bfloat16"),
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
