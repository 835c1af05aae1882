"""Running an experiment on the tiny base in a folder, and reading what it left."""

import csv
import subprocess
import sys
from pathlib import Path

from stsr.recipes.experiment import find, read_experiment


def names() -> list[str]:
    """Every experiment but the tiny base model's own and the frozen extension."""
    known = sorted(path.stem for path in find("quickstart").parent.glob("*.yaml"))
    return [
        name for name in known if name not in ("quickstart", "tiny-h16-crossover", "scienceworld-extension")
    ]


def command(name: str) -> list[str]:
    return [sys.executable, "-m", "stsr.cli.main", "run", name, "--base", "tiny", "--out", "out"]


def run(place: Path, name: str, *more: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([*command(name), *more], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def numbers(place: Path) -> list[dict[str, str]]:
    """The numbers of the report, without ids of cells: they hold commits, and a commit holds its time."""
    with (place / "out/report/numbers.csv").open() as lines:
        return [{key: value for key, value in row.items() if key != "cells"} for row in csv.DictReader(lines)]


def fills_its_tables(place: Path, name: str) -> bool:
    """Runs the experiment; whether the report has every table that it declares, and numbers."""
    run(place, name)
    made = {path.stem for path in (place / "out/report/tables").glob("*.tex")}
    return set(read_experiment(find(name)).tables) <= made and bool(numbers(place))
