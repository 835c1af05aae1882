"""Handlers that write: repositories, commits, tags and branches. All need a token, whichever.

Invariant: a commit happens wholly or not at all. Its body is spooled to disk and read line by line, each
file is stored before the branch moves, and the whole runs under the store's one write lock, so of two
clients that name the same parent exactly one succeeds and the other is told 412.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import fnmatch
from collections.abc import Iterable
from pathlib import PurePosixPath

from aiohttp import web

from stsr.hub_cards.loopback.errors import StoreError, entry_not_found
from stsr.hub_cards.loopback.gitrepo import Pointer, Repo
from stsr.hub_cards.loopback.lfs import save
from stsr.hub_cards.loopback.names import file_path
from stsr.hub_cards.loopback.store import LFS_EXTENSIONS, Store
from stsr.hub_cards.loopback.web import (
    REPO,
    USER,
    field,
    json_body,
    objects,
    page_url,
    parse_object,
    repo_id_of,
    repo_of,
    require_writer,
    store_of,
    under_lock,
)

routes = web.RouteTableDef()

REGULAR_MAX = 5 * 1024 * 1024  # bytes; larger files are kept as large files whatever they hold


# Repositories


def _named(body: dict[str, object]) -> tuple[str, str]:
    """(kind, repo id) of a create or delete call."""
    namespace = field(body, "organization", str, USER)
    return f"{field(body, 'type', str, 'model')}s", f"{namespace}/{field(body, 'name', str)}"


def _is_private(body: dict[str, object], default: bool) -> bool:
    visibility = field(body, "visibility", str, "private" if default else "public")
    if visibility not in {"private", "public"}:
        raise StoreError(400, "'visibility' must be public or private")
    return field(body, "private", bool, visibility == "private")


@routes.post("/api/repos/create")
async def create(request: web.Request) -> web.Response:
    require_writer(request)
    body = await json_body(request)
    kind, repo_id = _named(body)
    url = page_url(request, kind, repo_id)
    try:
        await asyncio.to_thread(store_of(request).create, kind, repo_id, _is_private(body, default=False))
    except StoreError as error:
        if error.status != 409:
            raise
        # create_repo(exist_ok=True) reads the address from this very answer
        return web.json_response({"error": str(error), "url": url}, status=409)
    return web.json_response({"url": url, "name": repo_id})


@routes.delete("/api/repos/delete")
async def delete(request: web.Request) -> web.Response:
    require_writer(request)
    await asyncio.to_thread(store_of(request).delete, *_named(await json_body(request)))
    return web.Response(text="OK")


@routes.post("/api/repos/move")
async def move(request: web.Request) -> web.Response:
    require_writer(request)
    body = await json_body(request)
    kind = f"{field(body, 'type', str, 'model')}s"
    old, new = field(body, "fromRepo", str), field(body, "toRepo", str)
    await asyncio.to_thread(store_of(request).move, kind, old, new)
    return web.Response(text="OK")


@routes.put(REPO + "/settings")
async def settings(request: web.Request) -> web.Response:
    repo, body = repo_of(request, write=True), await json_body(request)

    def change() -> bool:
        meta = repo.meta
        meta["private"] = _is_private(body, default=meta["private"])
        # the Hub's gates are "auto" and "manual"; here a gate is remembered, and keeps nobody out
        meta["gated"] = body.get("gated", meta["gated"]) not in (False, None)
        repo.meta = meta
        return meta["private"]

    return web.json_response({"private": await under_lock(request, change)})


# Commits


def _ignored(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(path, p.rstrip("/")) or path.startswith(p.rstrip("/") + "/") for p in patterns)


def _upload_mode(path: str, size: int, sample: bytes) -> str:
    large = (
        PurePosixPath(path).suffix.lower().lstrip(".") in LFS_EXTENSIONS
        or size > REGULAR_MAX
        or b"\0" in sample
    )
    return "lfs" if large and size > 0 else "regular"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise StoreError(400, "content that is not base64") from None


def _preupload_row(
    repo: Repo, stored: dict[str, str], row: dict[str, object], ignore: list[str]
) -> dict[str, object]:
    """How one file is to be uploaded, and the id it has now, by which a client skips what has not changed."""
    path = file_path(field(row, "path", str))
    oid = stored.get(path)
    if oid and (pointer := repo.blob(oid).pointer):
        oid = pointer.sha256
    mode = _upload_mode(path, field(row, "size", int), _decoded(field(row, "sample", str, "")))
    return {"path": path, "uploadMode": mode, "shouldIgnore": _ignored(path, ignore), "oid": oid}


@routes.post(REPO + "/preupload/{revision}")
async def preupload(request: web.Request) -> web.Response:
    repo, body = repo_of(request, write=True), await json_body(request)
    lines = field(body, "gitIgnore", str, "").splitlines()
    ignore = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    stored = (await asyncio.to_thread(repo.tree, repo.resolve(request.match_info["revision"]))).files
    rows = [_preupload_row(repo, stored, row, ignore) for row in objects(body, "files")]
    return web.json_response({"files": rows})


def _large_file(store: Store, value: dict[str, object], path: str) -> bytes:
    """The pointer for a large file that must have been uploaded. Raises StoreError (400)."""
    sha256 = field(value, "oid", str)
    size = store.lfs_size(sha256)
    if size is None or field(value, "size", int, size) != size:
        raise StoreError(400, f"the large file {sha256} for {path} was not uploaded")
    return Pointer(sha256, size).encode()


def _apply(store: Store, repo: Repo, files: dict[str, str], operation: dict[str, object]) -> None:
    """Change the flat tree `files` as one line of a commit says."""
    key, value = field(operation, "key", str), field(operation, "value", dict)
    named = field(value, "path", str)
    path = file_path(named.removesuffix("/") if key == "deletedFolder" else named)
    if key == "file":
        content = field(value, "content", str)
        data = _decoded(content) if field(value, "encoding", str, "utf-8") == "base64" else content.encode()
        files[path] = repo.put("blob", data)
    elif key == "lfsFile":
        files[path] = repo.put("blob", _large_file(store, value, path))
    elif key == "deletedFile":
        if files.pop(path, None) is None:
            raise entry_not_found(path)
    elif key == "deletedFolder":
        inside = [name for name in files if name.startswith(f"{path}/")]
        if not inside:
            raise entry_not_found(path)
        for name in inside:
            del files[name]
    else:
        raise StoreError(400, f"unknown operation {key!r}")


def _commit(store: Store, repo: Repo, branch: str, lines: Iterable[bytes]) -> str:
    """Make the commit that `lines` describe, a header and then operations; return its id.

    Raises StoreError: 412 if the branch has moved on from the parent named, 404 for a branch that does
    not exist, 400 for what cannot be read.
    """
    operations = (parse_object(line) for line in lines if line.strip())
    first = next(operations, {})
    if field(first, "key", str) != "header":
        raise StoreError(400, "the first line must be the header")
    header = field(first, "value", dict)
    summary, description = field(header, "summary", str), field(header, "description", str, "")
    expected = field(header, "parentCommit", str, "")
    with store.writing():
        tip = repo.tip(branch)
        if not tip.startswith(expected) or 0 < len(expected) < 7:
            raise StoreError(
                412, f"{branch} is at {tip}, not at {expected}: it has changed since; fetch and try again"
            )
        files = repo.tree(tip).files
        for operation in operations:
            _apply(store, repo, files, operation)
        message = f"{summary}\n\n{description}" if description else summary
        return repo.commit(branch.removeprefix("refs/heads/"), tip, files, message)


@routes.post(REPO + "/commit/{revision}")
async def commit(request: web.Request) -> web.Response:
    repo, branch = repo_of(request, write=True), request.match_info["revision"]
    if request.query.get("create_pr") == "1":
        raise StoreError(400, "the loopback Hub has no pull requests: commit to a branch")
    store = store_of(request)
    spool = store.temporary()
    try:
        await save(request, spool)
        with spool.open("rb") as lines:
            oid = await asyncio.to_thread(_commit, store, repo, branch, lines)
    finally:
        spool.unlink(missing_ok=True)
    page = page_url(request, request.match_info["kind"], repo_id_of(request))
    return web.json_response({"success": True, "commitOid": oid, "commitUrl": f"{page}/commit/{oid}"})


# Tags and branches


@routes.post(REPO + "/tag/{revision}")
async def create_tag(request: web.Request) -> web.Response:
    repo, revision = repo_of(request, write=True), request.match_info["revision"]
    tag = field(await json_body(request), "tag", str)
    await under_lock(request, lambda: repo.create_ref("tags", tag, repo.resolve(revision)))
    return web.json_response({"success": True}, status=201)


@routes.post(REPO + "/branch/{branch}")
async def create_branch(request: web.Request) -> web.Response:
    repo, branch = repo_of(request, write=True), request.match_info["branch"]
    start = field(await json_body(request), "startingPoint", str, "main")
    await under_lock(request, lambda: repo.create_ref("heads", branch, repo.resolve(start)))
    return web.json_response({"success": True}, status=201)


@routes.delete(REPO + "/tag/{tag}")
async def delete_tag(request: web.Request) -> web.Response:
    repo, name = repo_of(request, write=True), request.match_info["tag"]
    await under_lock(request, lambda: repo.delete_ref("tags", name))
    return web.Response(text="OK")


@routes.delete(REPO + "/branch/{branch}")
async def delete_branch(request: web.Request) -> web.Response:
    repo, name = repo_of(request, write=True), request.match_info["branch"]
    if name == "main":
        raise StoreError(403, "the branch main cannot be deleted")
    await under_lock(request, lambda: repo.delete_ref("heads", name))
    return web.Response(text="OK")
