"""What every request handler needs: error answers, JSON bodies, the caller's rights, paging, the Host check.

Invariant: a caller's mistake is answered with 4xx and a sentence, a full disk with 507, and what a token
says is never looked at: any bearer token makes its caller the local writer, no token makes them a reader.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

from stsr.hub_cards.loopback.errors import StoreError, repo_hidden
from stsr.hub_cards.loopback.gitrepo import Repo
from stsr.hub_cards.loopback.store import Store

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")

STORE = web.AppKey("store", Store)
USER = "local"  # the namespace of a repository created without one

KIND = "{kind:models|datasets|spaces}"
REPO = f"/api/{KIND}/{{namespace}}/{{name}}"

_HOSTS = {"127.0.0.1", "localhost", "[::1]"}
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


# Answers


def error_response(error: StoreError) -> web.Response:
    """The answer from which huggingface_hub makes its own exception."""
    text = str(error)
    headers = {"X-Error-Message": "".join(c if " " <= c <= "~" else "?" for c in text)}
    if error.code:
        headers["X-Error-Code"] = error.code
    return web.json_response({"error": text}, status=error.status, headers=headers)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn what handlers raise into answers."""
    try:
        return await handler(request)
    except StoreError as error:
        return error_response(error)
    except UnicodeError:
        # JSON may carry half a surrogate pair, which no path, branch or message can be written with
        return error_response(StoreError(400, "text that is not valid Unicode"))
    except OSError as error:
        if error.errno not in _DISK_FULL:
            raise
        return error_response(StoreError(507, "no space left for the store; nothing was changed"))


@web.middleware
async def refuse_foreign_hosts(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer only if the client asked for this machine by a loopback name.

    A page on the web can point a name of its own at 127.0.0.1 and read the answers as its own (DNS
    rebinding); its requests then carry that name in Host.
    """
    host = request.headers.get("Host", "").lower()
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name not in _HOSTS:
        return error_response(StoreError(403, "this Hub answers only to loopback names"))
    return await handler(request)


# Requests


def store_of(request: web.Request) -> Store:
    return request.app[STORE]


async def under_lock(request: web.Request, change: Callable[[], T]) -> T:
    """Run `change` in a thread that holds the store's write lock; return what it returns."""

    def locked() -> T:
        with store_of(request).writing():
            return change()

    return await asyncio.to_thread(locked)


def origin(request: web.Request) -> str:
    """Scheme and host that the client reached us by, for the links that answers carry."""
    return f"{request.scheme}://{request.host}"


def is_writer(request: web.Request) -> bool:
    """Whether the request carries a bearer token, whichever."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and bool(token.strip())


def require_writer(request: web.Request) -> None:
    """Raises StoreError (401) for an anonymous caller."""
    if not is_writer(request):
        raise StoreError(
            401, "this call needs a token; on the loopback Hub any will do, e.g. HF_TOKEN=loopback"
        )


def repo_id_of(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['name'].removesuffix('.git')}"


def repo_of(request: web.Request, write: bool = False) -> Repo:
    """The repository that the URL names. Raises StoreError: 401, or 404 RepoNotFound."""
    if write:
        require_writer(request)
    repo_id = repo_id_of(request)
    repo = store_of(request).repo(request.match_info.get("kind", "models"), repo_id)
    if repo.meta["private"] and not is_writer(request):
        raise repo_hidden(repo_id)
    return repo


def page_url(request: web.Request, kind: str, repo_id: str) -> str:
    """The address of a repository as a person would open it."""
    return f"{origin(request)}/{repo_id if kind == 'models' else f'{kind}/{repo_id}'}"


def parse_object(data: bytes) -> dict[str, object]:
    """A JSON object. Raises StoreError (400) for anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise StoreError(400, "the body is not JSON") from None
    if not isinstance(value, dict):
        raise StoreError(400, "the body is not a JSON object")
    return value


async def json_body(request: web.Request) -> dict[str, object]:
    """The request's JSON object, empty for an empty body. Raises StoreError (400)."""
    data = await request.read()
    return parse_object(data) if data else {}


def field(body: dict[str, object], name: str, kind: type[T], default: T | None = None) -> T:
    """`body[name]`, which must be a `kind`. Missing or null gives `default`; StoreError (400) without one."""
    value = body.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise StoreError(400, f"{name!r} must be a {kind.__name__}")
    return value


def objects(body: dict[str, object], name: str) -> list[dict[str, object]]:
    """`body[name]`, which must be a list of JSON objects. Raises StoreError (400)."""
    rows = field(body, name, list)
    if not all(isinstance(row, dict) for row in rows):
        raise StoreError(400, f"{name!r} must be a list of objects")
    return rows


def flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in {"1", "true"}


def paged(request: web.Request, rows: list[dict[str, object]], page: int = 1000) -> web.Response:
    """One page of `rows` as ?limit and ?cursor ask, with the Link to the next that clients follow."""
    try:
        start, limit = int(request.query.get("cursor", "0")), int(request.query.get("limit", str(page)))
    except ValueError:
        raise StoreError(400, "limit and cursor are whole numbers") from None
    if start < 0 or limit < 1:
        raise StoreError(400, "limit must be at least 1 and cursor at least 0")
    headers = {}
    if start + limit < len(rows):
        following = request.rel_url.update_query(cursor=str(start + limit))
        headers["Link"] = f'<{origin(request)}{following}>; rel="next"'
    return web.json_response(rows[start : start + limit], headers=headers)
