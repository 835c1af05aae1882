"""Protects: the frozen catalogue is the one that the paper counts, and a changed one is refused."""

import json
import lzma
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from stsr.generators.scienceworld.catalogue import (
    Catalogue,
    CatalogueError,
    bin_of,
    read_catalogue,
    write_catalogue,
)
from stsr.generators.scienceworld.prompts import TEMPLATES
from stsr.generators.scienceworld.variations import FAMILIES, Variation, parse, variations


@pytest.fixture(scope="module")
def catalogue():
    return read_catalogue()


def test_every_train_and_dev_variation_is_there_and_no_test_variation(catalogue):
    """120 and 60 (appendix F)."""
    official = Counter(workflow.task.official for workflow in catalogue.workflows.values())
    assert official == {"train": 120, "dev": 60}


def test_the_papers_counts(catalogue):
    """119 and 55 reach 100 within 100 actions; bins 31, 91 and 52; 6,519 reference states."""
    assert Counter(w.task.official for w in catalogue.usable) == {"train": 119, "dev": 55}
    assert Counter(w.bin for w in catalogue.usable) == {"short": 31, "medium": 91, "long": 52}
    assert sum(len(w.steps) for w in catalogue.usable) == 6519


def test_which_bins_a_family_has(catalogue):
    """The gaps of the paper's bins: no short boil or grow-plant, one medium chemistry-mix."""
    found = Counter((w.family, w.bin) for w in catalogue.usable)
    assert found["boil", "short"] == found["grow-plant", "short"] == 0
    assert found["chemistry-mix", "medium"] == 1
    assert {w.family for w in catalogue.usable} == set(FAMILIES)


def test_a_path_ends_at_its_first_hundred_and_never_loses_points(catalogue):
    for workflow in catalogue.usable:
        scores = [step.score for step in workflow.steps]
        assert scores[-1] == 100
        assert 100 not in scores[:-1]
        assert scores == sorted(scores)
        assert len(scores) == workflow.first_hundred <= 100


def test_why_six_are_left_out(catalogue):
    """Two never reach 100, four reach it too late."""
    out = {w.id: w.first_hundred for w in catalogue.workflows.values() if not w.usable}
    assert out == {
        "scienceworld-boil/18": 117,
        "scienceworld-boil/20": 145,
        "scienceworld-melt/20": 124,
        "scienceworld-freeze/11": None,
        "scienceworld-freeze/19": None,
        "scienceworld-freeze/20": 139,
    }


def test_no_reference_action_is_rejected_and_each_ambiguous_one_is_answered_by_a_number(catalogue):
    """95 menus, each followed by the literal action 0."""
    menus = 0
    for workflow in catalogue.usable:
        for step, after in zip(workflow.steps, [*workflow.steps[1:], None], strict=True):
            assert step.feedback != "No known action matches that input."
            if step.feedback.startswith("Ambiguous request"):
                menus += 1
                assert after is not None
                assert after.action == "0"
    assert menus == 95


def test_what_made_it_is_stamped(catalogue):
    origin = catalogue.origin
    assert origin.simulator == "1.2.3"
    assert origin.jar_sha256 == "f4e1fdce0cdabe1bab7128a7e78ea820210d9db3c28d7272bcbbc3f3a1c5f0d7"
    assert "-XX:hashCode=2" in origin.jvm_flags
    assert origin.simplification == ""
    assert len(origin.templates) == 26
    assert TEMPLATES.split(", ") == list(origin.templates)


def test_the_file_is_small():
    source = files("stsr.generators.scienceworld").joinpath("catalogue.jsonl.xz")
    assert Path(str(source)).stat().st_size < 1_000_000


@pytest.mark.parametrize(
    "actions", [(1, "short"), (24, "short"), (25, "medium"), (40, "medium"), (41, "long")]
)
def test_bins(actions):
    assert bin_of(actions[0]) == actions[1]


def few(catalogue):
    return Catalogue(catalogue.origin, dict(list(catalogue.workflows.items())[:3]))


def test_round_trip(catalogue, tmp_path):
    write_catalogue(few(catalogue), tmp_path / "c.xz")
    assert read_catalogue(tmp_path / "c.xz") == few(catalogue)


def test_the_digest_does_not_see_the_java_version(catalogue):
    other = replace(catalogue.origin, java="another")
    assert Catalogue(other, catalogue.workflows).digest == catalogue.digest
    assert Catalogue(replace(other, simulator="1.3.0"), catalogue.workflows).digest != catalogue.digest


def lines_of(path):
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]


def write_lines(path, lines):
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, lines)).encode()))


def test_a_changed_workflow_is_named(catalogue, tmp_path):
    path = tmp_path / "c.xz"
    write_catalogue(few(catalogue), path)
    lines = lines_of(path)
    lines[2]["steps"][0]["action"] = "open drawer"
    write_lines(path, lines)
    with pytest.raises(CatalogueError, match=r"scienceworld-boil/1 was changed"):
        read_catalogue(path)


def test_a_missing_workflow_is_seen(catalogue, tmp_path):
    path = tmp_path / "c.xz"
    write_catalogue(few(catalogue), path)
    write_lines(path, lines_of(path)[:-1])
    with pytest.raises(CatalogueError, match="digest"):
        read_catalogue(path)


@pytest.mark.parametrize("content", [b"", b"not xz", lzma.compress(b""), lzma.compress(b'{"schema": "x/9"}')])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "c.xz").write_bytes(content)
    with pytest.raises(CatalogueError):
        read_catalogue(tmp_path / "c.xz")


def test_official_blocks():
    """68 test variations: a pilot of ten and an extension of 58."""
    assert [len(variations(name)) for name in ("train", "dev", "test")] == [120, 60, 68]
    assert parse("scienceworld-boil/29") == Variation("boil", 29)


@pytest.mark.parametrize(
    "task", ["boil/3", "scienceworld-boil/30", "scienceworld-sail/3", "scienceworld-boil/-1"]
)
def test_other_tasks_are_refused(task):
    with pytest.raises(ValueError, match=r"boil|sail"):
        parse(task)
