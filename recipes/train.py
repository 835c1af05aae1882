"""Trains one adapter from a recipe, or continues a training that was interrupted.

    python -m stsr.recipes.train recipes/sft/tiny.yaml --view full --seed 20260910
    accelerate launch -m stsr.recipes.train recipes/sft/qwen3-1.7b.yaml --view compact --seed 20260926

`OUT/adapter/` and, for earlier steps, `OUT/steps/` are what gets published (recipes/products.py).
`OUT/checkpoints/` is what a killed run continues from, Trainer's optimizer state included; it stays private.

Invariant: a run that was killed and called again ends in the same adapter bytes and exposure log as one that
was not, on the same kind of device. A folder takes one run, and one launch at a time; a finished run called
again changes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from accelerate import PartialState
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig, get_peft_config, get_quantization_config

from stsr.generators.declaration import DeclarationError
from stsr.hub_cards.adapters import AdapterError, renamed_in_transformers
from stsr.hub_cards.pins import Pin, PinError, pin
from stsr.hub_cards.publishable import RepoType
from stsr.recipes.lock import LOCK, BusyError, held
from stsr.recipes.names import kept_steps
from stsr.recipes.products import Finished, write_json, write_products
from stsr.recipes.sft_data import Row, load_rows
from stsr.recipes.sft_recipe import Recipe, TrainError, resolve
from stsr.recipes.sft_trainer import RecipeTrainer, last_sealed

Json = dict[str, Any]
VERSIONS = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes")
"""Packages that make the numbers of a training."""


def train(
    recipe_path: Path,
    *,
    view: str,
    seed: int | None = None,
    data_seed: int | None = None,
    out: Path | None = None,
    overrides: Json | None = None,
) -> Path:
    """Trains the adapter of a recipe for one view and seed into `out` (out/ADAPTER) and returns that.

    `seed` is the recipe's unless given, `data_seed` is the recipe's, or else `seed`. `overrides` replace keys
    of the recipe. Under a launcher each process calls this; the rows of an update are dealt out among them.

    Raises TrainError, PinError or DeclarationError before training for anything that is not as declared,
    BusyError if another process trains into `out`, and AdapterError if the finished adapter does not load
    strictly or does nothing.
    """
    recipe = resolve(recipe_path, view=view, seed=seed, data_seed=data_seed, overrides=overrides)
    out = out or Path("out", recipe.own.adapter_name.rpartition("/")[2])
    state = PartialState(cpu=bool(recipe.trl.get("use_cpu", False)))
    with held(out, "training") if state.is_main_process else nullcontext():
        _train(out, recipe, state)
    return out


def _train(out: Path, recipe: Recipe, state: PartialState) -> None:
    args = recipe.sft_config(out / "checkpoints", state.num_processes)
    with state.main_process_first():
        data = _pin(recipe.own.data, recipe.own.data_revision, "dataset")
        base = _pin(recipe.own.model_name_or_path, recipe.own.model_revision, "model")
        plan = _claim(out, recipe, data, base, state)
    if (out / "adapter").exists():
        state.print(f"{out} holds the finished run; nothing to do.")
        return
    own = recipe.own
    rows = load_rows(data, own.data_config, own.train_rows)
    tokenizer = AutoTokenizer.from_pretrained(base.source, revision=base.commit)
    state.print(
        f"Training {own.adapter_name} on {len(rows)} rows of {own.data} {own.data_config}: "
        f"{args.max_steps} steps of {recipe.rows_per_update} rows."
    )
    with renamed_in_transformers():
        trainer = _trainer(recipe, args, rows, tokenizer, base)
    checkpoint = _checkpoint(out, state)
    if checkpoint is not None:
        state.print(f"Continuing from {checkpoint.name}.")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if state.is_main_process:
        write_products(out, Finished(recipe, plan, base, trainer, tokenizer))
    state.wait_for_everyone()
    state.print(f"Finished after {trainer.seconds:.0f} s of training: {out / 'adapter'}")


def _pin(source: str, revision: str | None, kind: RepoType) -> Pin:
    """Raises PinError, or TrainError for a repository without a revision: a recipe names what it reads."""
    if revision is None and not Path(source).is_dir():
        raise TrainError(
            f"{source} is no folder here; for a repository of the Hub give a tag or commit as revision"
        )
    return pin(source, revision, kind)


def _claim(out: Path, recipe: Recipe, data: Pin, base: Pin, state: PartialState) -> Json:
    """Writes what the run is and reads to `out/plan.json`, or checks that `out` holds this very run.

    Raises TrainError that names the keys in which the run in `out` differs.
    """
    path = out / "plan.json"
    plan: Json = {
        "recipe": recipe.flat(),
        "data_commit": data.revision,
        "base_commit": base.revision,
        "processes": state.num_processes,
        "versions": {name: version(name) for name in VERSIONS},
    }
    if path.exists():
        there = json.loads(path.read_text(encoding="utf-8"))
        if (out / "adapter").exists():  # versions and processes matter only to what is still to be trained
            there = {**there, "versions": plan["versions"], "processes": plan["processes"]}
        if differing := _differing(there, plan):
            raise TrainError(
                f"{out} holds another run; it differs in {', '.join(differing)}: use another folder"
            )
    elif state.is_main_process:
        if any(found.name not in (LOCK, f"{path.name}.partial") for found in out.iterdir()):
            raise TrainError(f"{out} is not empty and holds no run: use another folder")
        write_json(path, plan)
    return plan


def _differing(there: Json, here: Json) -> list[str]:
    """`key (there -> here)` for each value that differs, keys of nested tables by their own name."""
    found = []
    for key in [*here, *(key for key in there if key not in here)]:
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += _differing(old, new)
        elif old != new:
            found.append(f"{key} ({old} there, {new} here)")
    return found


def _base(recipe: Recipe, base: Pin) -> Any:
    """The base model, quantised if the recipe says so.

    Always the causal language model: a checkpoint of a multimodal wrapper would give the adapter key names
    that no evaluation of the text model has.
    """
    model = recipe.model_config()
    quantization = get_quantization_config(model)
    return AutoModelForCausalLM.from_pretrained(
        base.source,
        revision=base.commit,
        dtype=getattr(torch, model.dtype),
        attn_implementation=model.attn_implementation,
        quantization_config=quantization,
        device_map={"": PartialState().device} if quantization else None,
    )


def _trainer(recipe: Recipe, args: SFTConfig, rows: list[Row], tokenizer: Any, base: Pin) -> RecipeTrainer:
    return RecipeTrainer(
        rows=rows,
        adapter_dtype=getattr(torch, recipe.own.adapter_dtype),
        save_at=frozenset(kept_steps(recipe.own.save_at_steps, args.max_steps)),
        name=recipe.own.adapter_name,
        model=_base(recipe, base),
        args=args,
        processing_class=tokenizer,
        peft_config=get_peft_config(recipe.model_config()),
    )


def _checkpoint(out: Path, state: PartialState) -> Path | None:
    """The checkpoint to continue from. The main process clears half-written ones away before others look."""
    with state.main_process_first():
        return last_sealed(out / "checkpoints")


def overrides(pairs: list[str]) -> Json:
    """Keys and values of `--set KEY=VALUE`, values read as YAML. Raises TrainError for anything else."""
    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise TrainError(f"--set {pair!r}: expected KEY=VALUE, as max_steps=200")
        try:
            values[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise TrainError(f"--set {pair!r}: not YAML: {' '.join(str(error).split())}") from error
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--view", required=True, help="what prompts show: full, compact, recent2")
    parser.add_argument("--seed", type=int, help="adapter start and dropout (default: the recipe's)")
    parser.add_argument("--data-seed", type=int, help="row order (default: the recipe's, or else the seed)")
    parser.add_argument("--out", type=Path, help="the run's folder (default: out/ and the adapter's name)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="replace a key of the recipe"
    )
    given = parser.parse_args()
    try:
        train(
            given.recipe,
            view=given.view,
            seed=given.seed,
            data_seed=given.data_seed,
            out=given.out,
            overrides=overrides(given.set),
        )
    except (TrainError, PinError, DeclarationError, AdapterError, BusyError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
