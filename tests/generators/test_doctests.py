"""Protects: the examples in the docstrings of `stsr.generators`."""

import doctest
import importlib

import pytest

MODULES = ["canonical", "chain", "environment", "randomness", "rows", "tables", "tasks"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"stsr.generators.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
