"""Protects: a diff counts rows, columns and moves rightly, reads little, and says what the manifests explain.

pytest tests/hub_cards/test_diff.py

The builds are small: chains of four steps, so each task is four rows of a view and one row of `h4-tasks`.
"""

from __future__ import annotations

import doctest
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfApi, constants

from stsr.generators import build as builder
from stsr.generators.dataset import Declaration, Part, Split, read_declaration
from stsr.hub_cards import diff, diff_text
from stsr.hub_cards.diff import Declared, Difference, DiffError, Found, Move, compare, open_version
from stsr.hub_cards.diff_text import text
from stsr.hub_cards.publish import publish_folder

REPO = "diff/tables"
PUBLISHED = Path(__file__).parents[2] / "recipes" / "datasets" / "table-workflows-1.0.0.yaml"
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content")


def split(name: str, first_seed: int, tasks: int) -> Split:
    return Split(name=name, purpose="", first_seed=first_seed, tasks=tasks, horizons=(4,))


@pytest.fixture(scope="module")
def declaration() -> Declaration:
    """Three tasks in train and one in test, under the views full and compact."""
    published = read_declaration(PUBLISHED)
    part = replace(
        published.parts[0],
        views=("full", "compact"),
        splits=(split("train", 60000, 3), split("test", 62000, 1)),
    )
    return replace(published, parts=(part,))


@pytest.fixture(scope="module")
def base(declaration: Declaration, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(declaration, tmp_path_factory.mktemp("base") / "data")


@pytest.fixture
def copy(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "copy"))


def made(declaration: Declaration, folder: Path) -> Path:
    builder.build(declaration, folder, lambda manifest: "---\nlicense: apache-2.0\n---\n")
    return folder


def next_version(declaration: Declaration, *splits: Split, **more: Any) -> Declaration:
    """1.1.0 of the declaration; its part has `splits`, if any, and the views in `more`, if any."""
    part: Part = declaration.parts[0]
    part = replace(part, splits=splits or part.splits, views=more.pop("views", part.views))
    changes = {**declaration.changes, "1.1.0": "What is new."}
    return replace(declaration, version="1.1.0", changes=changes, parts=(part,), **more)


def difference(old: Path, new: Path) -> Difference:
    return compare(open_version(str(old), ""), open_version(str(new), ""))


def edit_rows(folder: Path, path: str, edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Changes a parquet file by hand, and owns up to it in the manifest."""
    table = pq.read_table(folder / path)
    rows = edit(table.to_pylist())
    pq.write_table(pa.Table.from_pylist(rows, table.schema), folder / path)
    edit_manifest(folder, lambda m: m["files"][path].update(rows=len(rows), rows_sha256="by hand"))


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def reworded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Another word in the prompts of the second and third row, another reply in the third."""
    for row in rows[1:3]:
        row["prompt"][0]["content"] = row["prompt"][0]["content"].replace("Calls left", "Calls remaining")
    rows[2]["completion"][0]["content"] = "{}"
    return rows


def example(stage: int, seed: int = 60000, view: str = "full") -> str:
    return f"chain-h4/{seed}#{stage}@{view}"


# Rows


def test_a_version_is_the_same_as_itself_and_no_file_is_read(base: Path, copy: Path) -> None:
    shutil.rmtree(copy / "h4-full")
    done = difference(base, copy)
    assert done.same
    assert done.unexplained == ""
    assert (done.compared, done.files_read) == (2 * 16 + 4, (0, 0))
    assert "The rows are the same: all 36 of them." in text(done)


def test_changed_rows_are_counted_by_column_with_examples(base: Path, copy: Path) -> None:
    edit_rows(copy, "h4-full/train.parquet", reworded)
    done = difference(base, copy)
    assert not done.same
    assert done.files_read == (1, 1)
    (changed,) = done.splits
    assert (changed.config, changed.split, changed.rows) == ("h4-full", "train", 12)
    assert changed.changed == Found(2, [example(2), example(3)])
    assert changed.columns == {
        "prompt": Found(2, [example(2), example(3)]),
        "completion": Found(1, [example(3)]),
    }
    assert (changed.added, changed.removed, changed.reordered) == (Found(), Found(), False)
    assert done.sample is not None
    assert (done.sample.row_id, done.sample.column) == (example(2), "prompt")
    assert [line for line in done.sample.lines if line[0] in "+-"] == [
        "-Calls left: 7",
        "+Calls remaining: 7",
    ]
    lines = text(done).splitlines()
    assert "  h4-full, train: 2 changed of 12 rows now" in lines
    assert f"    completion differs in 1 row, as {example(3)}" in lines
    assert "  +Calls remaining: 7" in lines


def test_at_most_three_examples(base: Path, copy: Path) -> None:
    edit_rows(copy, "h4-full/train.parquet", lambda rows: [{**row, "calls_left": 0} for row in rows])
    (changed,) = difference(base, copy).splits
    assert changed.columns == {"calls_left": Found(12, [example(1), example(2), example(3)])}


def test_a_row_that_is_gone_shifts_the_others_but_does_not_change_them(base: Path, copy: Path) -> None:
    edit_rows(copy, "h4-full/train.parquet", lambda rows: rows[1:])
    (one,) = difference(base, copy).splits
    assert (one.removed, one.added, one.changed) == (Found(1, [example(1)]), Found(), Found())
    assert one.reordered is False
    (back,) = difference(copy, base).splits
    assert (back.added, back.removed, back.changed) == (Found(1, [example(1)]), Found(), Found())


def test_more_rows_than_are_read_at_once(base: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "BATCH", 2)
    edit_rows(copy, "h4-full/train.parquet", lambda rows: [*rows[:5], *reworded(rows[6:])])
    (one,) = difference(base, copy).splits
    # rows are the tasks 60000, 60001, 60002, four each; the sixth is gone, the eighth and ninth reworded
    assert one.removed == Found(1, [example(2, 60001)])
    assert one.columns["prompt"] == Found(2, [example(4, 60001), example(1, 60002)])


def test_another_order_is_a_difference_and_another_layout_of_files_is_not(
    base: Path, copy: Path, declaration: Declaration, tmp_path: Path
) -> None:
    edit_rows(copy, "h4-tasks/train.parquet", lambda rows: rows[::-1])
    done = difference(base, copy)
    assert [(one.config, one.split, one.reordered, one.changed.rows) for one in done.splits] == [
        ("h4-tasks", "train", True, 0)
    ]
    assert "h4-tasks, train: the same rows in another order of 3 rows now" in text(done)
    for shard in (0, 1):
        builder.build_shard(declaration, tmp_path / "sharded", shard, 2)
    builder.join_shards(declaration, tmp_path / "sharded", 2, lambda manifest: "card\n")
    sharded = difference(base, tmp_path / "sharded")
    assert sharded.same
    assert sharded.files_read[0] > 0


# Configs, splits, columns


def test_a_new_version_and_why(base: Path, declaration: Declaration, tmp_path: Path) -> None:
    grown = next_version(
        declaration,
        split("train", 60000, 4),
        split("test", 62000, 1),
        split("development", 61000, 2),
        views=("full", "compact", "names"),
        canary="A canary.",
    )
    done = difference(base, made(grown, tmp_path / "new"))
    assert done.versions == ("1.0.0", "1.1.0")
    assert done.changes == {"1.1.0": "What is new."}
    assert done.declared == [
        Declared("canary", "", "A canary."),
        Declared("parts.h{horizon}-{view}.splits.train.tasks", 3, 4),
        Declared(
            "parts.h{horizon}-{view}.splits.development",
            None,
            {"name": "development", "purpose": "", "first_seed": 61000, "tasks": 2, "horizons": [4]},
        ),
        Declared("parts.h{horizon}-{view}.views", [], ["names"]),
    ]
    assert done.configs_added == {"h4-names": 4 * (4 + 1 + 2)}
    assert done.configs_removed == {}
    assert done.splits_added == {
        "h4-full": {"development": 8},
        "h4-compact": {"development": 8},
        "h4-tasks": {"development": 2},
    }
    # the canary is a new column, so no row is called changed for it
    assert {column: sorted(configs) for column, configs in done.columns_added.items()} == {
        "canary": ["h4-compact", "h4-full", "h4-tasks"]
    }
    assert [(one.config, one.split, one.added.rows, one.changed.rows) for one in done.splits] == [
        ("h4-compact", "train", 4, 0),
        ("h4-full", "train", 4, 0),
        ("h4-tasks", "train", 1, 0),
    ]
    assert done.splits[2].added.examples == ["chain-h4/60003"]
    assert done.moves == []
    assert done.unexplained == ""
    assert done.files_read == (6, 6)  # train and test of three configs; not the new split or config
    lines = text(done).splitlines()
    assert "  1.1.0: What is new." in lines
    assert '  canary: "" -> "A canary."' in lines
    assert "  parts, h{horizon}-{view}, views: added names" in lines
    assert "  parts, h{horizon}-{view}, splits, train, tasks: 3 -> 4" in lines
    assert "  1 config added (28 rows): h4-names" in lines
    assert "  h4-full: added development (8 rows)" in lines
    assert "  column canary added to 3 configs, which changes no row by itself" in lines
    assert "UNEXPLAINED" not in text(done)

    back = difference(tmp_path / "new", base)
    assert back.configs_removed == done.configs_added
    assert back.splits_removed == done.splits_added
    assert back.columns_removed.keys() == {"canary"}
    assert [(one.removed.rows, one.added.rows) for one in back.splits] == [(4, 0), (4, 0), (1, 0)]


def test_another_canary_is_a_change_that_the_declaration_explains(
    declaration: Declaration, tmp_path: Path
) -> None:
    old = made(replace(declaration, canary="One."), tmp_path / "old")
    new = made(next_version(declaration, canary="Two."), tmp_path / "new")
    done = difference(old, new)
    assert [(one.split, list(one.columns), one.changed.rows) for one in done.splits] == [
        ("test", ["canary"], 4),
        ("test", ["canary"], 4),
        ("test", ["canary"], 1),
    ]
    assert done.unexplained == ""


def test_rows_that_moved_between_splits(base: Path, declaration: Declaration, tmp_path: Path) -> None:
    """Task 60002 goes from train to test, whose own task 62000 goes to a split of a new name."""
    moved = next_version(
        declaration, split("train", 60000, 2), split("test", 60002, 1), split("test_more", 62000, 1)
    )
    done = difference(base, made(moved, tmp_path / "new"))
    first = [example(stage, 60002) for stage in (1, 2, 3)]
    assert [move for move in done.moves if move.config == "h4-full"] == [
        Move("h4-full", "test", "test_more", Found(4, [example(stage, 62000) for stage in (1, 2, 3)])),
        Move("h4-full", "train", "test", Found(4, first)),
    ]
    assert sum(move.found.rows for move in done.moves) == 2 * (4 + 4 + 1)
    assert done.splits == []  # none was added, removed or changed
    assert done.splits_added["h4-full"] == {"test_more": 4}
    assert f"h4-full: 4 rows moved from train to test, as {first[0]}," in text(done)


# Why


def test_a_change_that_nothing_accounts_for_is_called_out(base: Path, copy: Path) -> None:
    edit_rows(copy, "h4-full/train.parquet", reworded)
    done = difference(base, copy)
    assert done.unexplained == "rows differ in completion, prompt, but the generator version is the same"
    assert "UNEXPLAINED: rows differ in completion, prompt" in text(done)
    edit_manifest(copy, lambda manifest: manifest.update(generator_version="9.0.0"))
    done = difference(base, copy)
    assert done.unexplained == ""
    assert " -> 9.0.0" in text(done)
    shutil.copytree(base, copy, dirs_exist_ok=True)
    edit_rows(copy, "h4-full/train.parquet", lambda rows: rows[1:])
    assert difference(base, copy).unexplained == (
        "the data differ, but generator version and declaration are the same"
    )


def test_declarations_are_compared_to_any_depth() -> None:
    old = {"version": "1", "changes": {}, "gone": 1, "words": ["a", "b"], "order": [1, 2], "nested": {"x": 1}}
    new = {
        "version": "2",
        "changes": {"2": ""},
        "words": ["b", "c"],
        "order": [2, 1],
        "nested": {"x": 2},
        "new": [],
    }
    assert list(diff._declared(old, new)) == [
        Declared("gone", 1, None),
        Declared("words", ["a"], ["c"]),
        Declared("order", [1, 2], [2, 1]),
        Declared("nested.x", 1, 2),
        Declared("new", None, []),
    ]


def test_a_long_sample_is_cut(base: Path, copy: Path) -> None:
    def long(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[0]["prompt"][0]["content"] = "\n".join(f"line {number}" for number in range(100))
        return rows

    edit_rows(copy, "h4-full/train.parquet", long)
    lines = text(difference(base, copy)).splitlines()
    assert sum(line.startswith(("  +line", "  -", "  @@", "   ")) for line in lines) <= diff_text.LINES + 3
    assert any(line.endswith("more lines") for line in lines)


# What cannot be compared


def test_folders_that_stsr_did_not_build(base: Path, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DiffError, match=r"empty has no manifest\.json, so it is not a data set that stsr"):
        difference(base, tmp_path / "empty")
    edit_manifest(copy, lambda manifest: manifest.update(schema="stsr.manifest/1"))
    with pytest.raises(DiffError, match=r"does not have the schema stsr\.manifest/2"):
        difference(base, copy)
    (copy / "manifest.json").write_text("{")
    with pytest.raises(DiffError, match="is not JSON"):
        difference(base, copy)


# The Hub


@pytest.fixture
def published(api: HfApi, base: Path, copy: Path, declaration: Declaration) -> Iterator[Path]:
    """The base as v1.0.0, and as v1.1.0 a copy with two reworded rows; gives the second folder."""
    edit_rows(copy, "h4-full/train.parquet", reworded)
    edit_manifest(copy, lambda manifest: manifest.update(version="1.1.0"))
    api.delete_repo(REPO, repo_type="dataset", missing_ok=True)
    for folder, tag in ((base, "v1.0.0"), (copy, "v1.1.0")):
        publish_folder(folder, REPO, "dataset", tag=tag, message="Version")
    yield copy
    api.delete_repo(REPO, repo_type="dataset")


def test_two_revisions_of_the_hub_and_little_is_fetched(published: Path, base: Path) -> None:
    done = compare(open_version("v1.0.0", REPO), open_version("v1.1.0", REPO))
    assert done.names == ("v1.0.0", "v1.1.0")
    local = difference(base, published)
    assert (done.splits, done.sample, done.declared) == (local.splits, local.sample, local.declared)
    fetched = {
        path.relative_to(path.parents[1] if path.name.endswith("parquet") else path.parent).as_posix()
        for path in Path(constants.HF_HUB_CACHE).glob("datasets--diff--tables/snapshots/*/**/*.*")
    }
    assert fetched == {"manifest.json", "h4-full/train.parquet"}


def test_a_folder_and_a_revision(published: Path) -> None:
    assert compare(open_version("v1.1.0", REPO), open_version(str(published), REPO)).same


def test_unknown_revisions_name_those_there_are(published: Path) -> None:
    with pytest.raises(
        DiffError, match=r"^v9 is not a folder, and .* no revision v9; tags: v1\.0\.0, v1\.1\.0"
    ):
        open_version("v9", REPO)
    with pytest.raises(DiffError, match="there is no dataset diff/nowhere"):
        open_version("v1.0.0", "diff/nowhere")


def test_a_data_set_that_stsr_did_not_build(api: HfApi) -> None:
    api.create_repo("diff/other", repo_type="dataset", exist_ok=True)
    with pytest.raises(DiffError, match=r"diff/other at main has no manifest\.json"):
        open_version("main", "diff/other")


# The command


def run(env: dict[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stsr.cli.main", "diff", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


def test_the_command_and_its_exit_codes(published: Path, base: Path, client_env: dict[str, str]) -> None:
    anonymous = client_env | {"HF_TOKEN": ""}
    done = run(anonymous, "v1.0.0", "v1.1.0", "--repo", REPO)
    assert done.returncode == 0, done.stderr
    assert "h4-full, train: 2 changed of 12 rows now" in done.stdout
    done = run(anonymous, "v1.0.0", "v1.1.0", "--repo", REPO, "--exit-code", "--json")
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert (said["schema"], said["same"]) == ("stsr.diff/1", False)
    assert said["splits"][0]["columns"]["completion"] == {"rows": 1, "examples": [example(3)]}
    assert run(anonymous, base, base, "--exit-code").returncode == 0
    done = run(anonymous, "v1.0.0", "v9", "--repo", REPO)
    assert done.returncode == 2
    assert "tags: v1.0.0, v1.1.0" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_examples() -> None:
    assert doctest.testmod(diff_text).failed == 0
