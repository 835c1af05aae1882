"""The task files: complete, pinned, movable, and clear about what is wrong."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from lm_eval.tasks import TaskManager

from stsr.eval_tasks.data import DataError
from stsr.eval_tasks.evaluate import HARNESS
from stsr.generators.dataset import read_declaration
from stsr.hub_cards.pins import PinError
from stsr.recipes.experiment import recipes_folder

VIEWS = ("full", "compact", "recent2")
TASKS = {f"stsr_{kind}_h{h}_{v}" for kind in ("oracle", "free_run") for h in (4, 8, 16) for v in VIEWS}
GROUPS = {f"stsr_{kind}_h{h}" for kind in ("oracle", "free_run") for h in (4, 8, 16)}


def test_the_listing_names_every_task_and_group() -> None:
    manager = TaskManager(include_path=str(HARNESS), include_defaults=False)
    assert set(manager.all_subtasks) == TASKS
    assert set(manager.all_groups) == GROUPS
    listing = manager.list_all_tasks()
    assert all(f"|{name}" in listing.replace(" ", "") for name in TASKS | GROUPS)


def test_a_group_is_its_three_views(load: Any) -> None:
    for kind in ("oracle", "free_run"):
        assert set(load(f"stsr_{kind}_h16")) == {f"stsr_{kind}_h16_{view}" for view in VIEWS}


def test_every_file_pins_the_same_data_and_version(load: Any) -> None:
    declared = read_declaration(recipes_folder() / "datasets/table-workflows.yaml")
    for name, task in load(*sorted(TASKS)).items():
        assert task.config.dataset_path == declared.repo
        assert task.config.dataset_kwargs == {"revision": declared.tag}
        assert task.config.test_split == "test"
        assert task.VERSION == 1.0
        assert task.config.generation_kwargs == {"until": [], "max_gen_toks": 160, "do_sample": False}
        assert task.config.description == ""  # lm-eval would send it as a system turn
        horizon, view = re.fullmatch(r"stsr_.+_h(\d+)_(.+)", name).groups()
        run = task.begin(task.task_docs[0])
        assert (run.state.task.horizon, run.id.rpartition("@")[2]) == (int(horizon), view)


def test_the_changelog_ends_at_the_version_of_the_files() -> None:
    versions = re.findall(r"^### (\S+)", (HARNESS / "README.md").read_text(), re.MULTILINE)
    assert versions[0] == "1.0"


def test_the_folder_works_anywhere(data: Path, tmp_path: Path) -> None:
    """It is installed beside lm-eval's own tasks, where our Python files are not."""
    shutil.copytree(HARNESS, tmp_path / "stsr")
    manager = TaskManager(
        include_path=str(tmp_path), include_defaults=False, metadata={"stsr_data": str(data)}
    )
    assert set(manager.load(["stsr_free_run_h4"])["tasks"]) == {f"stsr_free_run_h4_{view}" for view in VIEWS}


def test_names_of_functions_are_absolute() -> None:
    for path in HARNESS.iterdir():
        assert all(
            name.startswith("stsr.eval_tasks.") for name in re.findall(r"!function (\S+)", path.read_text())
        )


def test_another_split(load: Any) -> None:
    task = load("stsr_free_run_h16_full", stsr_split="test_crossover")["stsr_free_run_h16_full"]
    assert [doc["id"] for doc in task.task_docs] == ["chain-h16/126000", "chain-h16/126001"]


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({"stsr_split": "tset"}, DataError, r"h4-full: no split 'tset'; there are train, test"),
        ({"stsr_revision": "v9"}, PinError, r"is a folder and has no revision 'v9'"),
        ({"stsr_splt": "test"}, DataError, r"'stsr_splt'; there are stsr_data, stsr_revision, stsr_split"),
    ],
)
def test_what_is_wrong_is_said_once_with_the_alternatives(
    load: Any, metadata: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load("stsr_oracle_h4_full", **metadata)


def test_an_unknown_config_names_those_that_exist(data: Path, tmp_path: Path, load: Any) -> None:
    shutil.copytree(data / "h4-full", tmp_path / "h4-full")
    card = yaml.safe_load((data / "README.md").read_text().split("---")[1])
    card["configs"] = [config for config in card["configs"] if config["config_name"] == "h4-full"]
    (tmp_path / "README.md").write_text(f"---\n{yaml.safe_dump(card)}---\n")
    with pytest.raises(DataError, match="no config 'h8-compact'; there are h4-full"):
        load("stsr_oracle_h8_compact", stsr_data=str(tmp_path))
    with pytest.raises(DataError, match="no config 'h4-tasks'; there are h4-full"):
        load("stsr_oracle_h4_full", stsr_data=str(tmp_path))


def test_a_definition_that_is_not_the_published_one_is_refused(data: Path, tmp_path: Path, load: Any) -> None:
    shutil.copytree(data, tmp_path / "data")
    path = tmp_path / "data" / "h4-tasks" / "test.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    definition = json.loads(rows[1]["definition"])
    definition["sources"][0]["rows"][0][0] += 1
    rows[1]["definition"] = json.dumps(definition)
    pq.write_table(table.from_pylist(rows), path)
    with pytest.raises(DataError, match="chain-h4/62001: the definition has fingerprint"):
        load("stsr_free_run_h4_full", stsr_data=str(tmp_path / "data"))
