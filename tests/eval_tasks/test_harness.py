"""The task files: generated, complete, pinned, movable, and clear about what is wrong."""

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

from stsr.eval_tasks import suite
from stsr.eval_tasks.data import DataError
from stsr.eval_tasks.suite import HARNESS
from stsr.hub_cards.pins import PinError

CHAIN = """full compact recent2 names full_cue compact_cue random25 random50 random75 block candidates decoy
    compact_filler full_target_last full_shuffled""".split()
GRAPH = "full compact recent2 names candidates decoy compact_filler full_target_last full_shuffled".split()
LOADS = "none 4x8 4x16 4x32 8x8 8x16 8x32".split()
BOTH = ("oracle", "free_run")
TASKS = (
    {f"stsr_{kind}_h{h}_{view}" for kind in BOTH for h in (4, 8, 16) for view in CHAIN}
    | {f"stsr_{kind}_neutral_h{h}_{v}" for kind in BOTH for h in (4, 8, 16) for v in GRAPH[:4]}
    | {f"stsr_{kind}_branching_h{h}_{view}" for kind in BOTH for h in (8, 16) for view in GRAPH}
    | {f"stsr_{kind}_choice_h16_{view}" for kind in BOTH for view in GRAPH}
    | {f"stsr_choice_h16_{view}" for view in GRAPH[:4]}
    | {f"stsr_matched_error_h16_{view}" for view in CHAIN}
    | {f"stsr_{kind}_state_load_{load}" for kind in BOTH for load in LOADS}
    | {f"stsr_{kind}_prefix_h{h}_{v}" for kind in BOTH for h in (4, 8, 16) for v in ("full", "recent2")}
    | {f"stsr_interface_{form}" for form in "full names recipe_ids output_ids one_distractor".split()}
    | {"stsr_distractors_one", "stsr_distractors_three", "stsr_factorial", "stsr_supplied_recipe"}
    | {f"stsr_padding_{view}" for view in "full padded_600 padded_800 padded_1000 padded_1200".split()}
    | {f"stsr_crossover_{kind}_h16_{view}" for kind in BOTH for view in CHAIN[:3]}
)
"""Every task of the issue, by hand; the fast ones are a part of them once more."""


def test_the_files_are_what_the_script_writes() -> None:
    """If this fails: python -m stsr.eval_tasks.suite"""
    made = suite.render()
    assert {path.name for path in HARNESS.iterdir()} == {*made, "README.md"}
    for name, text in made.items():
        assert (HARNESS / name).read_text() == text, name


def test_every_task_is_there_under_its_name() -> None:
    manager = TaskManager(include_path=str(HARNESS), include_defaults=False)
    fast = {name for name in manager.all_subtasks if name.startswith("stsr_fast_")}
    assert set(manager.all_subtasks) - fast == TASKS
    listing = manager.list_all_tasks().replace(" ", "")
    assert all(f"|{name}|" in listing for name in TASKS | fast | set(manager.all_groups))
    assert {"stsr_view_decoy", "stsr_family_neutral"} <= set(manager.all_tags)


def test_every_name_has_a_line_that_says_what_it_asks() -> None:
    said = suite.listing()
    manager = TaskManager(include_path=str(HARNESS), include_defaults=False)
    assert set(said) == {*manager.all_subtasks, *manager.all_groups}
    assert all(text and "\n" not in text for text in said.values())


def test_the_group_of_the_whole_protocol() -> None:
    """Probes and episodes by hand, from the paper's counts."""
    tasks = suite.members()
    made = suite.groups(tasks)
    leaves = suite.leaves("stsr", made)
    assert len(leaves) == len(set(leaves))
    assert set(leaves) < TASKS
    fast = suite.fast(tasks, made)
    assert [name.replace("stsr_fast_", "stsr_") for name in fast] == leaves
    seeds = {name: task.seeds for name, task in fast.items()}
    assert seeds["stsr_fast_oracle_h16_full"] == 2  # of 62000-62019
    assert seeds["stsr_fast_crossover_free_run_h16_full"] == 5  # of 126000-126049
    assert seeds["stsr_fast_choice_h16_full"] == 5  # of 50 pairs
    assert seeds["stsr_fast_free_run_choice_h16_full"] == 1  # of the first ten pairs
    assert seeds["stsr_fast_factorial"] == seeds["stsr_fast_supplied_recipe"] == 1
    assert tasks["stsr_matched_error_h16_full"].split == "test_crossover"


def test_a_group_is_its_three_views(load: Any) -> None:
    for kind in BOTH:
        assert set(load(f"stsr_{kind}_h16")) == {f"stsr_{kind}_h16_{view}" for view in CHAIN[:3]}


@pytest.mark.slow
def test_every_task_has_documents_and_pins_its_data(load: Any) -> None:
    declared = suite.declarations()
    for name, task in load(*sorted(TASKS)).items():
        source = declared[task.source]
        assert task.config.dataset_path == source.repo
        assert task.config.dataset_kwargs == {"revision": source.tag}
        assert task.VERSION == 1.1
        assert task.config.generation_kwargs == {"until": [], "max_gen_toks": 160, "do_sample": False}
        assert task.config.description == ""  # lm-eval would send it as a system turn
        run = task.begin(task.task_docs[0])
        assert run.messages()
        word = run.id.rpartition("@")[2].replace("-", "_")
        assert name.endswith(word) or word == "full", (name, run.id)
        if match := re.search(r"_h(\d+)_", name):
            assert run.state.task.horizon == int(match[1])
        for metric in task.config.process_results.__name__, *(m["metric"] for m in task.config.metric_list):
            assert metric


def test_the_changelog_ends_at_the_version_of_the_files() -> None:
    versions = re.findall(r"^### (\S+)", (HARNESS / "README.md").read_text(), re.MULTILINE)
    assert versions[0] == suite.VERSION == "1.1"


def test_the_folder_works_anywhere(data: Path, tmp_path: Path) -> None:
    """It is installed beside lm-eval's own tasks, where our Python files are not."""
    shutil.copytree(HARNESS, tmp_path / "stsr")
    manager = TaskManager(
        include_path=str(tmp_path), include_defaults=False, metadata={"stsr_data": str(data)}
    )
    assert set(manager.load(["stsr_free_run_h4"])["tasks"]) == {f"stsr_free_run_h4_{v}" for v in CHAIN[:3]}


def test_names_of_functions_are_absolute() -> None:
    for path in HARNESS.iterdir():
        assert all(
            name.startswith("stsr.eval_tasks.") for name in re.findall(r"!function (\S+)", path.read_text())
        )


def test_another_split_and_fewer_seeds(load: Any) -> None:
    task = load("stsr_free_run_h16_full", stsr_split="test_crossover")["stsr_free_run_h16_full"]
    assert [doc["id"] for doc in task.task_docs] == ["chain-h16/126000", "chain-h16/126001"]
    task = load("stsr_oracle_h4_full", stsr_seeds=2)["stsr_oracle_h4_full"]
    assert {doc["seed"] for doc in task.task_docs} == {62000, 62001}
    task = load("stsr_free_run_state_load_8x32")["stsr_free_run_state_load_8x32"]
    assert [doc["id"] for doc in task.task_docs] == [f"state-load-h8/{s}~8x32" for s in range(127000, 127003)]


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({"stsr_split": "tset"}, DataError, r"h4-full: no split 'tset'; there are train, test"),
        ({"stsr_revision": "v9"}, PinError, r"is a folder and has no revision 'v9'"),
        ({"stsr_splt": "test"}, DataError, r"'stsr_splt'; there are stsr_data, stsr_revision, stsr_controls"),
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
