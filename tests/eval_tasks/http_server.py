"""An OpenAI-style server on loopback, in a thread of the test, and what tests ask API backends with."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

Answer = Callable[[dict[str, Any]], web.Response | None]
"""None hangs up without an answer."""


class Server:
    """Answers POSTs below /v1; `answer` makes each response from the request's JSON, one at a time.

    With a tokenizer it offers that too, in the way of vLLM.
    """

    def __init__(self, answer: Answer, tokenizer: Any = None) -> None:
        self.answer, self.payloads, self.tokenizer = answer, [], tokenizer
        self._loop, self._up = asyncio.new_event_loop(), threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        assert self._up.wait(10)

    async def _handle(self, request: web.Request) -> web.Response:
        payload = await request.json()
        self.payloads.append(payload)
        answered = self.answer(payload)
        if answered is None:
            assert request.transport
            request.transport.abort()
            return web.Response()
        return answered

    async def _tokenizer_info(self, request: web.Request) -> web.Response:
        tok = self.tokenizer
        return web.json_response({"eos_token": tok.eos_token, "chat_template": tok.chat_template})

    async def _tokenize(self, request: web.Request) -> web.Response:
        text = (await request.json())["prompt"]
        return web.json_response({"tokens": self.tokenizer(text, add_special_tokens=False)["input_ids"]})

    def _work(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/completions", self._handle)
        app.router.add_post("/v1/chat/completions", self._handle)
        if self.tokenizer:
            app.router.add_get("/tokenizer_info", self._tokenizer_info)
            app.router.add_post("/tokenize", self._tokenize)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def completions_lm(url: str, model: Path, **more: Any) -> LocalCompletionsAPI:
    """lm-eval's `local-completions` for the server at `url`, which ends in /v1."""
    arguments = {
        "model": str(model),
        "tokenizer": str(model),
        "tokenizer_backend": "huggingface",
        "base_url": f"{url}/completions",
        "num_concurrent": 4,
        "max_length": 4096,
        "max_retries": 1,
    }
    return LocalCompletionsAPI(**{**arguments, **more})


def chat_lm(url: str, model: Path | str = "m", **more: Any) -> LocalChatCompletion:
    """lm-eval's `local-chat-completions`, likewise."""
    return LocalChatCompletion(model=str(model), base_url=f"{url}/chat/completions", **more)
