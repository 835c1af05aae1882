"""Protects: the report and the page of episodes name cells alike, and the report does without the page.

pytest tests/cli/test_reporting.py
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stsr.cli import reporting
from stsr.cli.reporting import traces, write
from stsr.eval_tasks.episodes import Episode, Probe, Rollout
from stsr.eval_tasks.records import Cell, Record, from_json, to_json
from stsr.eval_tasks.samples import record_of
from stsr.generators import chain
from stsr.generators.rows import decision_rows, gold_states
from stsr.recipes.experiment import find

CELL = Cell(
    model="stsr/tiny-base",
    model_revision="r",
    adapter="",
    adapter_revision="",
    data="nobody/nothing",
    data_revision="a" * 40,
    split="test",
    family="chain",
    horizon=4,
    view="full",
    chat_template="none",
    dtype="float32",
    backend="HFLM",
)


def ran(rollout: Rollout, cell: Cell) -> Record:
    """What a model that is always right leaves."""
    while not rollout.finished:
        rollout.take(rollout.reference(), prompt=rollout.messages()[0]["content"])
    return record_of(rollout.result(), cell, rollout.id)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """The quickstart's evaluations on two tasks, every reply right."""
    folder = tmp_path / "records"
    folder.mkdir()
    for adapter in ("", "stsr/tiny-h4-full", "stsr/tiny-h4-compact"):
        for view in ("full", "compact"):
            cell = replace(CELL, adapter=adapter, view=view)
            found = []
            for seed in (62000, 62001):
                task = chain.FAMILY.generate(4, seed)
                rows = zip(decision_rows(task, [view]), gold_states(task), strict=True)
                found += [ran(Probe(row, state), cell) for row, state in rows]
                found.append(ran(Episode(task, view), cell))
            name = f"{adapter.rpartition('/')[2]}-{view}.jsonl"
            (folder / name).write_text("".join(f"{to_json(record)}\n" for record in found))
    return folder


def embedded(page: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_every_cell_of_the_report_is_on_the_page_of_episodes(records: Path, tmp_path: Path) -> None:
    done = write(find("quickstart"), records, tmp_path / "out")
    assert done.episodes == "96 calls, one at a time, in episodes.html"
    report = done.report.read_text()
    pointed = set(re.findall(r"episodes\.html#cell=([0-9a-f]+)", report))
    assert pointed == {cell["id"] for cell in embedded(tmp_path / "out" / "episodes.html")["cells"]}
    assert len(pointed) == 6
    assert done.episodes in report


def test_without_tasks_the_report_says_so_and_goes_on(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write(find("quickstart"), records, out)
    monkeypatch.setattr("stsr.eval_tasks.replay._generated", lambda task_id: None)
    done = write(find("quickstart"), records, out, data=tmp_path / "no-such-folder")
    assert done.episodes.startswith("not shown, their tasks can't be read: ")
    assert "\n" not in done.episodes
    assert "not shown, their tasks can&#39;t be read" in done.report.read_text()
    assert "episodes.html" not in done.report.read_text()
    assert not (out / "episodes.html").exists()  # the one of the report before is gone


def test_tasks_that_no_data_set_holds(records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "find_tasks", lambda found, data: {})
    done = write(find("quickstart"), records, tmp_path / "out")
    assert done.episodes == "not shown, no data set holds their tasks"


def test_a_broken_record_is_an_error_and_not_a_missing_page(records: Path, tmp_path: Path) -> None:
    (records / "broken.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match=r"broken\.jsonl:1"):
        write(find("quickstart"), records, tmp_path / "out")


def test_traces_are_of_free_runs(records: Path, tmp_path: Path) -> None:
    assert traces(records, tmp_path / "traces", None).endswith("holds 12 sessions.")
    (first, *_) = sorted((tmp_path / "traces").rglob("*.jsonl"))
    assert json.loads(first.read_text().splitlines()[0])["type"] == "session"
    assert from_json((records / "-full.jsonl").read_text().splitlines()[0]).task == "chain-h4/62000"
