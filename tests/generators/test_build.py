"""Protects: builds are whole, repeatable and refuse to overwrite; splits are disjoint; views are paired."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stsr.generators import build as builder
from stsr.generators.build import BuildError, build, check_pairs, files_of, read_declaration
from stsr.generators.declaration import DeclarationError

DECLARED = Path("recipes/datasets/table-workflows.yaml")


@pytest.fixture(scope="module")
def declaration():
    return read_declaration(Path(__file__).parents[2] / DECLARED)


@pytest.fixture(scope="module")
def small(declaration):
    train, test = declaration.splits[0], declaration.splits[2]
    return replace(
        declaration,
        splits=(replace(train, tasks=6, horizons=(4, 8)), replace(test, tasks=3, horizons=(4, 8))),
    )


def card(manifest):
    return f"card of {manifest['version']}\n"


def tree(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_declared_splits_are_those_of_the_paper(declaration):
    seeds = {split.name: (split.first_seed, split.tasks) for split in declaration.splits}
    assert seeds == {
        "train": (60000, 200),
        "development": (61000, 20),
        "test": (62000, 20),
        "test_confirmation": (63000, 20),
        "test_untuned": (64000, 20),
        "development_pilot": (91000, 10),
        "test_crossover": (126000, 50),
    }
    assert declaration.horizons == (4, 8, 16)


def test_a_rebuild_is_byte_identical(small, tmp_path):
    build(small, tmp_path / "one", card)
    build(small, tmp_path / "two", card)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert not (tmp_path / "one.partial").exists()


def test_rows_come_in_order_of_seed_and_stage(small, tmp_path):
    manifest = build(small, tmp_path / "out", card)
    rows = pq.read_table(tmp_path / "out/h4-compact/train.parquet").to_pylist()
    assert [(row["seed"], row["stage"]) for row in rows] == [
        (seed, stage) for seed in range(60000, 60006) for stage in range(1, 5)
    ]
    assert manifest["configs"]["h4-compact"]["train"]["rows"] == 24
    assert {path for path, _ in files_of(manifest)} == {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet")
    }


def test_the_same_command_again_does_nothing(small, tmp_path):
    first = build(small, tmp_path / "out", card)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert build(small, tmp_path / "out", card) == json.loads(json.dumps(first))
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}


def test_a_folder_with_anything_else_is_left_alone(small, tmp_path):
    build(small, tmp_path / "out", card)
    with pytest.raises(BuildError, match=r"holds version 1.0.0, not 1.1.0"):
        build(replace(small, version="1.1.0"), tmp_path / "out", card)
    with pytest.raises(BuildError, match="another declaration; bump the version"):
        build(replace(small, views=("full",)), tmp_path / "out", card)
    (tmp_path / "out/h4-full/test.parquet").write_bytes(b"x")
    with pytest.raises(BuildError, match=r"h4-full/test.parquet is missing or was changed"):
        build(small, tmp_path / "out", card)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    with pytest.raises(BuildError, match="holds no built data set"):
        build(small, tmp_path / "mine", card)


def test_a_killed_build_leaves_nothing_that_looks_whole(small, tmp_path, monkeypatch):
    def full_disk(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(builder, "check_pairs", full_disk)
        with pytest.raises(OSError, match="No space"):
            build(small, tmp_path / "out", card)
    assert not (tmp_path / "out").exists()
    build(small, tmp_path / "out", card)
    assert (tmp_path / "out/manifest.json").exists()


def test_one_task_in_two_splits_is_an_error(small, tmp_path):
    train, test = small.splits
    overlapping = replace(small, splits=(train, replace(test, first_seed=60005)))
    with pytest.raises(BuildError, match=r"chain-h4/60005 in test equals chain-h4/60005 in train"):
        build(overlapping, tmp_path / "out", card)


def test_a_view_that_changes_more_than_the_prompt_is_an_error(small, tmp_path):
    build(small, tmp_path / "out", card)
    path = tmp_path / "out/h8-compact/train.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("target_index")
    other = pa.array([1 - index for index in table["target_index"].to_pylist()], pa.int32())
    pq.write_table(table.set_column(at, table.schema.field(at), other), path)
    with pytest.raises(BuildError, match="h8-compact, train: target_index differs from h8-full"):
        check_pairs(tmp_path / "out", small)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("family: chain", "family: tree", "unknown family 'tree'; there are chain"),
        ("views: [full,", "views: [fll,", "unknown view 'fll'; there are full, compact, recent2"),
        ("horizons: [16]", "horizons: [32]", r"horizon 32 is not among \[4, 8, 16\]"),
        ("  - name: test_untuned", "  - name: test", "a split name occurs twice"),
        ("    tasks: 50", "    tasks: 0", "needs at least one task"),
        ("version: 1.0.0", "verison: 1.0.0", "unknown key 'verison'; did you mean 'version'"),
    ],
)
def test_a_bad_declaration_is_one_line(tmp_path, old, new, message):
    text = (Path(__file__).parents[2] / DECLARED).read_text()
    assert old in text
    (tmp_path / "d.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(DeclarationError, match=message):
        read_declaration(tmp_path / "d.yaml")
