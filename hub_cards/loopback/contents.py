"""Handlers that give a file's contents: whole, or the byte range asked for.

Invariant: a large file is served only if its size is the one that its commit names; its ETag is its
SHA-256, that of a small file its git id.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import quote

from aiohttp import web

from stsr.hub_cards.loopback.errors import StoreError
from stsr.hub_cards.loopback.web import error_response, repo_of, store_of

routes = web.RouteTableDef()


@routes.get("/{namespace}/{name}/{what:resolve|raw}/{revision}/{path:.+}")
@routes.get("/{kind:datasets|spaces}/{namespace}/{name}/{what:resolve|raw}/{revision}/{path:.+}")
async def resolve(request: web.Request) -> web.StreamResponse:
    """The file itself, whole or the range asked for. `raw` gives a large file's pointer instead."""
    repo, path = repo_of(request), request.match_info["path"]
    sha = repo.resolve(request.match_info["revision"])
    headers = {
        "X-Repo-Commit": sha,
        "Accept-Ranges": "bytes",
        # never let a browser take a stored page for a page of this origin
        "Content-Type": "application/octet-stream",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(PurePosixPath(path).name)}",
    }
    try:
        oid = repo.find(sha, path)
    except StoreError as error:
        answer = error_response(error)
        # clients remember that a file does not exist at this commit, so they must learn the commit
        answer.headers["X-Repo-Commit"] = sha
        return answer
    blob = repo.blob(oid)
    if blob.pointer is None or request.match_info["what"] == "raw":
        return _ranged(request, repo.get(oid), headers | {"ETag": f'"{oid}"'})
    sha256, size = blob.pointer
    if store_of(request).lfs_size(sha256) != size:
        raise StoreError(410, f"the store is damaged: large file {sha256} of {path}")
    headers |= {"X-Linked-Etag": f'"{sha256}"', "X-Linked-Size": str(size)}
    return web.FileResponse(store_of(request).lfs_path(sha256), headers=headers)


def _ranged(request: web.Request, data: bytes, headers: dict[str, str]) -> web.Response:
    """`data`, or the one byte range of it that the request asks for (206, or 416 past the end)."""
    try:
        asked = request.http_range
    except ValueError:
        asked = slice(len(data), None)
    if asked.start is None or not data:
        return web.Response(body=data, headers=headers)
    start, stop, _ = asked.indices(len(data))
    if start >= stop:
        return web.Response(status=416, headers=headers | {"Content-Range": f"bytes */{len(data)}"})
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
    return web.Response(status=206, body=data[start:stop], headers=headers)


async def keep_etag(request: web.Request, response: web.StreamResponse) -> None:
    """Before headers are sent: name a large file by its contents; aiohttp would by date and size."""
    if linked := response.headers.get("X-Linked-Etag"):
        response.headers["ETag"] = linked
