"""`stsr bench`: figures of this machine. It asserts no time; equal outcomes are asserted by what it calls."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stsr.generators.rows import decision_rows, generate
from stsr.recipes.experiment import recipes_folder

DATA_SET = "datasets/table-workflows.yaml"


def bench(quickstart: Path) -> None:
    """Prints rows/s, the cost of a whole build, free-run calls/s, and the quickstart's stages."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"Machine: {platform.machine()}, {cores} cores, Python {platform.python_version()}{load}")
    rates = [_rows_a_second(run) for run in range(5)]
    print(
        f"Rendered rows, H16 full, replay-verified, one core: median {statistics.median(rates):,.0f} rows/s "
        f"of 5 runs ({min(rates):,.0f} to {max(rates):,.0f})"
    )
    seconds, megabytes = _whole_build()
    print(f"Whole data set (recipes/{DATA_SET}): {seconds:.1f} s, peak memory {megabytes:.0f} MB")
    _free_runs()
    _stages(quickstart / "seconds.json")


def _rows_a_second(run: int) -> float:
    seeds = range(500_000 + 200 * run, 500_200 + 200 * run)
    began = time.perf_counter()
    count = sum(1 for seed in seeds for _ in decision_rows(generate("chain", 16, seed), ["full"]))
    return count / (time.perf_counter() - began)


def _whole_build() -> tuple[float, float]:
    """(seconds, peak megabytes) of `stsr build` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["build", str(recipes_folder() / DATA_SET), "--out", str(Path(folder, "data"))]
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "stsr.cli.main", *command], check=True, capture_output=True)
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return seconds, peak / (1e6 if sys.platform == "darwin" else 1e3)  # bytes there, kilobytes elsewhere


def _free_runs() -> None:
    """Free runs of the tiny base model, untuned: it errs often, so episodes use their whole budget."""
    from lm_eval.models.huggingface import HFLM

    from stsr.eval_tasks.bench import benchmark
    from stsr.eval_tasks.shared_prefix import SharedPrefixLM

    base = str(recipes_folder() / "bases/tiny")
    options = {"pretrained": base, "device": "cpu", "dtype": "float32", "batch_size": 16}
    for horizon, view, episodes in ((4, "compact", 16), (16, "full", 8)):
        seeds = range(62_000, 62_000 + episodes)
        theirs, ours = (
            benchmark(kind(**options, enable_thinking=False), horizon=horizon, view=view, seeds=seeds)
            for kind in (HFLM, SharedPrefixLM)
        )
        print(f"Free runs of the tiny base, H{horizon} {view}, {episodes} episodes, {theirs.calls} calls:")
        for figures in (theirs, ours):
            single, together = (
                figures.calls / s for s in (figures.single_seconds, figures.lock_step_seconds)
            )
            print(
                f"  {figures.backend:<16} calls/s one at a time {single:6.1f}, in lock step {together:6.1f}, "
                f"ratio {figures.speedup:.2f}, transcripts equal"
            )
        ratio = theirs.single_seconds / ours.lock_step_seconds
        same = (theirs.calls, theirs.successes) == (ours.calls, ours.successes)
        print(f"  ours in lock step against lm-eval's one at a time: {ratio:.2f}; outcomes equal: {same}")


def _stages(path: Path) -> None:
    if not path.exists():
        print(f"Quickstart stages: not run ({path} does not exist; `make quickstart` makes it)")
        return
    stages = json.loads(path.read_text(encoding="utf-8"))
    print(f"Quickstart stages, seconds, as they ran last ({path}):")
    for name, seconds in {**stages, "all": sum(stages.values())}.items():
        print(f"  {name:<28}{seconds:>8.1f}")
