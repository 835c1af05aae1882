"""Protects: ScienceWorld's records are published, scored again and looked at like all others, without Java.

pytest tests/eval_tasks/test_scienceworld_sharing.py
"""

import json
import re
from dataclasses import replace

import datasets
import pytest

from stsr.eval_tasks import scienceworld, scienceworld_regrade
from stsr.eval_tasks.any_records import read, to_json
from stsr.eval_tasks.records import Cell, RecordError
from stsr.eval_tasks.regrade import regrade_folder
from stsr.eval_tasks.scienceworld import FreeRun, Local
from stsr.eval_tasks.scienceworld_records import record_of
from stsr.eval_tasks.sharing import prepare
from stsr.eval_tasks.viewer import collect, page
from stsr.generators.scienceworld.actions import REJECTION
from stsr.generators.scienceworld.rows import decision_rows
from stsr.generators.scienceworld.sessions import Pool
from stsr.generators.scienceworld.splits import read_splits, workflows_of
from stsr.generators.scienceworld.states import Outcome, Seen
from stsr.generators.scienceworld.variations import parse
from stsr.stats.outcomes import cell_id
from tests.generators.scienceworld.fake_simulator import FakeSimulator

WORKFLOW = workflows_of(read_splits().test[:1])[0]
CELL = Cell("me/base", "r", "", "", "d", "r", "test", "scienceworld", 0, "full", "t", "float32", "HFLM")
SHORT = replace(CELL, condition="4 calls")
PILOT = replace(CELL, condition="pilot, 2 calls")
FIRST, SECOND = (step.action for step in WORKFLOW.steps[:2])


class Deaf:
    """A simulator that rejects everything, of an official test variation too."""

    alive = True

    def load(self, variation):
        pass

    def call(self, action):
        return Outcome(REJECTION, 0)

    def see(self):
        return Seen("This room is called the attic. In it, you see:\n", "")

    def description(self):
        return "Your task is unknown here."

    def close(self):
        pass


def decision(stage, output):
    rows = list(decision_rows(WORKFLOW, ["full"]))
    local = Local(rows[stage - 1])
    local.take(output, prompt=local.messages()[0]["content"], prompt_tokens=700, output_tokens=3)
    return record_of(local.result(), CELL, local.id)


def episode(task, outputs, cell, start, workflow=None):
    with Pool(1, start) as pool:
        run = FreeRun(task, "full", pool, workflow, most_calls=len(outputs))
        for output in outputs:
            run.take(output, prompt=run.messages()[0]["content"], prompt_tokens=700, output_tokens=3)
        return record_of(run.result(), cell, run.id)


@pytest.fixture(scope="module")
def found():
    """Two decisions, an episode cut at four calls, and one of the pilot cut at two."""
    played = episode(WORKFLOW.task, [FIRST, "frobnicate", SECOND.upper(), ""], SHORT, FakeSimulator, WORKFLOW)
    pilot = episode(parse(read_splits().pilot[0]), ["look around", "wait"], PILOT, Deaf)
    return [decision(1, FIRST), decision(2, "\n open  sesame \nplease"), played, pilot]


@pytest.fixture
def folder(found, tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "all.jsonl").write_text("".join(f"{to_json(record)}\n" for record in found))
    return tmp_path / "records"


def test_what_the_records_say(found):
    first, second, played, pilot = found
    assert (first.agree, second.agree, second.turn.action) == (True, False, "open sesame")
    assert [turn.verdict for turn in played.turns] == ["accepted", "rejected", "accepted", "rejected"]
    assert [turn.canonical for turn in played.turns] == [True, False, True, False]
    assert (played.ended, played.rejections, played.later_success) == ("budget", 2, False)
    assert (pilot.fingerprint, [turn.canonical for turn in pilot.turns]) == ("", [None, None])


# -- scoring again


def test_the_same_rules_give_the_same_bytes(folder, tmp_path):
    assert regrade_folder(folder, tmp_path / "again") == (4, [])
    assert (tmp_path / "again" / "all.jsonl").read_bytes() == (folder / "all.jsonl").read_bytes()


def test_a_changed_verdict_is_told(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(scienceworld, "verdict", lambda feedback: "accepted")
    changes = regrade_folder(folder, tmp_path / "again")
    told = dict(line.split(": ", 1) for line in changes.changed)
    assert told[f"{WORKFLOW.id}@full"] == (
        "rejections 2 -> 0, later_success False -> None, later_increase False -> None, "
        "call 2 rejected -> accepted, call 4 rejected -> accepted"
    )
    assert len(told) == 2


def test_another_extraction_means_another_episode(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(scienceworld_regrade, "extract", lambda output: output.removesuffix("."))
    changes = regrade_folder(folder, tmp_path / "same")
    assert changes.changed == []
    monkeypatch.setattr(scienceworld_regrade, "extract", lambda output: output.upper())
    changes = regrade_folder(folder, tmp_path / "other")
    assert [line.partition("@")[2] for line in changes.changed] == [
        "full: the model would see other prompts today; run it again"
    ] * 2
    assert changes.total == 2


def test_another_end_means_another_episode(folder, tmp_path, monkeypatch):
    """Were a score of 0 a failure, every episode would have ended with its first call."""
    monkeypatch.setattr(scienceworld, "_ended", lambda score, remaining: "failed" if score <= 0 else None)
    assert regrade_folder(folder, tmp_path / "again").total == 2


def test_another_catalogue_is_refused(folder, found, tmp_path):
    (folder / "all.jsonl").write_text(to_json(replace(found[2], fingerprint="0" * 32)) + "\n")
    with pytest.raises(RecordError, match=r"@full: the catalogue has no .* with the fingerprint 000"):
        regrade_folder(folder, tmp_path / "again")


# -- sharing


def test_records_become_a_data_set(folder, found):
    with prepare(folder, "me/records") as ready:
        assert ready.summary == "2 scienceworld decisions and 2 scienceworld episodes"
        load = lambda name: datasets.load_dataset(str(ready.folder), name, split="train")  # noqa: E731
        decisions, episodes = load("scienceworld_decisions"), load("scienceworld_episodes")
        assert decisions["agree"] == [True, False]
        assert [row["cell"]["condition"] for row in episodes] == ["4 calls", "pilot, 2 calls"]
        assert [turn["action"] for turn in episodes[0]["turns"]] == [FIRST, "frobnicate", SECOND.upper(), ""]
        assert list(read(ready.folder.rglob("*.jsonl"))) == found
        card = (ready.folder / "README.md").read_text()
        assert (
            "| untuned | me/base | scienceworld_free_run | scienceworld | full | 4 calls | test | 1 |" in card
        )


# -- the page of episodes


@pytest.fixture(scope="module")
def data(found):
    html = page(collect(found, {}, cell_id))
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)[1])


def test_the_page_has_a_cell_for_each_link_of_the_report(data):
    named = [(cell["id"], cell["kind"], cell["evaluation"], cell["k"], cell["n"]) for cell in data["cells"]]
    assert named == [
        (cell_id(SHORT), "free_run", "Free run, scienceworld, 4 calls, test", 0, 1),
        (cell_id(PILOT), "free_run", "Free run, scienceworld, pilot, 2 calls, test", 0, 1),
        (cell_id(CELL), "oracle_prefix", "Oracle prefix, scienceworld, test", 1, 2),
    ]


def test_a_call_holds_what_was_sent_and_answered(data):
    (run,) = data["cells"][0]["runs"]
    text = data["texts"]
    assert [(text[a], text[f], s, text[r]) for *_, a, f, s, r in run["turns"][:2]] == [
        (FIRST, WORKFLOW.steps[0].feedback, WORKFLOW.steps[0].score, FIRST),
        ("frobnicate", REJECTION, WORKFLOW.steps[0].score, SECOND),
    ]
    id, _, horizon, budget, *_ = data["tasks"][run["task"]]
    assert (id, horizon, budget) == (WORKFLOW.id, len(WORKFLOW.steps), 4)
