"""Repositories that the store does not hold: fetched by the server, without anything of the client's.

pytest tests/hub_cards/test_loopback_upstream.py
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from aiohttp import web
from huggingface_hub import CommitOperationAdd, HfApi, HfFileSystem
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from stsr.hub_cards.loopback.process import HubError, RunningHub, default_upstream, running_hub

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content")
Served = Callable[[web.Application], AbstractContextManager[str]]
LARGE = bytes(range(256)) * 2000


@pytest.fixture(scope="module")
def front(hub: RunningHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A second server whose upstream is the session's."""
    with running_hub(tmp_path_factory.mktemp("front"), upstream=hub.endpoint) as front:
        yield front


def test_reads_of_an_absent_repository_fall_through(
    api: HfApi, front: RunningHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.create_repo("base/model")
    files = {"config.json": b"{}", "d/model.safetensors": LARGE, "größe.txt": b"x"}
    adds = [CommitOperationAdd(name, data) for name, data in files.items()]
    commit = api.create_commit("base/model", adds, commit_message="m").oid
    api.create_tag("base/model", tag="v1")

    user = HfApi(endpoint=front.endpoint, token="made-up")
    assert user.repo_info("base/model", revision="v1").sha == commit
    folder = Path(user.snapshot_download("base/model", revision="v1", cache_dir=tmp_path))
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert [row.path for row in user.get_paths_info("base/model", ["config.json", "none"])] == ["config.json"]
    assert [tag.name for tag in user.list_repo_refs("base/model").tags] == ["v1"]
    with pytest.raises(EntryNotFoundError):
        user.hf_hub_download("base/model", "none.bin", cache_dir=tmp_path)
    with pytest.raises(RevisionNotFoundError):
        user.repo_info("base/model", revision="v9")
    with pytest.raises(RepositoryNotFoundError):
        user.repo_info("base/nowhere")
    fs = HfFileSystem(endpoint=front.endpoint, token="made-up", skip_instance_cache=True)
    with fs.open("base/model/d/model.safetensors") as file:
        file.seek(300_000)
        assert file.read(10) == LARGE[300_000:300_010]


def test_a_repository_of_ones_own_hides_the_upstream_one(api: HfApi, front: RunningHub) -> None:
    for name in ("own/x", "own/y"):
        api.create_repo(name)
        api.create_commit(name, [CommitOperationAdd("upstream.txt", b"")], commit_message="m")
    user = HfApi(endpoint=front.endpoint, token="made-up")
    user.create_repo("own/x", private=True)
    assert user.list_repo_files("own/x") == [".gitattributes"]
    with pytest.raises(EntryNotFoundError):
        user.hf_hub_download("own/x", "upstream.txt")
    with pytest.raises(RepositoryNotFoundError):  # hidden, not replaced by the public one
        HfApi(endpoint=front.endpoint, token=False).repo_info("own/x")
    assert "upstream.txt" in user.list_repo_files("own/y")  # same namespace, not held here


def test_writes_never_reach_the_upstream(api: HfApi, front: RunningHub) -> None:
    api.create_repo("target/x")
    user = HfApi(endpoint=front.endpoint, token="made-up")
    with pytest.raises(RepositoryNotFoundError):
        user.create_commit("target/x", [CommitOperationAdd("x", b"")], commit_message="m")
    with pytest.raises(RepositoryNotFoundError):
        user.create_tag("target/x", tag="v1")
    with pytest.raises(RepositoryNotFoundError):
        user.delete_repo("target/x")
    assert api.list_repo_files("target/x") == [".gitattributes"]
    assert api.list_repo_refs("target/x").tags == []


def test_a_long_listing_is_paged_through_the_front(api: HfApi, front: RunningHub) -> None:
    api.create_repo("paged/x")
    files = [CommitOperationAdd(f"{n}.txt", b"") for n in range(1001)]
    api.create_commit("paged/x", files, commit_message="m")
    user = HfApi(endpoint=front.endpoint, token="made-up")
    assert len(list(user.list_repo_tree("paged/x"))) == 1002


# What the upstream gets to see


class Recorder:
    """A stand-in for the public Hub: redirects to another path for bytes, speaks of xet, sets cookies."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.app = web.Application()
        self.app.router.add_route("*", "/{path:.*}", self.answer)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(
            (f"{request.method} {request.rel_url}", {k.lower(): v for k, v in request.headers.items()})
        )
        xet = {"X-Xet-Hash": "0" * 64, "Set-Cookie": "id=1", "Access-Control-Allow-Origin": "*"}
        if request.path.startswith("/bytes/"):
            return web.Response(body=LARGE, headers=xet | {"ETag": '"of-the-bytes"'})
        if request.path.endswith("/model.safetensors"):
            linked = {
                "X-Repo-Commit": "c" * 40,
                "X-Linked-Etag": '"linked"',
                "X-Linked-Size": str(len(LARGE)),
            }
            link = {"Link": '<http://127.0.0.1/token>; rel="xet-auth"', "Location": "/bytes/model"}
            return web.Response(status=302, headers=linked | xet | link)
        if request.path.startswith("/api/models/pages/"):
            origin = f"http://{request.host}"
            link = {"Link": f'<{origin}{request.path}?cursor=2>; rel="next"'}
            rows = [
                {"type": "file", "path": "x", "oid": "0", "size": 1, "xetHash": "1", "lfs": {"xetHash": "1"}}
            ]
            return web.json_response(rows, headers=xet | link)
        if request.path.startswith("/api/models/foreign/"):
            return web.json_response([], headers={"Link": '<http://127.0.0.1:1/steal>; rel="next"'})
        return web.json_response({"error": "Invalid username or password."}, status=401, headers=xet)


def test_the_upstream_learns_nothing_of_the_client(served: Served, tmp_path: Path, call: Callable) -> None:
    recorder, token = Recorder(), "hf_secret_of_the_user"
    with served(recorder.app) as upstream, running_hub(tmp_path / "store", upstream=upstream) as hub:
        headers = {"Cookie": "session=secret", "User-Agent": "client", "X-Secret": "1", "Range": "bytes=0-9"}
        for path in (
            "/a/b/resolve/main/model.safetensors",
            "/api/models/a/b",
            "/api/models/pages/x/tree/main",
        ):
            for method in ("GET", "HEAD"):
                call(method, path, token=token, endpoint=hub.endpoint, headers=headers)
        form = {"Content-Type": "application/x-www-form-urlencoded"} | headers
        paths_info = "/api/models/pages/x/paths-info/main"
        call("POST", paths_info, "paths=x&secret=1", token=token, endpoint=hub.endpoint, headers=form)
        for path in ("/api/models/a/b/commit/main", "/api/repos/create"):
            call("POST", path, {"name": "x"}, token=token, endpoint=hub.endpoint, headers=headers)
    assert len(recorder.requests) == 8  # six reads, one redirect that was followed, one paths-info
    for asked, seen in recorder.requests:
        # all that a request carries is ours, but for Range
        ours = {
            "host",
            "accept",
            "accept-encoding",
            "user-agent",
            "via",
            "range",
            "content-length",
            "content-type",
        }
        assert seen.keys() <= ours, asked
        assert seen["range"] == "bytes=0-9"
        assert "client" not in seen["user-agent"]
        assert "secret" not in json.dumps(seen)


def test_what_the_upstream_says_is_passed_on_without_xet(
    served: Served, tmp_path: Path, call: Callable
) -> None:
    with served(Recorder().app) as upstream, running_hub(tmp_path / "store", upstream=upstream) as hub:
        head, got = (
            call(method, "/a/b/resolve/main/model.safetensors", endpoint=hub.endpoint)
            for method in ("HEAD", "GET")
        )
        assert got.body == LARGE
        for answer in (head, got):
            assert answer.status == 200
            assert answer.headers["content-length"] == str(len(LARGE))
            assert answer.headers["x-repo-commit"] == "c" * 40
            assert answer.headers["x-linked-etag"] == '"linked"'
            assert not answer.headers.keys() & {
                "x-xet-hash",
                "link",
                "set-cookie",
                "access-control-allow-origin",
            }
        listing = call("GET", "/api/models/pages/x/tree/main", endpoint=hub.endpoint)
        assert b"xetHash" not in listing.body
        # the next page is ours: a client would send its token there
        assert (
            listing.headers["link"] == f'<{hub.endpoint}/api/models/pages/x/tree/main?cursor=2>; rel="next"'
        )
        assert "link" not in call("GET", "/api/models/foreign/x/tree/main", endpoint=hub.endpoint).headers
        unknown = call("GET", "/api/models/a/b", endpoint=hub.endpoint)
        assert (unknown.status, unknown.headers["x-error-code"]) == (404, "RepoNotFound")
        old_name = call("GET", "/api/models/pages/tree/main", endpoint=hub.endpoint)  # a name of one part
        assert old_name.status == 200
        assert call("GET", "/api/models/a/b/xet-read-token/main", endpoint=hub.endpoint).status == 404


def test_a_download_that_breaks_off_is_not_taken_for_whole(served: Served, tmp_path: Path) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(
            headers={"Content-Length": "1000", "X-Repo-Commit": "c" * 40, "ETag": '"e"'}
        )
        await answer.prepare(request)
        if request.method == "GET":
            await answer.write(b"x" * 500)
            assert request.transport is not None
            request.transport.abort()
        return answer

    app = web.Application()
    app.router.add_get("/{path:.*}", half)
    with served(app) as upstream, running_hub(tmp_path / "store", upstream=upstream) as hub:
        raw = socket.create_connection(tuple(hub.endpoint.removeprefix("http://").split(":")))
        raw.sendall(b"GET /a/b/resolve/main/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        got = b"".join(iter(lambda: raw.recv(65536), b""))
        raw.close()
    assert b"Content-Length: 1000" in got
    assert len(got.partition(b"\r\n\r\n")[2]) < 1000


def test_an_upstream_that_hangs_up_is_told_as_such(served: Served, tmp_path: Path, call: Callable) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        if request.path == "/api/models/a/redirect":
            return web.Response(status=302, headers={"Location": "mailto:nobody"})
        request.transport.abort()
        return web.Response()

    app = web.Application()
    app.router.add_get("/{path:.*}", hang_up)
    with served(app) as upstream, running_hub(tmp_path / "store", upstream=upstream) as hub:
        for name in ("b", "redirect"):
            answer = call("GET", f"/api/models/a/{name}", endpoint=hub.endpoint)
            assert (answer.status, answer.headers.get("x-error-code")) == (502, None)


# When there is none


def test_an_unreachable_upstream_is_a_quick_404(tmp_path: Path, call: Callable) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        upstream = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with running_hub(tmp_path / "store", upstream=upstream) as hub:
            start = time.monotonic()
            answers = [call("GET", "/api/models/a/b", endpoint=hub.endpoint) for _ in range(5)]
            assert time.monotonic() - start < 5
            assert {(a.status, a.headers["x-error-code"]) for a in answers} == {(404, "RepoNotFound")}
            assert "upstream cannot be reached" in answers[0].headers["x-error-message"]
            user = HfApi(endpoint=hub.endpoint, token="made-up")
            user.create_repo("a/b")
            assert user.repo_exists("a/b")


def test_two_servers_do_not_ask_each_other_in_a_circle(tmp_path: Path, call: Callable) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    itself = f"http://127.0.0.1:{port}"
    with running_hub(tmp_path / "store", port, upstream=itself) as hub:
        assert call("GET", "/api/models/a/b", endpoint=hub.endpoint).status == 404


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "127.0.0.1:80", "http://user:password@127.0.0.1", ""])
def test_an_upstream_must_be_an_address_without_credentials(url: str, tmp_path: Path) -> None:
    if not url:
        with running_hub(tmp_path / "store", upstream=url):
            return  # none at all
    with pytest.raises(HubError, match="the upstream must look like"):
        running_hub(tmp_path / "store", upstream=url).__enter__()


def test_the_default_upstream_is_the_public_hub_even_under_hf_endpoint(hub: RunningHub) -> None:
    program = (
        "from stsr.hub_cards.loopback.process import default_upstream as d\n"
        "from huggingface_hub import constants as c\n"
        "print(d(), c._HF_DEFAULT_ENDPOINT, c.ENDPOINT)"
    )
    env = os.environ | {"HF_ENDPOINT": hub.endpoint}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    ours, real, current = done.stdout.split()
    assert ours == real == default_upstream()
    assert current == hub.endpoint != ours
