"""Servers and clients for the tests of the Hub on loopback and of publishing.

Invariant: no test process talks to anything but 127.0.0.1. Clients in this process are pointed at the
session's server and at an empty home; clients that read HF_ENDPOINT at import run in their own process.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import web
from huggingface_hub import HfApi, constants

from stsr.hub_cards.loopback.process import RunningHub, running_hub


class Answer(NamedTuple):
    """What a server said, headers by lower-case name."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        return json.loads(self.body)


Call = Callable[..., Answer]


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """One server for the session. Tests share it and keep to repository names of their own."""
    with running_hub(tmp_path_factory.mktemp("hub") / "store") as hub:
        yield hub


@pytest.fixture(autouse=True)
def _loopback_only(hub: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str | bytes | None, *rest: object, **more: object) -> object:
        assert host in {"127.0.0.1", "localhost", None}, f"a test looked up {host!r}"
        return real_look_up(host, *rest, **more)

    real_look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.fixture
def api(hub: RunningHub) -> HfApi:
    return HfApi(endpoint=hub.endpoint, token="made-up")


@pytest.fixture
def call(hub: RunningHub) -> Call:
    """Send one raw request: no client tidies up its path. `token` None is an anonymous caller."""

    def call(
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "made-up",
        endpoint: str = hub.endpoint,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=20)
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        if isinstance(body, dict | list):
            body = json.dumps(body).encode()
        connection.request(method, path, body=body, headers=sent | (headers or {}))
        response = connection.getresponse()
        answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return answer

    return call


@pytest.fixture
def client_env(hub: RunningHub, tmp_path: Path) -> dict[str, str]:
    """The environment of a user's process that was pointed at the server, with a home of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    return kept | {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": "made-up",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


@pytest.fixture
def run_client(client_env: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Run a program in a user's process and return what it prints; a failure shows its errors."""

    def run(program: str, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=client_env | env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    return run


@pytest.fixture
def served() -> Callable[[web.Application], AbstractContextManager[str]]:
    """Serve an aiohttp application from a thread of this process; the block gets its address."""

    @contextmanager
    def served(app: web.Application) -> Iterator[str]:
        loop, up, address = asyncio.new_event_loop(), threading.Event(), []

        async def start() -> web.AppRunner:
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            address.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
            up.set()
            return runner

        def work() -> None:
            runner = loop.run_until_complete(start())
            loop.run_forever()
            loop.run_until_complete(runner.cleanup())
            loop.close()

        thread = threading.Thread(target=work)
        thread.start()
        assert up.wait(10)
        try:
            yield address[0]
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    return served
