"""Protects: ScienceWorld's tables count what the paper counts, on records made by hand."""

import doctest
import json
import subprocess
import sys

import pytest

from stsr.eval_tasks.records import Cell
from stsr.eval_tasks.scienceworld_records import ActionTurn, FreeRunRecord, LocalRecord, to_json
from stsr.stats import scienceworld
from stsr.stats.scienceworld import (
    Arm,
    diagnostics,
    label,
    table_9,
    table_27,
    table_28,
    table_29,
    table_30,
    write,
)

TURN = ActionTurn("p", "o", None, "accepted", "", 100, 1, 1)
ARMS = [
    Arm("", "untuned", 0, 0),
    Arm("a/short", "short-only", 1),
    Arm("a/mixed", "mixed-horizon", 1),
    Arm("a/full", "full", 1),
    Arm("a/full-20", "full", 1, 20),
    Arm("a/compact", "compact", 1),
]


def cell(adapter, split="test", view="full", condition=""):
    return Cell("m", "r", adapter, "", "d", "r", split, "scienceworld", 0, view, "t", "f", "b", condition)


def decision(task, stage, agree, where, horizon=2, bin="short"):
    return LocalRecord(
        f"{task}#{stage}@{where.view}", task, "f", "boil", bin, horizon, stage, agree, "x", TURN, where
    )


def run(task, where, score=100, calls=10, rejections=0, later=None, bin="short"):
    success = score == 100
    ended = "success" if success else "budget"
    return FreeRunRecord(
        f"{task}@{where.view}", task, "f", "boil", bin, 2, success, ended, calls, score, max(score, 0),
        rejections, success if rejections else None, later, "x", "1", "j", [TURN], where,
    )  # fmt: skip


def texts(table):
    return [list(row) for row in table.rows]


def test_table_9():
    """3 of 4 decisions; 1 of 2 runs; 30 calls, of which 3 rejected. The other training has no records."""
    here = cell("a/short")
    records = [
        *(decision("t/1", k, True, here) for k in (1, 2)),
        decision("t/2", 1, True, here),
        decision("t/2", 2, False, here),
        run("t/1", here),
        run("t/2", here, score=40, calls=20, rejections=3, later=False),
    ]
    assert texts(table_9(label(records, ARMS))) == [
        ["short-only", "75.00", "69.83", "1/2", "46/90", "90.00", "95.96"]
    ]


def test_table_27_has_the_steps_that_there_are():
    records = [
        decision("t/1", 1, True, cell("a/full", "development")),
        decision("t/1", 1, False, cell("a/full-20", "development")),
        decision("t/1", 1, True, cell("", "development", "compact-recent2")),
    ]
    assert texts(table_27(label(records, ARMS))) == [
        ["full→full", "20", "0.00", "54.17"],
        ["full→full", "100", "100.00", "79.39"],
        ["untuned→compact", "0", "1/1", "154/440"],
    ]


def test_tables_28_and_30_take_the_pilot_apart_from_other_tests():
    pilot = cell("a/compact", view="full", condition="pilot")
    records = [
        decision("t/1", 1, True, cell("a/compact", "development")),
        run("t/8", pilot, score=100, rejections=2, later=True),
        run("t/9", pilot, score=10, rejections=1, later=True),
        run("t/7", pilot, score=10),
        run("t/6", cell("a/compact"), score=100),
    ]
    rows = label(records, ARMS)
    assert texts(table_28(rows)) == [["compact", "full", "100.00", "76.89", "1/3", "8/30"]]
    assert texts(table_30(rows)) == [["compact", "full", "2/3", "18/30", "1/2", "4/18", "2/2", "12/18"]]


def test_table_29_shows_raw_and_clipped_scores():
    here = cell("a/mixed")
    records = [run("t/1", here, score=-100, bin="long"), run("t/2", here, score=50, bin="long")]
    assert texts(table_29(label(records, ARMS))) == [
        ["mixed-horizon", "long", "–", "80.67", "0/2", "5/30", "-25.00 (25.00)", "44.63"]
    ]


def test_diagnostics_pair_decisions_with_runs():
    """Agreement 1, 1/2, 0 against success 1, 1, 0 and scores 100, 100, 30: ranks 3 2 1 and 2.5 2.5 1."""
    here = cell("a/short")
    records = [
        *(decision("t/1", k, True, here) for k in (1, 2)),
        decision("t/2", 1, True, here),
        decision("t/2", 2, False, here),
        *(decision("t/3", k, False, here) for k in (1, 2)),
        decision("t/4", 1, True, here),  # its path is incomplete
        run("t/1", here),
        run("t/2", here),
        run("t/3", here, score=30),
        run("t/4", here),
    ]
    (row,) = texts(diagnostics(label(records, ARMS)))
    assert row[::2] == ["short-only", "27/37", "19/53", "0.489", "0.542", "3/90", "3/3"]
    assert row[1::2] == ["1/1", "1/2", "0.866", "0.866", "1/3", "1/1"]


def test_an_adapter_without_an_arm_is_named():
    with pytest.raises(ValueError, match="no arm for the adapter 'a/other'"):
        label([run("t/1", cell("a/other"))], ARMS)


def test_the_command(tmp_path):
    (tmp_path / "r.jsonl").write_text(to_json(run("t/1", cell("a/short"))) + "\n")
    (tmp_path / "arms.json").write_text(
        json.dumps([{"adapter": "a/short", "training": "short-only", "seed": 1}])
    )
    command = [sys.executable, "-m", "stsr.stats.scienceworld", str(tmp_path / "r.jsonl")]
    command += ["--arms", str(tmp_path / "arms.json"), "--out", str(tmp_path / "report")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "holds 2 tables" in done.stdout
    assert "1/1" in (tmp_path / "report" / "scienceworld.md").read_text()
    assert "<table" in (tmp_path / "report" / "scienceworld.html").read_text()


def test_nothing_to_report(tmp_path):
    with pytest.raises(ValueError, match="nothing to report"):
        write([], ARMS, tmp_path)


def test_the_papers_counts_add_up():
    """46/90 and 27/90 are sums over bins; 63 of 120 pilot episodes have a rejection, 11 and 27 after."""
    sums = {}
    for (training, _), (_, completed, _) in scienceworld.PAPER_29.items():
        sums[training] = sums.get(training, 0) + int(completed.split("/")[0])
    assert sums == {"short-only": 46, "mixed-horizon": 27}
    columns = zip(*scienceworld.PAPER_30.values(), strict=True)
    assert [sum(int(text.split("/")[0]) for text in column) for column in columns] == [63, 11, 27]


def test_examples():
    assert doctest.testmod(scienceworld).failed == 0
