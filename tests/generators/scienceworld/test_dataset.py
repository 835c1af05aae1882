"""Protects: the bytes of every published row, the build's refusals, and what the card says."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from stsr.generators.declaration import DeclarationError
from stsr.generators.errors import BuildError
from stsr.generators.scienceworld.dataset import build, declares, read_declaration
from stsr.hub_cards.scienceworld import trajectories_card

DECLARATION = Path(__file__).parents[3] / "recipes" / "datasets" / "scienceworld-trajectories.yaml"
GOLDEN = Path(__file__).parents[2] / "golden" / "scienceworld-trajectories.json"


@pytest.fixture(scope="module")
def declared():
    return read_declaration(DECLARATION)


@pytest.fixture(scope="module")
def small(declared, tmp_path_factory):
    """The data set with two of its views, and its manifest."""
    folder = tmp_path_factory.mktemp("data") / "trajectories"
    two = replace(declared, views=("full", "compact-ref"))
    return folder, two, build(two, folder, trajectories_card)


def rows(manifest):
    return {path: [facts["rows"], facts["rows_sha256"]] for path, facts in manifest["files"].items()}


def test_rows_are_the_published_ones(small):
    """If this fails, the version must move."""
    golden = json.loads(GOLDEN.read_text())
    _, _, manifest = small
    assert (manifest["catalogue"], manifest["version"]) == (golden["catalogue"], golden["version"])
    assert rows(manifest).items() <= golden["rows"].items()


@pytest.mark.slow
def test_rows_of_every_view_are_the_published_ones(declared, tmp_path):
    assert (
        rows(build(declared, tmp_path / "all", trajectories_card)) == json.loads(GOLDEN.read_text())["rows"]
    )


def test_counts(small):
    """39 and 1,170, 13 and 440, 30 and 1,042, 11 and 218, 4 and 80; 174 workflows; 10, 58 and 696."""
    counts = {path: n for path, (n, _) in rows(small[2]).items()}
    for view in ("full", "compact-ref"):
        assert counts[f"{view}/train.parquet"] == 1170
        assert counts[f"{view}/development.parquet"] == 440
        assert counts[f"{view}/test.parquet"] == 1042
        assert counts[f"short-{view}/train.parquet"] == 218
        assert counts[f"short-{view}/development.parquet"] == 80
    workflows = [counts[f"workflows/{split}.parquet"] for split in ("train", "development", "test", "rest")]
    assert workflows == [39, 13, 30, 92]
    plans = [counts[f"{name}/test.parquet"] for name in ("pilot", "extension", "extension-plan")]
    assert plans == [10, 58, 696]


def test_the_first_training_rows_are_of_all_families(small):
    """The paper presents 800 rows; ours stand in an order by hash, whole workflows after one another."""
    import pyarrow.parquet as pq

    table = pq.read_table(small[0] / "full" / "train.parquet", columns=["family", "task"]).to_pylist()
    assert len({row["family"] for row in table[:800]}) == 5
    changes = sum(a["task"] != b["task"] for a, b in pairwise(table))
    assert changes == 38


def test_only_test_rows_carry_the_canary(small):
    import pyarrow.parquet as pq

    for split, canary in (("train", ""), ("test", small[1].canary)):
        assert set(pq.read_table(small[0] / "full" / f"{split}.parquet")["canary"].to_pylist()) == {canary}


def test_a_second_build_does_nothing_and_another_is_refused(small, declared):
    folder, two, manifest = small
    assert build(two, folder, trajectories_card) == manifest
    with pytest.raises(BuildError, match="holds another build"):
        build(declared, folder, trajectories_card)


def test_a_changed_file_is_seen(declared, tmp_path):
    one = replace(declared, views=("history-only",))
    build(one, tmp_path / "d", trajectories_card)
    (tmp_path / "d" / "pilot" / "test.parquet").write_bytes(b"")
    with pytest.raises(BuildError, match=r"pilot/test.parquet is missing or was changed"):
        build(one, tmp_path / "d", trajectories_card)


def test_a_folder_of_something_else_is_refused(declared, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BuildError, match="holds no built data set"):
        build(declared, tmp_path, trajectories_card)


def test_the_card(small):
    card = (small[0] / "README.md").read_text()
    assert "| `train` | 11 (218) | 27 (910) | 1 (42) | 39 | 1,170 |" in card
    assert "The reference action is `deactivate sink`" in card
    assert "1.3.0, which no package registry has" in card


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("study", "another", "must be 'scienceworld'"),
        ("views", ("compact",), "unknown view 'compact'"),
        ("version", "9.0.0", "no entry for version 9.0.0"),
        ("example", "boil#1", "is not a row id"),
    ],
)
def test_wrong_declarations(declared, key, value, message):
    with pytest.raises(ValueError, match=message):
        replace(declared, **{key: value})


def test_a_declaration_is_told_from_others(tmp_path):
    assert declares(DECLARATION)
    assert not declares(DECLARATION.with_name("table-workflows.yaml"))
    (tmp_path / "d.yaml").write_text(DECLARATION.read_text() + "more: 1\n")
    with pytest.raises(DeclarationError, match="unknown key 'more'"):
        read_declaration(tmp_path / "d.yaml")
