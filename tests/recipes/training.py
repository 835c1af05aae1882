"""What tests of trainings share besides fixtures: a data set on disk and what a run leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

RECIPES = Path(__file__).parents[2] / "recipes/sft"
TINY = RECIPES / "tiny.yaml"
ROWS = 16
"""Training rows of a run of the fixture `run`."""
Run = Callable[..., Path]


def write_data(folder: Path, configs: dict[str, list[dict[str, Any]]]) -> Path:
    lines = ["---", "configs:"]
    for name, data in configs.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(data), folder / name / "train.parquet")
        lines += [f"- config_name: {name}", "  data_files:", "  - split: train"]
        lines += [f"    path: {name}/train.parquet"]
    (folder / "README.md").write_text("\n".join([*lines, "---"]))
    return folder


def local(base: Path, data: Path) -> dict[str, Any]:
    """Keys of a recipe that takes base and data from folders."""
    return {
        "model_name_or_path": str(base),
        "model_revision": None,
        "data": str(data),
        "data_revision": None,
    }


def weights(folder: Path) -> bytes:
    """Bytes of the adapter in `folder`."""
    return (folder / "adapter_model.safetensors").read_bytes()


def read(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of an adapter's folder."""
    value: dict[str, Any] = json.loads((folder / name).read_text())
    return value
