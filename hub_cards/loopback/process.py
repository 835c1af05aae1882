"""Starting and stopping the loopback Hub: `running_hub` beside a program, `serve` as one.

    with running_hub(Path("hub")) as hub:
        HfApi(endpoint=hub.endpoint, token="loopback").create_repo("stsr/x")

Invariant: a server started by `running_hub` ends when its block does, or when the process that holds the
block dies, because it watches the pipe between them.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from stsr.hub_cards.loopback.errors import HubError

__all__ = ["HubError", "RunningHub", "default_upstream", "running_hub", "serve"]

_START = 60.0  # seconds; a cold import from a network disk takes a while


class RunningHub(NamedTuple):
    """A server that is up: its address, e.g. http://127.0.0.1:41231, its store, its process id."""

    endpoint: str
    root: Path
    pid: int


def default_upstream() -> str:
    """The address of the public Hub, whatever HF_ENDPOINT says."""
    from stsr.hub_cards.loopback import upstream

    return upstream.default_upstream()


@contextmanager
def running_hub(
    root: Path, port: int = 0, upstream: str | None = None, *, part_size: int | None = None
) -> Iterator[RunningHub]:
    """Serve the store in `root` from another process for as long as the block runs.

    `port` 0 takes any free one. With `upstream` (see `default_upstream`), repositories that the store
    does not hold are read from there. Files over `part_size` bytes are uploaded in parts.
    Raises HubError: the port is in use, the store is served already, or the server did not start.
    """
    # -P: a folder of the user's that is called like a library must not stand in for it
    command = [sys.executable, "-P", "-m", "stsr.hub_cards.loopback.server", "--follow-stdin"]
    command += ["--root", str(root), "--port", str(port)]
    command += ["--upstream", upstream] if upstream else []
    command += ["--part-size", str(part_size)] if part_size else []
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield RunningHub(_await_endpoint(server), root, server.pid)
    finally:
        _stop(server)


def _await_endpoint(server: subprocess.Popen[bytes]) -> str:
    """The address that the server prints. Raises HubError with the reason that it prints instead."""
    assert server.stdout is not None
    if not select.select([server.stdout], [], [], _START)[0]:
        raise HubError(f"the loopback Hub did not start within {_START:.0f} s")
    line = server.stdout.readline()
    if not line:
        raise HubError(f"the loopback Hub ended at once with status {server.wait()}; see its message above")
    said = json.loads(line)
    if "error" in said:
        raise HubError(said["error"])
    return str(said["endpoint"])


def _stop(server: subprocess.Popen[bytes]) -> None:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.close()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    server.stdout.close()


def serve(root: Path, port: int, upstream: str | None) -> None:
    """Serve the store in `root` from this process until interrupted, and print how to use it.

    Raises HubError: the port is in use, or the store is served already.
    """
    from stsr.hub_cards.loopback import server

    def ready(endpoint: str) -> None:
        print(
            f"Serving {root} at {endpoint}, for this machine only. Interrupt to stop. For clients that read:"
        )
        print(f"  export HF_ENDPOINT={endpoint}")
        print("Clients that upload also need: export HF_HUB_DISABLE_XET=1 HF_TOKEN=loopback", flush=True)

    server.run(root, port, upstream, ready=ready)
