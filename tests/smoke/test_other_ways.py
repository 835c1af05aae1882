"""Protects: an experiment that was killed, or that runs as jobs of a cluster, ends as one that was not."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from tests.one_node_slurm import missing, one_node_slurm
from tests.smoke.runs import command, numbers, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_a_killed_run_that_continues_ends_in_the_same_table(place, built, tmp_path_factory):
    run(place, "matched-error")
    other = tmp_path_factory.mktemp("killed")
    shutil.copytree(built, other / "out", symlinks=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for pattern in ("train/*/checkpoints*", "records/*/*"):
        running = subprocess.Popen(command("matched-error"), cwd=other, start_new_session=True, **quiet)
        while running.poll() is None and not list((other / "out").glob(pattern)):
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    run(other, "matched-error")
    assert numbers(other) == numbers(place)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_same_experiment_runs_as_jobs_of_a_cluster(place, tmp_path):
    with one_node_slurm(tmp_path / "slurm"):
        done = run(place, "matched-error", "--profile", "slurm")
    assert done.stderr.count("has been submitted with SLURM jobid") == len(
        list((place / "out/done").iterdir())
    )
    assert numbers(place)
