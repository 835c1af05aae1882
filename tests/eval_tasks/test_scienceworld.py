"""Protects: ScienceWorld decisions and free runs through lm-eval: counts, stop rules, records, refusals."""

import importlib.util
import json
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path

import lm_eval
import pytest
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from stsr.eval_tasks import scienceworld_suite, scienceworld_task
from stsr.eval_tasks.any_records import read
from stsr.eval_tasks.data import DataError
from stsr.eval_tasks.evaluate import evaluate
from stsr.eval_tasks.records import Cell, RecordError
from stsr.eval_tasks.samples import result_of
from stsr.eval_tasks.scienceworld import FreeRun, scored
from stsr.eval_tasks.scienceworld_metrics import accepted_share, by_workflow
from stsr.eval_tasks.scienceworld_records import ActionTurn, from_json, record_of, to_json
from stsr.eval_tasks.scienceworld_suite import HARNESS
from stsr.generators.scienceworld.dataset import build, read_declaration
from stsr.generators.scienceworld.sessions import Pool
from stsr.generators.scienceworld.simulator import Simulator, SimulatorError
from stsr.generators.scienceworld.splits import read_splits, workflows_of
from stsr.generators.scienceworld.variations import parse
from stsr.hub_cards.scienceworld import trajectories_card
from stsr.recipes.experiment import recipes_folder

VIEWS = ("full", "compact-recent2")
CELL = Cell("m", "r", "", "", "d", "r", "test", "scienceworld", 0, "full", "t", "float32", "HFLM")


def load_fake():
    path = Path(__file__).parents[1] / "generators" / "scienceworld" / "fake_simulator.py"
    spec = importlib.util.spec_from_file_location("fake_simulator_for_tasks", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.FakeSimulator


FakeSimulator = load_fake()


@pytest.fixture(scope="module")
def trajectories(tmp_path_factory):
    """The published data set with two of its views, as a folder."""
    declared = read_declaration(recipes_folder() / "datasets" / "scienceworld-trajectories.yaml")
    folder = tmp_path_factory.mktemp("data") / "scienceworld-trajectories"
    build(replace(declared, views=VIEWS), folder, trajectories_card)
    return folder


@pytest.fixture
def tasks(trajectories):
    def load(*names, **metadata):
        options = {"stsr_scienceworld_data": str(trajectories), **metadata}
        manager = TaskManager(include_path=str(HARNESS), include_defaults=False, metadata=options)
        return dict(manager.load(list(names))["tasks"])

    return load


@pytest.fixture
def run(tasks):
    def run(lm, name, limit=None, **metadata):
        found = lm_eval.evaluate(
            lm, {"tasks": tasks(name, **metadata)}, limit=limit, bootstrap_iters=0, apply_chat_template=True
        )
        results = [json.loads(sample["resps"][0][0]) for sample in found["samples"][name]]
        numbers = {key.removesuffix(",none"): value for key, value in found["results"][name].items()}
        return numbers, results

    return run


@pytest.fixture
def fake(monkeypatch):
    """Free runs on simulators without Java."""
    monkeypatch.setattr(scienceworld_task, "Pool", lambda size: Pool(size, FakeSimulator))
    monkeypatch.setattr(scienceworld_task, "find_java", lambda: "java")
    monkeypatch.setattr(scienceworld_task, "package_jar", lambda: "jar")


@pytest.fixture(scope="module")
def gold(trajectories):
    """Published prompt -> reference action, over the held-out workflows; no prompt has two."""
    import pyarrow.parquet as pq

    found = {}
    for view in VIEWS:
        for row in pq.read_table(trajectories / view / "test.parquet").to_pylist():
            prompt, action = row["prompt"][0]["content"], row["completion"][0]["content"]
            assert found.setdefault(prompt, action) == action
    return found


# -- local decisions


def test_local_decisions_all_right(run, scripts, gold):
    lm = scripts.lm(gold.__getitem__)
    numbers, results = run(lm, "stsr_scienceworld_local_full")
    assert len(results) == 1042
    assert len(lm.batches) == 1
    for name in (
        "agreement",
        "agreement_short",
        "agreement_medium",
        "agreement_long",
        "by_workflow",
        "clean_path",
    ):
        assert numbers[name] == 1.0


def test_local_decisions_of_one_answer(run, scripts):
    """Right where the reference path waits, which the catalogue tells; extraction leaves the rest out."""
    waits = [s.action == "wait1" for w in workflows_of(read_splits().test) for s in w.steps]
    numbers, results = run(scripts.lm(lambda prompt: "\n Wait1\nand so on"), "stsr_scienceworld_local_full")
    assert [result["agree"] for result in results] == waits
    assert numbers["agreement"] == pytest.approx(sum(waits) / 1042)
    assert numbers["clean_path"] == 0.0


def test_the_development_split(run, scripts):
    """440 states (table 27)."""
    _, results = run(
        scripts.lm(lambda prompt: ""), "stsr_scienceworld_local_full", stsr_scienceworld_split="development"
    )
    assert len(results) == 440


# -- free runs without Java


def test_gold_replay_through_the_rollout_path(run, scripts, gold, fake):
    """30 of 30; and the prompts of an episode are the published ones, word for word."""
    lm = scripts.lm(gold.__getitem__)
    numbers, results = run(lm, "stsr_scienceworld_free_run_full")
    assert sum(result["success"] for result in results) == len(results) == 30
    assert [result["calls"] for result in results] == [len(w.steps) for w in workflows_of(read_splits().test)]
    for name in ("success", "success_short", "success_medium", "success_long", "no_rejection"):
        assert numbers[name] == 1.0
    assert (numbers["score"], numbers["score_clipped"], numbers["rejection"]) == (100.0, 100.0, 0.0)
    assert numbers["calls"] == pytest.approx(1042 / 30)
    assert {len(batch) for batch in lm.batches} <= {1, 2}


@pytest.mark.parametrize("simulators", [1, 5])
def test_lock_step_equals_one_at_a_time(run, scripts, gold, fake, simulators):
    def policy(prompt):
        return gold.get(prompt, "look busy")

    _, two = run(scripts.lm(policy), "stsr_scienceworld_free_run_full", limit=8)
    _, other = run(
        scripts.lm(policy),
        "stsr_scienceworld_free_run_full",
        limit=8,
        stsr_scienceworld_simulators=simulators,
    )
    assert other == two


def test_only_rejections_use_up_the_budget(run, scripts, fake):
    numbers, results = run(
        scripts.lm(lambda prompt: "frobnicate"), "stsr_scienceworld_free_run_full", limit=3
    )
    for result in results:
        assert (result["success"], result["ended"], result["calls"]) == (False, "budget", 100)
        assert (result["rejections"], result["score"], result["best"]) == (100, 0, 0)
        assert (result["later_success"], result["later_increase"]) == (False, False)
        assert [turn["remaining"] for turn in result["turns"]] == list(range(100, 0, -1))
        assert {turn["error"] for turn in result["turns"]} == {"No known action matches that input."}
    assert (numbers["rejection"], numbers["later_success"], numbers["no_rejection"]) == (1.0, 0.0, 0.0)


def test_a_shortened_budget_is_told_to_the_model_and_ends_the_episode(run, scripts, fake):
    lm = scripts.lm(lambda prompt: "frobnicate")
    _, results = run(lm, "stsr_scienceworld_free_run_full", limit=1, stsr_scienceworld_calls=3)
    assert [(result["ended"], result["calls"]) for result in results] == [("budget", 3)]
    assert [turn["remaining"] for turn in results[0]["turns"]] == [3, 2, 1]
    assert [prompt.rpartition("Calls left: ")[2] for (prompt,) in lm.batches] == ["3", "2", "1"]


@pytest.mark.parametrize("calls", [0, 101, -1, "many", 2.5])
def test_a_budget_that_is_none_is_refused(tasks, calls):
    (task,) = tasks("stsr_scienceworld_free_run_full", stsr_scienceworld_calls=calls).values()
    with pytest.raises(DataError, match=f"has 1 to 100 calls, not {calls!r}"):
        _ = task.condition


def test_few_workflows_are_of_all_lengths(run, scripts, tasks):
    """Of the first three, one each: the first of its length, with all its decisions."""
    _, results = run(
        scripts.lm(lambda prompt: ""), "stsr_scienceworld_local_full", stsr_scienceworld_workflows=3
    )
    first = {}
    for workflow in workflows_of(read_splits().test):
        first.setdefault(workflow.bin, workflow)
    assert {result["task"] for result in results} == {workflow.id for workflow in first.values()}
    assert len(results) == sum(len(workflow.steps) for workflow in first.values())
    (pilot,) = tasks("stsr_scienceworld_pilot_full", stsr_scienceworld_workflows=2).values()
    assert pilot.task_docs["id"] == list(read_splits().pilot[:2])


def test_a_negative_score_ends_an_episode(run, scripts, fake):
    numbers, results = run(scripts.lm(lambda prompt: "fail"), "stsr_scienceworld_free_run_full", limit=2)
    assert [(r["ended"], r["calls"], r["score"], r["best"]) for r in results] == [("failed", 1, -100, 0)] * 2
    assert (numbers["score"], numbers["score_clipped"]) == (-100.0, 0.0)
    assert str(numbers["later_success"]) == "nan"


def turn(verdict, score):
    return ActionTurn("", "", None, verdict, "", 1, None, None, score=score)


@pytest.mark.parametrize(
    ("turns", "later"),
    [
        ([("accepted", 100)], (True, None, None)),
        ([("rejected", 0), ("accepted", 100)], (True, True, True)),
        ([("accepted", 40), ("rejected", 40), ("accepted", 40)], (False, False, False)),
        ([("accepted", 40), ("rejected", 40), ("accepted", 60), ("accepted", -100)], (False, False, True)),
        ([("ambiguous", 0), ("cancelled", 0), ("accepted", -100)], (False, None, None)),
    ],
)
def test_what_comes_after_a_rejection(turns, later):
    found = scored([turn(*one) for one in turns])
    assert (found["success"], found["later_success"], found["later_increase"]) == later


def test_aggregates():
    assert accepted_share([{"calls": 100, "rejected": 25}, {"calls": 20, "rejected": 5}]) == 0.75
    assert str(accepted_share([])) == str(by_workflow([])) == "nan"


# -- official test variations


def test_the_pilot_has_ten_tasks_and_no_reference(run, scripts, monkeypatch, fake):
    played = []

    class Named(FakeSimulator):
        def load(self, variation):
            played.append(variation)
            super().load(parse("scienceworld-boil/0"))

    monkeypatch.setattr(scienceworld_task, "Pool", lambda size: Pool(size, Named))
    _, results = run(scripts.lm(lambda prompt: "fail"), "stsr_scienceworld_pilot_full")
    assert [result["task"] for result in results] == list(read_splits().pilot)
    assert {task.official for task in played} == {"test"}
    assert {turn["reference"] for result in results for turn in result["turns"]} == {""}
    assert {(r["fingerprint"], r["bin"], r["horizon"]) for r in results} == {("", "", 0)}


def test_the_extension_is_refused_without_its_flag(tasks):
    with pytest.raises(DataError, match="frozen and was never run"):
        tasks("stsr_scienceworld_extension_full")
    (task,) = tasks("stsr_scienceworld_extension_full", stsr_scienceworld_run_extension=True).values()
    assert len(task.task_docs) == 58


def test_a_view_that_needs_a_path_is_refused_on_test_variations():
    with pytest.raises(ValueError, match="needs a reference path"):
        FreeRun(parse(read_splits().pilot[0]), "compact-ref", Pool(1, FakeSimulator))


# -- refusals


def test_without_java_nothing_is_asked(run, scripts, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    lm = scripts.lm(lambda prompt: "wait")
    with pytest.raises(SimulatorError, match="needs Java"):
        run(lm, "stsr_scienceworld_free_run_full", limit=1)
    assert lm.batches == []


def test_another_beginning_than_the_catalogues_is_an_error(run, scripts, monkeypatch, fake):
    class Other(FakeSimulator):
        def description(self):
            return "Your task is another."

    monkeypatch.setattr(scienceworld_task, "Pool", lambda size: Pool(size, Other))
    with pytest.raises(SimulatorError, match="begins otherwise than the catalogue"):
        run(scripts.lm(lambda prompt: "wait"), "stsr_scienceworld_free_run_full", limit=1)


def test_unknown_metadata(tasks):
    with pytest.raises(DataError, match="unknown metadata key 'stsr_scienceworld_splits'"):
        tasks("stsr_scienceworld_local_full", stsr_scienceworld_splits="test")


# -- files


def test_the_task_files_are_what_the_suite_writes():
    assert {path.name: path.read_text() for path in HARNESS.iterdir()} == scienceworld_suite.render()


def test_every_view_has_its_tasks():
    names = scienceworld_suite.tasks()
    assert len(names) == 10 + 10 + 2 + 2
    assert set(scienceworld_suite.listing()) == {*names, *scienceworld_suite.groups()}


def test_records_round_trip(run, scripts, gold, fake, tmp_path):
    _, decisions = run(scripts.lm(gold.__getitem__), "stsr_scienceworld_local_full", limit=3)
    _, episodes = run(scripts.lm(gold.__getitem__), "stsr_scienceworld_free_run_full", limit=1)
    made = [record_of(result, CELL, "here") for result in [*decisions, *episodes]]
    assert [result_of(record) for record in made] == [*decisions, *episodes]
    path = tmp_path / "records.jsonl"
    path.write_text("".join(to_json(record) + "\n" for record in made))
    assert list(read([path])) == made
    path.write_text(to_json(made[0]) + "\n" + to_json(made[0]) + "\n")
    with pytest.raises(RecordError, match="stands twice"):
        list(read([path]))


@pytest.mark.parametrize("line", ["", "{}", '{"schema": "stsr.record/2"}', "[1]"])
def test_other_lines_are_refused(line):
    with pytest.raises(RecordError, match="here"):
        from_json(line, "here")


# -- the driver


@pytest.fixture
def answers(monkeypatch):
    """The driver's model answers alike to everything."""
    monkeypatch.setattr(
        HFLM, "generate_until", lambda self, requests, disable_tqdm=False: ["look busy"] * len(requests)
    )


@pytest.fixture
def ask(model, trajectories, tmp_path):
    def ask(*names, **given):
        request = {
            "model": str(model), "model_revision": None, "adapters": [None], "tasks": list(names),
            "sources": {"scienceworld": (str(trajectories), None)}, "split": None, "out": tmp_path / "out",
            "batch_size": 8, "limit": 2, "dtype": "float32", "device": "cpu",
        }  # fmt: skip
        return evaluate(**{**request, **given})

    return ask


def test_the_driver_leaves_records(ask, fake, answers):
    """Rejected actions alone: a hundred calls an episode."""
    local, free = ask("stsr_scienceworld_local_full", "stsr_scienceworld_free_run_compact_recent2")
    decisions, episodes = list(read([local])), list(read([free]))
    assert [record.id for record in decisions] == [f"{read_splits().test[0]}#{k}@full" for k in (1, 2)]
    assert [record.task for record in episodes] == list(read_splits().test[:2])
    assert {(r.cell.family, r.cell.horizon, r.cell.view) for r in decisions} == {("scienceworld", 0, "full")}
    for record in episodes:
        assert (record.calls, len(record.turns), record.ended) == (100, 100, "budget")
        assert record.cell.view == "compact-recent2"
        assert all(turn.prompt_tokens for turn in record.turns)


def test_a_shortened_run_never_shares_a_cell_with_a_whole_one(ask, tasks, fake, answers):
    name = "stsr_scienceworld_free_run_full"
    (path,) = ask(name, limit=1, calls=2)
    assert [(record.calls, record.cell.condition) for record in read([path])] == [(2, "2 calls")]
    (pilot,) = tasks("stsr_scienceworld_pilot_full", stsr_scienceworld_calls=2).values()
    assert pilot.condition == "pilot, 2 calls"
    with pytest.raises(RecordError, match="another cell: condition '2 calls', not ''"):
        ask(name, limit=1)


def test_a_finished_episode_is_not_played_again(ask, fake, answers, monkeypatch):
    """The process dies in the second episode; the first one is kept, word for word."""

    class Dies(FakeSimulator):
        def load(self, variation):
            if variation.id == read_splits().test[1]:
                raise KeyboardInterrupt
            super().load(variation)

    name, options = "stsr_scienceworld_free_run_full", {"limit": 2, "calls": 5}
    monkeypatch.setattr(scienceworld_task, "Pool", lambda size: Pool(1, Dies))
    with pytest.raises(KeyboardInterrupt):
        ask(name, **options)
    loaded = []

    class Notes(FakeSimulator):
        def load(self, variation):
            loaded.append(variation.id)
            super().load(variation)

    monkeypatch.setattr(scienceworld_task, "Pool", lambda size: Pool(1, Notes))
    (path,) = ask(name, **options)
    assert loaded == [read_splits().test[1]]
    assert [record.task for record in read([path])] == list(read_splits().test[:2])
    assert ask(name, **options) == [path]
    assert loaded == [read_splits().test[1]]


def test_the_driver_refuses_the_extension_without_its_flag(ask):
    with pytest.raises(DataError, match="frozen and was never run"):
        ask("stsr_scienceworld_extension_full")


# -- with Java


class Watching:
    """An LM that knows whose prompt it is shown, and answers by a policy over the episode."""

    def __init__(self, lm, policy):
        self.runs, self.policy = [], policy
        self.lm = lm(self.answer)

    def answer(self, prompt):
        run = next(r for r in self.runs if not r.finished and r.messages()[0]["content"] == prompt)
        return self.policy(run)


@pytest.fixture
def play(run, scripts, monkeypatch):
    """play(policy, limit): the results of free runs whose policy sees the episode itself."""

    def play(policy, limit=None, name="stsr_scienceworld_free_run_full"):
        watching = Watching(scripts.lm, policy)

        class Watched(FreeRun):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                watching.runs.append(self)

        with monkeypatch.context() as patch:
            patch.setattr(scienceworld_task, "FreeRun", Watched)
            return run(watching.lm, name, limit)

    return play


def at(run):
    """How many reference actions of a run have been made."""
    return sum(turn.canonical for turn in run.turns)


def noisy(run):
    """The reference path with a garbage call before every fourth action, but for one that answers a menu."""
    made, calls = at(run), len(run.turns)
    menu = calls > 0 and run.turns[-1].verdict == "ambiguous"
    fresh = calls == 0 or run.turns[-1].verdict != "rejected"
    return "frobnicate the pot" if made % 4 == 3 and fresh and not menu else run.reference()


def garbage(workflow):
    """How many garbage calls `noisy` makes on the whole path, worked out on the path."""
    feedback = [""] + [step.feedback for step in workflow.steps]
    places = range(3, len(workflow.steps), 4)
    return sum(not feedback[place].startswith("Ambiguous request") for place in places)


@pytest.mark.needs_java
@pytest.mark.slow
def test_gold_replay_in_the_simulator(play, gold):
    """30 of 30, ten a bin, mean final 100, no rejection."""
    numbers, results = play(lambda run: gold[run.messages()[0]["content"]])
    assert sum(result["success"] for result in results) == len(results) == 30
    assert [result["calls"] for result in results] == [len(w.steps) for w in workflows_of(read_splits().test)]
    assert (numbers["score"], numbers["rejection"], numbers["no_rejection"]) == (100.0, 0.0, 1.0)


@pytest.mark.needs_java
@pytest.mark.slow
def test_noise_costs_calls_and_nothing_else(play):
    """A path of n actions with k garbage calls succeeds if n + k <= 100, and each episode has rejections."""
    numbers, results = play(noisy)
    for result, workflow in zip(results, workflows_of(read_splits().test), strict=True):
        n, k = len(workflow.steps), garbage(workflow)
        assert result["success"] == (n + k <= 100)
        assert result["calls"] == min(n + k, 100)
        assert result["later_success"] == result["success"]
        assert result["rejections"] == k or not result["success"]
    assert numbers["rejection"] == 1.0
    assert numbers["later_increase"] == 1.0


def forgetful(share):
    """A policy that leaves out each reference action with a chance of `share`, then repeats the last one."""

    def policy(run):
        chance = random.Random(run.id)
        kept = [step.action for step in run.workflow.steps if chance.random() >= share]
        return kept[min(len(run.turns), len(kept) - 1)]

    return policy


@pytest.mark.needs_java
@pytest.mark.slow
def test_the_more_actions_are_left_out_the_fewer_episodes_succeed(play):
    """An episode without a gap succeeds; what 2% leave out, 10% leave out too."""
    successes = []
    for share in (0.02, 0.10):
        _, results = play(forgetful(share))
        for result, workflow in zip(results, workflows_of(read_splits().test), strict=True):
            whole = len(workflow.steps)
            chance = random.Random(result["id"])
            if all(chance.random() >= share for _ in range(whole)):
                assert (result["success"], result["calls"]) == (True, whole)
            assert result["success"] == (result["score"] == 100)
            assert result["ended"] == "success" or result["calls"] == 100 or result["score"] < 0
        successes.append(sum(result["success"] for result in results))
    assert 30 > successes[0] > successes[1]


@pytest.mark.needs_java
@pytest.mark.slow
def test_skipped_actions_and_kill_9_give_the_same_episodes(play, monkeypatch):
    """Off the reference path: the same transcripts when every JVM is killed in mid-episode."""

    def skipping(run):
        steps = run.workflow.steps
        place = len(run.turns) + len(run.turns) // 6
        return steps[min(place, len(steps) - 1)].action

    _, undisturbed = play(skipping, limit=2)
    started = []

    def start():
        started.append(Simulator())
        return started[-1]

    def murderous(run):
        if len(run.turns) in (9, 23):
            for simulator in started:
                if simulator.alive:
                    os.kill(simulator.pid, signal.SIGKILL)
        return skipping(run)

    monkeypatch.setattr(scienceworld_task, "Pool", lambda size: Pool(size, start))
    _, disturbed = play(murderous, limit=2)
    assert len(started) > 4
    assert disturbed == undisturbed
