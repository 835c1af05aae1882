"""Protects: what a build refuses, and the token counts that it refuses by."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stsr.generators import tokens
from stsr.generators.checks import Owners, check_choice_lengths, check_filler
from stsr.generators.declaration import DeclarationError
from stsr.generators.errors import BuildError
from stsr.generators.rows import generate
from stsr.generators.tables import Table

CHOICE = generate("choice", 16, 72_000, "negative")


@pytest.mark.parametrize("tokenizer", ["qwen3", "tiny"])
def test_candidates_of_unequal_length_are_refused(tokenizer):
    check_choice_lengths(CHOICE, tokenizer)
    recipes = [replace(r, params={**r.params, "column": "the net amount"}) for r in CHOICE.recipes]
    recipes = [
        new if new.tool == "filter_rows" else old for new, old in zip(recipes, CHOICE.recipes, strict=True)
    ]
    longer = replace(CHOICE, recipes=tuple(recipes))
    with pytest.raises(
        BuildError,
        match=rf"choice-h16/72000~negative: the candidates at stage {CHOICE.pivot} have .* {tokenizer}",
    ):
        check_choice_lengths(longer, tokenizer)
    check_choice_lengths(generate("chain", 4, 62_000), tokenizer)  # no goal, nothing to compare


def test_a_filler_of_another_length_is_refused(monkeypatch):
    task = generate("chain", 4, 62_000)
    check_filler(task, "qwen3")
    wordy = Table(("a column with a long name", "y"), task.sources[0][1].rows and ((1, 2), (3, 4)))
    with pytest.raises(
        BuildError, match=r"x-h4/1: compact-filler has \d+ tokens for \d+ of full under qwen3"
    ):
        check_filler(
            replace(task, family="x", seed=1, sources=(("s0", wordy),), gold=(), recipes=()), "qwen3"
        )


def test_one_content_has_one_owner():
    owners = Owners()
    owners.claim("f", "train", "chain-h4/1")
    owners.claim("f", "train", "chain-h4/1")
    with pytest.raises(BuildError, match=r"chain-h4/2 in test equals chain-h4/1 in train \(fingerprint f\)"):
        owners.claim("f", "test", "chain-h4/2")
    with pytest.raises(BuildError, match="chain-h4/1 in test equals chain-h4/1 in train"):
        owners.claim("f", "test", "chain-h4/1")


def test_counts_are_those_of_the_real_tokenizer(qwen3_tokenizer):
    count = tokens.count("qwen3")

    @given(st.text(st.characters(codec="utf-8", exclude_categories=["Co", "Cn", "Mn", "Mc"])))
    def agree(text):
        if qwen3_tokenizer.backend_tokenizer.normalizer.normalize_str(text) == text:
            assert count(text) == len(qwen3_tokenizer(text, add_special_tokens=False)["input_ids"])

    agree()
    for recipe in CHOICE.recipes:
        assert count(recipe.text) == len(qwen3_tokenizer(recipe.text)["input_ids"])


def test_an_unknown_tokenizer_names_the_alternatives():
    with pytest.raises(DeclarationError, match="unknown tokenizer 'gpt2'; there are qwen3, tiny"):
        tokens.count("gpt2")


@pytest.mark.parametrize(("name", "package"), [("qwen3", "tiktoken"), ("tiny", "tokenizers")])
def test_a_missing_package_is_named_with_the_command_that_adds_it(monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    tokens.count.cache_clear()
    with pytest.raises(
        DeclarationError, match=rf"{name} needs the package {package}: pip install 'stsr\[build\]'"
    ):
        tokens.count(name)
