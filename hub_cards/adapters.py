"""Loading an adapter so that it cannot fail silently, and the proof that it acts.

    model = load_strict(base, "stsr/tiny-h4-full", revision="v1.0.0")

PEFT only warns about missing weights and never mentions surplus ones, so an adapter trained under another
wrapper class loads as a no-op. Invariant: an adapter that load_strict returns has every weight of its own and
no other; one that load_proven returns changes the logits.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from peft import PeftConfig, PeftModel, get_peft_model
from safetensors import safe_open

from stsr.generators.files import file_sha256
from stsr.hub_cards.adapter_card import RUN

WEIGHTS = "adapter_model.safetensors"
TEXT, MULTIMODAL = "Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"
RENAMES = {
    (TEXT, MULTIMODAL): {r"^model\.layers\.": "model.language_model.layers."},
    (MULTIMODAL, TEXT): {r"^model\.language_model\.": "model."},
}
"""(class trained in, class loaded into) -> how weights are renamed, `base_model.model.` left off.

Qwen3.8-27B is of this family: the text model is trained and evaluated; a server may wrap it in the other."""
PROOF_PROMPT = "State:\ns0: available\n\nChoose the recipe that can run now."
"""The fixed prompt of a proof, sent as one user message."""


class AdapterError(RuntimeError):
    """An adapter that is not what it should be; the message is one line for a person."""


class Proof(NamedTuple):
    """What loading an adapter into a fresh base showed."""

    keys: int
    """Weights (tensors) of the adapter."""
    missing: int
    """Weights that the adapter should have and has not: always 0."""
    unexpected: int
    """Weights that the model has no place for: always 0."""
    effect: float
    """Largest absolute logit difference that the adapter makes on the proof's prompt; above 0."""
    sha256: str
    """Hash of adapter_model.safetensors."""


class Proven(NamedTuple):
    """A model whose active adapter was shown to act."""

    model: PeftModel
    effect: float
    """As in Proof."""


@contextmanager
def renamed_in_transformers() -> Iterator[None]:
    """Hides the one warning that making a PeftModel gives: PEFT asks the model by a name that has changed."""
    with warnings.catch_warnings():
        message = "`is_gradient_checkpointing` is deprecated"
        warnings.filterwarnings("ignore", message=message, category=FutureWarning)
        yield


def load_strict(
    model: Any,
    source: str | Path,
    *,
    revision: str | None = None,
    name: str = "default",
    key_mapping: dict[str, str] | None = None,
) -> PeftModel:
    """The model with the adapter loaded, active, and in evaluation mode.

    `model` is a base model, or a PeftModel that takes one more adapter. `source` is a folder, or a Hub id at
    `revision`. `key_mapping` (pattern -> replacement) renames weights of the file, `base_model.model.` left
    off, where training wrapped the base in another class; by default the one that RENAMES declares for the
    class in run.json, with a warning that says so.

    Raises AdapterError: no adapter there, a weight missing, unexpected or of another shape, or every lora_B
    zero. A base model is then left wrapped and should be thrown away; a PeftModel is as before.
    """
    folder, adapted = _folder(source, revision), isinstance(model, PeftModel)
    if key_mapping is None:
        key_mapping = _renames(source, folder, model.get_base_model() if adapted else model)
    if adapted and name in model.peft_config:
        raise AdapterError(f"an adapter named {name!r} is loaded already: {', '.join(model.peft_config)}")
    if not adapted:
        try:
            config = PeftConfig.from_pretrained(str(folder))
        except (ValueError, OSError) as error:
            raise AdapterError(f"{source}: {error}") from error
        config.inference_mode = True
        with renamed_in_transformers():
            model = get_peft_model(model, config, adapter_name=name)
    try:
        loaded = model.load_adapter(str(folder), name, key_mapping=key_mapping)
        _refuse(f"{source}: {len(loaded.missing_keys)} weights are missing", loaded.missing_keys)
        _refuse(f"{source}: {len(loaded.unexpected_keys)} weights are unexpected", loaded.unexpected_keys)
        _refuse_zero(model, source, name)
    except (AdapterError, RuntimeError, ValueError, OSError) as error:
        if adapted and name in model.peft_config:
            model.delete_adapter(name)
        if isinstance(error, AdapterError):
            raise
        raise AdapterError(f"{source}: {' '.join(str(error).split())}") from error
    model.set_adapter(name, inference_mode=True)
    return model.eval()


def _renames(source: str | Path, folder: Path, base: Any) -> dict[str, str] | None:
    """The declared renaming from the class that run.json names to the class of `base`, if there is one."""
    path = folder / RUN
    run = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    trained = str(run.get("base", {}).get("class"))
    renames = RENAMES.get((trained, type(base).__name__))
    if renames:
        warnings.warn(
            f"{source}: trained in {trained}, loaded into {type(base).__name__}: weights renamed",
            stacklevel=3,
        )
    return renames


def _refuse(message: str, keys: Sequence[str]) -> None:
    if keys:
        more = ", ..." if len(keys) > 3 else ""
        raise AdapterError(
            f"{message}: {', '.join(list(keys)[:3])}{more}; was it trained under another class?"
        )


def _refuse_zero(model: Any, source: str | Path, name: str) -> None:
    """Raises AdapterError if every lora_B is zero: such an adapter adds nothing to any layer."""
    pairs = [parameter for key, parameter in model.named_parameters() if f"lora_B.{name}." in key]
    if not any(bool(parameter.any()) for parameter in pairs):
        raise AdapterError(f"{source}: all {len(pairs)} lora_B weights are zero: the adapter does nothing")


@torch.no_grad()
def effect(model: Any, input_ids: torch.Tensor) -> float:
    """Largest absolute difference of logits, adapter on against off, for token ids [b, n]."""
    training = model.training
    model.eval()
    with_adapter = model(input_ids=input_ids).logits.float()
    with model.disable_adapter():
        without = model(input_ids=input_ids).logits.float()
    model.train(training)
    return float((with_adapter - without).abs().max())


def proof_ids(tokenizer: Any) -> torch.Tensor:
    """Token ids [1, n] of the proof's prompt, as an evaluation sends it: with thinking disabled."""
    message = {"role": "user", "content": PROOF_PROMPT}
    rendered = tokenizer.apply_chat_template(
        [message], add_generation_prompt=True, enable_thinking=False, return_dict=True
    )
    return torch.tensor([rendered["input_ids"]])


def load_proven(
    model: Any,
    source: str | Path,
    input_ids: torch.Tensor,
    *,
    revision: str | None = None,
    name: str = "default",
    key_mapping: dict[str, str] | None = None,
) -> Proven:
    """load_strict, and the adapter's effect on token ids [1, n] (on any device), which is above 0.

    Raises AdapterError as load_strict does, or if the effect is 0; the model should then be thrown away.
    """
    loaded = load_strict(model, source, revision=revision, name=name, key_mapping=key_mapping)
    difference = effect(loaded, input_ids.to(next(loaded.parameters()).device))
    if not difference > 0:
        raise AdapterError(
            f"{source}: the adapter does not change the logits (effect {difference}); was it trained for "
            "another base?"
        )
    return Proven(loaded, difference)


def prove(
    base: Any,
    source: str | Path,
    input_ids: torch.Tensor,
    *,
    revision: str | None = None,
    key_mapping: dict[str, str] | None = None,
) -> Proof:
    """What load_proven shows of the adapter in a base model, which is then as before.

    Raises AdapterError; the base model should then be thrown away.
    """
    model, difference = load_proven(base, source, input_ids, revision=revision, key_mapping=key_mapping)
    model.unload()
    path = _folder(source, revision) / WEIGHTS
    with safe_open(path, "pt") as weights:
        return Proof(len(weights.keys()), 0, 0, difference, file_sha256(path))


def _folder(source: str | Path, revision: str | None) -> Path:
    """The adapter's files on disk. One snapshot, so that configuration and weights are of one commit."""
    if Path(source).is_dir():
        return Path(source)
    files = ["adapter_config.json", WEIGHTS, RUN]
    try:
        return Path(snapshot_download(str(source), revision=revision, allow_patterns=files))
    except (HfHubHTTPError, ValueError, OSError) as error:
        raise AdapterError(f"{source} at {revision or 'main'}: {' '.join(str(error).split())}") from error
