"""Every example in a docstring runs."""

from __future__ import annotations

import doctest
import importlib

import pytest

EXAMPLES = [
    *[("estimators", 15), ("cells", 1), ("words", 5), ("outcomes", 2), ("numbers", 2), ("display", 3)],
    *[("hierarchy", 2), ("power", 3)],
]


@pytest.mark.parametrize(("name", "examples"), EXAMPLES)
def test_examples(name: str, examples: int) -> None:
    result = doctest.testmod(importlib.import_module(f"stsr.stats.{name}"))
    assert result.failed == 0
    assert result.attempted >= examples
