"""A training recipe: one flat YAML file that reads as a TRL configuration, plus a few keys of ours.

    recipe = resolve(Path("recipes/sft/tiny.yaml"), view="full", seed=20260910)

TRL's keys keep TRL's names (`ModelConfig`, `SFTConfig`). A variant names a whole recipe with `extends:` and
states what differs. Invariant: nothing is ignored and no default of a library decides a number: an unknown
key, a wrong type or an unstated key of STATED is an error.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from trl import ModelConfig, SFTConfig

from stsr.generators.declaration import DeclarationError, build
from stsr.hub_cards.bases import PRECISIONS
from stsr.hub_cards.training_views import view_rule
from stsr.recipes.names import fill, read_recipe


class TrainError(ValueError):
    """A training that cannot be run as asked; the message is one line for a person."""


@dataclass(frozen=True, kw_only=True)
class Own:
    """The keys that TRL does not have, or that mean more here than there."""

    model_name_or_path: str
    """Base model: a Hub id or a folder."""
    model_revision: str | None
    """Commit, tag or branch of the base model, resolved to a commit when a run starts; null for a folder."""
    adapter_name: str
    """Hub id of the adapter; may contain {view} and {seed}."""
    adapter_dtype: str
    """float32 or bfloat16: type of the adapter's weights, also after a run was resumed."""
    evaluate_in: str
    """One of bases.PRECISIONS: of the base that the adapter is proved and evaluated on."""
    data: str
    """Data set: a Hub id or a folder with a README.md that declares `configs:`."""
    data_revision: str | None
    """Tag or commit of the data set; null for a folder."""
    data_config: str
    """Configuration of the data set; contains {view}."""
    train_rows: int
    """The first so many rows of the split `train`."""
    save_at_steps: tuple[int, ...]
    """Optimizer steps after which a checkpoint is kept; the last step is always among them."""


STATED = (
    *("dtype", "use_peft", "lora_r", "lora_alpha", "lora_dropout", "lora_target_modules"),
    *("max_length", "packing", "completion_only_loss", "max_steps", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "learning_rate", "lr_scheduler_type", "warmup_steps", "optim"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay", "max_grad_norm", "bf16"),
    *("activation_checkpointing", "seed", "data_seed"),
)
"""TRL keys that a recipe must state."""

FIXED = {
    "use_peft": (True, "a run produces an adapter"),
    "packing": (False, "it changes which rows share an update"),
    "completion_only_loss": (True, "the loss covers the gold action alone"),
    "assistant_only_loss": (False, "it swaps the chat template"),
    "train_sampling_strategy": ("random", "any other makes the row order depend on the view"),
    "shuffle_dataset": (False, "data_seed alone decides the row order"),
    "logging_strategy": ("steps", "the last loss goes into the run's facts"),
    "logging_steps": (1, "the last loss goes into the run's facts"),
    "trust_remote_code": (False, "no code of a model repository is run"),
}
"""TRL key -> (the only value allowed, why)."""

RESERVED = {
    "output_dir": "the run's folder is given on the command line",
    "save_strategy": "save_at_steps says when",
    "save_steps": "save_at_steps says when",
    "save_total_limit": "every checkpoint of save_at_steps is kept",
    "save_only_model": "a run must be able to resume",
    "num_train_epochs": "max_steps says how long",
    "resume_from_checkpoint": "a run resumes by itself",
    "push_to_hub": "publishing is a step of its own",
    "gradient_checkpointing": "transformers calls it activation_checkpointing",
    "gradient_checkpointing_kwargs": "transformers calls it activation_checkpointing_kwargs",
    "model_init_kwargs": "the base model is loaded from the keys under Model",
}
"""TRL keys that a recipe may not have, and why."""

_TRL: dict[type[Any], dict[str, Any]] = {kind: get_type_hints(kind) for kind in (ModelConfig, SFTConfig)}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe whose view and seeds are settled: every number of a run."""

    view: str
    """Name of the view, see `stsr.generators.views`."""
    own: Own
    """Our keys, placeholders filled in."""
    trl: dict[str, Any]
    """TRL's keys, as in the file."""

    @property
    def rows_per_update(self) -> int:
        """Rows that one optimizer step averages over."""
        batch, accumulation = self.trl["per_device_train_batch_size"], self.trl["gradient_accumulation_steps"]
        return int(batch * accumulation)

    @property
    def presentations(self) -> int:
        """Rows presented in the whole run, repeats counted."""
        return int(self.trl["max_steps"] * self.rows_per_update)

    def flat(self) -> dict[str, Any]:
        """All keys and values, as JSON can hold them."""
        own = {**asdict(self.own), "save_at_steps": list(self.own.save_at_steps)}
        return {"view": self.view, **own, **self.trl}

    def model_config(self) -> ModelConfig:
        """TRL's model and LoRA configuration. Raises TrainError for values that TRL refuses."""
        values = {key: value for key, value in self.trl.items() if key in _TRL[ModelConfig]}
        # without data_revision's counterpart in TRL, "main" stands for "no revision" there
        names = {"model_name_or_path": self.own.model_name_or_path}
        return _made(ModelConfig, {**values, **names, "model_revision": self.own.model_revision or "main"})

    def sft_config(self, output_dir: Path, processes: int = 1) -> SFTConfig:
        """TRL's configuration for a run on `processes` devices: the rows of an update stay the same.

        Raises TrainError if the accumulation steps cannot be dealt out evenly, or if TRL refuses a value.
        """
        values = {key: value for key, value in self.trl.items() if key in _TRL[SFTConfig]}
        accumulation = values["gradient_accumulation_steps"]
        if accumulation % processes:
            raise TrainError(
                f"{processes} processes cannot share gradient_accumulation_steps {accumulation} evenly: "
                "use a number of processes that divides it"
            )
        values["gradient_accumulation_steps"] = accumulation // processes
        names = {"project": "stsr", "run_name": self.own.adapter_name}  # for `report_to: trackio`
        return _made(SFTConfig, {**names, **values, "output_dir": str(output_dir), "save_strategy": "no"})


def resolve(
    path: Path,
    *,
    view: str,
    seed: int | None = None,
    data_seed: int | None = None,
    overrides: dict[str, Any] | None = None,
) -> Recipe:
    """The recipe of a file for one view and seed. `overrides` replace keys of the file.

    `seed` starts the adapter and drives dropout; `data_seed` orders the rows and is `seed` unless given.
    Raises TrainError, or DeclarationError for keys and values that the file should not have.
    """
    raw = {**read_recipe(path), **(overrides or {})}
    if seed is not None:
        raw["seed"] = seed
    if data_seed is not None:
        raw["data_seed"] = data_seed
    _check_keys(raw, str(path))
    if raw["data_seed"] is None:
        raw["data_seed"] = raw["seed"]
    for key in ("seed", "data_seed"):
        if type(raw[key]) is int and not 0 <= raw[key] < 2**32:
            raise TrainError(f"{key} {raw[key]}: a seed is a whole number from 0 to 2**32 - 1")
    own_names = {field.name for field in fields(Own)}
    own = build(Own, {key: raw[key] for key in raw if key in own_names}, str(path))
    trl = {key: raw[key] for key in raw if key not in own_names}
    try:
        view_rule(view, own.data_config)
    except ValueError as error:
        raise TrainError(str(error)) from error
    recipe = Recipe(view=view, own=_filled(own, view, raw["seed"]), trl=trl)
    _check_numbers(recipe, str(path))
    return recipe


def _check_keys(raw: dict[str, Any], where: str) -> None:
    own = [field.name for field in fields(Own)]
    hints = {**_TRL[ModelConfig], **_TRL[SFTConfig]}
    for key, value in raw.items():
        if key in RESERVED:
            raise DeclarationError(f"{where}: {key!r} does not belong in a recipe: {RESERVED[key]}")
        if key in own:
            continue
        if key not in hints:
            near = get_close_matches(str(key), [*own, *hints], n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise DeclarationError(
                f"{where}: unknown key {key!r}; {guess}keys are {', '.join(own)} and those of TRL's "
                "ModelConfig and SFTConfig"
            )
        if not _fits(hints[key], value):
            name = getattr(hints[key], "__name__", None) or str(hints[key])
            hint = (
                " (YAML reads 1e-4 as text: write 1.0e-4)" if isinstance(value, str) and "e" in value else ""
            )
            raise DeclarationError(f"{where}: {key}: expected {name}, found {value!r}{hint}")
        only, why = FIXED.get(key, (value, ""))
        if value != only:
            raise DeclarationError(f"{where}: {key} must be {only!r}: {why}")
    if missing := [key for key in STATED if key not in raw]:
        raise DeclarationError(
            f"{where}: the key {missing[0]!r} is missing; state it, whatever TRL's default is"
        )


def _check_numbers(recipe: Recipe, where: str) -> None:
    own, steps, rows = recipe.own, recipe.trl["max_steps"], recipe.rows_per_update
    if own.adapter_dtype not in ("float32", "bfloat16"):
        raise TrainError(f"{where}: adapter_dtype must be float32 or bfloat16, not {own.adapter_dtype!r}")
    if own.evaluate_in not in PRECISIONS:
        raise TrainError(f"{where}: evaluate_in is one of {', '.join(PRECISIONS)}, not {own.evaluate_in!r}")
    if rows < 1 or steps < 1 or own.train_rows < 1:
        raise TrainError(f"{where}: train_rows, max_steps and the rows of an update must be at least 1")
    if bad := [step for step in own.save_at_steps if not 1 <= step <= steps]:
        raise TrainError(f"{where}: save_at_steps holds {bad[0]}, which is not in 1..{steps} (max_steps)")
    if own.train_rows % rows:
        raise TrainError(
            f"{where}: train_rows {own.train_rows} is not a multiple of the {rows} rows of an update, so an "
            f"epoch would end in a short update: use {_multiples(rows, own.train_rows)}"
        )
    if recipe.presentations > own.train_rows and recipe.presentations % own.train_rows:
        per_epoch = own.train_rows // rows
        raise TrainError(
            f"{where}: {steps} steps of {rows} rows are more than one epoch of train_rows {own.train_rows} "
            "and not whole ones, so some rows would be shown more often than others: use max_steps "
            f"{_multiples(per_epoch, steps)}, or train_rows {steps * rows}"
        )


def _multiples(of: int, near: int) -> str:
    """The multiples of `of` on either side of `near`, in words."""
    below = near // of * of
    return f"{below} or {below + of}" if below else str(of)


def _filled(own: Own, view: str, seed: int) -> Own:
    if "{view}" not in own.data_config:
        raise TrainError(f"data_config {own.data_config!r} has no {{view}}, so the view would change nothing")
    values = asdict(own)
    for key in ("adapter_name", "data_config"):
        values[key] = fill(values[key], view, seed)
    return Own(**values)


def _fits(hint: Any, value: object) -> bool:
    """Whether a YAML value is of a TRL field's type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(argument, value) for argument in arguments)
    if origin is Literal:
        return value in arguments
    if hint in (None, NoneType):
        return value is None
    if hint is Any:
        return True
    if hint is float:
        return type(value) in (int, float)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value in {member.value for member in hint}
    kind = origin or hint
    if kind in (list, dict):
        return (
            isinstance(value, kind) and all(_fits(arguments[0], item) for item in value)
            if arguments
            else True
        )
    return type(value) is kind


def _made(kind: type[Any], values: dict[str, Any]) -> Any:
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise TrainError(f"TRL refuses this {kind.__name__}: {' '.join(str(error).split())}") from error
