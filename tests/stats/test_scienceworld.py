"""Protects: ScienceWorld's tables count what the paper counts, on records made by hand."""

from dataclasses import replace

import pytest

from stsr.eval_tasks.records import Cell
from stsr.eval_tasks.scienceworld_records import ActionTurn, FreeRunRecord, LocalRecord
from stsr.stats.display import tables_of
from stsr.stats.frame import Arm, label
from stsr.stats.outcomes import CellError, outcome
from stsr.stats.specs import SPECS
from stsr.stats.tables import build


def turn(verdict="accepted"):
    return ActionTurn("p", "o", None, verdict, "", 100, 1, 1)


def arm(adapter, trained):
    return Arm("m", adapter=adapter, trained=trained, trained_family="scienceworld", seed=1, step=100)


ARMS = [
    Arm("m"),
    arm("a/short", "short-only"),
    arm("a/mixed", "mixed-horizon"),
    arm("a/full", "full"),
    arm("a/compact", "compact"),
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


def filled(records, table):
    """One table as `stsr report` fills it."""
    built = build(SPECS[table], label([outcome(record) for record in records], ARMS))
    [made] = tables_of(built, lambda cell, kind: "")
    return made


def rows(records, table):
    """The texts of one table, without intervals and without the paper's values."""
    made = filled(records, table)
    ours = [at for at, name in enumerate(made.head) if "paper" not in name]
    return [[row[at].partition(" (")[0] for at in ours] for row in made.rows]


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


def test_a_success_without_its_score_is_refused():
    record = run(1, cell("a/short"), score=70)
    object.__setattr__(record, "success", True)
    with pytest.raises(CellError, match="scienceworld-boil/1@full: success is True, but its score is 70"):
        outcome(record)


def test_a_menu_and_its_refusal_are_no_rejections():
    """A grow-plant path asks for a number; only the parser's own words count as a rejection."""
    turns = [turn(), turn("ambiguous"), turn("cancelled"), turn("rejected")]
    record = replace(run(1, cell("a/short"), calls=4, rejections=1, later=False), turns=turns)
    assert outcome(record).rejections == 1
    assert outcome(record).reasons == (("rejected", 1),)


def test_the_papers_values_stand_beside_those_of_any_base_and_say_whose_they_are():
    here = cell("a/short")
    made = filled([decision(1, 1, True, here, horizon=1), run(1, here)], "table-9")
    [row] = [dict(zip(made.head, row, strict=True)) for row in made.rows]
    assert (row["oracle", "paper"], row["success", "paper"]) == ("69.83", "46/90")
    assert "The paper's values are of 27B." in made.note


def test_shortened_runs_are_said_to_be_short_and_never_mixed_with_whole_ones():
    short = cell("a/full", condition="pilot, 8 calls")
    assert rows([run(1, short)], "table-28-pilot") == [["m", "full", "full", "1/1"]]
    assert (
        "episodes cut at 8 calls, no replication of the paper's 100"
        in filled([run(1, short)], "table-28-pilot").note
    )
    whole = run(1, cell("a/full", condition="pilot"))
    assert "cut" not in filled([whole], "table-28-pilot").note
    with pytest.raises(CellError, match="condition: 'pilot, 8 calls' and 'pilot'"):
        filled([run(1, short), whole], "table-28-pilot")


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
