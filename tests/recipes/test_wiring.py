"""Protects: the wired start copies what it never saw, and wiring touches nothing that a load would miss."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from stsr.recipes.wiring import wire


def fresh():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=1024,
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=5,
            num_attention_heads=6,
            num_key_value_heads=6,
            head_dim=32,
            tie_word_embeddings=True,
            max_position_embeddings=4096,
        )
    )


def share_copied(model):
    """Share of right next tokens in the second showing of 40 random tokens, 16 rows."""
    once = torch.randint(0, 1024, (16, 40), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        guesses = model(input_ids=torch.cat([once, once], 1)).logits[:, 40:-1].argmax(-1)
    return (guesses == once[:, 1:]).float().mean().item()


def test_a_wired_model_copies_without_training():
    model = fresh()
    assert share_copied(model) < 0.05
    wire(model, 7)
    assert share_copied(model) > 0.8


def test_wiring_depends_on_its_seed_alone():
    first, second = fresh(), fresh()
    for model in (first, second):
        wire(model, 7)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    wire(second, 8)
    assert not torch.equal(first.model.embed_tokens.weight, second.model.embed_tokens.weight)
