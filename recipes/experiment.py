"""An experiment: one declared file that says what is trained, what is tested and which tables come of it.

    read_experiment(find("h16-crossover"))                   # recipes/experiments/h16-crossover.yaml
    smoked(read_experiment(find("h16-crossover")), "tiny")   # its shape, small enough for a CPU

`graph.expand` turns it into commands. Paths in the file are relative to the folder `recipes`.

Invariant: a file that names an unknown recipe, arm, view or table, or two adapters of one name, is refused
before anything runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from stsr.generators.declaration import DeclarationError, load
from stsr.generators.scienceworld.extension import RUN_FLAG
from stsr.hub_cards.training_views import origin_of
from stsr.recipes.names import fill, kept_steps, read_recipe

_NEEDED = (
    *("adapter_name", "data_config", "model_name_or_path", "model_revision", "evaluate_in"),
    *("save_at_steps", "max_steps"),
)
UNTUNED = "untuned"
"""What an evaluation calls the base models alone."""


class Model(NamedTuple):
    """A base model at a revision."""

    repo: str
    revision: str
    precision: str
    """In which it is evaluated: the recipe's `evaluate_in`."""

    @classmethod
    def of(cls, recipe: dict[str, Any]) -> Model:
        """The base model of a training recipe's keys."""
        return cls(*(str(recipe[key]) for key in ("model_name_or_path", "model_revision", "evaluate_in")))

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}"


SHIPPED = {"stsr/tiny-base": "bases/tiny"}
"""Base model -> its folder here. These are published before they are used; others are on the Hub."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to train, for each seed."""

    name: str
    """How the file calls it; as `of` in evaluations."""
    recipe: str
    """Training recipe; it names the base model, the data and the adapters."""
    view: str
    """View of the training prompts."""
    training: str = ""
    """What tables call it; by default the view."""
    set: dict[str, Any] = field(default_factory=dict)
    """Keys of the recipe that this arm replaces."""
    seeds: tuple[int, ...] = ()
    """In place of the experiment's."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """lm-eval tasks, and who is asked them."""

    tasks: tuple[str, ...]
    split: str = ""
    """"" is each task's own."""
    of: tuple[str, ...] = ()
    """Names of arms, or "untuned" for the base models alone; () is everybody."""
    checkpoints: bool = False
    """Also every checkpoint that the arms' recipes keep."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What one step asks of the machine that it runs on."""

    gpus: int = 0
    memory_gb: int = 8
    minutes: int = 60
    """Time limit on a cluster, and the estimate of `--dry-run` until the step has run once."""


@dataclass(frozen=True, kw_only=True)
class Smoke:
    """The experiment's shape at the smallest size that fills its tables."""

    workflows: int
    """Workflows of each task, in evaluation."""
    limit: int = 0
    """Decisions or episodes of each task; 0 is all. For tasks that are not made of workflows."""
    calls: int = 0
    """Calls of a ScienceWorld episode at most; 0 is the study's hundred."""
    updates: int = 2
    rows_per_update: int = 4
    save_at_steps: tuple[int, ...] = ()
    """By default the last."""
    max_length: int = 1024


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The keys of an experiment's file."""

    title: str
    datasets: tuple[str, ...]
    """Declarations of data sets to build and publish."""
    evaluations: tuple[Evaluation, ...]
    tables: tuple[str, ...]
    """Tables of the paper that it makes, ids of stats/paper.yaml."""
    smoke: Smoke
    arms: tuple[Arm, ...] = ()
    seeds: tuple[int, ...] = ()
    """Training seeds of every arm that names none."""
    untuned: tuple[str, ...] = ()
    """Training recipes whose base models are evaluated alone."""
    crossover: tuple[str, ...] = ()
    """Two views whose training and test are crossed, for the full report on them; () for tables alone."""
    adapter_tag: str = "v1.0.0"
    batch_size: int = 32
    device: str = "auto"
    workflows: int = 0
    """Workflows of each task in evaluation; 0 is all that a task has."""
    limit: int = 0
    """Decisions or episodes of each task; 0 is all."""
    calls: int = 0
    """Calls of a ScienceWorld episode at most; 0 is the study's hundred."""
    frozen: bool = False
    """The experiment runs only if it is told to by a flag of its own."""
    train_needs: Needs = Needs()
    evaluate_needs: Needs = Needs()

    def __post_init__(self) -> None:
        names = {arm.name for arm in self.arms} | {UNTUNED}
        for evaluation in self.evaluations:
            if unknown := sorted(set(evaluation.of) - names):
                raise DeclarationError(f"no arm {unknown[0]!r}; there are {', '.join(sorted(names))}")

    @cached_property
    def bases(self) -> list[Model]:
        """Base models, untuned and trained, each once."""
        return list(dict.fromkeys([*self._alone, *(trained.base for trained in self.trained)]))

    @cached_property
    def _alone(self) -> list[Model]:
        return [Model.of(read_recipe(recipes_folder() / recipe)) for recipe in self.untuned]

    @cached_property
    def trained(self) -> list[Trained]:
        """Every adapter, seeds in the outer order so that pairs stand together.

        Raises DeclarationError where two arms would train different adapters of one name.
        """
        found: dict[str, Trained] = {}
        seeds = dict.fromkeys(seed for arm in self.arms for seed in arm.seeds or self.seeds)
        for seed in seeds:
            for arm in self.arms:
                if seed not in (arm.seeds or self.seeds):
                    continue
                one = Trained.of(arm, seed)
                known = found.setdefault(one.adapter, one)
                if known.recipe != one.recipe or known.settings != one.settings:
                    raise DeclarationError(f"two arms train an adapter called {one.adapter}: {arm.name}")
                found[one.adapter] = known.also(arm.name)
        return list(found.values())

    def asked(self, evaluation: Evaluation, base: Model) -> tuple[bool, list[Trained]]:
        """(whether the base alone is asked, the adapters that are) in one evaluation."""
        everybody = not evaluation.of
        alone = base in self._alone and (everybody or UNTUNED in evaluation.of)
        adapters = [
            one
            for one in self.trained
            if one.base == base and (everybody or not set(one.arms).isdisjoint(evaluation.of))
        ]
        return alone, adapters


class Trained(NamedTuple):
    """One adapter to train: an arm at a seed."""

    arms: tuple[str, ...]
    training: str
    view: str
    seed: int
    recipe: str
    settings: dict[str, Any]
    """Keys of the recipe that are replaced."""
    adapter: str
    """Hub id."""
    base: Model
    config: str
    """Config of the data set that it is trained on."""
    steps: tuple[int, ...]
    """Optimizer steps whose adapters are kept, the last one's among them."""

    @classmethod
    def of(cls, arm: Arm, seed: int) -> Trained:
        """The adapter of an arm at a seed, as the arm's recipe names it."""
        keys = {**read_recipe(recipes_folder() / arm.recipe), **arm.set}
        if missing := [key for key in _NEEDED if key not in keys]:
            raise DeclarationError(f"{arm.recipe}: the key {missing[0]!r} is missing")
        return cls(
            (arm.name,),
            arm.training or arm.view,
            arm.view,
            seed,
            arm.recipe,
            arm.set,
            fill(str(keys["adapter_name"]), arm.view, seed),
            Model.of(keys),
            fill(str(keys["data_config"]), arm.view, seed),
            kept_steps(keys["save_at_steps"], keys["max_steps"]),
        )

    def also(self, arm: str) -> Trained:
        """The same adapter, claimed by one more arm."""
        return self if arm in self.arms else self._replace(arms=(*self.arms, arm))

    @property
    def name(self) -> str:
        """Last part of the Hub id."""
        return self.adapter.rpartition("/")[2]

    @property
    def tags(self) -> dict[str, int]:
        """Tag of each checkpoint before the last -> its step."""
        return {f"step-{step}": step for step in self.steps[:-1]}

    @property
    def horizon(self) -> int | None:
        """Horizon of the training workflows; None where the data have none."""
        return origin_of(self.config).horizon

    @property
    def family(self) -> str:
        """Family of the training workflows."""
        return origin_of(self.config).family


def recipes_folder() -> Path:
    """The folder of the declared files, in a checkout and in an installed wheel alike."""
    return Path(str(files("stsr.recipes")))


def find(name: str) -> Path:
    """The file of the experiment `name`, or the file of that path for one of your own.

    Raises DeclarationError that names the alternatives.
    """
    if name.endswith(".yaml") and Path(name).is_file():
        return Path(name)
    known = {file.stem: file for file in sorted((recipes_folder() / "experiments").glob("*.yaml"))}
    if name not in known:
        raise DeclarationError(
            f"unknown experiment {name!r}; there are {', '.join(known)}, or give the path of a YAML file"
        )
    return known[name]


def read_experiment(path: Path) -> Experiment:
    """The experiment of a file. Raises DeclarationError for what it should not say."""
    experiment = load(Experiment, path)
    try:
        _check(experiment)
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {error}") from error
    return experiment


def _check(experiment: Experiment) -> None:
    trained = {one.training for one in experiment.trained}  # reads and checks every arm
    if len(experiment.crossover) not in (0, 2):
        raise DeclarationError(f"a crossover needs two views, not {len(experiment.crossover)}")
    if experiment.crossover:
        if missing := [view for view in experiment.crossover if view not in trained]:
            raise DeclarationError(f"crossover: no arm trains on {missing[0]!r}")
        if len({one.horizon for one in experiment.trained}) > 1 or len(experiment.bases) > 1:
            raise DeclarationError("crossover: the arms must share a base and a horizon")


def smoked(experiment: Experiment, base: str) -> Experiment:
    """The experiment on a base that a CPU can train, at the size of its `smoke` block, with one seed.

    Every arm keeps its data, and takes everything else from recipes/sft/BASE.yaml. Arms that then are the
    same adapter become one. Raises DeclarationError for a base without such a recipe.
    """
    recipe, small = f"sft/{base}.yaml", experiment.smoke
    if not (recipes_folder() / recipe).exists():
        known = sorted(file.stem for file in (recipes_folder() / "sft").glob("*.yaml"))
        raise DeclarationError(f"unknown base {base!r}; recipes/sft has {', '.join(known)}")
    trainer = {
        "train_rows": small.updates * small.rows_per_update,
        "max_steps": small.updates,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": small.rows_per_update,
        "save_at_steps": list(small.save_at_steps or (small.updates,)),
        "max_length": small.max_length,
    }
    arms = []
    for arm in experiment.arms:
        own = {**read_recipe(recipes_folder() / arm.recipe), **arm.set}
        data = {key: own[key] for key in ("data", "data_revision", "data_config")}
        stem = str(own["data_config"]).replace("{view}", "").strip("-") or "all"
        name = {"adapter_name": f"stsr/{base}-{stem}-{{view}}-s{{seed}}"}
        seeds = (arm.seeds or experiment.seeds)[:1]
        arms.append(replace(arm, recipe=recipe, set={**data, **trainer, **name}, seeds=seeds))
    return replace(
        experiment,
        arms=tuple(arms),
        untuned=(recipe,) if experiment.untuned else (),
        workflows=small.workflows,
        limit=small.limit,
        calls=small.calls,
        batch_size=16,
        device="cpu",
        train_needs=Needs(memory_gb=4, minutes=10),
        evaluate_needs=Needs(memory_gb=4, minutes=10),
    )


def refuse_frozen(experiment: Experiment, allowed: bool) -> None:
    """Raises DeclarationError for a frozen experiment unless `allowed`."""
    if experiment.frozen and not allowed:
        raise DeclarationError(f"{experiment.title}: frozen and never run; to run it, add {RUN_FLAG}")
