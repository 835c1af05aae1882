"""QLoRA on a CPU: the declared recipe of Qwen3-8B on a random Qwen3 whose tensors are large enough.

The optimizer keeps 8-bit state only for tensors of 4,096 elements and more: LoRA at r16 on 256 columns. On a
CPU there is no paging (bitsandbytes falls back, with a warning), and no CUDA kernel.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from bitsandbytes.nn import Linear4bit
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stsr.hub_cards.bases import load_base
from stsr.hub_cards.pins import pin
from stsr.recipes.train import train
from tests.recipes.training import RECIPES, local, read, weights

pytestmark = pytest.mark.filterwarnings("ignore:Paged optimizers are not supported on CPU")


@pytest.fixture(scope="module")
def wide_base(tmp_path_factory: pytest.TempPathFactory, small_qwen3: Any, tok: Any) -> Path:
    folder = tmp_path_factory.mktemp("wide")
    small_qwen3(hidden_size=256, intermediate_size=256, head_dim=128, num_hidden_layers=1).save_pretrained(
        folder
    )
    tok.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def finished(
    wide_base: Path, data: Path, cache: None, one_thread: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The recipe with another base, H4 rows and four updates of two rows."""
    return quantised(wide_base, data, tmp_path_factory.mktemp("qlora"))


def quantised(base: Path, data: Path, out: Path) -> Path:
    changes: dict[str, Any] = {
        **local(base, data),
        "data_config": "h4-{view}",
        "train_rows": 8,
        "max_steps": 4,
        "gradient_accumulation_steps": 2,
        "save_at_steps": [2, 4],
        "use_cpu": True,
        "full_determinism": False,
    }
    return train(RECIPES / "qwen3-8b.yaml", view="full", seed=7, data_seed=11, out=out, overrides=changes)


def test_the_base_is_quantised_twice_and_optimizer_state_is_8_bit(finished: Path, wide_base: Path) -> None:
    base = load_base(pin(str(wide_base), None, "model"), "nf4", "cpu")
    layers = [module for module in base.modules() if isinstance(module, Linear4bit)]
    assert len(layers) == 7
    for layer in layers:
        assert layer.weight.dtype == torch.uint8
        assert (layer.weight.quant_state.quant_type, layer.weight.quant_state.nested) == ("nf4", True)
    # weights_only=False: a file that this test has just made
    state = torch.load(finished / "checkpoints/checkpoint-4/optimizer.pt", weights_only=False)["state"]
    moments = [entry["__bnb_optimizer_quant_state__"] for entry in state.values()]
    assert len(moments) == 14  # 7 matrices, A and B of each
    assert {moment[key].dtype for moment in moments for key in ("state1", "state2")} == {torch.uint8}


def test_a_resumed_qlora_run_equals_an_uninterrupted_one(
    finished: Path, wide_base: Path, data: Path, tmp_path: Path
) -> None:
    """TRL would hold the adapter in bfloat16 and PEFT load it as float32."""
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    for path in (out / "adapter", out / "steps", out / "checkpoints/checkpoint-4"):
        shutil.rmtree(path)
    quantised(wide_base, data, out)
    assert weights(out / "adapter") == weights(finished / "adapter")
    assert read(out / "adapter", "exposure.json") == read(finished / "adapter", "exposure.json")
    dtypes = {value.dtype for value in load_file(out / "adapter/adapter_model.safetensors").values()}
    assert dtypes == {torch.float32}


def test_the_proof_is_of_the_base_that_the_adapter_is_evaluated_on(finished: Path, wide_base: Path) -> None:
    """In bfloat16, although it was trained on 4 bits, where its effect is another one."""
    stated = read(finished / "adapter", "run.json")
    assert stated["recipe"]["evaluate_in"] == "bfloat16"
    tokenizer = AutoTokenizer.from_pretrained(wide_base)
    message = [{"role": "user", "content": "State:\ns0: available\n\nChoose the recipe that can run now."}]
    ids = tokenizer.apply_chat_template(
        message, add_generation_prompt=True, enable_thinking=False, return_tensors="pt", return_dict=True
    )["input_ids"]
    model = AutoModelForCausalLM.from_pretrained(wide_base, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        plain = model(ids).logits.float()
        adapted = PeftModel.from_pretrained(model, finished / "adapter").eval()(input_ids=ids).logits.float()
    assert stated["proof"]["effect"] == pytest.approx(float((adapted - plain).abs().max()), rel=1e-3)
