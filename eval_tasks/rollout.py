"""Rollouts inside lm-eval, on any backend: all live rollouts advance in lock step, one batched call a round.

lm-eval sends requests of type T to the model's method T. Importing this module adds a method `stsr_rollout`
to its `LM` base class; nothing that exists is replaced. Each round renders the prompts of all unfinished
rollouts and sends them as one ordinary `generate_until`, so every backend serves them and batches them.

Invariants: lock step gives the transcripts that one rollout at a time gives (greedy answers depend on their
prompt alone); no prompt is ever truncated; an error of the backend propagates and is never scored.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, hash_args
from lm_eval.models.api_models import JsonChatStr
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from stsr.eval_tasks.episodes import Rollout
from stsr.generators.prompts import CHAT_TEMPLATE_KWARGS, Message

REQUEST_TYPE = "stsr_rollout"

Prompt: TypeAlias = "str | JsonChatStr"
"""Rendered text, or messages that a chat server renders itself."""
Chat = Callable[[list[Message]], Prompt]
"""A backend's `apply_chat_template`."""


class PromptTooLongError(ValueError):
    """A prompt that the backend would cut. The message names the rollout and the lengths."""


@dataclass(kw_only=True)
class RolloutRequest(Instance):  # type: ignore[misc]  # lm-eval is untyped
    """A request that holds how to begin its rollout and how to render prompts for the backend."""

    begin: Callable[[], Rollout]
    """A fresh rollout."""
    chat: Chat | None
    """See `render`."""


def render(messages: list[Message], chat: Chat | None) -> Prompt:
    """The prompt for a backend, with thinking off wherever the text is rendered on this side.

    `chat` is the backend's own renderer; None (no --apply_chat_template) gives the bare text. Backends differ
    in how thinking is switched off and some have no switch, so where there is a tokenizer its template is
    applied here, with the very arguments that training used.
    """
    if chat is None:
        return "".join(message["content"] for message in messages)
    prompt, lm = chat(messages), getattr(chat, "__self__", None)
    tokenizer = getattr(lm, "tokenizer", None)
    if not isinstance(prompt, str) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        return prompt
    arguments = {**(getattr(lm, "chat_template_args", None) or {}), **CHAT_TEMPLATE_KWARGS}
    return str(
        tokenizer.apply_chat_template(
            messages,
            chat_template=getattr(
                lm, "hf_chat_template", None
            ),  # what vLLM resolved; None is the tokenizer's
            tokenize=False,
            add_generation_prompt=True,
            **arguments,
        )
    )


def text_of(prompt: Prompt) -> str:
    """The text that a record keeps: the prompt, or the JSON of the messages that a chat server was sent."""
    return prompt if isinstance(prompt, str) else str(prompt.prompt)


def stsr_rollout(self: Any, requests: Sequence[RolloutRequest], disable_tqdm: bool = False) -> list[str]:
    """Runs the rollouts of `requests` to their end on the LM `self`; one JSON result (see episodes) each.

    Raises PromptTooLongError before the first call where a backend with a tokenizer would cut a prompt, and
    whatever the backend raises.
    """
    unique = {id(request): request for request in requests}  # ranks are padded with clones of one object
    runs = {key: (request, request.begin()) for key, request in unique.items()}
    rounds = _Rounds(self)
    rounds.check_all(list(runs.values()))
    hidden = disable_tqdm or getattr(self, "rank", 0) != 0
    with (
        _fixed_batch(self, rounds.longest, rounds.room),
        tqdm(total=len(runs), desc="stsr rollouts finished", unit="rollout", disable=hidden) as bar,
    ):
        while live := [run for run in runs.values() if not run[1].finished]:
            rounds.advance(live, hidden)
            bar.update(sum(rollout.finished for _, rollout in live))
            bar.set_postfix(round=rounds.done, calls=rounds.calls)
    results = {key: json.dumps(rollout.result(), ensure_ascii=False) for key, (_, rollout) in runs.items()}
    return [results[id(request)] for request in requests]


if not hasattr(LM, REQUEST_TYPE):
    setattr(LM, REQUEST_TYPE, stsr_rollout)

Run = tuple[RolloutRequest, Rollout]


class _Rounds:
    """The rounds of one lock step: prompts, lengths, answers already known."""

    def __init__(self, lm: Any) -> None:
        self.lm, self.done, self.calls = lm, 0, 0
        self.longest, self.room = 0, 0  # tokens: the longest prompt foreseen, the most to generate
        tokenizer = getattr(lm, "tokenizer", None)
        self._tokenizer = tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else None
        self._known: dict[str, str] = {}

    def check_all(self, runs: list[Run]) -> None:
        """Refuses prompts that don't fit, as far as they can be foreseen, before any time is spent."""
        for request, rollout in tqdm(runs, desc="stsr prompt lengths", unit="rollout", delay=2):
            for messages in (rollout.messages(), rollout.longest()):
                length = self._fits(render(messages, request.chat), request, rollout)
                self.longest = max(self.longest, length or 0)
            self.room = max(self.room, _room(request))

    def advance(self, live: list[Run], hidden: bool) -> None:
        """One call of each live rollout."""
        prompts = [render(rollout.messages(), request.chat) for request, rollout in live]
        lengths = [self._fits(prompt, *run) for prompt, run in zip(prompts, live, strict=True)]
        # A round of probes is the whole run, so its own bar is worth showing.
        hidden = hidden or all(rollout.most_calls > 1 for _, rollout in live)
        outputs = self._answers(live, prompts, hidden)
        for (_, rollout), prompt, length, output in zip(live, prompts, lengths, outputs, strict=True):
            rollout.take(
                output, prompt=text_of(prompt), prompt_tokens=length, output_tokens=self._length(output)
            )
        self.done, self.calls = self.done + 1, self.calls + len(live)

    def _answers(self, live: list[Run], prompts: list[Prompt], hidden: bool) -> list[str]:
        """The raw outputs. A greedy answer is asked for once a prompt; --use_cache is honoured."""
        cache = getattr(getattr(self.lm, "cache_hook", None), "dbdict", None)
        keys: list[str] = []
        missing: dict[str, Instance] = {}
        for (request, rollout), prompt in zip(live, prompts, strict=True):
            arguments = (prompt, deepcopy(request.args[1]))
            greedy = not arguments[1].get("do_sample")
            key = (
                hash_args("generate_until", arguments)
                if greedy
                else f"{rollout.id} call {len(rollout.turns)}"
            )
            keys.append(key)
            if greedy and cache is not None and key in cache:
                self._known.setdefault(key, cache[key])
            if key not in self._known:
                place = (request.task_name, request.doc_id, 1)
                missing.setdefault(key, Instance("generate_until", request.doc, arguments, 0, place))
        quiet = "disable_tqdm" in inspect.signature(self.lm.generate_until).parameters
        options = {"disable_tqdm": hidden} if quiet else {}
        outputs = self.lm.generate_until(list(missing.values()), **options) if missing else []
        for key, output in zip(missing, outputs, strict=True):
            if not isinstance(output, str):
                raise RuntimeError(f"the backend returned {output!r} instead of text")
            self._known[key] = output
            if cache is not None:
                cache[key] = output
        return [self._known[key] for key in keys]

    def _fits(self, prompt: Prompt, request: RolloutRequest, rollout: Rollout) -> int | None:
        """Tokens of the prompt as the backend counts them, or None where it has no tokenizer."""
        if self._tokenizer is None or not isinstance(prompt, str):
            return None
        length, limit = len(self.lm.tok_encode(prompt)), getattr(self.lm, "max_length", None)
        if limit is not None and length + _room(request) > limit:
            raise PromptTooLongError(
                f"{rollout.id}: a prompt of {length} tokens and {_room(request)} to generate exceed the "
                f"backend's max_length of {limit}; nothing is ever cut: raise max_length in --model_args"
            )
        return length

    def _length(self, output: str) -> int | None:
        if self._tokenizer is None:
            return None
        return len(self._tokenizer(output, add_special_tokens=False)["input_ids"])


def _room(request: RolloutRequest) -> int:
    return int(request.args[1]["max_gen_toks"])


@contextmanager
def _fixed_batch(lm: Any, longest: int, room: int) -> Iterator[None]:
    """Holds one batch size under --batch_size auto.

    HFLM would look for the batch size again in every round, at its full context length; here it looks once,
    at a quarter more than the longest prompt foreseen.
    """
    if getattr(lm, "batch_size_per_gpu", None) != "auto" or not hasattr(lm, "_detect_batch_size"):
        yield
        return
    lm.batch_size_per_gpu = lm._detect_batch_size([(None, [0] * (longest * 5 // 4), [0] * room)], 0)
    try:
        yield
    finally:
        lm.batch_size_per_gpu = "auto"
