"""What lm-eval's API backends lack: payloads that servers take, and an end where a server gives no answer.

    with strict_replies(lm):
        lm.generate_until(requests)

lm-eval retries a request with backoff when the connection or the status fails. A reply of another shape, or
without text, it turns into an empty or a placeholder answer, which would be scored as wrong. Here such a
reply is an error of the same kind as a failed request: retried, and then the run ends with a ServerError.

Invariant: a text that a server sends, be it empty, passes unchanged.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiohttp
import requests
from lm_eval.models.api_models import TemplateAPI
from lm_eval.models.openai_completions import LocalChatCompletion

from stsr.generators.prompts import CHAT_TEMPLATE_KWARGS


class ServerError(RuntimeError):
    """A server that gave no answer after all retries. The message is one line: where, why, what is kept."""


class ServerReplyError(RuntimeError):
    """A reply that holds no answer. The message shows its beginning."""


FAILURES = (
    aiohttp.ClientError,
    asyncio.TimeoutError,
    json.JSONDecodeError,
    requests.RequestException,
    ServerReplyError,
)
"""What a request fails with."""


def check_reply(outputs: Any, answers: int | None = None) -> None:
    """Raises ServerReplyError unless every part of a reply holds texts, one for each of 0, 1, ...

    `outputs` is a reply's JSON, or a list of such; `answers` is how many texts it must hold.

    >>> check_reply({"choices": [{"index": 0, "text": ""}]}, 1)
    >>> check_reply({"error": "busy"})
    Traceback (most recent call last):
        ...
    stsr.eval_tasks.servers.ServerReplyError: the server's reply holds no text: {'error': 'busy'}
    """
    total = 0
    for reply in _parts(outputs):
        choices = _choices(reply)
        if not choices or not all(isinstance(_text(choice), str) for choice in choices):
            raise ServerReplyError(f"the server's reply holds no text: {_short(reply)}")
        total += len(choices)
    if answers is not None and total != answers:
        raise ServerReplyError(f"the server gave {total} answers to {answers} prompts: {_short(outputs)}")


def check_logprobs(outputs: Any, prompts: Sequence[Sequence[int]]) -> None:
    """Raises ServerReplyError unless a reply echoes each token of every prompt, and one more, with a number.

    lm-eval sums what there is; of a server that doesn't echo it would make all candidates equally likely.

    >>> def reply(*numbers):
    ...     return {"choices": [{"index": 0, "logprobs": {"token_logprobs": list(numbers)}}]}
    >>> check_logprobs(reply(None, -0.5, -2.0), [[7, 8]])
    >>> check_logprobs(reply(-2.0), [[7, 8]])
    Traceback (most recent call last):
        ...
    stsr.eval_tasks.servers.ServerReplyError: the server doesn't echo the prompt with log-likelihoods: ...
    """
    found = [_logprobs(choice) for reply in _parts(outputs) for choice in _choices(reply)]
    if [len(numbers) - 1 for numbers in found] != [len(prompt) for prompt in prompts]:
        raise ServerReplyError(f"the server doesn't echo the prompt with log-likelihoods: {_short(outputs)}")


def _parts(outputs: Any) -> list[Any]:
    return outputs if isinstance(outputs, list) and outputs else [outputs]


def _choices(reply: Any) -> list[dict[str, Any]]:
    """The choices of a reply in their order; none where they are not numbered 0, 1, ..."""
    choices = reply.get("choices") if isinstance(reply, dict) else None
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        return []
    by_place = {choice.get("index"): choice for choice in choices}
    return [by_place[at] for at in range(len(choices))] if by_place.keys() == set(range(len(choices))) else []


def _text(choice: dict[str, Any]) -> Any:
    message = choice.get("message")
    return message.get("content") if isinstance(message, dict) else choice.get("text")


def _logprobs(choice: dict[str, Any]) -> list[Any]:
    """Its log-likelihoods; none unless all but the first, which has nothing before it, are numbers."""
    logprobs = choice.get("logprobs")
    numbers = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    good = isinstance(numbers, list) and all(isinstance(one, float | int) for one in numbers[1:])
    return numbers if good and numbers else []


def _short(reply: Any) -> str:
    text = repr(reply)
    return text if len(text) <= 200 else f"{text[:200]}..."


def renders_templates(lm: Any) -> bool:
    """Whether the server renders the chat template, and is told by us to do so with thinking off.

    OpenAI's own chat API, a subclass, takes no such option.
    """
    return type(lm) is LocalChatCompletion


@contextmanager
def strict_replies(lm: Any) -> Iterator[None]:
    """Checks what lm-eval's API backends send and receive, inside their own retries; nothing for others.

    Raises ServerError when the retries are used up.
    """
    if not isinstance(lm, TemplateAPI):
        yield
        return
    create, call, texts, scores = lm._create_payload, lm.model_call, lm.parse_generations, lm.parse_logprobs

    def created(*messages: Any, **options: Any) -> dict[str, Any]:
        payload: dict[str, Any] = create(*messages, **options)
        if not payload.get("stop"):  # some servers refuse an empty list
            payload.pop("stop", None)
        if renders_templates(lm):
            payload.setdefault("chat_template_kwargs", dict(CHAT_TEMPLATE_KWARGS))
        return payload

    def checked_call(messages: Any, *, generate: bool = True, **options: Any) -> Any:
        outputs = call(messages, generate=generate, **options)
        if generate:
            check_reply(outputs, None if isinstance(messages, str) else len(messages))
        else:
            check_logprobs(outputs, messages)
        return outputs

    def checked_texts(outputs: Any, **options: Any) -> Any:
        check_reply(outputs)
        return texts(outputs=outputs, **options)

    def checked_scores(outputs: Any, tokens: Any, **options: Any) -> Any:
        check_logprobs(outputs, tokens)
        return scores(outputs=outputs, tokens=tokens, **options)

    lm._create_payload, lm.model_call = created, checked_call
    lm.parse_generations, lm.parse_logprobs = checked_texts, checked_scores
    try:
        yield
    except FAILURES as error:
        raise ServerError(
            f"{lm.base_url} gave no answer in {lm.max_retries} tries: {str(error) or repr(error)}; nothing "
            "was scored. The same command with --use_cache FILE keeps what is answered"
        ) from error
    finally:
        del lm._create_payload, lm.model_call, lm.parse_generations, lm.parse_logprobs
