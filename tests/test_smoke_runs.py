"""Protects: every experiment completes on the tiny base and fills the tables that it declares.

Those of ScienceWorld need Java; the frozen extension is never run.

    pytest tests/test_smoke_runs.py -m slow
"""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stsr.cli.running import client_environment
from stsr.hub_cards.loopback.process import running_hub
from stsr.recipes.experiment import find, read_experiment, smoked
from stsr.recipes.graph import expand, run_steps
from tests.one_node_slurm import missing, one_node_slurm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

NAMES = [
    pytest.param(name, marks=pytest.mark.needs_java) if name.startswith("scienceworld") else name
    for name in sorted(path.stem for path in find("quickstart").parent.glob("*.yaml"))
    if name not in ("quickstart", "tiny-h16-crossover", "scienceworld-extension")
]


def stsr(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stsr.cli.main", *words], cwd=folder, capture_output=True, text=True
    )


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


def command(name: str) -> tuple[str, ...]:
    return ("run", name, "--base", "tiny", "--out", "out")


def numbers(place: Path) -> list[dict[str, str]]:
    """The numbers of the report, without ids of cells: they hold commits, and a commit holds its time."""
    with (place / "out/report/numbers.csv").open() as lines:
        return [{key: value for key, value in row.items() if key != "cells"} for row in csv.DictReader(lines)]


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_fills_its_tables(place, name):
    done = stsr(place, *command(name))
    assert done.returncode == 0, done.stderr[-3000:]
    made = {path.stem for path in (place / "out/report/tables").glob("*.tex")}
    assert set(read_experiment(find(name)).tables) <= made
    assert numbers(place)


def test_a_killed_run_that_continues_ends_in_the_same_table(place, built, tmp_path_factory):
    whole = stsr(place, *command("matched-error"))
    assert whole.returncode == 0, whole.stderr[-3000:]
    other = tmp_path_factory.mktemp("killed")
    shutil.copytree(built, other / "out", symlinks=True)
    words = [sys.executable, "-m", "stsr.cli.main", *command("matched-error")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for pattern in ("train/*/checkpoints*", "records/*/*"):
        running = subprocess.Popen(words, cwd=other, start_new_session=True, **quiet)
        while running.poll() is None and not list((other / "out").glob(pattern)):
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    continued = stsr(other, *command("matched-error"))
    assert continued.returncode == 0, continued.stderr[-3000:]
    assert numbers(other) == numbers(place)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_same_experiment_runs_as_jobs_of_a_cluster(place, tmp_path):
    with one_node_slurm(tmp_path / "slurm"):
        done = stsr(place, *command("matched-error"), "--profile", "slurm")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("has been submitted with SLURM jobid") == len(
        list((place / "out/done").iterdir())
    )
    assert numbers(place)
