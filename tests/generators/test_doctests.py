"""Protects: the examples in the docstrings of `stsr.generators`."""

import doctest
import importlib

import pytest

MODULES = [
    "branching",
    "canonical",
    "chain",
    "choice",
    "controls",
    "environment",
    "neutral",
    "randomness",
    "rows",
    "tables",
    "tasks",
    "views",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"stsr.generators.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
