"""An experiment's steps as a graph that Snakemake runs: several at once here, or on a cluster.

    stsr run h16-crossover --jobs 2              # this machine, two steps at a time
    stsr run h16-crossover --profile slurm       # recipes/profiles/slurm/config.yaml

`recipes/Snakefile` makes one rule of each step. A finished step leaves a mark in `out/done`; Snakemake runs
it again if its command changed, and then the command itself decides what is left to do.

The steps must reach the same `out` and the same Hub. The Hub on loopback serves its own machine alone, so
this covers one node; docs/experiments.md says what to do on several.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from stsr.generators.declaration import DeclarationError
from stsr.recipes.experiment import recipes_folder
from stsr.recipes.graph import Step, StepFailed


def run(steps: list[Step], out: Path, environment: dict[str, str], *, jobs: int, profile: str) -> None:
    """Runs the steps through Snakemake: at most `jobs` at once (0: as the profile says), with the profile of
    that name or folder, if any.

    Raises DeclarationError as `check` does, and StepFailed.
    """
    check(profile)
    profiles = ["--workflow-profile", str(_profile(profile))] if profile else []
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(recipes_folder() / "Snakefile")]
    command += ["--directory", str(Path.cwd()), "--config", f"steps={_write(steps, out)}"]
    command += ["--rerun-incomplete", "--keep-going", "--nolock", *(["--jobs", str(jobs)] if jobs else [])]
    if subprocess.call([*command, *profiles], env=environment):
        raise StepFailed("a step failed, see above; the same command continues from there")


def check(profile: str) -> None:
    """Raises DeclarationError if Snakemake or the profile, of that name or folder, is missing."""
    if find_spec("snakemake") is None:
        raise DeclarationError("--jobs and --profile need Snakemake: pip install 'stsr[graph]'")
    if profile:
        _profile(profile)


def _profile(name: str) -> Path:
    own = recipes_folder() / "profiles" / name
    folder = own if own.is_dir() else Path(name)
    if not (folder / "config.yaml").is_file():
        known = sorted(path.parent.name for path in own.parent.glob("*/config.yaml"))
        raise DeclarationError(f"no profile {name!r}; there are {', '.join(known)}, or name a folder")
    return folder


def _write(steps: list[Step], out: Path) -> Path:
    """Leaves what the Snakefile reads: of each step its rule, mark, command, inputs and needs."""
    marks = {step.name: str(out / "done" / _word(step.name)) for step in steps}
    rules = [
        {
            "rule": _word(step.name).replace("-", "_").replace(".", "_"),
            "mark": marks[step.name],
            "command": [sys.executable, "-m", "stsr.cli.main", *step.command],
            "after": [marks[name] for name in step.after],
            "gpus": step.needs.gpus,
            "memory_mb": 1000 * step.needs.memory_gb,
            "minutes": step.needs.minutes,
            "say": step.say,
        }
        for step in steps
    ]
    path = out / "steps.json"
    path.write_text(json.dumps(rules, indent=1) + "\n", encoding="utf-8")
    return path


def _word(name: str) -> str:
    return name.replace(" ", "-").replace("/", "-")
