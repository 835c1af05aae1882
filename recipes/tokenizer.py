"""The tiny base model's tokenizer: byte-level BPE with the Qwen3 special tokens and chat template.

Any text can be encoded. Numbers of up to two digits, with the letter of an artifact name where there is one,
are single tokens (`a16`, `-` `7`); merges never cross a space, a line break or such a number. A printed call
is then about seven tokens, which keeps two CPU cores fast enough for the quickstart.

    stsr pretrain recipes/pretraining/tiny-base.yaml --out DIR     # trains tokenizer and model
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
).split()
"""Qwen3's control tokens."""
ADDED = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> "
    "<|file_sep|> <tool_response> </tool_response> <think> </think>"
).split()
"""Qwen3's added tokens that decode to text."""
PIECES = r"\n|[a-z]?\d{1,2}| ?(?:(?![a-z]?\d)\S)+|\s"


def train(texts: Iterable[str], vocabulary: int, chat_template: str) -> PreTrainedTokenizerFast:
    """A tokenizer of `vocabulary` entries, special tokens included, fitted to `texts`."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    names = [f"{letter}{number}" for letter in ("", "a", "b", "c", "s") for number in range(100)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL) - len(ADDED),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator([*texts, *names * 50], trainer)
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in ADDED])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=4096
    )
    tokenizer.chat_template = chat_template
    return tokenizer
