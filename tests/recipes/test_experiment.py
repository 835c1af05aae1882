"""Protects: an experiment expands into the commands that its file declares, in order, with ids and tags."""

import doctest
import os
from dataclasses import replace
from pathlib import Path

import pytest

from stsr.generators.declaration import DeclarationError
from stsr.recipes import names
from stsr.recipes.experiment import StepFailed, expand, find, read_experiment, recipes_folder, run
from stsr.recipes.scienceworld_study import declares

EXPERIMENT = read_experiment(find("quickstart"))


def test_the_quickstart_is_the_crossover_that_the_readme_promises():
    steps = expand(EXPERIMENT, Path("out"))
    assert [step.name for step in steps] == [
        "build table-workflows-1.0.0",
        "publish table-workflows-1.0.0",
        "build workflow-controls",
        "publish workflow-controls",
        "build table-workflows",
        "publish table-workflows",
        "publish base",
        "train tiny-h4-full",
        "publish tiny-h4-full",
        "train tiny-h4-compact",
        "publish tiny-h4-compact",
        "evaluate untuned",
        "evaluate tiny-h4-full",
        "card tiny-h4-full",
        "evaluate tiny-h4-compact",
        "card tiny-h4-compact",
        "report",
    ]
    assert EXPERIMENT.tasks == [
        "stsr_oracle_h4_full",
        "stsr_oracle_h4_compact",
        "stsr_free_run_h4_full",
        "stsr_free_run_h4_compact",
    ]


def test_both_trainings_differ_in_the_view_alone():
    full, compact = (s.command for s in expand(EXPERIMENT, Path("out")) if s.name.startswith("train"))
    different = [(a, b) for a, b in zip(full, compact, strict=True) if a != b]
    assert different == [("full", "compact"), ("out/train/tiny-h4-full", "out/train/tiny-h4-compact")]


def test_everything_is_loaded_back_by_id_and_tag():
    evaluations = [s.command for s in expand(EXPERIMENT, Path("out")) if s.name.startswith("evaluate")]
    for command in evaluations:
        assert command[command.index("--model") + 1] == "stsr/tiny-base@v1.0.0"
        assert command[command.index("--data") + 1] == "stsr/table-workflows@v1.1.0"
    assert [c[c.index("--adapter") + 1] for c in evaluations if "--adapter" in c] == [
        "stsr/tiny-h4-full@v1.0.0",
        "stsr/tiny-h4-compact@v1.0.0",
    ]


def test_every_seed_gets_its_pair():
    twice = replace(EXPERIMENT, seeds=(1, 2), adapters="stsr/tiny-h4-{view}-s{seed}")
    names = [step.command[-1] for step in expand(twice, Path("out")) if step.name.startswith("train")]
    assert names == [f"out/train/tiny-h4-{view}-s{seed}" for seed in (1, 2) for view in ("full", "compact")]


EXPERIMENTS = sorted((recipes_folder() / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("path", [p for p in EXPERIMENTS if not declares(p)], ids=lambda p: p.stem)
def test_every_experiment_names_files_that_exist(path):
    experiment = read_experiment(path)
    for name in (*experiment.datasets, experiment.recipe, experiment.base_folder):
        assert (recipes_folder() / name).exists()


@pytest.mark.parametrize(
    ("declared", "wrong", "message"),
    [
        (
            "adapters: stsr/tiny-h4-{view}",
            "adapters: stsr/tiny-{view}-h4",
            "adapters names stsr/tiny-full-h4, but sft/tiny.yaml trains stsr/tiny-h4-full",
        ),
        (
            "adapters: stsr/tiny-h4-{view}",
            "adapters: stsr/tiny-h4-{view}-s{seed}",
            r"names stsr/tiny-h4-full-s\d+, but .* trains stsr/tiny-h4-full",
        ),
        ("horizon: 4", "horizon: 16", "horizon is 16, but sft/tiny.yaml trains on h4-full"),
        (
            "adapters: stsr/tiny-h4-{view}",
            "adapters: stsr/{name}",
            "only {view} and {seed} stand",
        ),
        ("adapters: stsr/tiny-h4-{view}", "adapters: stsr/tiny", "needs {view} and {seed} to name each one"),
    ],
)
def test_an_experiment_that_contradicts_its_recipe_is_refused(tmp_path, declared, wrong, message):
    text = find("quickstart").read_text()
    assert text.count(declared) == 1
    (tmp_path / "e.yaml").write_text(text.replace(declared, wrong))
    with pytest.raises(DeclarationError, match=message) as error:
        read_experiment(tmp_path / "e.yaml")
    assert len(str(error.value).splitlines()) == 1


def test_an_unknown_experiment_names_the_alternatives():
    with pytest.raises(DeclarationError, match="unknown experiment 'x'; there are quickstart"):
        find("x")


def test_a_failed_step_stops_the_run_and_says_how_to_go_on(tmp_path, monkeypatch):
    from stsr.recipes import experiment as module

    broken = module.Step("build", "Build.", ["build", "nowhere.yaml", "--out", str(tmp_path / "x")])
    never = module.Step("report", "Report.", ["tasks-path"])
    monkeypatch.setattr(module, "expand", lambda *_: [broken, never])
    with pytest.raises(StepFailed, match="the step 'build' failed; the same command continues"):
        run("quickstart", tmp_path / "out", dict(os.environ))
    assert not (tmp_path / "out/seconds.json").exists()


def test_examples():
    assert doctest.testmod(names).failed == 0
