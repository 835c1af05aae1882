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
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, hash_args
from lm_eval.models.api_models import JsonChatStr
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.utils import RemoteTokenizer
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from stsr.eval_tasks.episodes import Choice, Rollout
from stsr.eval_tasks.journal import Journal
from stsr.eval_tasks.servers import strict_replies
from stsr.generators.prompts import CHAT_TEMPLATE_KWARGS, Message

log = logging.getLogger("lm_eval.stsr")

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
    journal: Journal | None = None
    """Where results go as they happen, and where those of an earlier run are."""


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
    # Completions take text, though with tokenized_requests=False lm-eval would send them messages.
    if not isinstance(prompt, str) and type(lm) is not LocalCompletionsAPI:
        return prompt
    if isinstance(tokenizer, RemoteTokenizer):
        return _rendered_for(tokenizer, messages)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
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


def _rendered_for(tokenizer: RemoteTokenizer, messages: list[Message]) -> str:
    """With the template that a vLLM server tells, in transformers' sandbox; lm-eval has none."""
    info = tokenizer.tokenizer_info
    special = {name: info.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    (text,), _ = render_jinja_template(
        [messages],
        chat_template=info["chat_template"],
        add_generation_prompt=True,
        **special,
        **CHAT_TEMPLATE_KWARGS,
    )
    return str(text)


def text_of(prompt: Prompt) -> str:
    """The text that a record keeps: the prompt, or the JSON of the messages that a chat server was sent."""
    return prompt if isinstance(prompt, str) else str(prompt.prompt)


def stsr_rollout(self: Any, requests: Sequence[RolloutRequest], disable_tqdm: bool = False) -> list[str]:
    """The method of LMs: see `run`. lm-eval's own `hf` backend tries the calls that a prompt shows first."""
    huggingface = sys.modules.get("lm_eval.models.huggingface")
    if huggingface and type(self) is huggingface.HFLM:
        from stsr.eval_tasks.shared_prefix import SharedPrefixLM  # torch, which no other backend needs

        self = SharedPrefixLM.over(self)
    return run(self, requests, disable_tqdm)


def run(lm: Any, requests: Sequence[RolloutRequest], disable_tqdm: bool = False) -> list[str]:
    """Runs the rollouts of `requests` to their end on `lm`; one JSON result (see episodes) each.

    A rollout whose result is in its request's journal is not run again.

    Raises PromptTooLongError before the first call where a backend with a tokenizer would cut a prompt, and
    whatever the backend raises.
    """
    unique = {id(request): request for request in requests}  # ranks are padded with clones of one object
    results, runs = dict[int, dict[str, Any]](), dict[int, Run]()
    for key, request in unique.items():
        rollout = request.begin()
        known = request.journal.result(rollout.id) if request.journal else None
        if known is None:
            runs[key] = (request, rollout)
        else:
            results[key] = known
    rounds = _Rounds(lm, list(unique.values()))
    rounds.check_all(list(runs.values()))
    hidden = disable_tqdm or getattr(lm, "rank", 0) != 0
    with (
        strict_replies(lm),
        _fixed_batch(lm, rounds.longest, rounds.room),
        tqdm(total=len(runs), desc="stsr rollouts finished", unit="rollout", disable=hidden) as bar,
    ):
        while live := [run for run in runs.values() if not run[1].finished]:
            rounds.advance(live, hidden)
            bar.update(sum(rollout.finished for _, rollout in live))
            bar.set_postfix(round=rounds.done, calls=rounds.calls)
    results |= {key: rollout.result() for key, (_, rollout) in runs.items()}
    return [json.dumps(results[id(request)], ensure_ascii=False) for request in requests]


if not hasattr(LM, REQUEST_TYPE):
    setattr(LM, REQUEST_TYPE, stsr_rollout)

Run = tuple[RolloutRequest, Rollout]
BATCHES_A_SYNC = 8
"""Batches between two writes to a journal. Prompts are sorted by length over the round, and cut here."""


@dataclass
class _Asked:
    """One prompt of a round."""

    request: RolloutRequest
    rollout: Rollout
    prompt: Prompt
    length: int | None
    key: str = ""

    def instance(self, kind: str, arguments: tuple[Any, ...]) -> Instance:
        """The request that lm-eval's backends take."""
        place = (self.request.task_name, self.request.doc_id, 1)
        return Instance(kind, self.request.doc, arguments, 0, place)


class _Rounds:
    """The rounds of one lock step: prompts, lengths, answers already known."""

    def __init__(self, lm: Any, requests: list[RolloutRequest]) -> None:
        self.lm, self.done, self.calls = lm, 0, 0
        self.longest, self.room = 0, 0  # tokens: the longest prompt foreseen, the most to generate
        tokenizer = vars(lm).get("tokenizer")  # a lazy one, as the dummy backend's, may need the network
        known = isinstance(tokenizer, PreTrainedTokenizerBase | RemoteTokenizer)
        self._tokenizer = tokenizer if known else None
        journals = {id(request.journal): request.journal for request in requests if request.journal}
        self._known: dict[str, Any] = {}
        for journal in journals.values():
            self._known |= journal.answers
        size = getattr(lm, "batch_size", 1)
        # Without a journal a round is one call, which lets a server work on all of it at once.
        self._slice = BATCHES_A_SYNC * (size if isinstance(size, int) else 32) if journals else sys.maxsize
        self._cache = getattr(getattr(lm, "cache_hook", None), "dbdict", None)

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
        order = sorted(range(len(live)), key=lambda at: -(lengths[at] or 0))
        for begin in range(0, len(order), self._slice):
            part = order[begin : begin + self._slice]
            asked = [_Asked(*live[at], prompts[at], lengths[at]) for at in part]
            self._generate([one for one in asked if not one.rollout.ranks], hidden)
            self._rank([one for one in asked if one.rollout.ranks], hidden)
            self._write(asked)
        self.done, self.calls = self.done + 1, self.calls + len(live)

    def _generate(self, asked: list[_Asked], hidden: bool) -> None:
        """Raw outputs. A greedy answer is asked for once a prompt."""
        wanted: dict[str, Instance] = {}
        for one in asked:
            arguments = (one.prompt, deepcopy(one.request.args[1]))
            turn = len(one.rollout.turns)
            greedy = not arguments[1].get("do_sample")
            one.key = hash_args("generate_until", arguments) if greedy else f"{one.rollout.id} call {turn}"
            wanted.setdefault(one.key, one.instance("generate_until", arguments))
        if hasattr(self.lm, "offers"):  # what the prompt itself offers, for the backend to try first
            self.lm.offers = {str(one.prompt): one.rollout.offered() for one in asked}
        outputs = self._ask("generate_until", wanted, hidden)
        for one in asked:
            output = outputs[one.key]
            if not isinstance(output, str):
                raise RuntimeError(f"the backend returned {output!r} instead of text")
            one.rollout.take(
                output,
                prompt=text_of(one.prompt),
                prompt_tokens=one.length,
                output_tokens=self._length(output),
            )

    def _rank(self, asked: list[_Asked], hidden: bool) -> None:
        """Log-likelihoods of the replies that each prompt offers."""
        wanted: dict[str, Instance] = {}
        keys: list[list[str]] = []
        for one in asked:
            if not isinstance(one.prompt, str):
                raise ValueError(
                    f"{one.rollout.id}: a chat server gives no log-likelihoods; choose hf, vllm or "
                    "local-completions for likelihood choice"
                )
            self._warn_of_lengths(one)
            pairs = [(one.prompt, reply) for reply in one.rollout.offered()]
            keys.append([hash_args("loglikelihood", pair) for pair in pairs])
            for key, pair in zip(keys[-1], pairs, strict=True):
                wanted.setdefault(key, one.instance("loglikelihood", pair))
        scores = self._ask("loglikelihood", wanted, hidden)
        for mine, one in zip(keys, asked, strict=True):
            assert isinstance(one.rollout, Choice)
            logprobs = [float(scores[key][0]) for key in mine]
            one.rollout.rank(logprobs, prompt=text_of(one.prompt), prompt_tokens=one.length)

    def _ask(self, method: str, wanted: dict[str, Instance], hidden: bool) -> dict[str, Any]:
        """Answers by key, from the backend where neither a round before nor --use_cache has them."""
        if self._cache is not None:
            for key in wanted.keys() - self._known.keys():
                if key in self._cache:
                    self._known[key] = self._cache[key]
        missing = {key: instance for key, instance in wanted.items() if key not in self._known}
        if missing:
            call = getattr(self.lm, method)
            quiet = {"disable_tqdm": hidden} if "disable_tqdm" in inspect.signature(call).parameters else {}
            answers = call(list(missing.values()), **quiet)
            for key, answer in zip(missing, answers, strict=True):
                self._known[key] = answer
                if self._cache is not None:
                    self._cache[key] = answer
        return {key: self._known[key] for key in wanted}

    def _write(self, asked: list[_Asked]) -> None:
        """Records of what has finished, and answers of what has not, to the journals."""
        finished: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        open_answers: defaultdict[int, dict[str, str]] = defaultdict(dict)
        journals = {id(one.request.journal): one.request.journal for one in asked if one.request.journal}
        for one in asked:
            at = id(one.request.journal)
            if at not in journals:
                continue
            if one.rollout.finished:
                finished[at].append(one.rollout.result())
            elif one.key not in journals[at].answers:
                open_answers[at][one.key] = one.rollout.turns[-1].output
        for at, journal in journals.items():
            journal.remember(open_answers[at])
            journal.add(finished[at])

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

    def _warn_of_lengths(self, one: _Asked) -> None:
        lengths = {self._length(reply) for reply in one.rollout.offered()}
        if len(lengths) > 1:
            log.warning(
                "%s: the candidates have %s tokens under this tokenizer; their likelihoods compare unfairly",
                one.rollout.id,
                " and ".join(map(str, sorted(length or 0 for length in lengths))),
            )


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
