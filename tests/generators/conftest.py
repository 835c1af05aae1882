"""The declared data sets, each built once a session, for all processes and tests that need a whole one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from stsr.generators.build import build
from stsr.generators.dataset import read_declaration

# A busy machine is no fault of the code: examples may take as long as they take.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

DECLARATIONS = Path(__file__).parents[2] / "recipes/datasets"


class Built(NamedTuple):
    """A data set on disk."""

    folder: Path
    manifest: dict[str, Any]

    def rows(self, config: str, split: str) -> Iterator[dict[str, Any]]:
        """Rows of one split of one config; `prompt` and `completion` are the text of their only message."""
        for path in self.manifest["configs"][config][split]:
            table = pq.read_table(self.folder / path)
            columns = {}
            for name in table.column_names:
                column = table[name].combine_chunks()
                if name in ("prompt", "completion"):
                    assert pc.all(pc.equal(pc.list_value_length(column), 1)).as_py()
                    message = column.flatten()
                    role = {"prompt": "user", "completion": "assistant"}[name]
                    assert pc.all(pc.equal(message.field("role"), role)).as_py()
                    column = message.field("content")
                columns[name] = column.to_pylist()
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))

    def raw_rows(self, path: str) -> list[dict[str, Any]]:
        """Rows of one file as they were written."""
        rows: list[dict[str, Any]] = pq.read_table(self.folder / path).to_pylist()
        return rows

    def configs(self, whole_tasks: bool) -> list[tuple[str, str]]:
        """(config, split) of all configs of whole tasks, or of all others."""
        return [
            (config, split)
            for config, splits in self.manifest["configs"].items()
            for split in splits
            if config.endswith("-tasks") == whole_tasks
        ]


def _built(name: str, temporary: Path) -> Built:
    # Where tests run in several processes, each has its own temporary folder in a common one.
    common = temporary.parent if "PYTEST_XDIST_WORKER" in os.environ else temporary
    declaration, folder = read_declaration(DECLARATIONS / f"{name}.yaml"), common / "built" / name
    with FileLock(common / f"{name}.lock"):
        return Built(folder, build(declaration, folder, lambda manifest: f"card of {manifest['version']}\n"))


@pytest.fixture(scope="session")
def table_workflows(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """recipes/datasets/table-workflows.yaml, built."""
    return _built("table-workflows", tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def workflow_controls(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """recipes/datasets/workflow-controls.yaml, built."""
    return _built("workflow-controls", tmp_path_factory.getbasetemp())
