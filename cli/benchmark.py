"""`stsr bench`: figures of this machine. It asserts no time; equal outcomes are asserted by what it calls."""

from __future__ import annotations

import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stsr.generators.rows import decision_rows, generate


def bench(quickstart: Path) -> None:
    """Prints rows/s, the cost of a whole build, free-run calls/s, and the quickstart's stages."""
    print(f"Machine: {platform.processor() or platform.machine()}, {_cores()} cores, Python {platform.python_version()}")
    rates = [_rows_a_second(seed) for seed in range(5)]
    print(
        f"Rendered rows, H16 full, replay-verified, one core: median {statistics.median(rates):,.0f} rows/s "
        f"of 5 runs ({min(rates):,.0f} to {max(rates):,.0f})"
    )
    seconds, megabytes = _whole_build()
    print(f"Whole data set (recipes/datasets/table-workflows.yaml): {seconds:.1f} s, peak memory {megabytes:.0f} MB")
    _free_runs()
    _stages(quickstart)


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _rows_a_second(offset: int) -> float:
    seeds = range(500_000 + 200 * offset, 500_200 + 200 * offset)
    began = time.perf_counter()
    count = sum(1 for seed in seeds for _ in decision_rows(generate("chain", 16, seed), ["full"]))
    return count / (time.perf_counter() - began)


def _whole_build() -> tuple[float, float]:
    """(seconds, peak megabytes) of `stsr build` in a process of its own."""
    declaration = "recipes/datasets/table-workflows.yaml"
    from importlib.resources import files

    path = Path(str(files("stsr.recipes"))) / declaration.removeprefix("recipes/")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "stsr.cli.main", "build", str(path), "--out", str(Path(folder, "data"))]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds = time.perf_counter() - began
        peak = max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    return seconds, peak / (1e6 if sys.platform == "darwin" else 1e3)


def _free_runs() -> None:
    from stsr.eval_tasks.bench import benchmark

    report: Callable[[], object] = benchmark
    report()


def _stages(quickstart: Path) -> None:
    path = quickstart / "seconds.json"
    if not path.exists():
        print(f"Quickstart stages: not run ({path} does not exist; `make quickstart` makes it)")
        return
    stages = json.loads(path.read_text(encoding="utf-8"))
    print(f"Quickstart stages, seconds, as they ran last ({path}):")
    for name, seconds in stages.items():
        print(f"  {name:<28}{seconds:>8.1f}")
    print(f"  {'all':<28}{sum(stages.values()):>8.1f}")
