"""A transformers backend that computes what prompts share once, and tries the replies that they print first.

    lm = SharedPrefixLM(pretrained=model, tokenizer=tokenizer, batch_size=16, enable_thinking=False)

Three things make it faster than lm-eval's own HFLM, and none changes an answer:

- All prompts of a run begin with the same instructions, more than half of their tokens. Their keys and values
  are computed once and shared by all rows of a batch.
- A greedy answer is nearly always one of the calls that the prompt shows (`offers`). So the forward pass over
  a prompt also covers the shown calls, side by side behind it, none of which sees another. It tells whether
  greedy decoding would give exactly one of them: the argmax must be its next token at every position, and an
  end token after the last. A batch of such answers takes one pass instead of one a token. Only what no
  candidate settles is decoded, from the prompt's keys and values. The right call is not consulted: candidates
  are what the prompt prints.
- The candidates of a likelihood choice are one such pass, too.

Invariant: the tokens that a row attends to, and their positions, are those of HFLM; only padding moves, from
before a row to between the shared beginning and the rest. So answers are HFLM's
(tests/eval_tasks/test_shared_prefix.py). Where two tokens are so close that rounding could order them
otherwise, nothing is settled and the row is decoded. A model with layers other than full attention, an
attention that takes no mask of ours (flash attention), a generation config that changes greedy logits, or
sampling takes HFLM's way.

`lm_eval --model hf` goes this way too (rollout.py); `stsr eval` builds an instance itself.

An instance belongs to one set of weights: it does not notice an adapter that is swapped later.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from lm_eval.models.huggingface import HFLM
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import DynamicLayer

WORTHWHILE = 32
"""Tokens; a shorter common beginning is not shared."""
CLOSE = 8
"""Two logits are too close to call if they differ by less than this many units of rounding at their size."""


class Computed(NamedTuple):
    """A batch of b prompts and the texts behind them, computed."""

    cache: DynamicCache
    """Keys and values of all prompts, without the texts."""
    mask: torch.Tensor
    """[b, n]: 1 where the cache holds a token of the row."""
    ahead: list[list[torch.Tensor]]
    """Prompt -> text -> [tokens of the text + 1, vocabulary]: logits before each of its tokens and after the
    last."""
    shared: int
    """Tokens of the shared beginning, behind which the padding stands."""


class SharedPrefixLM(HFLM):  # type: ignore[misc]  # lm-eval is untyped
    """HFLM, except in how prompts and shown candidates are computed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """As HFLM's, and `verify=False` decodes every answer."""
        verify = options.pop("verify", True)
        super().__init__(*arguments, **options)
        self._begin(verify)

    @classmethod
    def over(cls, lm: HFLM) -> SharedPrefixLM:
        """The same model, tokenizer and settings, without loading anything again."""
        other = copy.copy(lm)
        other.__class__ = cls
        other._begin(verify=True)
        return cast(SharedPrefixLM, other)

    def _begin(self, verify: bool) -> None:
        self._prefix: list[int] = []
        self._cache: DynamicCache | None = None
        self._plain = takes_side_by_side(self.model)
        settings = self.model.generation_config
        self._verify = verify and self._plain and greedy_is_argmax(settings)
        ends = settings.eos_token_id
        self._ends = {ends} if isinstance(ends, int) else set(ends or ())
        self.offers: dict[str, list[str]] = {}
        """Prompt -> replies that it prints. Whoever asks sets this before `generate_until`."""
        self.settled, self.decoded = 0, 0
        """Answers that a candidate settled, and answers that were decoded."""
        self._replies: dict[tuple[int, ...], list[list[int]]] = {}

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """As HFLM's, candidates first."""
        self._replies = {}
        if self._verify:
            for prompt in {request.args[0] for request in requests} & self.offers.keys():
                replies = (self.tok_encode(reply, add_special_tokens=False) for reply in self.offers[prompt])
                self._replies[tuple(self.tok_encode(prompt))] = [reply for reply in replies if reply]
        answers: list[str] = super().generate_until(requests, disable_tqdm=disable_tqdm)
        return answers

    def _model_generate(self, context: torch.Tensor, max_length: int, stop: list[str], **options: Any) -> Any:
        """As HFLM's: `context` is [b, n], left-padded; returns [b, n + new]."""
        mask = options.pop("attention_mask")
        rows = [ids[kept.bool()].tolist() for ids, kept in zip(context, mask, strict=True)]
        room = max_length - context.shape[1]
        known = [self._replies.get(tuple(row), []) for row in rows] if not options.get("do_sample") else []
        if not any(known):
            self.decoded += len(rows)
            if shared := self._share(rows):
                context, mask = self._moved(rows, shared, context.shape[1])
                options["cache"] = self._prefix_cache(len(rows))
            return super()._model_generate(context, max_length, stop, attention_mask=mask, **options)
        prompts = self._compute(rows, known, context.shape[1])
        settled = self._settle(prompts, known, room)
        rest = [at for at in range(len(rows)) if at not in settled]
        self.settled, self.decoded = self.settled + len(settled), self.decoded + len(rest)
        tails = {at: [*reply, min(self._ends)] for at, reply in settled.items()}
        if rest:
            cache = prompts.cache
            if settled:
                cache.batch_select_indices(torch.tensor(rest, device=self.device))
            cache.crop(-1)  # generation begins with a token that it computes itself
            moved, _ = self._moved([rows[at] for at in rest], prompts.shared, context.shape[1])
            made = super()._model_generate(
                moved, max_length, stop, attention_mask=prompts.mask[rest], cache=cache, **options
            )
            tails |= dict(zip(rest, made[:, context.shape[1] :].tolist(), strict=True))
        width = max(map(len, tails.values()))
        pad = self.tokenizer.pad_token_id
        new = [tails[at] + [pad] * (width - len(tails[at])) for at in range(len(rows))]
        return torch.cat([context, torch.tensor(new).to(context)], dim=1)

    def _loglikelihood_tokens(
        self, requests: list[Any], disable_tqdm: bool = False, override_bs: int | None = None
    ) -> list[tuple[float, bool]]:
        """As HFLM's: (log-likelihood, whether greedy decoding gives it); the continuations of one context
        stand behind it side by side. In float32 whatever the model's type."""
        if not self._plain:
            scores: list[tuple[float, bool]] = super()._loglikelihood_tokens(
                requests, disable_tqdm, override_bs
            )
            return scores
        asked: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for at, (_, context, _) in enumerate(requests):
            asked[tuple(context)].append(at)
        found: dict[int, tuple[float, bool]] = {}
        contexts = sorted(asked, key=len, reverse=True)
        size = override_bs or (self.batch_size if isinstance(self.batch_size, int) else 16)
        for begin in range(0, len(contexts), size):
            part = contexts[begin : begin + size]
            texts = [[list(requests[at][2]) for at in asked[context]] for context in part]
            prompts = self._compute([list(context) for context in part], texts, max(map(len, part)))
            for context, replies, ahead in zip(part, texts, prompts.ahead, strict=True):
                for at, reply, steps in zip(asked[context], replies, ahead, strict=True):
                    tokens = torch.tensor(reply, device=self.device)
                    chances = steps[:-1].float().log_softmax(dim=-1).gather(1, tokens[:, None])
                    found[at] = (float(chances.sum()), bool((steps[:-1].argmax(dim=-1) == tokens).all()))
                    self.cache_hook.add_partial("loglikelihood", requests[at][0], found[at])
        return [found[at] for at in range(len(requests))]

    # -- prompts

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
                self.model(
                    input_ids=torch.tensor([self._prefix], device=self.device),
                    cache=self._cache,
                    logits_to_keep=1,
                )
        return length

    def _prefix_cache(self, rows: int) -> DynamicCache:
        assert self._cache is not None
        cache = _apart(self._cache)
        cache.batch_repeat_interleave(rows)
        return cache

    def _moved(self, rows: list[list[int]], shared: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and mask, [b, width] both, with padding behind the first `shared` tokens."""
        pad = self.tokenizer.pad_token_id
        ids = [row[:shared] + [pad] * (width - len(row)) + row[shared:] for row in rows]
        mask = torch.ones(len(rows), width, dtype=torch.long, device=self.device)
        for at, row in enumerate(rows):
            mask[at, shared : shared + width - len(row)] = 0
        return torch.tensor(ids, device=self.device), mask

    @torch.inference_mode()
    def _compute(self, rows: list[list[int]], texts: list[list[list[int]]], width: int) -> Computed:
        """One forward pass over prompts, padded to `width`, each with its `texts` side by side behind it.

        The prompts' padding stands behind the shared beginning, if there is one.
        """
        shared = self._share(rows)
        ids, mask = self._moved(rows, shared, width)
        cache = self._prefix_cache(len(rows)) if shared else DynamicCache(config=self.model.config)
        longest, pad = max(sum(map(len, some)) for some in texts), self.tokenizer.pad_token_id
        tokens = [[token for text in some for token in text] for some in texts]
        behind = torch.tensor([_filled(some, longest, pad) for some in tokens], device=self.device)
        numbers = [[number for number, text in enumerate(some, 1) for _ in text] for some in texts]
        owner = torch.tensor([_filled(some, longest, 0) for some in numbers], device=self.device)
        steps = [[step for text in some for step in range(len(text))] for some in texts]
        places = torch.tensor([_filled(some, longest, 0) for some in steps], device=self.device)
        before = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self.model(
            input_ids=torch.cat([ids[:, shared:], behind], dim=1),
            attention_mask=side_by_side(mask, owner, shared, self.model.dtype),
            position_ids=torch.cat([before[:, shared:], mask.sum(-1, keepdim=True) + places], dim=1),
            cache=cache,
            logits_to_keep=longest + 1,
        ).logits
        cache.crop(-longest)
        ahead = [list(_steps(row, list(map(len, some)))) for row, some in zip(logits, texts, strict=True)]
        return Computed(cache, mask, ahead, shared)

    # -- candidates

    def _settle(self, prompts: Computed, known: list[list[list[int]]], room: int) -> dict[int, list[int]]:
        """Row -> the candidate that greedy decoding gives, for the rows where it surely gives one."""
        settled = {}
        for row, (replies, ahead) in enumerate(zip(known, prompts.ahead, strict=True)):
            for reply, steps in zip(replies, ahead, strict=True):
                if len(reply) < room:
                    best, clear = self._argmax(steps.float())
                    if all(clear) and best[:-1] == reply and best[-1] in self._ends:
                        settled[row] = reply
        return settled

    def _argmax(self, logits: torch.Tensor) -> tuple[list[int], list[bool]]:
        """For logits [k, vocabulary]: the best token of each, and whether its lead is beyond rounding."""
        (best, second), tokens = logits.topk(2).values.unbind(-1), logits.argmax(-1)
        unit = torch.finfo(self.model.dtype).eps * logits.abs().amax(-1)
        return tokens.tolist(), ((best - second) > CLOSE * unit).tolist()


def _apart(cache: DynamicCache) -> DynamicCache:
    """A cache that can grow and shrink without the other. They share tensors; caches never write into one."""
    other = copy.copy(cache)
    other.layers = [copy.copy(layer) for layer in cache.layers]
    return other


def side_by_side(mask: torch.Tensor, owner: torch.Tensor, known: int, dtype: torch.dtype) -> torch.Tensor:
    """What to add to attention scores, [b, 1, n - known + m, n + m], so that texts behind a prompt see it and
    themselves alone.

    `mask` is [b, n], 1 where a row holds a token of its prompt; `owner` is [b, m], the number of the text
    that a token behind the prompt belongs to, from 1, and 0 for padding. The first `known` ask
    nothing.

    >>> mask, owner = torch.tensor([[1, 1]]), torch.tensor([[1, 1, 2]])
    >>> (side_by_side(mask, owner, 1, torch.float32)[0, 0] == 0).int().tolist()
    [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 0, 0, 1]]
    """
    groups = torch.cat([torch.zeros_like(mask), owner], dim=1)
    tokens = torch.cat([mask, owner], dim=1) > 0
    at = torch.arange(groups.shape[1], device=mask.device)
    earlier = at[None, :] <= at[known:, None]
    own = (groups[:, None, :] == 0) | (groups[:, None, :] == groups[:, known:, None])
    seen = tokens[:, None, :] & earlier & own
    # The least number and not minus infinity: padding that sees nothing must not become NaN.
    return torch.zeros(seen.shape, dtype=dtype, device=mask.device).masked_fill(
        ~seen, torch.finfo(dtype).min
    )[:, None]


def _filled(values: list[int], width: int, value: int) -> list[int]:
    return values + [value] * (width - len(values))


def _steps(logits: torch.Tensor, lengths: list[int]) -> Iterator[torch.Tensor]:
    """Of the logits after a prompt and after each token behind it, those before and after each text's."""
    begin = 1
    for length in lengths:
        yield torch.cat([logits[:1], logits[begin : begin + length]])
        begin += length


def takes_side_by_side(model: Any) -> bool:
    """Whether every layer of a decoder sees what an additive mask lets it see, at the positions given."""
    decoder = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = decoder.config.get_text_config(decoder=True)
    takes = inspect.signature(decoder.forward).parameters.keys()
    return (
        takes >= {"attention_mask", "position_ids", "cache", "logits_to_keep"}
        and config._attn_implementation in ("sdpa", "eager")
        and all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)
    )


def greedy_is_argmax(settings: GenerationConfig) -> bool:
    """Whether greedy decoding under `settings` picks the argmax of the model's own logits at every step.

    >>> greedy_is_argmax(GenerationConfig()), greedy_is_argmax(GenerationConfig(repetition_penalty=1.05))
    (True, False)
    """
    return all(getattr(settings, name, None) in neutral for name, neutral in NEUTRAL.items())


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (None, 1.0),
    "encoder_repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "encoder_no_repeat_ngram_size": (None, 0),
    "bad_words_ids": (None,),
    "suppress_tokens": (None,),
    "begin_suppress_tokens": (None,),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "sequence_bias": (None,),
    "exponential_decay_length_penalty": (None,),
    "guidance_scale": (None, 1, 1.0),
    "watermarking_config": (None,),
    "num_beams": (None, 1),
    "penalty_alpha": (None, 0, 0.0),
    "prompt_lookup_num_tokens": (None,),
    "stop_strings": (None,),
}
"""Settings that change greedy logits or the way of decoding, with the values that don't."""
