"""Protects: the study works without Java: it imports neither the simulator, torch nor datasets."""

import subprocess
import sys

import pytest

HEAVY = ("scienceworld", "py4j", "torch", "datasets", "transformers", "huggingface_hub")


@pytest.mark.parametrize("module", ["", ".views", ".rows", ".splits", ".dataset", ".sessions", ".freeze"])
def test_nothing_heavy(module):
    name = f"stsr.generators.scienceworld{module}"
    code = f"import sys, stsr.generators, {name}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
