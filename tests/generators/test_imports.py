"""Protects: the pure rooms stay pure; importing them costs no torch, no datasets and no network library."""

import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "tokenizers",
    "tiktoken",
    "datasets",
    "transformers",
    "huggingface_hub",
    "requests",
    "httpx",
    "aiohttp",
    "scipy",
)


@pytest.mark.parametrize(
    "module", ["environment", "views", "prompts", "rows", "build", "dataset", "declaration", "tokens"]
)
def test_generators_pull_in_nothing_heavy(module):
    code = f"import sys, stsr.generators.{module}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
