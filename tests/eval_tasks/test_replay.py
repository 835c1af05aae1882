"""Protects: a record played again stands where it stood, and no task but the recorded one is used.

pytest tests/eval_tasks/test_replay.py

States, offers and verdicts are written out by hand for the task of graph.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stsr.eval_tasks.records import DecisionRecord, EpisodeRecord, Turn
from stsr.eval_tasks.replay import Moment, Player, find_tasks
from stsr.generators import chain
from stsr.generators.rows import task_row
from tests.eval_tasks.graph import (
    A1,
    A2,
    A3,
    EXISTS,
    LOST,
    MAKE_A1,
    MAKE_A2,
    MAKE_A3,
    NOT_JSON,
    TASK,
    TASKS,
    WON,
    WRONG_A2,
    cell,
    decision,
    episode,
)


def played(record: EpisodeRecord | DecisionRecord) -> list[Moment]:
    return Player(TASKS).replay(record).moments


def test_what_exists_before_and_after_each_call() -> None:
    moments = played(LOST)
    assert [list(moment.state.artifacts) for moment in moments] == [
        ["s0"],
        ["s0", "a1"],
        ["s0", "a1"],
        ["s0", "a1"],
        ["s0", "a1", "a3"],
    ]
    assert [moment.made for moment in moments] == ["a1", "", "", "a3", "a2"]
    assert moments[0].after.artifacts["a1"].rows == A1
    assert moments[3].after.artifacts["a3"].rows == A3
    assert [moment.state.remaining for moment in moments] == [8, 7, 6, 5, 4]
    assert [moment.state.error for moment in moments] == ["", "", EXISTS, NOT_JSON, ""]
    assert [len(moment.after.verified) for moment in moments] == [1, 1, 1, 2, 2]  # the wrong a2 doesn't count
    assert not any(moment.differs for moment in moments)


def test_what_was_on_offer_and_what_the_reply_is() -> None:
    moments = played(LOST)
    assert [[option.recipe.output for option in moment.options] for moment in moments] == [
        ["a4", "a1"],
        ["a3", "a2"],
        ["a3", "a2"],
        ["a3", "a2"],
        ["a3", "a2"],
    ]
    assert [moment.chosen for moment in moments] == [1, None, None, 0, None]
    assert [moment.canonical for moment in moments] == [True, False, False, False, False]
    assert [option.kind for option in moments[3].options] == ["ready", "target"]


def test_what_a_view_shows() -> None:
    look = played(LOST)[1].look  # compact; the next step reads s0
    assert [(one.name, one.shown) for one in look.artifacts] == [("s0", True), ("a1", False)]


def test_a_decision_stands_after_the_right_calls_before_it() -> None:
    (moment,) = played(decision(3, MAKE_A1, False, error=EXISTS))
    assert list(moment.state.artifacts) == ["s0", "a1", "a2"]
    assert moment.state.artifacts["a2"].rows == A2
    assert (moment.chosen, moment.canonical, moment.made, moment.differs) == (0, False, "", "")


def test_a_reply_that_is_an_id_is_that_recipe() -> None:
    where = cell("recipe-ids")
    (moment,) = played(decision(2, '{"recipe":"r2"}', True, where))
    assert (moment.chosen, moment.canonical, moment.made) == (1, True, "a2")
    (moment,) = played(decision(2, '{"recipe":"r9"}', False, where, "unknown-recipe: x"))
    assert (moment.chosen, moment.canonical, moment.made) == (None, False, "")


def test_an_episode_after_an_injected_error_begins_there() -> None:
    task = chain.FAMILY.generate(8, 70000)
    gold = [task.recipes[index].text for index in task.gold]
    turns = [
        Turn("p", gold[4], {}, "accepted", "", 11, None, None)
    ]  # 16 calls less four right ones and one wrong
    record = EpisodeRecord(
        f"{task.id}@full", task.id, task.fingerprint, False, 5, 1, 0, turns, cell(horizon=8), "matched_error"
    )
    (moment,) = Player({(task.id, task.fingerprint): task}).replay(record).moments
    assert len(moment.state.artifacts) == 5
    assert moment.state.error.startswith("output-exists: ")
    assert (moment.canonical, moment.differs) == (True, "")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"verdict": "missing-input", "error": "missing-input: x"}, "accepted"),
        ({"remaining": 5}, "accepted"),
        ({"output": "{}"}, NOT_JSON),
    ],
)
def test_a_call_that_is_judged_otherwise_today_says_so(change: dict[str, object], says: str) -> None:
    record = replace(WON, turns=[replace(WON.turns[0], **change)])  # type: ignore[arg-type]
    assert [moment.differs for moment in played(record)] == [says]


# Whole tasks


def test_a_task_is_generated_if_it_is_the_recorded_one() -> None:
    task = chain.FAMILY.generate(4, 62000)
    mine = replace(WON, task=task.id, fingerprint=task.fingerprint)
    assert find_tasks([mine]) == {(task.id, task.fingerprint): task}


def test_another_task_of_that_name_is_read_from_the_data_set(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "test"):
        pq.write_table(pa.Table.from_pylist([task_row(TASK)]), folder / f"{split}.parquet")
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: h4-tasks\n  data_files:\n  - split: test\n    path: test.parquet\n"
        "- config_name: h4-full\n  data_files:\n  - split: train\n    path: train.parquet\n---\n"
    )
    generated = chain.FAMILY.generate(4, 62000)
    other = replace(WON, task=generated.id, fingerprint=generated.fingerprint)
    assert find_tasks([WON, other], folder) == TASKS | {(generated.id, generated.fingerprint): generated}
    # The record itself may name the folder.
    where = cell(data=str(folder), data_revision="sha256:0")
    assert find_tasks([episode([(MAKE_A2, "")], where)]) == TASKS


def test_tasks_that_are_nowhere(tmp_path: Path) -> None:
    generated = chain.FAMILY.generate(4, 62000)
    other = replace(WON, task=generated.id, fingerprint=generated.fingerprint)
    assert list(find_tasks([WON, other], tmp_path / "none")) == [(generated.id, generated.fingerprint)]
    with pytest.raises((ValueError, OSError)):
        find_tasks([WON], tmp_path / "none")


def test_outputs_are_told_apart_by_meaning_and_not_by_letters() -> None:
    spaced = MAKE_A3.replace(":", ": ")
    (first, *_) = played(episode([(spaced, "missing-input: a1 does not exist yet")]))
    assert (first.chosen, first.differs) == (None, "")
    moments = played(episode([(MAKE_A1, ""), (f"I think {spaced}", "")]))
    assert (moments[1].chosen, moments[1].made) == (0, "a3")
    assert played(episode([(WRONG_A2, "")]))[0].chosen is None
