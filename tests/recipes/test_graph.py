"""Protects: an experiment expands into commands in order, which resume, and which Snakemake runs alike."""

import json
import os
import shlex
from pathlib import Path

import pytest

from stsr.generators.declaration import DeclarationError
from stsr.recipes import cluster
from stsr.recipes.experiment import Needs, find, read_experiment, smoked
from stsr.recipes.graph import Step, StepFailed, expand, plan, run_steps, times

QUICKSTART = expand(read_experiment(find("quickstart")), Path("out"))
EXPERIMENTS = sorted(path.stem for path in find("quickstart").parent.glob("*.yaml"))


def value(step, option):
    return step.command[step.command.index(option) + 1]


def test_the_quickstart_is_the_crossover_that_the_readme_promises():
    assert [step.name for step in QUICKSTART] == [
        "build table-workflows-1.0.0",
        "publish table-workflows-1.0.0",
        "build workflow-controls",
        "publish workflow-controls",
        "build table-workflows",
        "publish table-workflows",
        "publish tiny-base",
        "train tiny-h4-full",
        "publish tiny-h4-full",
        "train tiny-h4-compact",
        "publish tiny-h4-compact",
        "evaluate tiny-base 0",
        "card tiny-h4-full",
        "card tiny-h4-compact",
        "report",
    ]


def test_both_trainings_differ_in_the_view_alone():
    full, compact = (s.command for s in QUICKSTART if s.name.startswith("train"))
    different = [(a, b) for a, b in zip(full, compact, strict=True) if a != b]
    assert different == [("full", "compact"), ("out/train/tiny-h4-full", "out/train/tiny-h4-compact")]


def test_one_command_asks_everybody_by_id_and_tag():
    (step,) = (s for s in QUICKSTART if s.name.startswith("evaluate"))
    assert value(step, "--model") == "stsr/tiny-base@v1.0.0"
    assert value(step, "--data") == "stsr/table-workflows@v1.1.0"
    assert value(step, "--controls") == "stsr/workflow-controls@v1.0.0"
    assert "--untuned" in step.command
    adapters = [b for a, b in zip(step.command, step.command[1:], strict=False) if a == "--adapter"]
    assert adapters == ["stsr/tiny-h4-full@v1.0.0", "stsr/tiny-h4-compact@v1.0.0"]


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("base", ["", "tiny"])
def test_steps_have_names_of_their_own_and_wait_for_earlier_ones(name, base):
    experiment = read_experiment(find(name))
    steps = expand(smoked(experiment, base) if base else experiment, Path("out"), run_extension=True)
    done: set[str] = set()
    for step in steps:
        assert step.name not in done
        assert set(step.after) <= done
        done.add(step.name)
    folders = [value(step, "--out") for step in steps if "--out" in step.command]
    assert len(set(folders)) == len(folders)


def test_an_evaluation_waits_for_data_base_and_its_adapters_alone():
    steps = {step.name: step for step in expand(read_experiment(find("horizon-transfer")), Path("out"))}
    assert steps["evaluate Qwen3-1.7B 0"].after == (
        "publish table-workflows",
        "publish qwen3-1.7b-h4-transfer-full-s20260910",
    )
    assert steps["evaluate Qwen3-8B 1"].after == ("publish table-workflows",)
    assert steps["evaluate Qwen3-8B 1"].needs.gpus == 1


def test_the_extension_refuses_without_its_flag():
    experiment = read_experiment(find("scienceworld-extension"))
    with pytest.raises(DeclarationError, match="frozen and never run; to run it, add --run-frozen-extension"):
        expand(experiment, Path("out"))
    asked = [s.command for s in expand(experiment, Path("out"), True) if s.name.startswith("evaluate")]
    assert asked
    assert all("--run-frozen-extension" in command for command in asked)


def test_the_plan_counts_and_estimates():
    heavy = Needs(gpus=2, minutes=30)
    steps = [
        Step("build x", "Build.", ["build", "x"]),
        Step("train a", "Train.", ["train", "a b"], ("build x",), heavy),
        Step("train c", "Train.", ["train", "c"], ("build x",), heavy),
    ]
    text = plan(steps, {"train a": 600.0})
    assert "stsr train 'a b'" in text
    assert "3 steps: 1 build, 2 train." in text
    # 10 minutes measured and 30 declared
    assert "at most 40 minutes one after the other (1 of 2 steps measured" in text
    assert "2 GPU a step" in text


BROKEN = Step("build", "Build.", ["build", "nowhere.yaml", "--out", "x"])
WORKS = Step("path", "Say where.", ["tasks-path"])


def test_a_failed_step_stops_the_run_and_says_how_to_go_on(tmp_path):
    with pytest.raises(StepFailed, match="the step 'build' failed; the same command continues"):
        run_steps([WORKS, BROKEN, Step("never", "Never.", ["tasks-path"])], tmp_path, dict(os.environ))
    assert list(times(tmp_path)) == ["path"]


def test_a_graph_needs_snakemake_and_a_known_profile(tmp_path, monkeypatch):
    with pytest.raises(DeclarationError, match="no profile 'lsf'; there are kubernetes, slurm"):
        cluster.run([WORKS], tmp_path, dict(os.environ), jobs=0, profile="lsf")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(DeclarationError, match=r"pip install 'stsr\[graph\]'"):
        cluster.run([WORKS], tmp_path, dict(os.environ), jobs=1, profile="")


@pytest.mark.slow
def test_snakemake_runs_each_step_once_in_order_and_goes_on_after_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    first, last = Step("first", "First.", ["tasks-path"]), Step("last", "Last.", ["tasks-path"], ("build",))
    broken = BROKEN._replace(after=("first",))
    with pytest.raises(StepFailed):
        cluster.run([first, broken, last], out, dict(os.environ), jobs=2, profile="")
    assert sorted(mark.name for mark in (out / "done").iterdir()) == ["first"]
    began = (out / "done/first").stat().st_mtime_ns
    mended = Step("build", "Build.", ["tasks-path"], ("first",))
    cluster.run([first, mended, last], out, dict(os.environ), jobs=2, profile="")
    marks = {mark.name: mark.stat().st_mtime_ns for mark in (out / "done").iterdir()}
    assert marks.keys() == {"first", "build", "last"}
    assert marks["first"] == began
    assert marks["first"] <= marks["build"] <= marks["last"]
    steps = json.loads((out / "steps.json").read_text())
    assert [shlex.join(step["command"][-1:]) for step in steps] == ["tasks-path"] * 3
