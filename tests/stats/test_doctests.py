"""Every example in a docstring runs."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize(("name", "examples"), [("estimators", 15), ("cells", 1), ("sections", 5)])
def test_examples(name: str, examples: int) -> None:
    result = doctest.testmod(importlib.import_module(f"stsr.stats.{name}"))
    assert result.failed == 0
    assert result.attempted >= examples
