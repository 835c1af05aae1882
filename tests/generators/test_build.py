"""Protects: builds are whole, repeatable and refuse to overwrite; splits are disjoint; views are paired."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stsr.generators import build as builder
from stsr.generators.build import build, config_rows, files_of
from stsr.generators.checks import check_pairs
from stsr.generators.dataset import read_declaration
from stsr.generators.errors import BuildError

DECLARED = Path(__file__).parents[2] / "recipes/datasets/table-workflows-1.0.0.yaml"


@pytest.fixture(scope="module")
def small():
    """Six training and three test tasks of two horizons under three views."""
    declaration = read_declaration(DECLARED)
    (part,) = declaration.parts
    train, test = part.splits[0], part.splits[2]
    splits = (replace(train, tasks=6, horizons=(4, 8)), replace(test, tasks=3, horizons=(4, 8)))
    return replace(declaration, parts=(replace(part, splits=splits),))


def changed(declaration, **changes):
    """`declaration` with another first part."""
    first, *others = declaration.parts
    return replace(declaration, parts=(replace(first, **changes), *others))


def card(manifest):
    return f"card of {manifest['version']}\n"


def tree(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


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
    assert config_rows(manifest, "h4-compact", "train") == 24
    assert {path for path, _ in files_of(manifest)} == {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.parquet")
    }


def test_the_same_command_again_does_nothing(small, tmp_path):
    first = build(small, tmp_path / "out", card)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    assert build(small, tmp_path / "out", card) == json.loads(json.dumps(first))
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}


def test_a_folder_with_anything_else_is_left_alone(small, tmp_path, monkeypatch):
    build(small, tmp_path / "out", card)
    newer = replace(small, version="1.1.0", changes={**small.changes, "1.1.0": "x"})
    with pytest.raises(BuildError, match=r"holds stsr/table-workflows 1.0.0, not stsr/table-workflows 1.1.0"):
        build(newer, tmp_path / "out", card)
    with pytest.raises(BuildError, match=r"holds stsr/table-workflows 1.0.0, not a/b 1.0.0"):
        build(replace(small, repo="a/b"), tmp_path / "out", card)
    with pytest.raises(BuildError, match="another declaration; bump the version"):
        build(changed(small, views=("full",)), tmp_path / "out", card)
    with monkeypatch.context() as patch:
        patch.setattr(builder, "GENERATOR_VERSION", "99.0.0")
        with pytest.raises(BuildError, match="another declaration; bump the version"):
            build(small, tmp_path / "out", card)
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
    train, test = small.parts[0].splits
    overlapping = changed(small, splits=(train, replace(test, first_seed=60005)))
    with pytest.raises(BuildError, match=r"chain-h4/60005 in test equals chain-h4/60005 in train"):
        build(overlapping, tmp_path / "out", card)


def test_a_view_that_changes_more_than_the_prompt_is_an_error(small, tmp_path):
    manifest = build(small, tmp_path / "out", card)
    path = tmp_path / "out/h8-compact/train.parquet"
    table = pq.read_table(path)
    at = table.schema.get_field_index("target_index")
    other = pa.array([1 - index for index in table["target_index"].to_pylist()], pa.int32())
    pq.write_table(table.set_column(at, table.schema.field(at), other), path)
    with pytest.raises(BuildError, match=r"h8-compact/train.parquet: target_index differs from h8-full"):
        check_pairs(tmp_path / "out", small, manifest)
    pq.write_table(table.slice(0, 7), path)
    with pytest.raises(BuildError, match=r"h8-compact/train.parquet has another number of rows than h8-full"):
        check_pairs(tmp_path / "out", small, manifest)


def test_only_a_view_that_asks_for_ids_may_change_the_completion(small, tmp_path):
    with_ids = changed(small, views=("full", "recipe-ids"))
    build(with_ids, tmp_path / "out", card)
    rows = pq.read_table(tmp_path / "out/h4-recipe-ids/train.parquet").to_pylist()
    assert {row["completion"][0]["content"] for row in rows} == {'{"recipe":"r1"}', '{"recipe":"r2"}'}


def test_a_tasks_config_of_all_horizons_keeps_them_all(small, tmp_path):
    """Rows go to a file a horizon, whole tasks to one file."""
    manifest = build(changed(small, tasks="every-task"), tmp_path / "out", card)
    rows = pq.read_table(tmp_path / "out/every-task/train.parquet")["horizon"].to_pylist()
    assert rows == [4, 8] * 6
    assert config_rows(manifest, "h4-full", "train") == 24


def test_files_hold_row_groups_of_a_thousand_and_a_page_index(small, tmp_path):
    more = changed(
        small, splits=(replace(small.parts[0].splits[0], tasks=140, horizons=(8,)),), views=("full",)
    )
    build(more, tmp_path / "out", card)
    facts = pq.ParquetFile(tmp_path / "out/h8-full/train.parquet").metadata
    assert [facts.row_group(i).num_rows for i in range(facts.num_row_groups)] == [1000, 120]
    assert facts.row_group(0).column(0).has_offset_index


def test_the_canary_is_a_column_of_every_config_or_of_none(small, tmp_path):
    build(small, tmp_path / "without", card)
    assert "canary" not in pq.read_schema(tmp_path / "without/h4-full/test.parquet").names
    build(replace(small, canary="STSR-CANARY-x"), tmp_path / "with", card)
    for path in (tmp_path / "with").rglob("*.parquet"):
        (value,) = pq.read_table(path)["canary"].unique().to_pylist()
        assert value == ("STSR-CANARY-x" if path.stem == "test" else "")
