"""Figures for speed and memory:  python -m stsr.stats.bench [--records 200000] [--keep FOLDER]

Prints (1) seconds for 20,000 paired bootstrap draws over 50 tasks x 4 cells, and (2) seconds and peak memory
of a full report of every table from made-up records of the usual length. CPU seconds are beside wall seconds,
since a busy machine stretches the second alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from stsr.stats.estimators import FloatArray, difference_of_differences, paired_bootstrap
from stsr.stats.synthetic import as_line, protocol

PROMPT = 'a7: {"columns":["id","x","y"],"rows":[[1,-9,4],[2,3,5]]}\n' * 120
CHARACTERS = 2.2
"""Characters a token of a prompt full of numbers; prompts have the token counts that the paper prints."""


def bootstrap_seconds() -> list[tuple[float, float]]:
    """(wall, CPU) seconds of five runs over whole cells."""
    values = np.random.default_rng(0).integers(0, 2, (50, 4)).astype(np.float64)

    def interaction(x: FloatArray) -> FloatArray:
        per_task = difference_of_differences(x[..., 0], x[..., 1], x[..., 2], x[..., 3])
        return np.asarray(per_task.mean(axis=-1))

    return [_timed(lambda: paired_bootstrap(values, interaction)) for _ in range(5)]


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


def write_records(count: int, folder: Path) -> int:
    """Writes about `count` records of the protocol and the inputs of their report; returns how many."""
    outcomes, arms = protocol()
    scale = max(1, round(count / len(outcomes)))
    if scale > 1:
        outcomes, arms = protocol(scale)
    with open(folder / "records.jsonl", "w", encoding="utf-8") as stream:
        for row in outcomes:
            prompt = PROMPT[: int(CHARACTERS * (row.tokens or 600))]
            stream.write(as_line(row, prompt) + "\n")
    inputs: dict[str, object] = {
        "spec": None,
        "arms": [asdict(arm) for arm in arms],
        "tables": ["all"],
        "provenance": {},
    }
    (folder / "inputs.json").write_text(json.dumps(inputs, indent=1), encoding="utf-8")
    return len(outcomes)


def report(folder: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak MB of the report's command, in a process of its own."""
    command = [sys.executable, "-m", "stsr.stats.report", "--inputs", str(folder / "inputs.json")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([*command, "--out", str(folder / "report"), str(folder / "records.jsonl")], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, cpu, after.ru_maxrss / 1024


def main() -> None:
    """Command line: see the head of this file."""
    parser = argparse.ArgumentParser(prog="python -m stsr.stats.bench", description="Speed.")
    parser.add_argument("--records", type=int, default=200_000, help="records of the full report")
    parser.add_argument("--keep", type=Path, help="folder for records and report; else they are deleted")
    options = parser.parse_args()
    runs = bootstrap_seconds()
    wall, cpu = min(run[0] for run in runs), min(run[1] for run in runs)
    print(f"bootstrap, 20,000 draws, 50 tasks x 4 cells: {wall:.3f} s wall, {cpu:.3f} s CPU (best of 5)")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        count = write_records(options.records, folder)
        size = (folder / "records.jsonl").stat().st_size / 1e6
        wall, cpu, memory = report(folder)
        print(f"report of {count:,} records ({size:,.0f} MB): {wall:.1f} s wall, {cpu:.1f} s CPU")
        print(f"peak memory of that report: {memory:.0f} MB")


if __name__ == "__main__":
    main()
