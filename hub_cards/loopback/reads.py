"""Handlers that read what is in the store: account, repositories, trees, paths, refs, commits.

Invariant: nothing here changes the store. Work that grows with a repository runs in a thread, so that
one long listing does not hold up other clients.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re

import yaml
from aiohttp import web

from stsr.hub_cards.loopback.errors import StoreError, entry_not_found
from stsr.hub_cards.loopback.gitrepo import Commit, Repo, blob_oid
from stsr.hub_cards.loopback.web import (
    KIND,
    REPO,
    USER,
    field,
    flag,
    is_writer,
    json_body,
    paged,
    repo_id_of,
    repo_of,
    require_writer,
    store_of,
)

routes = web.RouteTableDef()

_FRONT_MATTER = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)


def _iso(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


# Account


@routes.get("/api/whoami-v2")
async def whoami(request: web.Request) -> web.Response:
    require_writer(request)
    store = store_of(request)
    owners = {repo_id.split("/")[0] for kind in ("models", "datasets") for repo_id in store.repo_ids(kind)}
    return web.json_response(
        {
            "type": "user",
            "id": USER,
            "name": USER,
            "fullname": USER,
            "email": None,
            "isPro": False,
            "orgs": [
                {"type": "org", "name": name, "fullname": name, "roleInOrg": "admin"}
                for name in sorted(owners - {USER})
            ],
            "auth": {"type": "access_token", "accessToken": {"displayName": USER, "role": "write"}},
        }
    )


@routes.get(REPO + "/auth-check")
@routes.get(REPO + "/auth-check/write")
async def auth_check(request: web.Request) -> web.Response:
    repo_of(request, write=request.path.endswith("/write"))
    return web.Response(text="OK")


# Repositories


def front_matter(text: str) -> dict[str, object] | None:
    """The YAML mapping at the head of a card; None without one. Raises ValueError if it is not one.

    >>> front_matter("---\\nlicense: mit\\n---\\n# Card"), front_matter("# Card")
    ({'license': 'mit'}, None)
    """
    match = _FRONT_MATTER.match(text)
    if match is None:
        return None
    try:
        # by way of JSON: dates become text; what JSON cannot say (a cycle, a list as a key) fails here
        data = json.loads(json.dumps(yaml.safe_load(match[1]) or {}, default=str))
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(data, dict):
        raise ValueError("the front matter is not a mapping")
    if not isinstance(data.get("tags") or [], list | str):
        raise ValueError("tags must be a list")
    return data


@routes.post("/api/validate-yaml")
async def validate_yaml(request: web.Request) -> web.Response:
    body = await json_body(request)
    try:
        found = front_matter(field(body, "content", str))
    except ValueError as error:
        return web.json_response({"errors": [{"message": f"YAML: {error}"}], "warnings": []}, status=400)
    warnings = [] if found else [{"message": "empty or missing yaml metadata in repo card"}]
    return web.json_response({"errors": [], "warnings": warnings})


def _card_data(repo: Repo, files: dict[str, str]) -> dict[str, object]:
    if "README.md" not in files:
        return {}
    try:
        return front_matter(repo.get(files["README.md"]).decode("utf-8", "replace")) or {}
    except ValueError:
        return {}


def _sibling(repo: Repo, path: str, oid: str, with_blobs: bool) -> dict[str, object]:
    if not with_blobs:
        return {"rfilename": path}
    row = _file_row(repo, path, oid)
    out = {"rfilename": path, "size": row["size"], "blobId": oid}
    if isinstance(lfs := row.get("lfs"), dict):
        out["lfs"] = {"sha256": lfs["oid"], "size": lfs["size"], "pointerSize": lfs["pointerSize"]}
    return out


def _info(kind: str, repo_id: str, repo: Repo, sha: str, with_blobs: bool = False) -> dict[str, object]:
    """A repository at commit `sha` as `HfApi.repo_info` reads it."""
    meta, files = repo.meta, repo.tree(sha).files
    card = _card_data(repo, files)
    tags = card.get("tags")
    info: dict[str, object] = {
        "_id": blob_oid(repo_id.encode())[:24],
        "id": repo_id,
        "author": repo_id.split("/")[0],
        "sha": sha,
        "private": meta["private"],
        "gated": meta["gated"],
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [str(tag) for tag in tags] if isinstance(tags, list) else [],
        "createdAt": _iso(meta["created"]),
        "lastModified": _iso(repo.read_commit(sha).time),
        "siblings": [_sibling(repo, path, files[path], with_blobs) for path in sorted(files)],
        "cardData": card,
    }
    if kind == "models":
        info |= {
            "modelId": repo_id,
            "pipeline_tag": card.get("pipeline_tag"),
            "library_name": card.get("library_name"),
        }
    return info


@routes.get(REPO)
@routes.get(REPO + "/revision/{revision}")
async def repo_info(request: web.Request) -> web.Response:
    repo = repo_of(request)
    sha = repo.resolve(request.match_info.get("revision", "main"))
    kind, blobs = request.match_info["kind"], flag(request, "blobs")
    return web.json_response(await asyncio.to_thread(_info, kind, repo_id_of(request), repo, sha, blobs))


@routes.get(f"/api/{KIND}")
async def list_repos(request: web.Request) -> web.Response:
    store, kind = store_of(request), request.match_info["kind"]
    author, search = request.query.get("author"), request.query.get("search", "").lower()
    rows = []
    for repo_id in store.repo_ids(kind):
        repo = store.repo(kind, repo_id)
        visible = is_writer(request) or not repo.meta["private"]
        if visible and author in (None, repo_id.split("/")[0]) and search in repo_id.lower():
            rows.append(await asyncio.to_thread(_info, kind, repo_id, repo, repo.resolve("main")))
    return paged(request, rows)


@routes.get(REPO + "/refs")
async def refs(request: web.Request) -> web.Response:
    repo = repo_of(request)
    answer: dict[str, list[dict[str, str]]] = {"converts": [], "pullRequests": []}
    for kind, name in (("heads", "branches"), ("tags", "tags")):
        answer[name] = [
            {"name": ref, "ref": f"refs/{kind}/{ref}", "targetCommit": oid}
            for ref, oid in repo.refs(kind).items()
        ]
    return web.json_response(answer)


@routes.get(REPO + "/commits/{revision}")
async def commits(request: web.Request) -> web.Response:
    repo = repo_of(request)
    history = await asyncio.to_thread(list, repo.history(repo.resolve(request.match_info["revision"])))
    rows: list[dict[str, object]] = [
        {
            "id": commit.oid,
            "title": commit.title,
            "message": commit.message.partition("\n\n")[2],
            "authors": [{"user": commit.author}],
            "date": _iso(commit.time),
        }
        for commit in history
    ]
    return paged(request, rows)


# Trees


def _file_row(repo: Repo, path: str, oid: str) -> dict[str, object]:
    blob = repo.blob(oid)
    row: dict[str, object] = {"type": "file", "path": path, "oid": oid, "size": blob.size}
    if blob.pointer:
        row["lfs"] = {"oid": blob.pointer.sha256, "size": blob.size, "pointerSize": blob.blob_size}
    return row


def _folder_row(path: str, oid: str) -> dict[str, object]:
    return {"type": "directory", "path": path, "oid": oid, "size": 0}


def _last_commit(commit: Commit) -> dict[str, str]:
    return {"id": commit.oid, "title": commit.title, "date": _iso(commit.time)}


def _expand(repo: Repo, sha: str, rows: list[dict[str, object]]) -> None:
    last = repo.last_commits(sha, {str(row["path"]) for row in rows})
    for row in rows:
        row["lastCommit"] = _last_commit(last[str(row["path"])])


def _tree_rows(repo: Repo, sha: str, folder: str, recursive: bool, expand: bool) -> list[dict[str, object]]:
    """Rows of a folder of commit `sha`, sorted by path. Raises StoreError (404 EntryNotFound)."""
    tree = repo.tree(sha)
    if folder and folder not in tree.folders:
        raise entry_not_found(folder)
    prefix = f"{folder}/" if folder else ""

    def listed(path: str) -> bool:
        return path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :])

    rows = [_folder_row(path, oid) for path, oid in tree.folders.items() if listed(path)]
    rows += [_file_row(repo, path, oid) for path, oid in tree.files.items() if listed(path)]
    rows.sort(key=lambda row: str(row["path"]))
    if expand:
        _expand(repo, sha, rows)
    return rows


@routes.get(REPO + "/tree/{revision}")
@routes.get(REPO + "/tree/{revision}/{path:.*}")
async def tree(request: web.Request) -> web.Response:
    repo = repo_of(request)
    sha, folder = repo.resolve(request.match_info["revision"]), request.match_info.get("path", "").strip("/")
    asked = flag(request, "recursive"), flag(request, "expand")
    answer = paged(request, await asyncio.to_thread(_tree_rows, repo, sha, folder, *asked))
    answer.headers["X-Repo-Commit"] = sha
    return answer


def _path_rows(repo: Repo, sha: str, paths: list[str], expand: bool) -> list[dict[str, object]]:
    tree = repo.tree(sha)
    rows = [
        _file_row(repo, path, tree.files[path])
        if path in tree.files
        else _folder_row(path, tree.folders[path])
        for path in paths
        if path in tree.files or path in tree.folders
    ]
    if expand:
        _expand(repo, sha, rows)
    return rows


async def asked_paths(request: web.Request) -> tuple[list[str], bool]:
    """The paths and the expand flag of a paths-info call: form-encoded by huggingface_hub, or JSON."""
    if request.content_type == "application/json":
        body = await json_body(request)
        paths, expand = field(body, "paths", list), str(body.get("expand", ""))
    else:
        try:
            form = await request.post()
        except ValueError:
            raise StoreError(400, "the body is not a form") from None
        paths, expand = list(form.getall("paths", [])), str(form.get("expand", ""))
    if not all(isinstance(path, str) for path in paths):
        raise StoreError(400, "'paths' must be text")
    return paths, expand.lower() in {"1", "true"}


@routes.post(REPO + "/paths-info/{revision}")
async def paths_info(request: web.Request) -> web.Response:
    repo = repo_of(request)
    sha = repo.resolve(request.match_info["revision"])
    return web.json_response(await asyncio.to_thread(_path_rows, repo, sha, *await asked_paths(request)))
