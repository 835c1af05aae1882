"""The graph of an experiment: commands, what each waits for, and what it needs of a machine.

    for step in expand(read_experiment(find("quickstart")), Path("out/quickstart")):
        print(shlex.join(["stsr", *step.command]))

Every step is a command that a user can type, and each does nothing when its work is done. So a run holds no
state of its own: interrupt it anywhere and start it again. `run_steps` takes one step after the other;
`cluster` hands the same steps to Snakemake.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stsr.generators.declaration import read
from stsr.generators.scienceworld.extension import RUN_FLAG
from stsr.recipes.experiment import (
    SHIPPED,
    Experiment,
    Model,
    Needs,
    Trained,
    recipes_folder,
    refuse_frozen,
)

_OPTIONS = {
    "stsr/table-workflows": "--data",
    "stsr/workflow-controls": "--controls",
    "stsr/scienceworld-trajectories": "--trajectories",
}
"""Data set -> the option of `stsr eval` that says which revision is meant."""

STEP_OF_RUN = "STSR_STEP_OF_RUN"
"""Environment variable of a step's command: the run speaks for it when it is interrupted."""


class StepFailed(RuntimeError):
    """A command of the experiment failed; its own message is on the terminal already."""


class Step(NamedTuple):
    """One command of an experiment."""

    name: str
    """Short and unique, for the table of times."""
    say: str
    """What it does, as a sentence."""
    command: list[str]
    """Words of an `stsr` command line, without the leading "stsr"."""
    after: tuple[str, ...] = ()
    """Names of the steps that must be done before."""
    needs: Needs = Needs()


def experiment_file(out: Path) -> str:
    """Where a run leaves the experiment as it ran, for the report."""
    return str(out / "experiment.yaml")


def expand(experiment: Experiment, out: Path, run_extension: bool = False) -> list[Step]:
    """The steps, in an order in which they can run. Every path below `out`; models and data by id and tag.

    Raises DeclarationError for a frozen experiment unless `run_extension`.
    """
    refuse_frozen(experiment, run_extension)
    steps = [step for dataset in experiment.datasets for step in _data(recipes_folder() / dataset, out)]
    steps += [_base(base) for base in experiment.bases if base.repo in SHIPPED]
    ready = tuple(step.name for step in steps if step.name.startswith("publish"))
    for one in experiment.trained:
        steps += _adapter(experiment, one, ready, out)
    for base in experiment.bases:
        for number in range(len(experiment.evaluations)):
            steps += _evaluation(experiment, base, number, ready, out, run_extension)
    evaluated = tuple(step.name for step in steps if step.name.startswith("evaluate"))
    steps += [_card(experiment, one, evaluated, out) for one in experiment.trained]
    report = ["report", experiment_file(out), "--records", str(out / "records"), "--out", str(out / "report")]
    return [*steps, Step("report", "Write the report.", report, evaluated)]


def publish_command(folder: Path, repo: str, kind: str, tag: str) -> list[str]:
    """Words of the command that publishes a folder; `kind` is "dataset" or "model"."""
    return ["publish", str(folder), "--repo", repo, "--type", kind, "--tag", tag]


def _data(declaration: Path, out: Path) -> list[Step]:
    (repo, tag), folder = _published_as(declaration), out / declaration.stem
    build = f"build {declaration.stem}"
    return [
        Step(build, f"Build the data set {repo} {tag}.", ["build", str(declaration), "--out", str(folder)]),
        Step(
            f"publish {declaration.stem}",
            f"Publish it, tagged {tag}.",
            publish_command(folder, repo, "dataset", tag),
            (build,),
        ),
    ]


def _published_as(declaration: Path) -> tuple[str, str]:
    """(Hub id, tag) of a data set's declaration."""
    keys = read(declaration)
    return str(keys["repo"]), f"v{keys['version']}"


def _base(base: Model) -> Step:
    folder = recipes_folder() / SHIPPED[base.repo]
    command = publish_command(folder, base.repo, "model", base.revision)
    return Step(f"publish {base.repo.rpartition('/')[2]}", f"Publish the base model {base.repo}.", command)


def _adapter(experiment: Experiment, one: Trained, ready: tuple[str, ...], out: Path) -> list[Step]:
    folder = out / "train" / one.name
    train = ["train", str(recipes_folder() / one.recipe), "--view", one.view, "--seed", str(one.seed)]
    for key, value in one.settings.items():
        train += ["--set", f"{key}={json.dumps(value)}"]
    publish = ["adapters", "publish", str(folder), "--tag", experiment.adapter_tag]
    return [
        Step(
            f"train {one.name}",
            f"Train an adapter on the {one.training} view.",
            [*train, "--out", str(folder)],
            ready,
            experiment.train_needs,
        ),
        Step(
            f"publish {one.name}",
            f"Publish it as {one.adapter}, tagged {experiment.adapter_tag}, with its checkpoints.",
            publish,
            (f"train {one.name}",),
        ),
    ]


def _evaluation(
    experiment: Experiment, base: Model, number: int, ready: tuple[str, ...], out: Path, run_extension: bool
) -> Iterator[Step]:
    """The step that asks one evaluation of everybody on one base, which is loaded once; none if nobody is."""
    evaluation = experiment.evaluations[number]
    alone, adapters = experiment.asked(evaluation, base)
    if not alone and not adapters:
        return
    command = ["eval", "--model", str(base), *_revisions(experiment)]
    command += ["--untuned"] if alone else []
    for one in adapters:
        for tag in (*(one.tags if evaluation.checkpoints else ()), experiment.adapter_tag):
            command += ["--adapter", f"{one.adapter}@{tag}"]
    command += ["--split", evaluation.split] if evaluation.split else []
    command += ["--tasks", ",".join(evaluation.tasks), *_sizes(experiment)]
    command += ["--batch-size", str(experiment.batch_size)]
    command += ["--dtype", base.precision, "--device", experiment.device]
    command += [RUN_FLAG] if run_extension else []
    label = f"{base.repo.rpartition('/')[2]} {number}"
    many = f"{len(adapters)} adapter{'s' if len(adapters) > 1 else ''}" if adapters else ""
    who = " and ".join(filter(None, ["the base alone" if alone else "", many]))
    yield Step(
        f"evaluate {label}",
        f"Evaluate {base.repo}, {who}, through lm-eval.",
        [*command, "--out", str(out / "records" / label.replace(" ", "-"))],
        (*ready, *(f"publish {one.name}" for one in adapters)),
        experiment.evaluate_needs,
    )


def _revisions(experiment: Experiment) -> list[str]:
    words = []
    for dataset in experiment.datasets:
        repo, tag = _published_as(recipes_folder() / dataset)
        words.append((_OPTIONS[repo], f"{repo}@{tag}"))
    return [word for pair in dict(words).items() for word in pair]  # the last version of a data set counts


def _sizes(experiment: Experiment) -> list[str]:
    sizes = {"--workflows": experiment.workflows, "--limit": experiment.limit, "--calls": experiment.calls}
    return [word for option, size in sizes.items() if size for word in (option, str(size))]


def _card(experiment: Experiment, one: Trained, evaluated: tuple[str, ...], out: Path) -> Step:
    command = ["adapters", "card", one.adapter, "--records", str(out / "records")]
    what = f"Put the results on the card of {one.adapter}; its tag stays where it is."
    return Step(f"card {one.name}", what, [*command, "--tag", experiment.adapter_tag], evaluated)


def plan(steps: list[Step], seconds: dict[str, float]) -> str:
    """The commands, and below them how many there are of each kind and about how long they take.

    `seconds` are times of steps that ran; for others their declared limit counts, so the sum is an upper
    bound of a run that takes one step after the other.
    """
    lines = [f"# {step.say}\n{shlex.join(['stsr', *step.command])}" for step in steps]
    kinds = [step.name.split()[0] for step in steps]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    heavy = [step for step in steps if step.name.split()[0] in ("train", "evaluate")]
    minutes = sum(seconds.get(step.name, 60.0 * step.needs.minutes) for step in heavy) / 60
    known = sum(step.name in seconds for step in heavy)
    gpus = max((step.needs.gpus for step in steps), default=0)
    lines.append(
        f"\n# {len(steps)} steps: {counts}.\n# Training and evaluation: at most {minutes:,.0f} minutes one "
        f"after the other ({known} of {len(heavy)} steps measured, the rest by their declared limits); "
        + (f"{gpus} GPU a step." if gpus else "no GPU.")
    )
    return "\n".join(lines)


def times(out: Path) -> dict[str, float]:
    """Seconds of the steps that ran into `out`, by name."""
    path = out / "seconds.json"
    found: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    return found


def run_steps(steps: list[Step], out: Path, environment: dict[str, str]) -> dict[str, float]:
    """Runs the steps one after the other; returns seconds by step, also left in `out/seconds.json`.

    `environment` is the whole environment of the commands. A step done before keeps its longest time,
    since a repeated step only looks. Raises StepFailed. When this process ends, so does the step it runs.
    """
    seconds = times(out)
    for number, step in enumerate(steps, 1):
        command = shlex.join(["stsr", *step.command])
        print(f"\n[{number}/{len(steps)}] {step.say}\n    $ {command}", flush=True)
        began = time.monotonic()
        if _call(step.command, environment):
            raise StepFailed(f"the step {step.name!r} failed; the same command continues from here")
        seconds[step.name] = max(seconds.get(step.name, 0.0), round(time.monotonic() - began, 1))
        (out / "seconds.json").write_text(json.dumps(seconds, indent=1) + "\n")
    return seconds


def _call(command: list[str], environment: dict[str, str]) -> int:
    """Exit status of an `stsr` command that is terminated when this process is."""
    child: subprocess.Popen[Any] = subprocess.Popen(
        [sys.executable, "-m", "stsr.cli.main", *command], env={**environment, STEP_OF_RUN: "1"}
    )
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGTERM, before)
        if child.poll() is None:
            child.terminate()
            child.wait()
