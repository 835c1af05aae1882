"""A folder with all data sets and the base, built and published once a module."""

import shutil
from pathlib import Path

import pytest

from stsr.cli.running import client_environment
from stsr.hub_cards.loopback.process import running_hub
from stsr.recipes.experiment import find, read_experiment, smoked
from stsr.recipes.graph import expand, run_steps


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A run's folder that holds all data sets and the base, built and published."""
    out = tmp_path_factory.mktemp("built") / "out"
    out.mkdir()
    steps = {}
    for step in expand(smoked(read_experiment(find("interface")), "tiny"), out):
        if step.command[0] in ("build", "publish"):  # data and base; adapters have a command of their own
            steps[step.name] = step
    with running_hub(out / "hub") as hub:
        run_steps(list(steps.values()), out, client_environment(hub.endpoint, out / "hf"))
    (out / "seconds.json").unlink()
    return out


@pytest.fixture
def place(built, tmp_path) -> Path:
    """A folder whose `out` has what `built` has."""
    shutil.copytree(built, tmp_path / "out", symlinks=True)
    return tmp_path
