"""Launch files: accelerate's own classes read them, and nothing in them goes unread."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

from stsr.recipes.sft_recipe import TrainError, resolve

FOLDER = Path(__file__).parents[2] / "recipes/accelerate"
FILES = sorted(FOLDER.glob("*.yaml"))
KINDS = {
    "one-gpu": (DistributedType.NO, 1, 1),
    "multi-gpu": (DistributedType.MULTI_GPU, 1, 8),
    "multi-node": (DistributedType.MULTI_GPU, 2, 16),
    "fsdp2": (DistributedType.FSDP, 1, 8),
}


def test_every_file_is_known_here() -> None:
    assert {path.stem for path in FILES} == KINDS.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_accelerate_reads_every_key(path: Path) -> None:
    """It refuses keys that it does not know; each key here is a field of its class, with the value stated."""
    config = load_config_from_file(str(path))
    assert isinstance(config, ClusterConfig)
    assert (config.distributed_type, config.num_machines, config.num_processes) == KINDS[path.stem]
    fields = {field.name for field in dataclasses.fields(ClusterConfig)}
    stated = yaml.safe_load(path.read_text())
    assert stated.keys() <= fields
    for key in stated.keys() - {"distributed_type", "compute_environment"}:
        assert getattr(config, key) == stated[key], key
    # a rank is given when each machine is launched
    assert config.machine_rank == 0


def test_fsdp_keys_are_those_of_its_plugin() -> None:
    stated = load_config_from_file(str(FOLDER / "fsdp2.yaml")).fsdp_config
    names = {key.removeprefix("fsdp_") for key in stated}
    renamed = {"version": "fsdp_version", "offload_params": "cpu_offload"}
    fields = {field.name for field in dataclasses.fields(FullyShardedDataParallelPlugin)}
    assert {renamed.get(name, name) for name in names} <= fields
    assert stated["fsdp_version"] == 2


@pytest.mark.parametrize(("name", "processes"), [("qwen3.8-27b", 8), ("qwen3.8-27b", 16), ("qwen3-8b", 8)])
def test_the_recipes_of_the_examples_can_be_shared(name: str, processes: int, tmp_path: Path) -> None:
    path = FOLDER.with_name("sft") / f"{name}.yaml"
    recipe = resolve(path, view="full", overrides={"use_cpu": True})
    args = recipe.sft_config(tmp_path, processes)
    assert args.gradient_accumulation_steps * processes == recipe.rows_per_update
    with pytest.raises(TrainError, match="cannot share"):
        recipe.sft_config(tmp_path, 3)
