"""Protects: the examples in the docstrings of `stsr.recipes` and `stsr.hub_cards`."""

import doctest
import importlib

import pytest

MODULES = [
    "recipes.exposure",
    "recipes.names",
    "hub_cards.pins",
    "hub_cards.publish",
    "hub_cards.training_views",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"stsr.{name}"))
    assert results.attempted > 0
    assert results.failed == 0
