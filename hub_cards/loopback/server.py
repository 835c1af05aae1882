"""The aiohttp application, and the process that serves it on 127.0.0.1.

    python -m stsr.hub_cards.loopback.server --root hub --port 8080

Invariant: it listens on 127.0.0.1 and nowhere else; there is no option for it. One server owns a store:
a second one is refused. With --follow-stdin it ends when its standard input does, that is, when the
process that started it ends, however that ends.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from stsr.hub_cards.loopback import contents, lfs, reads, upstream, writes
from stsr.hub_cards.loopback.errors import HubError
from stsr.hub_cards.loopback.store import Store
from stsr.hub_cards.loopback.web import STORE, answer_errors, refuse_foreign_hosts

_JSON_MAX = 64 * 1024 * 1024  # bytes of a JSON body; commits and large files are streamed and have no limit


def make_app(
    store: Store, upstream_url: str | None = None, part_size: int = lfs.DEFAULT_PART_SIZE
) -> web.Application:
    """The application over `store`. Files over `part_size` bytes are uploaded in parts of that size."""
    middlewares: list[Middleware] = [refuse_foreign_hosts, answer_errors]
    other = upstream.Upstream(upstream_url) if upstream_url else None
    if other:
        middlewares.append(upstream.fall_through(other))
    app = web.Application(middlewares=middlewares, client_max_size=_JSON_MAX)
    app[STORE] = store
    app[lfs.KEY] = secrets.token_bytes(32)
    app[lfs.PART_SIZE] = part_size
    for routes in (reads.routes, contents.routes, writes.routes, lfs.routes, upstream.routes):
        app.add_routes(routes)
    app.on_response_prepare.append(contents.keep_etag)
    if other:
        app.cleanup_ctx.append(other.session)
    return app


@contextmanager
def _owning(root: Path) -> Iterator[None]:
    """Hold the store for this process alone. Raises HubError, naming the process that has it."""
    path = root / "server.lock"
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    except OSError as error:
        raise HubError(f"cannot keep a store in {root}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise HubError(
                f"the store {root} is served already, by process {file.read().strip() or 'unknown'}: "
                "stop that one, use its address, or choose another root"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _stop_with_stdin(stop: Callable[[], None]) -> None:
    """Call `stop` when standard input ends, then make sure of it."""
    while os.read(0, 4096):
        pass
    stop()
    time.sleep(5)
    os._exit(1)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """The open port. Raises HubError before anything else is touched."""
    try:
        opened = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise HubError(
                f"port {port} of 127.0.0.1 is in use: choose another, or 0 for any free one"
            ) from None
        raise HubError(f"cannot listen on port {port} of 127.0.0.1: {error}") from None
    with opened:
        yield opened


async def _run(
    app: web.Application, opened: socket.socket, ready: Callable[[str], None], follow_stdin: bool
) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
    await runner.setup()
    try:
        await web.SockSite(runner, opened).start()
        if follow_stdin:
            ending = (lambda: loop.call_soon_threadsafe(stop.set),)
            threading.Thread(target=_stop_with_stdin, args=ending, daemon=True).start()
        ready(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await stop.wait()
    finally:
        await runner.cleanup()


def run(
    root: Path,
    port: int = 0,
    upstream_url: str | None = None,
    *,
    ready: Callable[[str], None],
    part_size: int = lfs.DEFAULT_PART_SIZE,
    follow_stdin: bool = False,
) -> None:
    """Serve the store in `root` until SIGINT or SIGTERM. `ready` is told the address once it answers.

    Raises HubError: the port is in use, the store is served already, or the upstream is no address.
    """
    with _listening(port) as opened, _owning(root):
        store = Store(root)
        store.clear_scratch()
        asyncio.run(_run(make_app(store, upstream_url, part_size), opened, ready, follow_stdin))


def main() -> None:
    """Serve, and tell the outcome on standard output as one line of JSON: {"endpoint"} or {"error"}."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of the store, made if need be")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes any free port")
    parser.add_argument("--upstream", help="address of a Hub to read from what the store does not hold")
    parser.add_argument(
        "--part-size", type=int, default=lfs.DEFAULT_PART_SIZE, help="bytes of one part of an upload"
    )
    parser.add_argument("--follow-stdin", action="store_true", help="end when standard input ends")
    args = parser.parse_args()

    def ready(endpoint: str) -> None:
        print(json.dumps({"endpoint": endpoint}), flush=True)

    try:
        run(
            args.root,
            args.port,
            args.upstream,
            ready=ready,
            part_size=args.part_size,
            follow_stdin=args.follow_stdin,
        )
    except HubError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
