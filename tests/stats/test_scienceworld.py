"""Protects: ScienceWorld's tables count what the paper counts, on records made by hand."""

import json
import subprocess
import sys

import pytest

from stsr.eval_tasks.records import Cell
from stsr.eval_tasks.scienceworld_records import ActionTurn, FreeRunRecord, LocalRecord, to_json
from stsr.stats.outcomes import CellError, outcome
from stsr.stats.scienceworld import Arm, tables, write
from stsr.stats.specs import SPECS


def turn(verdict="accepted"):
    return ActionTurn("p", "o", None, verdict, "", 100, 1, 1)


ARMS = [
    Arm("", "untuned", 0, 0),
    Arm("a/short", "short-only", 1),
    Arm("a/mixed", "mixed-horizon", 1),
    Arm("a/full", "full", 1),
    Arm("a/compact", "compact", 1),
]


def cell(adapter, split="test", view="full", condition=""):
    return Cell("m", "r", adapter, "", "d", "r", split, "scienceworld", 0, view, "t", "f", "b", condition)


def decision(task, stage, agree, where, horizon=2, bin="short"):
    task = f"scienceworld-boil/{task}"
    return LocalRecord(
        f"{task}#{stage}@{where.view}", task, "f", "boil", bin, horizon, stage, agree, "x", turn("unsent"),
        where,
    )  # fmt: skip


def run(task, where, score=100, calls=10, rejections=0, later=None, bin="short"):
    task = f"scienceworld-boil/{task}"
    success = score == 100
    turns = [turn("rejected")] * rejections + [turn()] * (calls - rejections)
    return FreeRunRecord(
        f"{task}@{where.view}", task, "f", "boil", bin, 2, success, "success" if success else "budget", calls,
        score, max(score, 0), rejections, success if rejections else None, later, "x", "1", "j", turns, where,
    )  # fmt: skip


def rows(records, table):
    """The texts of one table, its intervals left out."""
    [made] = [one for one in tables(list(map(outcome, records)), ARMS) if one.id == table]
    return [[text.partition(" (")[0] for text in row] for row in made.rows]


def test_table_9():
    """3 of 4 decisions; 1 of 2 runs; 30 calls, of which 3 rejected. The other training has no records."""
    here = cell("a/short")
    records = [
        *(decision(1, k, True, here) for k in (1, 2)),
        decision(2, 1, True, here),
        decision(2, 2, False, here),
        run(1, here),
        run(2, here, score=40, calls=20, rejections=3, later=False),
    ]
    assert rows(records, "table-9") == [["m", "short-only", "75.0", "1/2", "90.0"]]


def test_table_27_of_the_untuned_base_takes_every_compact_view_as_compact():
    records = [
        decision(1, 1, True, cell("", "development"), horizon=1),
        decision(1, 1, False, cell("", "development", "compact-recent2"), horizon=1),
    ]
    assert rows(records, "table-27-untuned") == [["m", "full", "100.0"], ["m", "compact", "0.0"]]


def test_tables_28_and_30_take_the_pilot_apart_from_other_tests():
    pilot = cell("a/compact", view="full", condition="pilot")
    records = [
        decision(1, 1, True, cell("a/compact", "development"), horizon=1),
        run(8, pilot, score=100, rejections=2, later=True),
        run(9, pilot, score=10, rejections=1, later=True),
        run(7, pilot, score=10),
        run(6, cell("a/compact"), score=100),
    ]
    assert rows(records, "table-28") == [["m", "compact", "full", "100.0"]]
    assert rows(records, "table-28-pilot") == [["m", "compact", "full", "1/3"]]
    assert rows(records, "table-30") == [["m", "compact", "full", "2/3", "1/2", "2/2"]]


def test_table_29_shows_raw_and_clipped_scores():
    here = cell("a/mixed")
    records = [
        decision(1, 1, True, here, horizon=1, bin="long"),
        run(1, here, score=-100, bin="long"),
        run(2, here, score=50, bin="long"),
    ]
    assert rows(records, "table-29") == [["m", "mixed-horizon", "long", "100.0", "0/2", "-25.00", "25.00"]]


def test_pairs_of_decisions_and_runs():
    """Agreement 1, 1/2, 0 against success 1, 1, 0 and scores 100, 100, 30: ranks 3 2 1 and 2.5 2.5 1."""
    here = cell("a/short")
    records = [
        *(decision(1, k, True, here) for k in (1, 2)),
        decision(2, 1, True, here),
        decision(2, 2, False, here),
        *(decision(3, k, False, here) for k in (1, 2)),
        decision(4, 2, True, here),  # its path is incomplete
        run(1, here),
        run(2, here),
        run(3, here, score=30),
        run(4, here),
    ]
    assert rows(records, "section-4.7") == [["m", "short-only", "1/1", "1/2", "0.87", "0.87", "1/3", "1/1"]]


def test_an_adapter_without_an_arm_is_named():
    with pytest.raises(ValueError, match="no arm for the adapter 'a/other'"):
        tables([outcome(run(1, cell("a/other")))], ARMS)


def test_a_success_without_its_score_is_refused():
    record = run(1, cell("a/short"), score=70)
    object.__setattr__(record, "success", True)
    with pytest.raises(CellError, match="scienceworld-boil/1@full: success is True, but its score is 70"):
        outcome(record)


def test_the_command(tmp_path):
    here = cell("a/short")
    records = [decision(1, 1, True, here, horizon=1), run(1, here)]
    (tmp_path / "r.jsonl").write_text("".join(f"{to_json(record)}\n" for record in records))
    (tmp_path / "arms.json").write_text(
        json.dumps([{"adapter": "a/short", "training": "short-only", "seed": 1}])
    )
    command = [sys.executable, "-m", "stsr.stats.scienceworld", str(tmp_path / "r.jsonl")]
    command += ["--arms", str(tmp_path / "arms.json"), "--out", str(tmp_path / "report")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "holds 3 tables" in done.stdout  # 9, 29 and the pairs
    assert "1/1" in (tmp_path / "report" / "scienceworld.md").read_text()
    assert "<table" in (tmp_path / "report" / "scienceworld.html").read_text()


def test_nothing_to_report(tmp_path):
    with pytest.raises(ValueError, match="nothing to report"):
        write([], ARMS, tmp_path)


def test_the_papers_counts_add_up():
    """46/90 and 27/90 are sums over bins; 63 of 120 pilot episodes have a rejection, 11 and 27 after."""
    [[_, *lines]] = SPECS["table-29"].paper
    sums = {}
    for _, training, _, _, completed, _ in lines:
        sums[training] = sums.get(training, 0) + int(completed.split("/")[0])
    assert sums == {"short-only": 46, "mixed-horizon": 27}
    [[_, *lines]] = SPECS["table-30"].paper
    columns = list(zip(*(line[3:] for line in lines), strict=True))
    assert [sum(int(text.split("/")[0]) for text in column) for column in columns] == [63, 11, 27]
