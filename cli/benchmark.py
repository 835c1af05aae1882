"""`stsr bench`: figures of this machine. It asserts no time; unequal outcomes end it with exit code 1."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from stsr.generators.dataset import read_declaration
from stsr.generators.rows import decision_rows, generate
from stsr.recipes.experiment import recipes_folder

DATA_SETS = ("table-workflows", "workflow-controls")
"""Together all families, views and splits of the protocol."""
INSPECT = Path(".venv-inspect/bin/python")
"""A Python that has inspect_ai, to compare with."""
EPISODES = ((4, "compact", 16), (16, "full", 8))
"""(horizon, view, number) of the free runs."""
BATCH = 16


def bench(quickstart: Path, peers: Path) -> None:
    """Prints rows/s, the cost of a whole build, calls/s of free runs and of decisions, and the quickstart's
    stages."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"Machine: {platform.machine()}, {cores} cores, Python {platform.python_version()}{load}")
    rates = [_rows_a_second(run) for run in range(5)]
    print(
        f"Rendered rows, H16 full, replay-verified, one core: median {statistics.median(rates):,.0f} rows/s "
        f"of 5 runs ({min(rates):,.0f} to {max(rates):,.0f})"
    )
    print(
        f"Rendered rows, twelve tasks of each split of {DATA_SETS[0]}, all its families and views, "
        f"replay-verified, one core: {_suite_rows_a_second():,.0f} rows/s"
    )
    _peers(peers)
    for name in DATA_SETS:
        seconds, megabytes, rows = _whole_build(name)
        print(
            f"Whole build of recipes/datasets/{name}.yaml: {rows:,} rows in {seconds:.1f} s, one process, "
            f"peak memory {megabytes:.0f} MB"
        )
    _free_runs()
    _inspect(INSPECT)
    _decisions(quickstart / "train/tiny-h4-full/adapter")
    _stages(quickstart / "seconds.json")


def _rows_a_second(run: int) -> float:
    seeds = range(500_000 + 200 * run, 500_200 + 200 * run)
    began = time.perf_counter()
    count = sum(1 for seed in seeds for _ in decision_rows(generate("chain", 16, seed), ["full"]))
    return count / (time.perf_counter() - began)


def _suite_rows_a_second() -> float:
    """Rows/s over the views of a whole data set: a decision is replayed once and shown under each view."""
    declared = read_declaration(recipes_folder() / f"datasets/{DATA_SETS[0]}.yaml")
    count, began = 0, time.perf_counter()
    for part in declared.parts:
        for split in part.splits:
            for horizon, seed, variant in product(split.horizons, split.seeds[:12], part.chosen_variants):
                task = generate(part.family, horizon, seed, variant)
                count += sum(1 for _ in decision_rows(task, part.views, part.pivot_only))
    return count / (time.perf_counter() - began)


def _peers(python: Path) -> None:
    """Prints the speed of the nearest generators of reasoning-gym, measured in the same minute."""
    if not python.exists():
        print(f"reasoning-gym: not run ({python} does not exist; `make bench` makes it)")
        return
    script = str(files("stsr.cli").joinpath("peers.py"))
    done = subprocess.run([str(python), script, "2000"], check=True, capture_output=True, text=True)
    for name, rate in json.loads(done.stdout).items():
        print(f"reasoning-gym {name}, 2,000 items, one core: {rate:,.0f} items/s")


def _whole_build(name: str) -> tuple[float, float, int]:
    """(seconds, peak megabytes, rows) of `stsr build` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "data")
        command = ["build", str(recipes_folder() / f"datasets/{name}.yaml"), "--out", str(out)]
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "stsr.cli.main", *command], stdout=subprocess.DEVNULL, stderr=sys.stderr
        )
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        if status:
            raise RuntimeError(f"stsr {' '.join(command)} failed")
        manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    rows = sum(facts["rows"] for facts in manifest["files"].values())
    # bytes on macOS, kilobytes elsewhere
    return seconds, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3), rows


def _free_runs() -> None:
    """Free runs of the tiny base model, untuned: it errs often, so episodes use their whole budget."""
    from lm_eval.models.huggingface import HFLM

    from stsr.eval_tasks.bench import UnequalError, benchmark
    from stsr.eval_tasks.shared_prefix import SharedPrefixLM

    for horizon, view, episodes in EPISODES:
        seeds = range(62_000, 62_000 + episodes)
        theirs, ours = (
            benchmark(kind(**_options()), horizon=horizon, view=view, seeds=seeds)
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
        if (theirs.calls, theirs.successes) != (ours.calls, ours.successes):
            raise UnequalError(
                f"H{horizon} {view}: {theirs.backend} gave {theirs.successes} successes in {theirs.calls} "
                f"calls, {ours.backend} {ours.successes} in {ours.calls}: must be equal"
            )
        print(f"  ours in lock step against lm-eval's one at a time: {ratio:.2f}, outcomes equal")


def _options() -> dict[str, Any]:
    base = str(recipes_folder() / "bases/tiny")
    options = {"pretrained": base, "device": "cpu", "dtype": "float32", "batch_size": BATCH}
    return options | {"enable_thinking": False}


def _inspect(python: Path) -> None:
    """The same free runs on inspect_ai's hf provider, which answers each round's prompts in batches too."""
    if not python.exists():
        print(f"inspect_ai: not run ({python} does not exist; `make bench` makes it)")
        return
    from stsr.eval_tasks.bench import requests
    from stsr.eval_tasks.peer import InspectLM
    from stsr.eval_tasks.rollout import run
    from stsr.eval_tasks.shared_prefix import SharedPrefixLM

    ours = SharedPrefixLM(**_options())
    for horizon, view, episodes in EPISODES:
        tasks = [generate("chain", horizon, seed) for seed in range(62_000, 62_000 + episodes)]
        with InspectLM(python, _options()["pretrained"], BATCH) as theirs:
            found = [
                [json.loads(one) for one in run(lm, requests(tasks, view, lm.apply_chat_template), True)]
                for lm in (theirs, ours)
            ]
            calls = sum(one["calls"] for one in found[0])
            same = sum(_outputs(a) == _outputs(b) for a, b in zip(*found, strict=True))
            print(
                f"inspect_ai's hf provider, H{horizon} {view}, the same {episodes} episodes in lock step: "
                f"{calls} calls, {calls / theirs.seconds:.1f} calls/s, {theirs.passes:,} forward passes; "
                f"{same} transcripts equal to ours"
            )


def _outputs(episode: dict[str, Any]) -> list[str]:
    return [turn["output"] for turn in episode["turns"]]


def _decisions(adapter: Path) -> None:
    """Decisions of H8 chains under the full view, on the tiny base untuned and under an adapter."""
    from stsr.eval_tasks.bench import answering

    ways: dict[str, dict[str, str]] = {"untuned": {}}
    if adapter.exists():
        ways["tuned"] = {"peft": str(adapter)}
    else:
        print(f"Decisions of a tuned model: not run ({adapter} does not exist; `make quickstart` makes it)")
    for name, more in ways.items():
        found = answering(_options() | more, 8, "full", range(62_000, 62_010))
        count = found["ways"][0]["calls"]
        print(f"Decisions of the tiny base, {name}, H8 full, {count} of them, answers equal:")
        for way in found["ways"]:
            share = found["prefill_only_seconds"] / way["seconds"]
            print(
                f"  {way['backend']}: {way['calls_per_second']:.1f} calls/s, "
                f"{way['prompt_tokens_per_second']:,.0f} prompt tokens/s, {way['passes']:,} forward passes, "
                f"{share:.0%} of the speed of prefill alone"
            )


def _stages(path: Path) -> None:
    if not path.exists():
        print(f"Quickstart stages: not run ({path} does not exist; `make quickstart` makes it)")
        return
    stages = json.loads(path.read_text(encoding="utf-8"))
    print(f"Quickstart stages, seconds, as they ran last ({path}):")
    for name, seconds in {**stages, "all": sum(stages.values())}.items():
        print(f"  {name:<28}{seconds:>8.1f}")
