"""Protects: shards that are built apart and joined are the single build, whatever is interrupted."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stsr.generators import build as builder
from stsr.generators.build import build, build_shard, join_shards, shard_folder
from stsr.generators.dataset import Mixture, read_declaration
from stsr.generators.errors import BuildError

DECLARATIONS = Path(__file__).parents[2] / "recipes/datasets"


@pytest.fixture(scope="module")
def small():
    """Chains with a mixture, pairs of choices, and a config that holds three horizons."""
    workflows = read_declaration(DECLARATIONS / "table-workflows.yaml")
    controls = read_declaration(DECLARATIONS / "workflow-controls.yaml")
    chain, choice = workflows.parts[0], workflows.parts[3]
    (supplied,) = (part for part in controls.parts if part.family == "supplied")

    def cut(part, tasks):
        splits = (replace(part.splits[0], tasks=tasks), replace(part.splits[-1], tasks=2))
        return replace(part, splits=splits[: len(part.splits)])

    mixture = Mixture(
        config="h4-mix", horizon=4, split="train", tasks=3, seed=1, plain="full", masked={"compact": 6}
    )
    return replace(
        workflows,
        parts=(
            replace(cut(chain, 5), views=("full", "compact")),
            replace(cut(choice, 4), views=("full",)),
            cut(supplied, 3),
        ),
        mixtures=(mixture,),
    )


def card(manifest):
    return f"card of {manifest['version']}\n"


def rows(folder, manifest):
    """(config, split) -> its rows, in order."""
    return {
        (config, split): pa.concat_tables(pq.read_table(folder / path) for path in paths)
        for config, splits in manifest["configs"].items()
        for split, paths in splits.items()
    }


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    return rows(folder, build(small, folder, card))


@pytest.mark.parametrize("shards", [1, 3, 7])
def test_joined_shards_are_the_single_build(small, whole, tmp_path, shards):
    for shard in reversed(range(shards)):
        build_shard(small, tmp_path / "out", shard, shards)
    manifest = join_shards(small, tmp_path / "out", shards, card)
    assert rows(tmp_path / "out", manifest) == whole
    assert (tmp_path / "out/README.md").read_text() == "card of 1.1.0\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert join_shards(small, tmp_path / "out", shards, card) == manifest


def test_a_missing_shard_is_named(small, tmp_path):
    for shard in (0, 2):
        build_shard(small, tmp_path / "out", shard, 4)
    with pytest.raises(BuildError, match=r"out: shard 1, 3 of 4 is not built"):
        join_shards(small, tmp_path / "out", 4, card)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match=r"shard 4 is not in 0\.\.3"):
        build_shard(small, tmp_path / "out", 4, 4)


def test_a_shard_that_is_there_is_left_alone_and_half_a_shard_is_built_again(small, tmp_path, monkeypatch):
    folder = build_shard(small, tmp_path / "out", 0, 2)
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert build_shard(small, tmp_path / "out", 0, 2) == folder == shard_folder(tmp_path / "out", 0, 2)
    assert stamps == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

    with monkeypatch.context() as patch:
        patch.setattr(builder, "_write_manifest", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_shard(small, tmp_path / "out", 1, 2)
    assert not shard_folder(tmp_path / "out", 1, 2).exists()
    build_shard(small, tmp_path / "out", 1, 2)
    join_shards(small, tmp_path / "out", 2, card)


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["check_pairs", "_write_manifest", "_rename", "rmtree"])
def test_an_interrupted_join_continues(small, whole, tmp_path, monkeypatch, where):
    for shard in range(2):
        build_shard(small, tmp_path / "out", shard, 2)
    with monkeypatch.context() as patch:
        if where == "rmtree":  # whole by then; only the shards are left to remove
            patch.setattr(builder.shutil, "rmtree", interrupted_unless_partial)
        else:
            patch.setattr(builder, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            join_shards(small, tmp_path / "out", 2, card)
    manifest = join_shards(small, tmp_path / "out", 2, card)
    assert rows(tmp_path / "out", manifest) == whole
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


REMOVE = shutil.rmtree


def interrupted_unless_partial(path, **options):
    if not str(path).endswith(".partial"):
        raise KeyboardInterrupt
    REMOVE(path, **options)


def test_a_shard_of_another_version_is_refused(small, tmp_path):
    build_shard(small, tmp_path / "out", 0, 2)
    newer = replace(small, version="9.0.0", changes={"9.0.0": "x"})
    build_shard(newer, tmp_path / "out", 1, 2)
    with pytest.raises(BuildError, match=r"shard-00001-of-00002 holds \S+ 9\.0\.0, not \S+ 1\.1\.0"):
        join_shards(small, tmp_path / "out", 2, card)


def test_one_task_in_two_shards_of_different_splits_is_an_error(small, tmp_path):
    """Each shard alone is fine; the join sees both."""
    chain = small.parts[0]
    train, test = chain.splits
    both = replace(small, parts=(replace(chain, splits=(train, replace(test, first_seed=60_000))),))
    both = replace(
        both, parts=(replace(both.parts[0], splits=(train, replace(both.parts[0].splits[1], tasks=1))),)
    )
    for shard in range(2):
        build_shard(both, tmp_path / "out", shard, 2)
    with pytest.raises(BuildError, match=r"chain-h16/60000 in .* equals chain-h16/60000 in"):
        join_shards(both, tmp_path / "out", 2, card)
