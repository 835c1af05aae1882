"""The base model that an adapter is proved, verified and evaluated on.

    base = load_base(pin("stsr/tiny-base", "v1.0.0", "model"), "float32", "cpu")

Invariant: always the causal language model. A multimodal wrapper of the same weights names its layers
otherwise, so an adapter trained in one has no place in the other unless its weights are renamed.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from stsr.hub_cards.pins import Pin

PRECISIONS = ("float32", "bfloat16", "float16", "nf4")
"""nf4: 4-bit NormalFloat with double quantisation, computed in bfloat16."""


def nf4() -> BitsAndBytesConfig:
    """The quantisation that "nf4" stands for (table 10 of the paper)."""
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def check_device(name: str) -> None:
    """Raises ValueError for a device that torch doesn't know, or that this machine doesn't have."""
    kinds = ["cpu", *(kind for kind, there in _accelerators().items() if there)]
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}; this machine has {', '.join(kinds)}") from None
    many = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.type not in kinds or (device.index or 0) >= many:
        raise ValueError(f"there is no device {name!r} here; this machine has {', '.join(kinds)}")


def _accelerators() -> dict[str, bool]:
    return {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}


def load_base(base: Pin, precision: str, device: str | torch.device) -> Any:
    """The base model on `device` in one of PRECISIONS, in evaluation mode."""
    quantised = precision == "nf4"
    model = AutoModelForCausalLM.from_pretrained(
        base.source,
        revision=base.commit,
        dtype=torch.bfloat16 if quantised else getattr(torch, precision),
        quantization_config=nf4() if quantised else None,
        device_map={"": device} if quantised else None,
    )
    return (model if quantised else model.to(device)).eval()
