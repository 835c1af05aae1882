"""Trainings of a two-layer model on a few real rows, for every test that needs one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stsr.generators import chain, rows
from tests.recipes.training import ROWS, TINY, Run, local, write_data


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import datasets

    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("cache")
    yield
    datasets.config.HF_DATASETS_CACHE = before


@pytest.fixture(scope="module")
def table() -> dict[str, list[dict[str, Any]]]:
    """20 rows (5 workflows) of each configuration."""
    tasks = [chain.generate(4, seed) for seed in range(60000, 60005)]
    return {
        f"h4-{v}": [r for task in tasks for r in rows.decision_rows(task, [v])] for v in ("full", "compact")
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, table: dict[str, list[dict[str, Any]]]) -> Path:
    return write_data(tmp_path_factory.mktemp("data"), table)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, small_qwen3: Any, tok: Any) -> Path:
    """A random two-layer Qwen3 with a tokenizer of the tiny base model's kind."""
    folder = tmp_path_factory.mktemp("base")
    small_qwen3(hidden_size=64, head_dim=32, tie_word_embeddings=True).save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def overrides(base: Path, data: Path) -> dict[str, Any]:
    """16 rows twice, 4 rows an update."""
    return {
        **local(base, data),
        "train_rows": ROWS,
        "max_steps": 8,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "save_at_steps": [2, 5, 7],
    }


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """SmolLM2's weights; without the package a test is skipped, with the line that installs it."""
    from stsr.recipes.smollm2 import BaseError, weights_file

    try:
        return weights_file()
    except BaseError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, overrides: dict[str, Any], cache: None, one_thread: None
) -> Run:
    """Runs a recipe, by default the tiny one, with the overrides and further changes.

    View full, seed 7 and data seed 11, unless given.
    """
    from stsr.recipes.train import train

    def run(
        *,
        recipe: Path = TINY,
        view: str = "full",
        seed: int = 7,
        data_seed: int = 11,
        out: Path | None = None,
        **changes: Any,
    ) -> Path:
        out = out or tmp_path_factory.mktemp("run")
        changed = {**overrides, **changes}
        return train(recipe, view=view, seed=seed, data_seed=data_seed, out=out, overrides=changed)

    return run


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Weights are compared by byte here, and several threads add up floats in an order of their own."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
