"""`transformers serve` on loopback with the tiny base: the answers of `hf`, through whatever trouble.

    pytest tests/eval_tasks/test_real_server.py

A proxy stands before the server and makes the trouble, so that what comes through is the server's own.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp import web
from lm_eval.models.huggingface import HFLM

from stsr.eval_tasks.servers import ServerError
from stsr.eval_tasks.suite import HARNESS
from stsr.recipes.experiment import recipes_folder
from tests.eval_tasks.http_server import Answer, Server, chat_lm, completions_lm

pytestmark = pytest.mark.slow
BASE = recipes_folder() / "bases/tiny"
TASKS = ("stsr_oracle_h4_full", "stsr_free_run_h4_compact")
Said = list[tuple[str, list[str]]]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address, which ends in /v1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    log = (tmp_path_factory.mktemp("serve") / "log").open("w")
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(BASE)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        for _ in range(240):
            assert server.poll() is None, Path(log.name).read_text()
            try:
                if requests.get(f"http://127.0.0.1:{port}/health", timeout=5).ok:
                    break
            except requests.ConnectionError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait()
        log.close()


@pytest.fixture(scope="module")
def said(run: Any, results: Any) -> Callable[[Any], Said]:
    """said(lm): each rollout's id and raw outputs."""

    def said(lm: Any) -> Said:
        found = run(lm, *TASKS, limit=4)
        rollouts = [rollout for name in TASKS for rollout in results(found, name)]
        return [
            (one["id"], [turn["output"] for turn in one.get("turns") or [one["turn"]]]) for one in rollouts
        ]

    return said


@pytest.fixture(scope="module")
def plain(said: Callable[[Any], Said]) -> Said:
    """What lm-eval's own `hf` answers, one prompt at a time."""
    lm = HFLM(pretrained=str(BASE), device="cpu", dtype="float32", batch_size=1, enable_thinking=False)
    return said(lm)


def lm(kind: str, url: str, **more: Any) -> Any:
    if kind == "chat":
        return chat_lm(url, BASE, **more)
    return completions_lm(url, BASE, tokenized_requests=False, **more)  # this server takes no token ids


@pytest.mark.parametrize("concurrent", [1, 4])
@pytest.mark.parametrize("kind", ["completions", "chat"])
def test_a_server_answers_as_hf(
    kind: str, concurrent: int, real: str, said: Callable[[Any], Said], plain: Said
) -> None:
    assert sum(len(outputs) for _, outputs in plain) > 12  # the free runs err, and go on
    assert said(lm(kind, real, num_concurrent=concurrent, max_retries=1)) == plain


def test_a_server_that_gives_no_log_likelihoods_ends_the_run(real: str, run: Any) -> None:
    """It ignores `echo` and `logprobs`. Summed up, nothing would be a tie of all candidates."""
    with pytest.raises(ServerError, match="doesn't echo the prompt with log-likelihoods"):
        run(lm("completions", real, max_retries=1), "stsr_choice_h16_full", limit=1)


# -- trouble


def stalls(forward: Answer, payload: dict[str, Any]) -> web.Response | None:
    time.sleep(4)  # longer than the client waits
    return forward(payload)


def cut_short(forward: Answer, payload: dict[str, Any]) -> web.Response | None:
    answered = forward(payload)
    assert answered is not None
    assert isinstance(answered.body, bytes)
    return web.Response(body=answered.body[:-20], content_type="application/json")


TROUBLE: dict[str, Callable[[Answer, dict[str, Any]], web.Response | None]] = {
    "[dD]isconnected": lambda forward, payload: None,  # hangs up
    "429": lambda forward, payload: web.Response(status=429, headers={"Retry-After": "1"}),
    "500": lambda forward, payload: web.Response(status=500, text="oops"),
    "[tT]imeout|timed out": stalls,
    "holds no text": lambda forward, payload: web.json_response({"choices": [{"index": 0}]}),
    "[dD]elimiter|Unterminated|[eE]xpecting": cut_short,
}
"""What the error says in the end -> what goes wrong."""


@pytest.fixture
def proxy(real: str) -> Iterator[Callable[[Iterator[str | None]], Server]]:
    """proxy(course): a server that forwards, or makes the trouble that comes next in `course`."""
    servers: list[Server] = []

    def proxy(course: Iterator[str | None]) -> Server:
        def forward(payload: dict[str, Any]) -> web.Response:
            kind = "chat/completions" if "messages" in payload else "completions"
            reply = requests.post(f"{real}/{kind}", json=payload, timeout=60)
            return web.Response(body=reply.content, status=reply.status_code, content_type="application/json")

        def answer(payload: dict[str, Any]) -> web.Response | None:
            trouble = next(course)
            return TROUBLE[trouble](forward, payload) if trouble else forward(payload)

        servers.append(Server(answer))
        return servers[-1]

    yield proxy
    for server in servers:
        server.stop()


@pytest.mark.parametrize("concurrent", [1, 4])
@pytest.mark.parametrize("kind", ["completions", "chat"])
def test_trouble_in_between_changes_no_answer(
    kind: str, concurrent: int, proxy: Any, said: Callable[[Any], Said], plain: Said
) -> None:
    course = [trouble for kind in TROUBLE for trouble in (kind, None)]
    server = proxy(itertools.chain(course, itertools.repeat(None)))
    assert said(lm(kind, server.url, num_concurrent=concurrent, max_retries=8, timeout=3)) == plain
    asked = [json.dumps(payload.get("prompt", payload.get("messages"))) for payload in server.payloads]
    assert len(asked) - len(set(asked)) >= len(TROUBLE)  # each of them was asked for once more


@pytest.mark.parametrize("concurrent", [1, 4])
@pytest.mark.parametrize("trouble", TROUBLE)
def test_trouble_without_end_ends_the_run(trouble: str, concurrent: int, proxy: Any, run: Any) -> None:
    server = proxy(itertools.chain([None] * 2, itertools.repeat(trouble)))
    model = lm("chat", server.url, num_concurrent=concurrent, max_retries=2, timeout=3)
    with pytest.raises(ServerError, match=f"gave no answer in 2 tries: .*({trouble}).*; nothing was scored"):
        run(model, *TASKS, limit=2)


def test_the_command_ends_without_numbers(proxy: Any, data: Path, tmp_path: Path) -> None:
    """The literal command, on a server that fails after three answers."""
    server = proxy(itertools.chain([None] * 3, itertools.repeat("500")))
    command = [sys.executable, "-m", "lm_eval", "--model", "local-chat-completions", "--apply_chat_template"]
    command += ["--model_args", f"model={BASE},base_url={server.url}/chat/completions,max_retries=2"]
    command += ["--include_path", str(HARNESS), "--tasks", TASKS[0], "--limit", "6", "--log_samples"]
    command += ["--metadata", json.dumps({"stsr_data": str(data)}), "--output_path", str(tmp_path / "out")]
    command += ["--use_cache", str(tmp_path / "cache")]

    def typed() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)

    done = typed()
    assert done.returncode == 1
    assert "stsr_oracle" not in done.stdout
    assert not list(tmp_path.rglob("*results*.json"))
    (said,) = (line for line in done.stderr.splitlines() if "ServerError: " in line)
    assert "gave no answer in 2 tries: 500" in said

    asked = len(server.payloads)
    server.answer = proxy(itertools.repeat(None)).answer  # the server recovers, and the same is typed again
    again = typed()
    assert again.returncode == 0, again.stderr[-3000:]
    assert len(server.payloads) - asked == 3  # three of six answers were kept
    assert list((tmp_path / "out").rglob("results*.json"))
