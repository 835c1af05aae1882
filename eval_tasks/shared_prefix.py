"""A transformers backend that computes the prompts' common beginning once.

    lm = SharedPrefixLM(pretrained=model, tokenizer=tokenizer, batch_size=16, enable_thinking=False)

All prompts of a run begin with the same instructions, more than half of their tokens. lm-eval's own HFLM
computes them again for each prompt of each batch; on a CPU, where prefill is nearly all of the time, that
decides how long a run takes. Here their keys and values are computed once and shared by all rows of a batch.

Invariant: the tokens that a row attends to, and their positions, are those of HFLM; only the padding moves,
from before a row to between the shared beginning and the rest. So outputs are HFLM's up to rounding
(tests/eval_tasks/test_shared_prefix.py). A model with layers other than full attention takes HFLM's way.

An instance belongs to one set of weights: it does not notice an adapter that is swapped later.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM
from transformers import DynamicCache

WORTHWHILE = 32
"""Tokens; a shorter common beginning is not shared."""


class SharedPrefixLM(HFLM):  # type: ignore[misc]  # lm-eval is untyped
    """HFLM, except in how `generate_until` computes prompts."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._prefix: list[int] = []
        self._cache: DynamicCache | None = None
        kinds = getattr(self.model.config.get_text_config(), "layer_types", None) or []
        self._plain = set(kinds) == {"full_attention"}

    def _model_generate(self, context: torch.Tensor, max_length: int, stop: list[str], **options: Any) -> Any:
        """As HFLM's: `context` is [b, n], left-padded; returns [b, n + new]."""
        mask = options["attention_mask"]
        rows = [ids[kept.bool()].tolist() for ids, kept in zip(context, mask, strict=True)]
        shared = self._share(rows)
        if shared:
            width = context.shape[1]
            context = torch.tensor(
                [
                    row[:shared] + [self.tokenizer.pad_token_id] * (width - len(row)) + row[shared:]
                    for row in rows
                ]
            ).to(context)
            mask = torch.ones_like(mask)
            for at, row in enumerate(rows):
                mask[at, shared : shared + width - len(row)] = 0
            cache = copy.deepcopy(self._cache)
            assert cache is not None
            cache.batch_repeat_interleave(len(rows))
            options |= {"attention_mask": mask, "cache": cache}
        return super()._model_generate(context, max_length, stop, **options)

    def _share(self, rows: list[list[int]]) -> int:
        """Length of the beginning that `rows` and all rows before have in common, its cache made; or 0."""
        if not self._plain:
            return 0
        first = self._prefix or rows[0]
        # A row keeps at least one token of its own, to go on from.
        longest = min(len(first), min(map(len, rows)) - 1)
        length = next((at for at in range(longest) if any(row[at] != first[at] for row in rows)), longest)
        if length < WORTHWHILE:
            return 0
        if length != len(self._prefix):
            self._prefix, self._cache = first[:length], DynamicCache(config=self.model.config)
            with torch.inference_mode():
                self.model(input_ids=torch.tensor([self._prefix], device=self.device), cache=self._cache)
        return length
