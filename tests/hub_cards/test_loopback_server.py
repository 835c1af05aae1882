"""The server as a process and on the wire: who may talk to it, what garbage gets, how it starts and ends.

pytest tests/hub_cards/test_loopback_server.py
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from stsr.hub_cards.loopback.process import HubError, RunningHub, running_hub

SERVER = [sys.executable, "-m", "stsr.hub_cards.loopback.server"]
LARGE = os.urandom(250_000)
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content")


def answers(endpoint: str) -> bool:
    try:
        socket.create_connection(tuple(endpoint.removeprefix("http://").split(":")), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until_silent(endpoint: str) -> bool:
    deadline = time.monotonic() + 10
    while answers(endpoint) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not answers(endpoint)


# Starting and ending


def test_a_busy_port_is_one_clear_line(hub: RunningHub, tmp_path: Path) -> None:
    port = int(hub.endpoint.rpartition(":")[2])
    with pytest.raises(HubError, match=rf"^port {port} of 127.0.0.1 is in use: choose another") as caught:
        running_hub(tmp_path / "store", port).__enter__()
    assert not (tmp_path / "store").exists()
    assert "\n" not in str(caught.value)


def test_a_second_server_on_a_store_is_refused(hub: RunningHub) -> None:
    with pytest.raises(HubError, match=rf"is served already, by process {hub.pid}: stop that one"):
        running_hub(hub.root).__enter__()
    assert answers(hub.endpoint)


def test_a_root_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HubError, match="cannot keep a store in"):
        running_hub(tmp_path / "file").__enter__()


def test_there_is_no_other_address_to_bind(tmp_path: Path) -> None:
    done = subprocess.run([*SERVER, "--root", tmp_path, "--host", "0.0.0.0"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "unrecognized arguments: --host" in done.stderr


def test_it_listens_on_loopback_only(hub: RunningHub) -> None:
    port = int(hub.endpoint.rpartition(":")[2])
    listening = {
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].partition(":")[2], 16) == port
    }
    assert listening == {f"0100007F:{port:04X}"}
    assert f":{port:04X} " not in Path("/proc/net/tcp6").read_text()


def test_it_ends_with_its_block(tmp_path: Path) -> None:
    with running_hub(tmp_path / "store") as hub:
        assert answers(hub.endpoint)
    assert not answers(hub.endpoint)
    with pytest.raises(ProcessLookupError):
        os.kill(hub.pid, 0)


def test_it_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from stsr.hub_cards.loopback.process import running_hub\n"
        "with running_hub(Path(sys.argv[1])) as hub: print(hub.endpoint, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "store"], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    endpoint = parent.stdout.readline().strip()
    assert answers(endpoint)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    assert wait_until_silent(endpoint)


def test_serve_says_how_to_use_it_and_stops_on_interrupt(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from stsr.hub_cards.loopback.process import serve\n"
        "serve(Path(sys.argv[1]), 0, None)"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "store"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    head, usage, uploads = (server.stdout.readline() for _ in range(3))
    endpoint = head.split(" at ")[1].split(",")[0]
    assert usage.strip() == f"export HF_ENDPOINT={endpoint}"
    assert "HF_HUB_DISABLE_XET=1" in uploads
    assert answers(endpoint)
    server.send_signal(signal.SIGINT)
    assert server.communicate(timeout=10) == ("", None)
    assert server.returncode == 0


# Who may talk to it


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.2", "[::2]:1"]
)
def test_a_foreign_host_name_is_refused(host: str, call: Callable) -> None:
    assert call("GET", "/api/models", headers={"Host": host}).status == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:9", "[::1]:9", "LOCALHOST"])
def test_a_loopback_host_name_is_served(host: str, call: Callable) -> None:
    assert call("GET", "/api/models", headers={"Host": host}).status == 200


def test_no_page_of_another_origin_is_let_in(call: Callable) -> None:
    origin = {"Origin": "http://localhost:1234", "Access-Control-Request-Method": "POST"}
    preflight = call("OPTIONS", "/api/repos/create", token=None, headers=origin)
    assert preflight.status == 405
    answer = call("GET", "/api/models", headers=origin)
    assert not [name for name in [*preflight.headers, *answer.headers] if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/repos/create"),
        ("DELETE", "/api/repos/delete"),
        ("POST", "/api/repos/move"),
        ("PUT", "/api/models/anonymous/x/settings"),
        ("POST", "/api/models/anonymous/x/preupload/main"),
        ("POST", "/api/models/anonymous/x/commit/main"),
        ("POST", "/api/models/anonymous/x/tag/main"),
        ("DELETE", "/api/models/anonymous/x/tag/v1"),
        ("POST", "/api/models/anonymous/x/branch/b"),
        ("DELETE", "/api/models/anonymous/x/branch/b"),
        ("GET", "/api/models/anonymous/x/auth-check/write"),
        ("GET", "/api/whoami-v2"),
    ],
)
def test_without_a_token_nothing_is_written(method: str, path: str, api: HfApi, call: Callable) -> None:
    api.create_repo("anonymous/x", exist_ok=True)
    assert call(method, path, {}, token=None).status == 401


def test_a_token_is_neither_kept_nor_shown(tmp_path: Path) -> None:
    token = "hf_" + "s3cret" * 5
    (tmp_path / "out").touch()
    with (tmp_path / "out").open("w") as out:
        server = subprocess.Popen(
            [*SERVER, "--root", tmp_path / "store"], stdout=subprocess.PIPE, stderr=out, text=True
        )
        assert server.stdout is not None
        endpoint = json.loads(server.stdout.readline())["endpoint"]
        api = HfApi(endpoint=endpoint, token=token)
        api.create_repo("secret/x")
        api.create_commit("secret/x", [CommitOperationAdd("w.npy", LARGE)], commit_message="m")
        assert token not in json.dumps(api.whoami())
        server.terminate()
        assert token not in server.communicate()[0]
    written = [tmp_path / "out", *(path for path in (tmp_path / "store").rglob("*") if path.is_file())]
    assert not [path for path in written if token.encode() in path.read_bytes()]


# Garbage


POSTS = [
    "/api/repos/create",
    "/api/repos/move",
    "/api/validate-yaml",
    "/api/models/garbage/x/preupload/main",
    "/api/models/garbage/x/commit/main",
    "/api/models/garbage/x/tag/main",
    "/garbage/x.git/info/lfs/objects/batch",
    f"/lfs/{'0' * 64}",
    f"/lfs/{'0' * 64}/verify",
]
WRONG = {"header", "summary", "files", "content", "name", "tag", "oid", "fromRepo", "operation", "parts"}
GARBAGE = {
    "empty": b"",
    "bytes": b"\xff\xfe\0\x01garbage",
    "text": b"not json",
    "number": b"7",
    "list": b"[1, 2]",
    "null": b"null",
    "deep": b"[" * 100_000,
    "infinite": b'{"size": 1e999, "name": 1e999}',
    "wrong types": json.dumps(dict.fromkeys(WRONG, 7)).encode(),
    "nulls": json.dumps(dict.fromkeys(WRONG)).encode(),
    "wrong lists": json.dumps({key: [7, None, {"path": 7}] for key in WRONG}).encode(),
    "surrogate": json.dumps(dict.fromkeys(WRONG, "\ud800")).encode(),
    "cut off": b'{"key": "header", "value": {"summary": "s"}}\n{"key": "file", "val',
    "unknown line": b'{"key": "header", "value": {"summary": "s"}}\n{"key": "x", "value": {"path": "x"}}',
    "bad base64": b'{"key": "header", "value": {"summary": "s"}}\n'
    b'{"key": "file", "value": {"path": "x", "content": "\xc3\xa9!", "encoding": "base64"}}',
    "no such large file": b'{"key": "header", "value": {"summary": "s"}}\n'
    b'{"key": "lfsFile", "value": {"path": "x", "oid": "' + b"0" * 64 + b'"}}',
    "bad yaml": json.dumps({"content": "---\na: [1\n---\n"}).encode(),
    "cyclic yaml": json.dumps({"content": "---\na: &a [*a]\n---\n"}).encode(),
    "impossible date": json.dumps({"content": "---\nd: 2024-99-99\n---\n"}).encode(),
}


@pytest.mark.parametrize("path", POSTS)
def test_garbage_is_the_callers_mistake(path: str, api: HfApi, call: Callable) -> None:
    api.create_repo("garbage/x", exist_ok=True)
    for name, body in GARBAGE.items():
        answer = call("POST", path, body)
        fine = path == "/api/validate-yaml" and answer.status == 200  # a card without front matter
        assert fine or 400 <= answer.status < 500, (name, answer)
    assert api.list_repo_files("garbage/x") == [".gitattributes"]
    assert api.list_repo_refs("garbage/x").tags == []


def test_garbage_where_a_body_is_optional(api: HfApi, call: Callable) -> None:
    api.create_repo("garbage/y", exist_ok=True)
    for body in GARBAGE.values():
        for kind in ("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "x"):
            headers = {"Content-Type": kind}
            assert call("POST", "/api/models/garbage/y/paths-info/main", body, headers=headers).status < 500
        assert call("PUT", "/api/models/garbage/y/settings", body).status < 500
        assert call("POST", "/api/models/garbage/y/branch/b", body).status < 500
        call("DELETE", "/api/models/garbage/y/branch/b")


def test_a_card_that_yaml_cannot_read_does_not_hide_the_repository(api: HfApi, call: Callable) -> None:
    for n, head in enumerate(
        ["a: [1", "a: &a [*a]", "[1]: 2", "d: 2024-01-01\ntags: 7", "- 1", "d: 2024-99-99"]
    ):
        api.create_repo(f"cards/x{n}")
        lines = [
            {"key": "header", "value": {"summary": "s"}},
            {"key": "file", "value": {"path": "README.md", "content": f"---\n{head}\n---\n"}},
        ]
        body = "\n".join(map(json.dumps, lines)).encode()
        assert call("POST", f"/api/models/cards/x{n}/commit/main", body).status == 200
        assert call("GET", f"/api/models/cards/x{n}").json["tags"] == []
    assert len(list(api.list_models(author="cards"))) == 6


@pytest.mark.parametrize(
    "query", ["limit=x", "limit=0", "limit=-1", "cursor=-5", "cursor=x", "limit=" + "9" * 5000]
)
def test_paging_asks_for_whole_numbers(query: str, call: Callable) -> None:
    assert call("GET", f"/api/models?{query}").status == 400


# Ranges and large files


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        ("bytes=2-4", 206, slice(2, 5)),
        ("bytes=-3", 206, slice(-3, None)),
        ("bytes=7-", 206, slice(7, None)),
        ("bytes=5-999999999", 206, slice(5, None)),
        ("bytes=999999999-", 416, None),
        ("lines=1-2", 416, None),
    ],
)
def test_byte_ranges(asked: str, status: int, expected: slice, api: HfApi, call: Callable) -> None:
    files = {"t.txt": b"0123456789", "w.npy": LARGE}
    api.create_repo("range/x", exist_ok=True)
    api.create_commit("range/x", [CommitOperationAdd(n, d) for n, d in files.items()], commit_message="m")
    for name, data in files.items():
        answer = call("GET", f"/range/x/resolve/main/{name}", headers={"Range": asked})
        assert answer.status == status
        if expected is not None:
            assert answer.body == data[expected]
            assert answer.headers["content-range"].endswith(f"/{len(data)}")


def test_the_headers_that_a_download_needs(api: HfApi, call: Callable) -> None:
    api.create_repo("headers/x")
    files = [CommitOperationAdd("t.txt", b"text"), CommitOperationAdd("w.npy", LARGE)]
    commit = api.create_commit("headers/x", files, commit_message="m").oid
    small, large = (call("HEAD", f"/headers/x/resolve/main/{name}").headers for name in ("t.txt", "w.npy"))
    assert small["x-repo-commit"] == large["x-repo-commit"] == commit
    assert (small["content-length"], large["content-length"]) == ("4", "250000")
    digest = sha256(LARGE).hexdigest()
    assert small["etag"] == '"f3a34851d44d6b97c90fbb99dd3d18c261b9a237"'  # git hash-object
    assert large["etag"] == large["x-linked-etag"] == f'"{digest}"'
    assert large["x-linked-size"] == "250000"
    assert small["content-type"] == large["content-type"] == "application/octet-stream"
    absent = call("HEAD", "/headers/x/resolve/main/none.txt").headers
    assert (absent["x-error-code"], absent["x-repo-commit"]) == ("EntryNotFound", commit)


def test_upload_in_parts(tmp_path: Path) -> None:
    with running_hub(tmp_path / "store", part_size=100_000) as hub:
        api = HfApi(endpoint=hub.endpoint, token="t")
        api.create_repo("parts/x")
        for size in (100_000, 100_001, 250_000):  # one PUT, two parts, three parts
            file = CommitOperationAdd(f"{size}.npy", LARGE[:size])
            api.create_commit("parts/x", [file], commit_message="m")
            got = api.hf_hub_download("parts/x", f"{size}.npy", cache_dir=tmp_path / "cache")
            assert Path(got).read_bytes() == LARGE[:size]
        assert list((hub.root / "tmp").iterdir()) == []


def test_bytes_that_are_not_what_was_announced_are_not_kept(
    hub: RunningHub, api: HfApi, call: Callable
) -> None:
    api.create_repo("announced/x")
    oid = sha256(b"announced").hexdigest()
    body = {"operation": "upload", "objects": [{"oid": oid, "size": 9}]}
    answer = call("POST", "/announced/x.git/info/lfs/objects/batch", body)
    href = answer.json["objects"][0]["actions"]["upload"]["href"].removeprefix(hub.endpoint)
    assert call("PUT", href, b"different").status == 422
    assert call("PUT", href, b"far more bytes than announced").status == 413
    assert call("PUT", href.replace("size=9", "size=99"), b"announced").status == 403
    assert call("PUT", href.partition("?")[0], b"announced").status == 403
    assert call("POST", f"/lfs/{oid}/verify", {"oid": oid, "size": 9}).status == 404
    assert call("PUT", href, b"announced", token=None).status == 200
    assert call("POST", f"/lfs/{oid}/verify", {"oid": oid, "size": 9}).status == 200
    assert list((hub.root / "tmp").iterdir()) == []


def test_git_lfs_can_download(hub: RunningHub, api: HfApi, call: Callable) -> None:
    api.create_repo("gitlfs/x")
    api.create_commit("gitlfs/x", [CommitOperationAdd("w.npy", LARGE)], commit_message="m")
    asked = [{"oid": sha256(LARGE).hexdigest(), "size": len(LARGE)}, {"oid": "0" * 64, "size": 1}]
    body = {"operation": "download", "objects": asked}
    have, lack = call("POST", "/gitlfs/x.git/info/lfs/objects/batch", body, token=None).json["objects"]
    assert call("GET", have["actions"]["download"]["href"].removeprefix(hub.endpoint)).body == LARGE
    assert lack["error"]["code"] == 404
