"""A pin says exactly what is read, a commit or the hash of a folder; what cannot be read is told."""

from __future__ import annotations

import doctest
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from huggingface_hub import constants

from stsr.hub_cards import pins
from stsr.hub_cards.pins import Pin, PinError, pin
from stsr.hub_cards.publish import publish_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/README.md").write_text("# a card\n")
    return tmp_path / "folder"


def test_a_folder_is_pinned_to_its_content(folder: Path, tmp_path: Path) -> None:
    """Hidden files do not count. The hash is written out by hand: name, zero byte, hash of the bytes."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / ".cache").write_text("hidden")
    line = f"README.md\0{sha256(b'# a card' + bytes([10])).hexdigest()}\n"
    expected = f"sha256:{sha256(line.encode()).hexdigest()}"
    assert pin(str(folder), None, "dataset") == Pin(str(folder), expected)
    assert pin(str(copy), None, "model").revision == expected
    (copy / "README.md").write_text("changed")
    assert pin(str(copy), None, "model").revision != expected
    assert pin(str(folder), None, "dataset").commit is None


@pytest.mark.parametrize("revision", ["main", "v1.0.0", "0" * 40])
def test_a_folder_takes_no_revision(folder: Path, revision: str) -> None:
    with pytest.raises(PinError, match=f"is a folder and has no revision '{revision}'; leave it out"):
        pin(str(folder), revision, "dataset")


def test_a_repository_is_pinned_to_a_commit(folder: Path) -> None:
    commit = publish_folder(folder, "pins/data", "dataset", tag="v1", message="1").commit
    for revision in (None, "main", "v1", commit):
        assert pin("pins/data", revision, "dataset") == Pin("pins/data", commit)
    assert pin("pins/data", "v1", "dataset").commit == commit


def test_what_does_not_exist_is_told_with_what_does(folder: Path) -> None:
    publish_folder(folder, "pins/known", "dataset", tag="v1", message="1")
    with pytest.raises(
        PinError, match=r"dataset pins/known at http\S+ has no revision v9; tags: v1; branches: main"
    ):
        pin("pins/known", "v9", "dataset")
    with pytest.raises(
        PinError, match=r"^pins/known is no folder here; there is no model pins/known at http"
    ):
        pin("pins/known", None, "model")
    with pytest.raises(PinError, match=r"^out/no/such/folder is no folder here; model out/no/such/folder"):
        pin("out/no/such/folder", None, "model")


def test_a_commit_needs_no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert pin("pins/away", "c" * 40, "model") == Pin("pins/away", "c" * 40)
    with pytest.raises(
        PinError, match=r"cannot reach .* a commit of 40 hex digits needs no look-up"
    ) as error:
        pin("pins/away", "v1", "model")
    assert not re.search("\n", str(error.value))


def test_examples() -> None:
    assert doctest.testmod(pins).failed == 0
