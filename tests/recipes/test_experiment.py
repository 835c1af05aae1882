"""Protects: an experiment's file says what its commands do; a wrong one is refused before anything runs."""

import doctest
import re
from functools import cache
from pathlib import Path

import pytest

from stsr.eval_tasks import scienceworld_suite, suite
from stsr.generators.declaration import DeclarationError, read
from stsr.recipes import names
from stsr.recipes.experiment import find, read_experiment, recipes_folder, smoked
from stsr.recipes.names import read_recipe
from stsr.stats.specs import SPECS

PAPER = (
    *("horizon-matched", "h4-replication", "horizon-transfer", "h16-crossover", "8b-crossover"),
    *("paired-choice", "mixed-view-pilot", "matched-error", "untuned", "state-load", "prefix-matched"),
    *("cue-controls", "recent2", "interface", "padding", "branching", "isolating-views"),
    *("scienceworld-crossover", "scienceworld-horizon", "scienceworld-extension"),
)
"""Section 5 of the protocol."""
OURS = ("quickstart", "tiny-h16-crossover")


@cache
def names_of_tasks():
    return suite.listing() | scienceworld_suite.listing()


def test_every_experiment_of_the_protocol_is_declared():
    found = {path.stem for path in (recipes_folder() / "experiments").glob("*.yaml")}
    assert found == {*PAPER, *OURS}


@pytest.mark.parametrize("name", [*PAPER, *OURS])
def test_every_experiment_names_what_exists(name):
    experiment = read_experiment(find(name))
    for dataset in experiment.datasets:
        assert (recipes_folder() / dataset).exists()
    known = names_of_tasks()
    assert [task for asked in experiment.evaluations for task in asked.tasks if task not in known] == []
    assert set(experiment.tables) <= SPECS.keys()
    assert experiment.tables or experiment.crossover or experiment.frozen
    declared = {read(recipes_folder() / dataset)["repo"] for dataset in experiment.datasets}
    for arm in experiment.arms:
        keys = {**read_recipe(recipes_folder() / arm.recipe), **arm.set}
        assert keys["data"] in declared


@pytest.mark.parametrize("name", [name for name in PAPER if read_experiment(find(name)).arms])
def test_a_smoke_run_keeps_data_and_views_and_changes_the_rest(name):
    experiment = read_experiment(find(name))
    small = smoked(experiment, "tiny")
    assert {base.repo for base in small.bases} == {"stsr/tiny-base"}
    assert {(one.config, one.view, one.training) for one in small.trained} == {
        (one.config, one.view, one.training) for one in experiment.trained
    }
    assert all(one.settings["train_rows"] <= 100 for one in small.trained)
    assert (small.tables, small.evaluations) == (experiment.tables, experiment.evaluations)
    assert small.evaluate_needs.gpus == small.train_needs.gpus == 0


def test_pairs_share_seeds_and_differ_in_the_view_alone():
    experiment = read_experiment(find("h16-crossover"))
    assert [(one.seed, one.training) for one in experiment.trained] == [
        (seed, view) for seed in (20260910, 20260926, 20260927) for view in ("full", "compact")
    ]
    assert {one.horizon for one in experiment.trained} == {16}
    assert {one.recipe for one in experiment.trained} == {"sft/qwen3-1.7b.yaml"}
    assert all(one.settings == {} for one in experiment.trained)


def test_the_last_step_is_kept_whether_the_recipe_lists_it_or_not(tmp_path):
    """As training keeps it: of 200 updates, the release is after the 200th and step-40 a checkpoint."""
    for listed, tags in (("[40]", {"step-40": 40}), ("[]", {}), ("[200, 40]", {"step-40": 40})):
        changed = f"view: compact, set: {{save_at_steps: {listed}}}}}"
        (tmp_path / "e.yaml").write_text(find("quickstart").read_text().replace("view: compact}", changed))
        compact = read_experiment(tmp_path / "e.yaml").trained[1]
        assert (compact.steps[-1], compact.tags) == (200, tags)


def test_arms_with_seeds_of_their_own(tmp_path):
    changed = find("h16-crossover").read_text().replace("view: compact}", "view: compact, seeds: [7]}")
    (tmp_path / "e.yaml").write_text(changed)
    found = [(one.training, one.seed) for one in read_experiment(tmp_path / "e.yaml").trained]
    assert found == [("full", 20260910), ("full", 20260926), ("full", 20260927), ("compact", 7)]


def test_two_arms_that_are_one_adapter_are_trained_once():
    """Under one base the arms of three models are the same three adapters."""
    small = smoked(read_experiment(find("horizon-matched")), "tiny")
    assert [one.config for one in small.trained] == ["h4-full", "h8-full", "h16-full"]
    assert small.trained[0].arms == ("1.7b-h4", "8b-h4", "27b-h4")
    _, adapters = small.asked(small.evaluations[0], small.bases[0])
    assert [one.config for one in adapters] == ["h4-full"]


def test_who_is_asked():
    experiment = read_experiment(find("horizon-transfer"))
    small, middle, large = experiment.bases
    of_h4, of_untuned = experiment.evaluations
    assert [one.arms for one in experiment.asked(of_h4, small)[1]] == [("h4",)]
    assert not experiment.asked(of_h4, small)[0]
    assert experiment.asked(of_h4, middle) == experiment.asked(of_h4, large) == (False, [])
    assert [experiment.asked(of_untuned, base) for base in experiment.bases] == [(True, [])] * 3


WRONG = [
    (
        "h16-crossover",
        "evaluations:\n",
        "evalutions:\n",
        "unknown key 'evalutions'; did you mean 'evalua",
    ),
    ("h16-crossover", "name: full,", "nmae: full,", r"arms\[0\]: unknown key 'nmae'; did you mean 'name'"),
    ("h16-crossover", "view: full}", "view: full, set: 3}", r"arms\[0\]: set: expected"),
    ("horizon-transfer", "of: [h4]", "of: [h5]", "no arm 'h5'; there are h4, untuned"),
    (
        "recent2",
        "view: recent2}",
        'view: recent2, set: {adapter_name: "stsr/x-{vew}"}}',
        "only {view} and {seed} stand",
    ),
    ("recent2", "sft/qwen3-1.7b.yaml", "sft/qwen3-1.8b.yaml", "qwen3-1.8b.yaml: cannot be read"),
    ("quickstart", "crossover: [full, compact]", "crossover: [full]", "a crossover needs two views, not 1"),
    ("quickstart", "crossover: [full, compact]", "crossover: [full, recent2]", "no arm trains on 'recent2'"),
    (
        "quickstart",
        "view: compact}",
        "view: compact, set: {data_config: 'h8-{view}'}}",
        "must share a base and a horizon",
    ),
    (
        "quickstart",
        "view: compact}",
        "view: compact, set: {adapter_name: stsr/tiny-h4-full}}",
        "two arms train an adapter called stsr/tiny-h4-full",
    ),
]


@pytest.mark.parametrize(("name", "declared", "wrong", "message"), WRONG)
def test_a_wrong_experiment_is_one_line(tmp_path, name, declared, wrong, message):
    text = find(name).read_text()
    assert declared in text
    (tmp_path / "e.yaml").write_text(text.replace(declared, wrong, 1))
    with pytest.raises(DeclarationError, match=message) as error:
        read_experiment(tmp_path / "e.yaml")
    assert len(str(error.value).splitlines()) == 1


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(DeclarationError, match=r"unknown experiment 'x'; there are 8b-crossover, "):
        find("x")
    with pytest.raises(DeclarationError, match=r"unknown base 'huge'; recipes/sft has .*tiny"):
        smoked(read_experiment(find("recent2")), "huge")


def test_the_extension_is_the_plan_of_696():
    experiment = read_experiment(find("scienceworld-extension"))
    (asked,) = experiment.evaluations
    assert len(experiment.trained) * len(asked.tasks) * 58 == 696


def test_placeholders_are_filled_before_anything_runs():
    for name in PAPER:
        for one in read_experiment(find(name)).trained:
            assert not re.search(r"[{}]", one.adapter + one.config)


def test_examples():
    assert doctest.testmod(names).failed == 0


def test_paths_are_relative_to_the_recipes():
    assert (Path(recipes_folder()) / "experiments/quickstart.yaml") == find("quickstart")
