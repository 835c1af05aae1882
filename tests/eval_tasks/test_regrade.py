"""Scoring again: nothing changes where nothing changed, and what changed is told, record by record."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import datasets
import pytest

from stsr.eval_tasks import records, regrade
from stsr.eval_tasks.records import Cell, RecordError
from stsr.eval_tasks.regrade import regrade_folder
from stsr.eval_tasks.samples import records_from_samples
from stsr.eval_tasks.sharing import prepare
from stsr.generators import environment


def cell(view: str, family: str, horizon: int, condition: str = "") -> Cell:
    return Cell("m", "c", "", "", "d", "c", "test", family, horizon, view, "t", "f", "B", condition)


@pytest.fixture(scope="module")
def folder(scripts: Any, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of every kind, of a model that blunders."""
    cells = {
        "stsr_oracle_h4_full": cell("full", "chain", 4),
        "stsr_free_run_h8_compact": cell("compact", "chain", 8),
        "stsr_choice_h16_compact": cell("compact", "choice", 16, "choice"),
        "stsr_matched_error_h16_full": cell("full", "chain", 16, "matched-error"),
        "stsr_interface_names": cell("names", "interface", 16),
    }

    def policy(prompt: str) -> str:
        return scripts.blundering(prompt) if "Goal:" not in prompt else "none"

    found = run(scripts.lm(policy), *cells)
    out = tmp_path_factory.mktemp("records")
    for name, whose in cells.items():
        (out / "a").mkdir(exist_ok=True)
        lines = map(records.to_json, records_from_samples(found["samples"][name], whose))
        (out / "a" / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return out


def test_the_same_environment_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    changes = regrade_folder(folder, tmp_path)
    assert changes.changed == []
    assert changes.total == 12 + 3 + 6 + 2 + 48
    for path in folder.rglob("*.jsonl"):
        assert (tmp_path / path.relative_to(folder)).read_bytes() == path.read_bytes()
    with pytest.raises(RecordError, match="is there already"):
        regrade_folder(folder, tmp_path)


def test_records_of_the_first_schema_are_scored_into_the_second(folder: Path, tmp_path: Path) -> None:
    """Version 1 had no candidates, no reference and no condition."""
    old = tmp_path / "old"
    old.mkdir()
    newer = {"candidates", "reference", "canonical", "progress", "logprobs", "noncanonical", "injected"}
    for name in ("stsr_oracle_h4_full", "stsr_free_run_h8_compact"):
        lines = []
        for line in (folder / "a" / f"{name}.jsonl").read_text().splitlines():
            raw = json.loads(line)
            del raw["cell"]["condition"]
            for part in (raw, *raw.get("turns", []), raw.get("turn", {})):
                for key in newer & part.keys():
                    del part[key]
            lines.append(json.dumps({**raw, "schema": "stsr.record/1"}) + "\n")
        (old / f"{name}.jsonl").write_text("".join(lines))
    assert {record.schema for record in records.read(old.iterdir())} == {"stsr.record/1"}
    changes = regrade_folder(old, tmp_path / "new")
    assert changes.changed == []
    for name in ("stsr_oracle_h4_full", "stsr_free_run_h8_compact"):
        new = (tmp_path / "new" / f"{name}.jsonl").read_bytes()
        assert new == (folder / "a" / f"{name}.jsonl").read_bytes()


def test_a_changed_verifier_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that reads nothing makes every call malformed; free runs must then be run again."""
    monkeypatch.setattr(environment, "parse_call", lambda text: None)
    monkeypatch.setattr(regrade.Probe, "take", _deaf(regrade.Probe.take))
    changes = regrade_folder(folder, tmp_path)
    told = [line for line in changes.changed if line.startswith("chain-h4/62000#1@full")]
    assert len(told) <= 1
    assert any("run it again" in line or "agree True -> False" in line for line in changes.changed)


def _deaf(take: Any) -> Any:
    def deaf(self: Any, output: str, **lengths: Any) -> None:
        take(self, "?" + output.replace("{", "("), **lengths)

    return deaf


def test_another_task_under_the_same_id_is_refused(folder: Path, tmp_path: Path) -> None:
    record = next(records.read([folder / "a/stsr_oracle_h4_full.jsonl"]))
    (tmp_path / "x.jsonl").write_text(records.to_json(replace(record, fingerprint="0" * 32)) + "\n")
    with pytest.raises(
        RecordError, match=r"chain-h4/62000#1@full: its task has fingerprint 0{32}, generated"
    ):
        regrade_folder(tmp_path, tmp_path / "out")
    with pytest.raises(RecordError, match="holds no record files"):
        regrade_folder(tmp_path / "out", tmp_path / "more")


# -- sharing


def test_records_become_a_data_set(folder: Path) -> None:
    with prepare(folder, "me/stsr-records") as ready:
        assert ready.summary == "66 decisions and 5 episodes"
        decisions = datasets.load_dataset(str(ready.folder), "decisions", split="train")
        episodes = datasets.load_dataset(str(ready.folder), "episodes", split="train")
        first = next(records.read([folder / "a/stsr_choice_h16_compact.jsonl"]))
        (row,) = (row for row in decisions if row["id"] == first.id)
        assert row["logprobs"] == first.logprobs
        assert row["cell"] == asdict(first.cell)
        assert {len(row["turns"]) for row in episodes} == {
            len(record.turns) for record in records.read(folder.rglob("*free_run*.jsonl"))
        } | {len(record.turns) for record in records.read(folder.rglob("*matched*.jsonl"))}
        assert len(list(records.read(ready.folder.rglob("*.jsonl")))) == 71
        before = {path: path.read_bytes() for path in ready.folder.rglob("*") if path.is_file()}
    with prepare(folder, "me/stsr-records") as ready:
        assert {p.read_bytes() for p in ready.folder.rglob("*") if p.is_file()} == set(before.values())
