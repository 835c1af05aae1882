"""An experiment of the ScienceWorld study: one declared file, expanded into commands.

    stsr run scienceworld-horizon              # recipes/experiments/scienceworld-horizon.yaml
    stsr run scienceworld-horizon --dry-run    # the commands alone

As in `experiment`, every step is a command that does nothing when its work is done. What differs: arms may
have recipes of their own, tasks have no horizon, and the tables are those of `stats.scienceworld`.

Invariant: an experiment over the frozen extension expands only when it is told to run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from stsr.generators.declaration import DeclarationError, load, read
from stsr.generators.scienceworld.dataset import read_declaration
from stsr.generators.scienceworld.extension import RUN_FLAG
from stsr.recipes.experiment import Step, publish_command, recipes_folder
from stsr.recipes.names import fill


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to train."""

    training: str
    """Name in the tables: full, compact, short-only or mixed-horizon."""
    recipe: str
    """Training recipe, relative to the folder `recipes`; it names the adapters."""
    view: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Tasks that every model is asked."""

    split: str
    """"" is each task's own."""
    tasks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Study:
    """The keys of an experiment; all are required. Paths are relative to the folder `recipes`."""

    study: str
    title: str
    dataset: str
    base_folder: str
    base: str
    base_tag: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    adapter_tag: str
    untuned: bool
    """Also evaluate the base alone."""
    evaluations: tuple[Evaluation, ...]
    frozen: bool
    """The experiment runs only if it is told to by name."""
    limit: int
    batch_size: int
    dtype: str
    device: str

    def adapter(self, arm: Arm, seed: int) -> str:
        """Hub id of an arm's adapter, as its recipe names it."""
        pattern = str(read(recipes_folder() / arm.recipe).get("adapter_name"))
        return fill(pattern, arm.view, seed)


def declares(path: Path) -> bool:
    """Whether a YAML file declares an experiment of this study."""
    return "study" in read(path)


def read_study(path: Path) -> Study:
    """The experiment of a file. Raises DeclarationError if two of its adapters share a name."""
    study = load(Study, path)
    names = [study.adapter(arm, seed) for arm in study.arms for seed in study.seeds]
    if len(set(names)) < len(names):
        raise DeclarationError(f"{path}: two adapters are called {max(names, key=names.count)}")
    return study


def expand(study: Study, out: Path, run_extension: bool = False) -> list[Step]:
    """The commands, in order. Raises DeclarationError for a frozen study unless `run_extension`."""
    if study.frozen and not run_extension:
        raise DeclarationError(f"{study.title}: frozen and never run; to run it, add {RUN_FLAG}")
    here = recipes_folder()
    declared, folder = read_declaration(here / study.dataset), out / Path(study.dataset).stem
    steps = [
        Step("build", f"Build {declared.repo}.", ["build", str(here / study.dataset), "--out", str(folder)]),
        Step("publish data", "Publish it.", publish_command(folder, declared.repo, "dataset", declared.tag)),
        Step(
            "publish base",
            f"Publish the base model {study.base}.",
            publish_command(here / study.base_folder, study.base, "model", study.base_tag),
        ),
    ]
    for arm in study.arms:
        for seed in study.seeds:
            steps += _training(study, arm, seed, out)
    models = [""] if study.untuned else []
    models += [study.adapter(arm, seed) for arm in study.arms for seed in study.seeds]
    data = f"{declared.repo}@{declared.tag}"
    for adapter in models:
        steps += [
            _evaluation(study, number, adapter, data, out, run_extension)
            for number in range(len(study.evaluations))
        ]
    return steps


def _training(study: Study, arm: Arm, seed: int, out: Path) -> list[Step]:
    adapter = study.adapter(arm, seed)
    name = adapter.split("/")[1]
    folder = out / "train" / name
    train = ["train", str(recipes_folder() / arm.recipe), "--view", arm.view, "--seed", str(seed)]
    return [
        Step(f"train {name}", f"Train an adapter: {arm.training}.", [*train, "--out", str(folder)]),
        Step(
            f"publish {name}",
            f"Publish it as {adapter}.",
            publish_command(folder / "adapter", adapter, "model", study.adapter_tag),
        ),
    ]


def _evaluation(study: Study, number: int, adapter: str, data: str, out: Path, run_extension: bool) -> Step:
    asked, label = study.evaluations[number], adapter.split("/")[-1] or "untuned"
    command = ["eval", "--model", f"{study.base}@{study.base_tag}", "--trajectories", data]
    command += ["--adapter", f"{adapter}@{study.adapter_tag}"] if adapter else []
    command += ["--split", asked.split] if asked.split else []
    command += ["--tasks", ",".join(asked.tasks), "--batch-size", str(study.batch_size)]
    command += ["--dtype", study.dtype, "--device", study.device]
    command += ["--limit", str(study.limit)] if study.limit else []
    command += [RUN_FLAG] if run_extension else []
    folder = out / "records" / label / str(number)
    return Step(f"evaluate {label} {number}", f"Evaluate {label}.", [*command, "--out", str(folder)])


def write_arms(study: Study, path: Path) -> None:
    """Writes what each adapter was trained on, for `stats.scienceworld`."""
    arms = [{"adapter": "", "training": "untuned", "seed": 0, "step": 0}]
    arms += [
        {"adapter": study.adapter(arm, seed), "training": arm.training, "seed": seed, "step": 100}
        for arm in study.arms
        for seed in study.seeds
    ]
    path.write_text(json.dumps(arms, indent=1) + "\n", encoding="utf-8")
