"""Protects: ScienceWorld's experiments expand into commands that can be typed; the extension stays frozen."""

from pathlib import Path

import pytest
import yaml

from stsr.eval_tasks import scienceworld_suite
from stsr.generators.declaration import DeclarationError
from stsr.recipes.experiment import find, recipes_folder
from stsr.recipes.scienceworld_study import declares, expand, read_study, write_arms
from stsr.stats.scienceworld import Arm

NAMES = ("scienceworld-crossover", "scienceworld-horizon", "scienceworld-extension")


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_names_what_exists(name):
    assert declares(find(name))
    study = read_study(find(name))
    for path in (study.dataset, study.base_folder, *(arm.recipe for arm in study.arms)):
        assert (recipes_folder() / path).exists()
    known = scienceworld_suite.listing()
    assert all(task in known for asked in study.evaluations for task in asked.tasks)


def test_the_steps_of_a_smoke_run():
    steps = expand(read_study(find("scienceworld-horizon")), Path("out"))
    short, mixed = "tiny-scienceworld-short-full-s20260910", "tiny-scienceworld-full-s20260910"
    assert [step.name for step in steps] == [
        "build", "publish data", "publish base",
        f"train {short}", f"publish {short}", f"train {mixed}", f"publish {mixed}",
        f"evaluate {short} 0", f"evaluate {mixed} 0",
    ]  # fmt: skip
    command = steps[-1].command
    assert command[command.index("--trajectories") + 1] == "stsr/scienceworld-trajectories@v1.0.0"
    assert command[command.index("--adapter") + 1] == f"stsr/{mixed}@v1.0.0"
    assert command[command.index("--limit") + 1] == "4"
    assert "--run-frozen-extension" not in command


def test_the_crossover_tests_every_model_alike():
    steps = expand(read_study(find("scienceworld-crossover")), Path("out"))
    asked = [step.command for step in steps if step.name.startswith("evaluate")]
    assert len(asked) == 3 * 2  # untuned, full, compact; development and pilot
    splits = [c[c.index("--split") + 1] if "--split" in c else "" for c in asked]
    assert splits == ["development", ""] * 3


def test_the_extension_refuses_without_its_flag():
    study = read_study(find("scienceworld-extension"))
    with pytest.raises(DeclarationError, match="frozen and never run; to run it, add --run-frozen-extension"):
        expand(study, Path("out"))
    asked = [s.command for s in expand(study, Path("out"), True) if s.name.startswith("evaluate")]
    assert all("--run-frozen-extension" in command for command in asked)
    models = len(asked)
    views = len(study.evaluations[0].tasks)
    assert models * views * 58 == 696


def test_short_and_mixed_recipes_differ_in_the_data_alone():
    folder = recipes_folder() / "scienceworld"
    one, other = (yaml.safe_load((folder / name).read_text()) for name in ("tiny.yaml", "tiny-short.yaml"))
    assert {key for key in one if one[key] != other[key]} == {"data_config", "adapter_name"}


def test_arms_are_what_the_tables_read(tmp_path):
    study = read_study(find("scienceworld-horizon"))
    write_arms(study, tmp_path / "arms.json")
    arms = [Arm(**arm) for arm in yaml.safe_load((tmp_path / "arms.json").read_text())]
    assert [arm.training for arm in arms] == ["untuned", "short-only", "mixed-horizon"]


def test_two_adapters_of_one_name_are_refused(tmp_path):
    text = find("scienceworld-horizon").read_text().replace("tiny-short.yaml", "tiny.yaml")
    (tmp_path / "e.yaml").write_text(text)
    with pytest.raises(DeclarationError, match="two adapters are called"):
        read_study(tmp_path / "e.yaml")
