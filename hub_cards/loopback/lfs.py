"""Handlers of the large file protocol: the batch call, one PUT or several parts, verify.

A client PUTs to an address that the batch call gave it, without its token. So the address carries a
ticket: a keyed hash of what may be written there. Nobody without a token can obtain one, and it is good
for those bytes only, at this server, until it stops.

Invariant: bytes go to tmp; a large file gets its name after size and SHA-256 were checked.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
import shutil
from pathlib import Path

from aiohttp import web

from stsr.hub_cards.loopback.errors import StoreError
from stsr.hub_cards.loopback.web import field, json_body, objects, origin, repo_of, store_of

routes = web.RouteTableDef()

KEY = web.AppKey("key", bytes)
PART_SIZE = web.AppKey("part_size", int)  # bytes; larger files are uploaded in parts of this size
DEFAULT_PART_SIZE = 64 * 1024 * 1024
_CHUNK = 1 << 20
_LFS_JSON = "application/vnd.git-lfs+json"


# Tickets


def _sign(request: web.Request, *words: object) -> str:
    return hmac.new(request.app[KEY], " ".join(map(str, words)).encode(), "sha256").hexdigest()


def _link(request: web.Request, sha256: str, size: int, upload: str, part: int) -> str:
    """The address for the bytes of one part (from 1), for a whole file (0), or for joining parts (-1)."""
    ticket = _sign(request, sha256, size, upload, part)
    return f"{origin(request)}/lfs/{sha256}?size={size}&upload={upload}&part={part}&ticket={ticket}"


def _redeem(request: web.Request) -> tuple[str, int, str, int]:
    """(sha256, size, upload, part) of the address used. Raises StoreError (403) for one we did not give."""
    sha256, query = request.match_info["sha256"], request.query
    size, upload, part = query.get("size", ""), query.get("upload", ""), query.get("part", "")
    if not hmac.compare_digest(_sign(request, sha256, size, upload, part), query.get("ticket", "")):
        raise StoreError(403, "this upload address is not from this server, or from before it was restarted")
    return sha256, int(size), upload, int(part)


# Batch


def _upload_actions(request: web.Request, sha256: str, size: int, multipart: bool) -> dict[str, object]:
    upload, part_size = secrets.token_hex(8), request.app[PART_SIZE]
    if multipart and size > part_size:
        parts = {
            f"{n:05d}": _link(request, sha256, size, upload, n)
            for n in range(1, math.ceil(size / part_size) + 1)
        }
        header = {"chunk_size": str(part_size), **parts}
        action: dict[str, object] = {"href": _link(request, sha256, size, upload, -1), "header": header}
    else:
        action = {"href": _link(request, sha256, size, upload, 0)}
    return {"upload": action, "verify": {"href": f"{origin(request)}/lfs/{sha256}/verify"}}


def _batch_row(
    request: web.Request, sha256: str, size: int, upload: bool, multipart: bool
) -> dict[str, object]:
    """What is to be done with one large file. Without actions the server has it already."""
    row: dict[str, object] = {"oid": sha256, "size": size}
    have = store_of(request).lfs_size(sha256) == size
    if upload and not have:
        row["actions"] = _upload_actions(request, sha256, size, multipart)
    elif not upload and have:
        row["actions"] = {"download": {"href": f"{origin(request)}/lfs/{sha256}"}}
    elif not upload:
        row["error"] = {"code": 404, "message": "no such large file"}
    return row


@routes.post("/{namespace}/{name}/info/lfs/objects/batch")
@routes.post("/{kind:datasets|spaces}/{namespace}/{name}/info/lfs/objects/batch")
async def batch(request: web.Request) -> web.Response:
    body = await json_body(request)
    operation = field(body, "operation", str)
    if operation not in {"upload", "download"}:
        raise StoreError(400, "'operation' must be upload or download")
    upload = operation == "upload"
    repo_of(request, write=upload)
    multipart = "multipart" in field(body, "transfers", list, ["basic"])
    asked = [(field(row, "oid", str), field(row, "size", int)) for row in objects(body, "objects")]
    if any(size < 0 for _, size in asked):
        raise StoreError(400, "'size' must not be negative")
    rows = [_batch_row(request, sha256, size, upload, multipart) for sha256, size in asked]
    answer = {"transfer": "multipart" if multipart else "basic", "objects": rows, "hash_algo": "sha256"}
    return web.json_response(answer, content_type=_LFS_JSON)


# Bytes


async def save(request: web.Request, path: Path, limit: int | None = None) -> None:
    """Write the request's body to `path`, `limit` bytes at most (StoreError 413); failing, leave nothing."""
    total = 0
    try:
        with path.open("wb") as file:
            async for chunk in request.content.iter_chunked(_CHUNK):
                total += len(chunk)
                if limit is not None and total > limit:
                    raise StoreError(413, f"more than the {limit} bytes that were announced")
                await asyncio.to_thread(file.write, chunk)
    except ConnectionError:
        path.unlink(missing_ok=True)
        raise StoreError(400, "the client left before it had sent everything") from None
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@routes.put("/lfs/{sha256}")
async def put(request: web.Request) -> web.Response:
    """A whole large file, or one part of it."""
    sha256, size, upload, part = _redeem(request)
    store = store_of(request)
    if part < 0:
        raise StoreError(405, "this address joins parts: POST to it")
    target = store.temporary()
    await save(request, target, limit=size)
    if part:
        # a retried part replaces the first try
        folder = store.scratch / f"parts-{upload}"
        folder.mkdir(exist_ok=True)
        target.replace(folder / str(part))
        return web.Response(headers={"ETag": f'"{upload}-{part}"'})
    try:
        await asyncio.to_thread(store.adopt, target, sha256, size)
    finally:
        target.unlink(missing_ok=True)
    return web.Response()


def _join(parts: list[Path], target: Path) -> None:
    with target.open("wb") as out:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, out, _CHUNK)


@routes.post("/lfs/{sha256}")
async def complete(request: web.Request) -> web.Response:
    """Join the parts. A client that missed the answer may ask again, and is told the same."""
    sha256, size, upload, part = _redeem(request)
    if part != -1:
        raise StoreError(405, "this address takes bytes: PUT to it")
    store = store_of(request)
    rows = objects(await json_body(request), "parts")
    numbers = sorted(field(row, "partNumber", int) for row in rows)
    if store.lfs_size(sha256) == size:
        return web.json_response({"success": True})
    folder = store.scratch / f"parts-{upload}"
    parts = [folder / str(n) for n in numbers]
    if numbers != list(range(1, math.ceil(size / request.app[PART_SIZE]) + 1)) or not all(
        p.is_file() for p in parts
    ):
        raise StoreError(400, "parts are missing")
    target = store.temporary()
    try:
        await asyncio.to_thread(_join, parts, target)
        await asyncio.to_thread(store.adopt, target, sha256, size)
    finally:
        target.unlink(missing_ok=True)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return web.json_response({"success": True})


@routes.post("/lfs/{sha256}/verify")
async def verify(request: web.Request) -> web.Response:
    body = await json_body(request)
    sha256, size = field(body, "oid", str), field(body, "size", int)
    if store_of(request).lfs_size(sha256) != size:
        raise StoreError(404, "the large file did not arrive")
    return web.json_response({})


@routes.get("/lfs/{sha256}")
async def get(request: web.Request) -> web.StreamResponse:
    """A large file by its hash, for git-lfs."""
    store, sha256 = store_of(request), request.match_info["sha256"]
    if store.lfs_size(sha256) is None:
        raise StoreError(404, "no such large file")
    return web.FileResponse(store.lfs_path(sha256), headers={"Content-Type": "application/octet-stream"})
