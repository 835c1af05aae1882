"""An experiment: one declared file, expanded into the commands that make its report.

    stsr run quickstart            # recipes/experiments/quickstart.yaml
    stsr run quickstart --dry-run  # the commands alone

Every step is a command that a user can type, and each does nothing when its work is done. So `run` holds no
state: interrupt it anywhere and type it again. Steps run one after the other against a Hub on loopback.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from stsr.generators.dataset import read_declaration
from stsr.generators.declaration import DeclarationError, load, read
from stsr.recipes.names import fill


class StepFailed(RuntimeError):
    """A command of the experiment failed; its own message is on the terminal already."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The keys of an experiment; all are required. Paths are relative to the folder `recipes`."""

    title: str
    datasets: tuple[str, ...]
    """Declarations of data sets to build and publish, in order; training and evaluation use the last."""
    base_folder: str
    base: str
    base_tag: str
    recipe: str
    horizon: int
    views: tuple[str, ...]
    seeds: tuple[int, ...]
    adapters: str
    adapter_tag: str
    evaluations: tuple[str, ...]
    split: str
    batch_size: int
    dtype: str
    device: str

    def __post_init__(self) -> None:
        names = {self.adapter(view, seed) for view in self.views for seed in self.seeds}
        if len(names) < len(self.views) * len(self.seeds):
            raise DeclarationError(
                f"adapters {self.adapters!r}: needs {{view}} and {{seed}} to name each one"
            )

    def adapter(self, view: str, seed: int) -> str:
        """Hub id of the adapter trained on `view` with `seed`."""
        return fill(self.adapters, view, seed)

    @property
    def tasks(self) -> list[str]:
        """lm-eval task names: every evaluation under every view."""
        return [f"stsr_{kind}_h{self.horizon}_{view}" for kind in self.evaluations for view in self.views]


def read_experiment(path: Path) -> Experiment:
    """The experiment of a file. Raises DeclarationError where it contradicts the recipe that it names."""
    experiment = load(Experiment, path)
    recipe, trains = read(recipes_folder() / experiment.recipe), f"but {experiment.recipe} trains"
    for view in experiment.views:
        for seed in experiment.seeds:
            declared = experiment.adapter(view, seed)
            trained = fill(str(recipe.get("adapter_name")), view, seed)
            if declared != trained:
                raise DeclarationError(f"{path}: adapters names {declared}, {trains} {trained}")
        config = fill(str(recipe.get("data_config")), view, 0)
        horizon = re.search(r"\bh(\d+)\b", config)
        if horizon and int(horizon[1]) != experiment.horizon:
            raise DeclarationError(f"{path}: horizon is {experiment.horizon}, {trains} on {config}")
    return experiment


class Step(NamedTuple):
    """One command of an experiment."""

    name: str
    """Short name, for the table of times."""
    say: str
    """What it does, as a sentence."""
    command: list[str]
    """Words of an `stsr` command line, without the leading "stsr"."""


def recipes_folder() -> Path:
    """The folder of the declared files, in a checkout and in an installed wheel alike."""
    return Path(str(files("stsr.recipes")))


def find(name: str) -> Path:
    """The file of the experiment `name`. Raises DeclarationError that names the alternatives."""
    path = recipes_folder() / "experiments" / f"{name}.yaml"
    if not path.exists():
        known = sorted(file.stem for file in path.parent.glob("*.yaml"))
        raise DeclarationError(f"unknown experiment {name!r}; there are {', '.join(known)}")
    return path


def expand(experiment: Experiment, out: Path) -> list[Step]:
    """The commands, in order. Every path below `out`; every model and data set by Hub id and tag."""
    here = recipes_folder()
    steps = [step for dataset in experiment.datasets for step in _data_steps(here / dataset, out)]
    declared = read_declaration(here / experiment.datasets[-1])
    steps.append(
        Step(
            "publish base",
            f"Publish the base model {experiment.base}.",
            publish_command(here / experiment.base_folder, experiment.base, "model", experiment.base_tag),
        )
    )
    for seed in experiment.seeds:
        for view in experiment.views:
            steps += _adapter_steps(experiment, view, seed, out)
    evaluated = [("", "untuned")] + [
        (experiment.adapter(view, seed), experiment.adapter(view, seed).split("/")[1])
        for seed in experiment.seeds
        for view in experiment.views
    ]
    for adapter, label in evaluated:
        steps.append(_evaluation(experiment, declared.repo, declared.tag, adapter, label, out))
        if adapter:
            steps.append(_card(experiment, adapter, label, out))
    report = ["report", experiment_file(out), "--records", str(out / "records"), "--out", str(out / "report")]
    steps.append(Step("report", "Write the report.", report))
    return steps


def experiment_file(out: Path) -> str:
    """Where `run` leaves a copy of the experiment for the report."""
    return str(out / "experiment.yaml")


def publish_command(folder: Path, repo: str, kind: str, tag: str) -> list[str]:
    """Words of the command that publishes a folder; `kind` is "dataset" or "model"."""
    return ["publish", str(folder), "--repo", repo, "--type", kind, "--tag", tag]


def _data_steps(declaration: Path, out: Path) -> list[Step]:
    declared, folder = read_declaration(declaration), out / declaration.stem
    return [
        Step(
            f"build {declaration.stem}",
            f"Build the data set {declared.repo} {declared.tag}.",
            ["build", str(declaration), "--out", str(folder)],
        ),
        Step(
            f"publish {declaration.stem}",
            f"Publish it to the Hub on loopback, tagged {declared.tag}.",
            publish_command(folder, declared.repo, "dataset", declared.tag),
        ),
    ]


def _adapter_steps(experiment: Experiment, view: str, seed: int, out: Path) -> list[Step]:
    adapter = experiment.adapter(view, seed)
    name = adapter.split("/")[1]
    folder = out / "train" / name
    train = ["train", str(recipes_folder() / experiment.recipe), "--view", view, "--seed", str(seed)]
    return [
        Step(f"train {name}", f"Train an adapter on the {view} view.", [*train, "--out", str(folder)]),
        Step(
            f"publish {name}",
            f"Publish it as {adapter}, tagged {experiment.adapter_tag}.",
            publish_command(folder / "adapter", adapter, "model", experiment.adapter_tag),
        ),
    ]


def _evaluation(experiment: Experiment, data: str, tag: str, adapter: str, label: str, out: Path) -> Step:
    command = ["eval", "--model", f"{experiment.base}@{experiment.base_tag}", "--data", f"{data}@{tag}"]
    command += ["--adapter", f"{adapter}@{experiment.adapter_tag}"] if adapter else []
    command += ["--split", experiment.split, "--tasks", ",".join(experiment.tasks)]
    command += ["--batch-size", str(experiment.batch_size), "--dtype", experiment.dtype]
    command += ["--device", experiment.device]
    what = f"Evaluate {adapter or f'{experiment.base} untuned'} under each view, through lm-eval."
    return Step(f"evaluate {label}", what, [*command, "--out", str(out / "records" / label)])


def _card(experiment: Experiment, adapter: str, label: str, out: Path) -> Step:
    command = ["adapters", "card", adapter, "--records", str(out / "records" / label)]
    what = f"Put the results on the card of {adapter}; its tag stays where it is."
    return Step(f"card {label}", what, [*command, "--tag", experiment.adapter_tag])


def run(name: str, out: Path, environment: dict[str, str]) -> dict[str, float]:
    """Runs every step of the experiment; returns seconds by step, also left in `out/seconds.json`.

    `environment` is the whole environment of the commands. A step done before keeps its longest time,
    since a repeated step only looks. Raises StepFailed. When this process ends, so does the step it runs.
    """
    experiment = read_experiment(find(name))
    out.mkdir(parents=True, exist_ok=True)
    Path(experiment_file(out)).write_text(find(name).read_text(encoding="utf-8"), encoding="utf-8")
    return run_steps(expand(experiment, out), out, environment)


def run_steps(steps: list[Step], out: Path, environment: dict[str, str]) -> dict[str, float]:
    """Runs steps; see `run`."""
    times = out / "seconds.json"
    seconds: dict[str, float] = json.loads(times.read_text()) if times.exists() else {}
    for number, step in enumerate(steps, 1):
        command = shlex.join(["stsr", *step.command])
        print(f"\n[{number}/{len(steps)}] {step.say}\n    $ {command}", flush=True)
        began = time.monotonic()
        if _call(step.command, environment):
            raise StepFailed(f"the step {step.name!r} failed; the same command continues from here")
        seconds[step.name] = max(seconds.get(step.name, 0.0), round(time.monotonic() - began, 1))
        times.write_text(json.dumps(seconds, indent=1) + "\n")
    return seconds


def _call(command: list[str], environment: dict[str, str]) -> int:
    """Exit status of an `stsr` command that is terminated when this process is."""
    child = subprocess.Popen([sys.executable, "-m", "stsr.cli.main", *command], env=environment)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        if child.poll() is None:
            child.terminate()
            child.wait()
