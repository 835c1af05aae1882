"""inspect_ai's `hf` provider as an LM of lm-eval, so that a benchmark can give it the same episodes.

    with InspectLM(Path(".venv-inspect/bin/python"), "recipes/bases/tiny", batch_size=16) as lm:
        run(lm, requests(...))
        lm.seconds, lm.passes

It works in a process of its own (cli/inspect_peer.py), since its pins conflict with ours. Seconds are the
peer's own, without the pipe between.
"""

from __future__ import annotations

import json
import subprocess
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any

from lm_eval.api.model import LM
from lm_eval.models.api_models import JsonChatStr


class InspectLM(LM):  # type: ignore[misc]  # lm-eval is untyped
    """Greedy answers of inspect_ai. `model` is a folder; `python` one that has inspect_ai."""

    def __init__(self, python: Path, model: str, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.seconds, self.passes = 0.0, 0
        """Time spent on answers, and forward passes, since the start."""
        script = str(files("stsr.cli").joinpath("inspect_peer.py"))
        self._command = [str(python), script, model, str(batch_size)]
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> JsonChatStr:
        """The messages: the peer renders them."""
        return JsonChatStr(json.dumps(chat_history))

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """One reply a request. Raises RuntimeError when the peer has ended."""
        chats = [json.loads(request.args[0].prompt) for request in requests]
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{json.dumps(chats)}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            command, code = " ".join(self._command), self._process.wait()
            raise RuntimeError(f"inspect_ai ended with exit code {code}; to see why: echo '[[]]' | {command}")
        found = json.loads(line)
        self.seconds, self.passes = self.seconds + found["seconds"], found["passes"]
        replies: list[str] = found["replies"]
        return replies

    def loglikelihood(self, requests: list[Any]) -> Any:
        """Not of use here."""
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood

    def __enter__(self) -> InspectLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()
