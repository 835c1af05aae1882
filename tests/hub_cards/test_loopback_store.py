"""The store: git itself is the witness, and no name, crash, race or full disk gets anything half done.

pytest tests/hub_cards/test_loopback_store.py
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from http.client import HTTPConnection
from json import dumps, loads
from pathlib import Path

import pytest
from aiohttp import web
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError
from hypothesis import given
from hypothesis import strategies as st

from stsr.hub_cards.loopback import gitrepo, names
from stsr.hub_cards.loopback.errors import StoreError
from stsr.hub_cards.loopback.process import RunningHub, running_hub
from stsr.hub_cards.loopback.server import make_app
from stsr.hub_cards.loopback.store import Store

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content")  # what the client says of itself
LARGE = os.urandom(3_000_000)


def git(*words: str | Path) -> str:
    # no configuration of the user's: their git-lfs would replace pointers at checkout
    env = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(["git", *map(str, words)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def add(path: str, data: bytes) -> CommitOperationAdd:
    return CommitOperationAdd(path, data)


def refusal(action: Callable[[], object]) -> int:
    """The HTTP status with which the Hub refuses `action`."""
    with pytest.raises((HfHubHTTPError, RuntimeError)) as caught:
        action()
    # the client wraps the failure of a large file
    error = caught.value if isinstance(caught.value, HfHubHTTPError) else caught.value.__cause__
    assert isinstance(error, HfHubHTTPError), repr(error)
    return error.response.status_code


def test_git_agrees_with_what_was_stored(api: HfApi, hub: RunningHub, tmp_path: Path) -> None:
    api.create_repo("git/x", repo_type="dataset")
    texts = {"a.txt": b"a", "a-b/c.txt": b"c", "a.b": b"b", "a/ö.txt": "ö".encode(), "a/b/d.txt": b"d"}
    files = [*(add(name, data) for name, data in texts.items()), add("w.npy", LARGE)]
    api.create_commit("git/x", files, commit_message="ünï\n\ncode", repo_type="dataset")
    api.create_tag("git/x", tag="v1", repo_type="dataset")
    bare = hub.root / "datasets" / "git" / "x.git"
    assert git("-C", bare, "fsck", "--strict", "--full") == ""
    git("clone", "--branch", "v1", bare, tmp_path / "clone")
    assert {name: (tmp_path / "clone" / name).read_bytes() for name in texts} == texts
    pointer = (tmp_path / "clone" / "w.npy").read_text().splitlines()
    assert pointer[1:] == [f"oid sha256:{sha256(LARGE).hexdigest()}", "size 3000000"]
    assert git("-C", bare, "log", "-1", "--format=%B", "v1").strip() == "ünï\n\ncode"


# Names


@given(st.text(alphabet="ab./\\\0~:-é \n", max_size=12) | st.text(max_size=30))
def test_a_path_that_passes_stays_in_its_folder(path: str) -> None:
    try:
        names.file_path(path)
    except (StoreError, UnicodeEncodeError):
        return
    assert os.path.normpath(f"/store/{path}") == f"/store/{path}"
    assert ".git" not in path.lower().split("/")


@given(st.text(alphabet="abé1./-", max_size=10) | st.text(alphabet="ab~:-@{.[ \n", max_size=4))
def test_a_reference_that_passes_is_one_for_git(name: str) -> None:
    try:
        names.ref_name(name)
    except StoreError:
        return
    assert subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"]).returncode == 0


@pytest.mark.parametrize(
    "repo_id",
    [
        "x",
        "a/b/c",
        "../x",
        "a/..",
        "a/.git",
        "a/b.git",
        "api/x",
        "datasets/x",
        "a/-b",
        "a/b--c",
        "a/b\0",
        "a\\b/c",
    ],
)
def test_a_repository_cannot_be_called(repo_id: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        Store(tmp_path).create("models", repo_id, private=False)
    assert caught.value.status == 400
    assert list(tmp_path.glob("models/**/*")) == []


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "a/../../x",
        "/etc/x",
        "a//b",
        ".git/config",
        "a/.GIT/x",
        "a\\b",
        "a\0b",
        "a/",
        "",
        ".",
        "git~1/x",
        "\ud800",
    ],
)
def test_a_commit_cannot_write_to(path: str, api: HfApi, call: Callable) -> None:
    api.create_repo("paths/x", exist_ok=True)
    head = api.repo_info("paths/x").sha
    header = b'{"key": "header", "value": {"summary": "s"}}\n'
    for key in ("file", "deletedFile"):
        line = dumps({"key": key, "value": {"path": path, "content": "x"}}).encode()
        answer = call("POST", "/api/models/paths/x/commit/main", header + line)
        assert answer.status == 400
    assert api.repo_info("paths/x").sha == head


@pytest.mark.parametrize(
    "url",
    [
        "/paths/read/resolve/main/../../../server.lock",
        "/paths/read/resolve/main/%2e%2e/%2e%2e/config",
        "/paths/read/resolve/main/..%2f..%2fconfig",
        "/paths/read/resolve/..%2f..%2fHEAD/x",
        "/paths/read.git/../../../etc/passwd",
        "/../etc/passwd",
        "/..%2f../x/resolve/main/x",
        "/lfs/..%2f..%2fserver.lock",
        "/lfs/" + "A" * 64,
        "/api/models/paths/..%2f..",
        "/api/models/%2e%2e/paths/tree/main",
        "/api/models/paths/read/tree/main/..%2f..",
        "/api/models/paths/read/revision/refs%2f..%2f..%2fconfig",
        "//etc/passwd",
    ],
)
def test_a_url_reads_nothing_outside(url: str, api: HfApi, call: Callable) -> None:
    api.create_repo("paths/read", exist_ok=True)
    answer = call("GET", url)
    assert answer.status in (400, 404)
    assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "name", ["../x", "a..b", "x.lock", ".x", "a b", "HEAD", "a" * 40, "x/", "-x", "refs/heads/x"]
)
def test_a_tag_cannot_be_called(name: str, api: HfApi, call: Callable) -> None:
    api.create_repo("tags/x", exist_ok=True)
    assert call("POST", "/api/models/tags/x/tag/main", {"tag": name}).status == 400
    assert api.list_repo_refs("tags/x").tags == []


def test_a_file_and_a_folder_of_one_name(api: HfApi) -> None:
    api.create_repo("both/x")
    both = [add("a", b""), add("a/b", b"")]
    assert refusal(lambda: api.create_commit("both/x", both, commit_message="m")) == 400
    api.create_tag("both/x", tag="v1")
    assert refusal(lambda: api.create_tag("both/x", tag="v1/x")) == 409


# Races


def test_of_two_commits_on_one_parent_one_wins(api: HfApi) -> None:
    api.create_repo("race/x")
    parent = api.repo_info("race/x").sha
    outcomes: list[int] = []

    def commit(n: int) -> None:
        try:
            api.create_commit("race/x", [add(f"{n}.txt", b"")], commit_message=f"{n}", parent_commit=parent)
            outcomes.append(200)
        except HfHubHTTPError as error:
            outcomes.append(error.response.status_code)

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [200, 412, 412, 412, 412, 412]
    assert len(api.list_repo_commits("race/x")) == 2


def test_commits_without_a_parent_all_land(api: HfApi) -> None:
    api.create_repo("race/y")

    def commit(n: int) -> None:
        api.create_commit("race/y", [add(f"{n}.txt", b"")], commit_message=f"{n}")

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(api.list_repo_commits("race/y")) == 7
    assert len(api.list_repo_files("race/y")) == 7


# Crashes and full disks


def test_killed_in_mid_upload(tmp_path: Path) -> None:
    """A server killed while it receives a file leaves no trace of it, and a restart goes on."""
    root, oid = tmp_path / "store", sha256(LARGE).hexdigest()
    with running_hub(root) as hub:
        api = HfApi(endpoint=hub.endpoint, token="t")
        api.create_repo("kill/x")
        request = {"operation": "upload", "objects": [{"oid": oid, "size": len(LARGE)}]}
        host = hub.endpoint.removeprefix("http://")

        connection = HTTPConnection(host)
        batch, token = "/kill/x.git/info/lfs/objects/batch", {"Authorization": "Bearer t"}
        connection.request("POST", batch, dumps(request), token)
        href = loads(connection.getresponse().read())["objects"][0]["actions"]["upload"]["href"]
        with socket.create_connection(tuple(host.split(":"))) as half:
            path = href.removeprefix(hub.endpoint)
            head = f"PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(LARGE)}\r\n\r\n"
            half.sendall(head.encode())
            half.sendall(LARGE[: len(LARGE) // 2])
            while not any(file.stat().st_size for file in (root / "tmp").iterdir()):
                pass
            os.kill(hub.pid, signal.SIGKILL)
    assert list((root / "tmp").iterdir()) != []
    assert not (root / "lfs").exists()
    with running_hub(root) as hub:
        assert list((root / "tmp").iterdir()) == []
        api = HfApi(endpoint=hub.endpoint, token="t")
        api.create_commit("kill/x", [add("w.npy", LARGE)], commit_message="again")
        assert Path(api.hf_hub_download("kill/x", "w.npy", cache_dir=tmp_path)).read_bytes() == LARGE
    assert git("-C", root / "models" / "kill" / "x.git", "fsck", "--strict") == ""


def test_no_space_for_a_large_file(tmp_path: Path) -> None:
    """The kernel refuses to let files grow past 1 MB: the upload gets 507, what fits still works."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        server = running_hub(tmp_path / "store")
        hub = server.__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    try:
        api = HfApi(endpoint=hub.endpoint, token="t")
        api.create_repo("full/x")
        assert refusal(lambda: api.create_commit("full/x", [add("w.npy", LARGE)], commit_message="m")) == 507
        assert list((hub.root / "tmp").iterdir()) == []
        assert not (hub.root / "lfs").exists()
        api.create_commit("full/x", [add("w.npy", LARGE[:500_000])], commit_message="m")
        assert "w.npy" in api.list_repo_files("full/x")
    finally:
        server.__exit__(None, None, None)


def test_no_space_at_any_write_of_a_commit(
    tmp_path: Path,
    served: Callable[[web.Application], AbstractContextManager[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever of a commit's writes fails, the branch stays where it was; then there is space again."""
    store, left = Store(tmp_path), [10**6]

    def scarce(path: Path, data: bytes, scratch: Path) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(path, data, scratch)

    real = gitrepo.write_atomic
    monkeypatch.setattr(gitrepo, "write_atomic", scarce)
    with served(make_app(store)) as endpoint:
        api = HfApi(endpoint=endpoint, token="t")
        api.create_repo("full/x")
        head = api.repo_info("full/x").sha
        for writes in range(5):  # a blob, two trees, the commit, the reference
            left[0] = writes
            files = [add(f"d/{writes}.txt", str(writes).encode())]
            assert refusal(lambda files=files: api.create_commit("full/x", files, commit_message="m")) == 507
            assert api.repo_info("full/x").sha == head
        left[0] = 5
        api.create_commit("full/x", [add("d/new.txt", b"new")], commit_message="m")
        left[0] = 0
        assert refusal(lambda: api.create_repo("full/y")) == 507
        assert not api.repo_exists("full/y")
        assert list(store.scratch.iterdir()) == []
