"""Repositories that the store does not hold, fetched from another Hub by the server itself.

Invariant: the other Hub learns which repository and file is asked for, and nothing else. Its requests
are made anew here, without the client's token, cookies or headers (Range apart), and redirects are
followed here: a client sent there by a redirect would take its token along.

Answers are stripped of xet, so that clients download over plain HTTP through this server.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Middleware
from yarl import URL

from stsr.hub_cards.loopback.errors import HubError, RepoAbsent, StoreError
from stsr.hub_cards.loopback.reads import asked_paths
from stsr.hub_cards.loopback.web import Handler, origin

routes = web.RouteTableDef()

_MARK = "stsr-loopback"  # in Via, so that two such servers never ask each other in a circle
_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=4, sock_connect=3, sock_read=60)
_REST = 30.0  # seconds for which an unreachable Hub is not asked again
_MAX_HOPS = 6
_REDIRECTS = {301, 302, 303, 307, 308}
# Set by the Hub's own answer, before it redirects to where the bytes are
_FIRST_HOP = ("X-Repo-Commit", "X-Linked-Etag", "X-Linked-Size")
_PASSED = (
    *("Content-Type", "Content-Length", "Content-Range", "Content-Disposition", "Accept-Ranges"),
    *("ETag", "Last-Modified", "X-Error-Code", "X-Error-Message", "Retry-After"),
)


def default_upstream() -> str:
    """The public Hub, as huggingface_hub names it; unlike its ENDPOINT this does not follow HF_ENDPOINT."""
    from huggingface_hub import constants

    return str(constants.HUGGINGFACE_CO_URL_HOME).rstrip("/")


class _Call(NamedTuple):
    """One request to the other Hub. `form` is the body of a paths-info call, else None."""

    method: str
    url: str
    headers: dict[str, str]
    form: dict[str, list[str]] | None


class Upstream:
    """The other Hub at `url`. Raises HubError for what is not an http(s) address without credentials."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
            raise HubError("the upstream must look like https://host, without user, password or query")
        self.url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._unreachable_until = 0.0

    async def session(self, app: web.Application) -> AsyncIterator[None]:
        """Hold one client session for as long as the application runs."""
        # trust_env stays off: it would also send what ~/.netrc knows. DummyCookieJar: nothing is remembered.
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(timeout=_TIMEOUT, cookie_jar=jar, trust_env=False) as self._session:
            yield

    async def relay(self, request: web.Request, absent: RepoAbsent) -> web.StreamResponse:
        """Answer `request` from the other Hub. Raises RepoAbsent if it cannot be reached, StoreError 502."""
        if time.monotonic() < self._unreachable_until:
            raise RepoAbsent(absent.repo_id, ", and its upstream cannot be reached")
        form = None
        if request.method == "POST":
            paths, expand = await asked_paths(request)
            form = {"paths": paths, "expand": [str(expand)]}
        headers = {"Accept-Encoding": "identity", "Via": f"1.1 {_MARK}"}
        if "Range" in request.headers:
            headers["Range"] = request.headers["Range"]
        try:
            call = _Call(request.method, self.url + request.rel_url.raw_path_qs, headers, form)
            return await self._answer(request, call)
        except (aiohttp.ClientConnectorError, TimeoutError):
            self._unreachable_until = time.monotonic() + _REST
            raise RepoAbsent(absent.repo_id, ", and its upstream cannot be reached") from None
        except aiohttp.ClientError as error:
            # it is there, but what it says is no answer: clients try a 502 again
            raise StoreError(502, f"the upstream failed: {type(error).__name__}") from error

    async def _answer(self, request: web.Request, call: _Call) -> web.StreamResponse:
        first: dict[str, str] = {}
        for _ in range(_MAX_HOPS):
            async with await self._send(call) as response:
                for name in _FIRST_HOP:
                    if name in response.headers:
                        first.setdefault(name, response.headers[name])
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or location is None:
                    return await self._pass_on(request, response, first)
                if call.method == "HEAD" and first.keys() == set(_FIRST_HOP):
                    # all that a client asks a HEAD for; where the bytes are, HEAD is often not allowed
                    size = {"Content-Length": first["X-Linked-Size"], "ETag": first["X-Linked-Etag"]}
                    return web.Response(headers={**first, **size})
                call = call._replace(url=urljoin(call.url, location))
        raise RepoAbsent(request.path, ", and its upstream redirects without end")

    async def _send(self, call: _Call) -> aiohttp.ClientResponse:
        assert self._session is not None, "the session is opened when the application starts"
        return await self._session.request(
            call.method,
            URL(call.url, encoded=True),
            headers=call.headers,
            data=aiohttp.FormData([(k, v) for k, vs in call.form.items() for v in vs]) if call.form else None,
            allow_redirects=False,
            proxy=_proxy(call.url),
        )

    async def _pass_on(
        self, request: web.Request, response: aiohttp.ClientResponse, first: dict[str, str]
    ) -> web.StreamResponse:
        status = response.status
        headers = {name: response.headers[name] for name in _PASSED if name in response.headers} | first
        if status == 401 and "X-Error-Code" not in headers:
            # what the Hub tells a stranger about a repository that does not exist, or is private
            raise RepoAbsent(request.path, ", nor, for an anonymous caller, at its upstream")
        following = str(response.links["next"]["url"]) if "next" in response.links else ""
        if following.startswith(f"{self.url}/"):
            # the client sends its token along to the next page, so that must be ours too
            headers["Link"] = f'<{origin(request)}{following.removeprefix(self.url)}>; rel="next"'
        if request.method == "HEAD":
            return web.Response(status=status, headers=headers)
        if request.path.startswith("/api/") and "json" in response.content_type:
            headers.pop("Content-Length", None)
            return web.Response(status=status, headers=headers, body=_without_xet(await response.read()))
        if "Content-Encoding" in response.headers:
            headers.pop("Content-Length", None)  # aiohttp has unpacked the bytes
        return await _stream(request, response, web.StreamResponse(status=status, headers=headers))


async def _stream(
    request: web.Request, source: aiohttp.ClientResponse, answer: web.StreamResponse
) -> web.StreamResponse:
    await answer.prepare(request)
    try:
        async for chunk in source.content.iter_chunked(1 << 16):
            await answer.write(chunk)
        await answer.write_eof()
    except (aiohttp.ClientError, TimeoutError):
        # headers are out: only a broken connection can still tell the client that bytes are missing
        if request.transport is not None:
            request.transport.abort()
    return answer


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for `url`; none for a Hub on loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in {"127.0.0.1", "localhost", "::1"} or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def _without_xet(body: bytes) -> bytes:
    """A JSON answer without its `xetHash` fields, which would send clients to a storage not served here."""

    def drop(pairs: list[tuple[str, object]]) -> dict[str, object]:
        return {key: value for key, value in pairs if key != "xetHash"}

    try:
        return json.dumps(json.loads(body, object_pairs_hook=drop)).encode()
    except (ValueError, RecursionError):
        return body


def fall_through(upstream: Upstream) -> Middleware:
    """The middleware that hands reads of absent repositories to `upstream`. Never a write."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except RepoAbsent as absent:
            reads = request.method in {"GET", "HEAD"} or "/paths-info/" in request.path
            if not reads or _MARK in request.headers.get("Via", ""):
                raise
            return await upstream.relay(request, absent)

    return middleware


@routes.post("/api/{kind:models|datasets|spaces}/{name}/paths-info/{revision}")
@routes.get("/{path:(?:api/(?:models|datasets|spaces)/|.*/(?:resolve|raw)/).*}")
async def old_name(request: web.Request) -> web.StreamResponse:
    """A repository with a name of one part, as the public Hub has from its first years. Never one of ours."""
    if "/xet-" in request.path:
        raise web.HTTPNotFound
    raise RepoAbsent(request.path.strip("/"))
