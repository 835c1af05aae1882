"""What a finished training leaves for others: a publishable folder for each checkpoint, the last one's apart.

`OUT/adapter/` is the adapter after the last step, `OUT/steps/step-20/` the one after step 20, and so on. Each
holds weights, configuration, run.json, exposure audit and card, and no pickle.

Invariant: a folder appears whole or not at all, after its adapter was loaded strictly into a base of the
precision that it will be evaluated in, and was shown to change the logits. `OUT/adapter/` comes last.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from stsr.hub_cards.adapter_card import RUN, write_card
from stsr.hub_cards.adapter_release import STEPS
from stsr.hub_cards.adapters import WEIGHTS, proof_ids, prove
from stsr.hub_cards.bases import load_base
from stsr.hub_cards.pins import Pin
from stsr.recipes import exposure
from stsr.recipes.names import kept_steps
from stsr.recipes.sft_data import rows_sha256
from stsr.recipes.sft_recipe import Recipe, TrainError
from stsr.recipes.sft_trainer import EXPOSURE, RecipeTrainer

Json = dict[str, Any]


class Finished(NamedTuple):
    """A training that reached its last step, and what it was."""

    recipe: Recipe
    plan: Json
    """`plan.json`: recipe, revisions, versions, processes."""
    base: Pin
    trainer: RecipeTrainer
    tokenizer: Any


def write_products(out: Path, run: Finished) -> None:
    """Writes the folder of each checkpoint below `out`.

    Raises AdapterError for an adapter that does not load strictly or does nothing, and TrainError if rows
    were not presented in the order that data_seed gives.
    """
    _check_order(run)
    recipe, ids = run.recipe, proof_ids(run.tokenizer)
    base = load_base(run.base, recipe.own.evaluate_in, run.trainer.args.device)
    last = recipe.trl["max_steps"]
    (out / STEPS).mkdir(exist_ok=True)
    for step in kept_steps(recipe.own.save_at_steps, last):
        target = out / "adapter" if step == last else out / STEPS / f"step-{step}"
        partial = target.with_name(target.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        partial.mkdir()
        _copy_adapter(out / "checkpoints" / f"checkpoint-{step}", partial, run.base)
        _write_exposure(partial, run.trainer, step)
        proof = prove(base, partial, ids)
        facts = {**_facts(run, step), "base": _base_facts(run.base, base), "proof": proof._asdict()}
        write_json(partial / RUN, facts)
        write_card(partial, tag="v1.0.0" if step == last else f"step-{step}")
        os.replace(partial, target)


def _facts(run: Finished, step: int) -> Json:
    """run.json without what loading showed."""
    own, trl, rows = run.recipe.own, run.recipe.trl, run.trainer.rows
    losses = {entry["step"]: entry["loss"] for entry in run.trainer.state.log_history if "loss" in entry}
    return {
        "adapter": own.adapter_name,
        "view": run.recipe.view,
        "seed": trl["seed"],
        "data_seed": trl["data_seed"],
        "step": step,
        "data": {
            "source": own.data,
            "config": own.data_config,
            "commit": run.plan["data_commit"],
            "rows_sha256": rows_sha256(rows),
        },
        "chat_template_sha256": hashlib.sha256(run.tokenizer.chat_template.encode()).hexdigest(),
        "recipe": run.plan["recipe"],
        "versions": run.plan["versions"],
        "processes": run.plan["processes"],
        "device": run.trainer.args.device.type,
        "final_loss": losses[step],
    }


def _base_facts(base: Pin, model: Any) -> Json:
    return {"source": base.source, "commit": base.revision, "class": type(model).__name__}


def _copy_adapter(checkpoint: Path, folder: Path, base: Pin) -> None:
    """Weights and configuration. PEFT writes a set in any order, so the configuration is rewritten sorted."""
    shutil.copyfile(checkpoint / WEIGHTS, folder / WEIGHTS)
    config = json.loads((checkpoint / "adapter_config.json").read_text(encoding="utf-8"))
    config["target_modules"] = sorted(config["target_modules"])
    config |= {"base_model_name_or_path": base.source, "revision": base.commit}
    write_json(folder / "adapter_config.json", dict(sorted(config.items())))


def _check_order(run: Finished) -> None:
    ids = [row["id"] for row in run.trainer.rows]
    order = exposure.row_order(len(ids), run.recipe.presentations, run.recipe.trl["data_seed"])
    if [row for step in run.trainer.exposed for row in step.rows] != [ids[i] for i in order]:
        raise TrainError("the rows were not presented in the order that data_seed gives")


def _write_exposure(folder: Path, trainer: RecipeTrainer, step: int) -> None:
    """The audit up to and including `step`."""
    shown = [line for line in trainer.exposed if line.step <= step]
    exposure.write(folder / EXPOSURE, shown)
    tasks = {row["id"]: row["task"] for row in trainer.rows}
    write_json(folder / "exposure.json", dict(exposure.summarise(shown, tasks, trainer.longest_row)))


def write_json(path: Path, value: Json) -> None:
    """Replaces a JSON file at once."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
