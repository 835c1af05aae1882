"""What lm-eval's API backends let pass: replies of a server that are no answers.

    with strict_replies(lm):
        lm.generate_until(requests)

lm-eval retries a request with backoff when the connection or the status fails. A reply of another shape, or
without text, it turns into an empty or a placeholder answer, which would be scored as wrong. Here such a
reply is an error of the same kind as a failed request: retried, and then the run ends.

Invariant: a text that a server sends, be it empty, passes unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lm_eval.models.api_models import TemplateAPI


class ServerReplyError(RuntimeError):
    """A reply that holds no answer. The message shows its beginning."""


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
    for reply in outputs if isinstance(outputs, list) and outputs else [outputs]:
        choices = reply.get("choices") if isinstance(reply, dict) else None
        good = isinstance(choices, list) and all(isinstance(choice, dict) for choice in choices)
        texts = [_text(choice) for choice in choices] if good and choices else []
        places = sorted(choice.get("index", -1) for choice in choices) if good and choices else []
        if not texts or not all(isinstance(text, str) for text in texts) or places != list(range(len(texts))):
            raise ServerReplyError(f"the server's reply holds no text: {_short(reply)}")
        total += len(texts)
    if answers is not None and total != answers:
        raise ServerReplyError(f"the server gave {total} answers to {answers} prompts: {_short(outputs)}")


def _text(choice: dict[str, Any]) -> Any:
    message = choice.get("message")
    return message.get("content") if isinstance(message, dict) else choice.get("text")


def _short(reply: Any) -> str:
    text = repr(reply)
    return text if len(text) <= 200 else f"{text[:200]}..."


@contextmanager
def strict_replies(lm: Any) -> Iterator[None]:
    """Checks what lm-eval's API backends receive, inside their own retries; nothing for other backends."""
    if not isinstance(lm, TemplateAPI):
        yield
        return
    call, parse = lm.model_call, lm.parse_generations

    def checked_call(messages: Any, *, generate: bool = True, **options: Any) -> Any:
        outputs = call(messages, generate=generate, **options)
        if generate:
            check_reply(outputs, None if isinstance(messages, str) else len(messages))
        return outputs

    def checked_parse(outputs: Any, **options: Any) -> Any:
        check_reply(outputs)
        return parse(outputs=outputs, **options)

    lm.model_call, lm.parse_generations = checked_call, checked_parse
    try:
        yield
    finally:
        del lm.model_call, lm.parse_generations
