"""Adapters: what PEFT lets pass in silence is refused, what is right loads and is proven."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from stsr.hub_cards.adapters import (
    PROOF_PROMPT,
    AdapterError,
    effect,
    load_proven,
    load_strict,
    proof_ids,
    prove,
)
from stsr.hub_cards.publish import publish_folder

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
Tensors = dict[str, torch.Tensor]


def base() -> Qwen3ForCausalLM:
    """The same random two-layer model each time."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
    )
    return Qwen3ForCausalLM(config).eval()


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A folder as PEFT saves it: q_proj and v_proj of 2 layers, A and B each, so 8 weights."""
    torch.manual_seed(1)
    model = get_peft_model(
        base(), LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"])
    )
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_()
    model.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    return tmp_path / "adapter"


@pytest.fixture
def edit(adapter: Path) -> Callable[[Callable[[Tensors], Tensors]], Path]:
    """Rewrites the adapter's weights."""

    def edit(change: Callable[[Tensors], Tensors]) -> Path:
        path = adapter / "adapter_model.safetensors"
        save_file(change(load_file(path)), path)
        return adapter

    return edit


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        value: torch.Tensor = model(input_ids=IDS).logits
    return value


# Loading


def test_loading_warns_of_nothing_that_only_a_library_can_change(adapter: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        load_strict(base(), adapter)


def test_a_whole_adapter_loads_as_peft_loads_it(adapter: Path) -> None:
    loaded, reference = load_strict(base(), adapter), PeftModel.from_pretrained(base(), adapter)
    assert torch.equal(logits(loaded), logits(reference))
    assert not torch.equal(logits(loaded), logits(base()))
    assert not any(parameter.requires_grad for parameter in loaded.parameters())


def test_a_missing_weight_is_refused(edit: Any) -> None:
    folder = edit(lambda tensors: {key: tensors[key] for key in sorted(tensors)[1:]})
    with pytest.raises(AdapterError, match=r"1 weights are missing: base_model\S*layers\.0\S*q_proj\.lora_A"):
        load_strict(base(), folder)


def test_an_unexpected_weight_is_refused(edit: Any) -> None:
    extra = "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight"
    folder = edit(lambda tensors: {**tensors, extra: torch.ones(2, 16)})
    with pytest.raises(AdapterError, match=r"1 weights are unexpected: base_model\.model\.model\.layers\.2"):
        load_strict(base(), folder)


def test_an_adapter_that_does_nothing_is_refused(edit: Any) -> None:
    folder = edit(lambda t: {k: v * (0 if "lora_B" in k else 1) for k, v in t.items()})
    with pytest.raises(AdapterError, match="all 4 lora_B weights are zero"):
        load_strict(base(), folder)


def test_a_weight_of_another_shape_is_refused(edit: Any) -> None:
    folder = edit(lambda t: {k: torch.ones(3, 16) if "lora_A" in k else v for k, v in t.items()})
    with pytest.raises(AdapterError, match="size mismatch"):
        load_strict(base(), folder)


def test_a_folder_without_an_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"Can't find 'adapter_config\.json'"):
        load_strict(base(), tmp_path)


def test_another_wrappers_names_are_refused_until_they_are_mapped(adapter: Path, edit: Any) -> None:
    """The names that a multimodal wrapper's training leaves. PEFT loads them as a no-op, with a warning."""
    reference = logits(load_strict(base(), adapter))
    edit(lambda t: {k.replace("model.layers", "model.language_model.layers"): v for k, v in t.items()})
    with pytest.warns(UserWarning, match="missing adapter keys"):
        silent = PeftModel.from_pretrained(base(), adapter)
    assert torch.equal(logits(silent), logits(base()))
    with pytest.raises(AdapterError, match="8 weights are missing"):
        load_strict(base(), adapter)
    mapped = load_strict(base(), adapter, key_mapping={r"^model\.language_model\.": "model."})
    assert torch.equal(logits(mapped), reference)


def test_a_second_adapter_joins_and_a_refused_one_leaves_no_trace(adapter: Path, edit: Any) -> None:
    model = load_strict(base(), adapter, name="first")
    first = logits(model)
    load_strict(model, edit(lambda t: {k: 2 * v for k, v in t.items()}), name="second")
    assert model.active_adapters == ["second"]
    assert not torch.equal(logits(model), first)
    with pytest.raises(AdapterError, match="named 'first' is loaded already: first, second"):
        load_strict(model, adapter, name="first")
    edit(lambda t: {k: 0 * v for k, v in t.items()})
    with pytest.raises(AdapterError, match="lora_B weights are zero"):
        load_strict(model, adapter, name="third")
    assert list(model.peft_config) == ["first", "second"]
    model.set_adapter("first", inference_mode=True)
    assert torch.equal(logits(model), first)


def test_an_adapter_loads_from_a_tag(adapter: Path) -> None:
    (adapter / "README.md").write_text("# a card\n")
    publish_folder(adapter, "stsr/strict", "model", tag="v1.0.0", message="1")
    loaded = load_strict(base(), "stsr/strict", revision="v1.0.0")
    assert torch.equal(logits(loaded), logits(load_strict(base(), adapter)))
    with pytest.raises(AdapterError, match=r"^stsr/strict at v9: .*[Rr]evision"):
        load_strict(base(), "stsr/strict", revision="v9")


# Proof


def test_effect_is_the_largest_logit_difference(adapter: Path) -> None:
    model = load_strict(base(), adapter)
    assert effect(model, IDS) == float((logits(model) - logits(base())).abs().max()) > 0


def test_effect_leaves_dropout_out_and_the_mode_alone(adapter: Path) -> None:
    model = load_strict(base(), adapter)
    quiet = effect(model, IDS)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.9
    model.train()
    assert effect(model, IDS) == quiet
    assert model.training


def test_proof(adapter: Path) -> None:
    proof = prove(base(), adapter, IDS)
    sha256 = hashlib.sha256((adapter / "adapter_model.safetensors").read_bytes()).hexdigest()
    assert (proof.keys, proof.missing, proof.unexpected, proof.sha256) == (8, 0, 0, sha256)
    assert proof.effect == effect(load_strict(base(), adapter), IDS)


def test_what_is_proven_is_loaded_strictly_and_acts(adapter: Path) -> None:
    proven = load_proven(base(), adapter, IDS, name="mine")
    assert torch.equal(logits(proven.model), logits(load_strict(base(), adapter)))
    assert (proven.effect, proven.model.active_adapters) == (effect(proven.model, IDS), ["mine"])


@pytest.mark.parametrize("way", [prove, load_proven])
def test_an_adapter_without_effect_is_not_proven(edit: Any, way: Any) -> None:
    """lora_B is not zero, yet lora_A is, so the product is."""
    folder = edit(lambda t: {k: v * (0 if "lora_A" in k else 1) for k, v in t.items()})
    with pytest.raises(AdapterError, match=r"does not change the logits \(effect 0\.0\)"):
        way(base(), folder, IDS)


def test_the_proofs_prompt_is_one_user_message_without_thinking(tok: Any) -> None:
    """Qwen3's format, written out by hand."""
    user = f"<|im_start|>user\n{PROOF_PROMPT}<|im_end|>\n"
    expected = f"{user}<|im_start|>assistant\n<think>\n\n</think>\n\n"
    (ids,) = proof_ids(tok).tolist()
    assert tok.decode(ids) == expected
