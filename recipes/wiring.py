"""Start weights with which a small transformer can copy before it has seen a single example.

Copying needs two attention heads that work together: one that notes which token stood before each position,
and one that looks for where the current token stood before and takes what came next (an induction head).
Gradient descent had not found this pair after two million tokens, so it is set by hand. Everything else
starts at random, and training may change all of it.

    wire(model)    # in place

Invariant: a wired model of the tiny base's size, untrained, goes on correctly in most places of a row of
random tokens that is shown twice (tests/recipes/test_wiring.py).
Source: ours. Induction heads: Olsson et al., "In-context Learning and Induction Heads" (2022).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

SHARPNESS = 3.0
"""Scale of queries: attention of the wired heads is close to one position."""


@torch.no_grad()
def wire(model: Qwen3ForCausalLM, seed: int) -> None:
    """Sets embeddings, the first layers' heads for previous tokens and the second's for induction.

    The hidden size is split: token identity, then a third for the identity of the previous token (the note),
    then one constant. Needs two layers, tied embeddings and as many key as query heads.
    """
    size, head = model.config.hidden_size, model.config.head_dim
    note = size // 3 // head * head or head // 2
    identity = size - 1 - note
    generator = torch.Generator().manual_seed(seed)
    projection = _orthonormal(identity, generator)[:note]
    embedding = model.model.embed_tokens.weight
    embedding.normal_(0, 0.1, generator=generator)
    embedding[:, identity:] = 0
    embedding[:, -1] = 0.1
    for at in range(0, note, head):
        _note_previous(model, at // head, projection[at : at + head], identity + at)
    basis = _orthonormal(identity, generator)
    for at in range(0, identity, head):
        if at // head < model.config.num_attention_heads:
            _induct(model, at // head, projection, basis[at : at + head], identity)


def _orthonormal(size: int, generator: torch.Generator) -> torch.Tensor:
    matrix: torch.Tensor = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
    return matrix


def _clear(attention: Any, index: int, head: int) -> slice:
    """Zeroes head `index` and returns its rows; `attention` is a Qwen3 attention module."""
    rows = slice(index * head, (index + 1) * head)
    for name in ("q_proj", "k_proj", "v_proj"):
        getattr(attention, name).weight[rows] = 0
    attention.o_proj.weight[:, rows] = 0
    attention.q_norm.weight.fill_(SHARPNESS)
    return rows


def _note_previous(model: Qwen3ForCausalLM, index: int, projection: torch.Tensor, target: int) -> None:
    """Head `index` of the first layer attends one position back and writes `projection` of it at `target`."""
    attention, head = model.model.layers[0].self_attn, model.config.head_dim
    rows = _clear(attention, index, head)
    theta = model.config.rope_parameters["rope_theta"]
    for pair in range(3):  # rotary pairs that turn fast enough to tell one position from the next
        angle = theta ** (-2 * pair / head)
        first, second = rows.start + pair, rows.start + pair + head // 2
        attention.k_proj.weight[first, -1] = 1
        attention.q_proj.weight[first, -1] = math.cos(angle)
        attention.q_proj.weight[second, -1] = -math.sin(angle)
    count = len(projection)
    attention.v_proj.weight[rows.start : rows.start + count, : projection.shape[1]] = projection
    attention.o_proj.weight[target : target + count, rows.start : rows.start + count] = 0.08 * torch.eye(
        count
    )


def _induct(
    model: Qwen3ForCausalLM, index: int, projection: torch.Tensor, basis: torch.Tensor, identity: int
) -> None:
    """Head `index` of the second layer attends where the note is the current token, and copies `basis`."""
    attention, head = model.model.layers[1].self_attn, model.config.head_dim
    rows = _clear(attention, index, head)
    slow = range(5 * head // 16, head // 2)  # rotary pairs that hardly turn over a prompt
    slots = [*slow, *(pair + head // 2 for pair in slow)]
    for number, slot in enumerate(slots):
        component = (index * len(slots) + number) % len(projection)
        attention.q_proj.weight[rows.start + slot, :identity] = projection[component]
        attention.k_proj.weight[rows.start + slot, identity + component] = 1
    count = len(basis)
    attention.v_proj.weight[rows.start : rows.start + count, :identity] = basis
    attention.o_proj.weight[:identity, rows.start : rows.start + count] = 0.3 * basis.T
