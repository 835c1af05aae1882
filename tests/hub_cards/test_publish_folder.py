"""Publishing: a tag names bytes that were read back, and never moves; a run cut short is continued.

pytest tests/hub_cards/test_publish_folder.py
"""

from __future__ import annotations

import doctest
import re
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest
from aiohttp import web
from huggingface_hub import CommitOperationAdd, HfApi, constants

from stsr.hub_cards import publish, publishable
from stsr.hub_cards.loopback.process import RunningHub
from stsr.hub_cards.loopback.server import make_app
from stsr.hub_cards.loopback.store import Store
from stsr.hub_cards.publish import Published, fetch_revision, publish_folder
from stsr.hub_cards.publishable import PublishError, UnpublishableError

FILES = {
    "README.md": b"---\nlicense: apache-2.0\n---\n# Tables\n",
    "h4-full/train.parquet": bytes(range(256)) * 40,
    "größe/a b.json": b"{}",
    "empty.txt": b"",
}
REPO = "publish/tables"
# what the client says of itself, and of parquet in a model
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content", "ignore:It seems that you are about to commit")


@pytest.fixture(autouse=True)
def _xet_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a caller who has set nothing: publishing must see to xet by itself."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)


@pytest.fixture
def repo(api: HfApi) -> str:
    """A repository name that no test has used yet."""
    api.delete_repo(REPO, repo_type="dataset", missing_ok=True)
    return REPO


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def send(folder: Path, tag: str | None = "v1.0.0", **more: bool) -> Published:
    return publish_folder(folder, REPO, "dataset", tag=tag, message="Version", **more)


def state(api: HfApi) -> tuple[int, dict[str, str]]:
    """(number of commits, tags) of the repository."""
    tags = {ref.name: ref.target_commit for ref in api.list_repo_refs(REPO, repo_type="dataset").tags}
    return len(api.list_repo_commits(REPO, repo_type="dataset")), tags


def contents(api: HfApi, revision: str, cache: Path) -> dict[str, bytes]:
    got = Path(api.snapshot_download(REPO, repo_type="dataset", revision=revision, cache_dir=cache))
    return {p.relative_to(got).as_posix(): p.read_bytes() for p in got.rglob("*") if p.is_file()}


# What is published


def test_one_commit_and_a_tag(api: HfApi, hub: RunningHub, repo: str, folder: Path, tmp_path: Path) -> None:
    done = send(folder)
    assert done == (REPO, done.commit, "v1.0.0", hub.endpoint, True)
    assert state(api) == (2, {"v1.0.0": done.commit})  # the Hub's first commit, and ours
    got = contents(api, "v1.0.0", tmp_path / "cache")
    assert got.pop(".gitattributes")
    assert got == FILES
    assert constants.HF_HUB_DISABLE_XET is False  # left as it was found


def test_again_is_no_change(api: HfApi, repo: str, folder: Path) -> None:
    first = send(folder)
    before = state(api)
    assert send(folder) == first._replace(created=False)
    assert send(folder, tag=None) == first._replace(tag=None, created=False)
    assert state(api) == before


def test_a_new_version_deletes_what_vanished(api: HfApi, repo: str, folder: Path, tmp_path: Path) -> None:
    send(folder)
    (folder / "h4-full" / "train.parquet").unlink()
    (folder / "h4-full").rmdir()
    (folder / "h4-full").write_text("a file where a folder was")
    (folder / "empty.txt").write_text("no longer")
    second = send(folder, "v1.1.0")
    assert state(api)[0] == 3
    assert sorted(contents(api, second.commit, tmp_path / "cache")) == [
        *(".gitattributes", "README.md", "empty.txt", "größe/a b.json", "h4-full")
    ]
    assert "h4-full/train.parquet" in contents(api, "v1.0.0", tmp_path / "cache")


def test_an_old_version_can_be_published_again_after_a_new_one(api: HfApi, repo: str, folder: Path) -> None:
    first = send(folder)
    (folder / "empty.txt").write_text("new")
    send(folder, "v1.1.0")
    (folder / "empty.txt").write_text("")
    assert send(folder) == first._replace(created=False)


def test_a_changed_tag_is_refused_and_nothing_written(api: HfApi, repo: str, folder: Path) -> None:
    send(folder)
    before = state(api)
    for n in range(7):
        (folder / f"new-{n}.txt").write_text("")
    with pytest.raises(
        PublishError, match=r"tag v1.0.0 of dataset publish/tables .*bump the version"
    ) as caught:
        send(folder)
    assert "(new-0.txt, new-1.txt, new-2.txt, new-3.txt, new-4.txt and 2 more)" in str(caught.value)
    assert state(api) == before
    for n in range(7):
        (folder / f"new-{n}.txt").unlink()
    (folder / "h4-full" / "train.parquet").write_bytes(FILES["h4-full/train.parquet"][::-1])  # same size
    with pytest.raises(PublishError, match=r"\(h4-full/train.parquet\)"):
        send(folder)
    (folder / "h4-full" / "train.parquet").unlink()
    with pytest.raises(PublishError, match=r"\(h4-full/train.parquet\)"):
        send(folder)
    assert state(api) == before


def test_what_is_ignored_is_not_sent(api: HfApi, repo: str, folder: Path, tmp_path: Path) -> None:
    for name in (".git/config", ".DS_Store", "sub/__pycache__/x.pyc", ".cache/huggingface/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    done = send(folder)
    assert contents(api, done.commit, tmp_path / "cache").keys() == FILES.keys() | {".gitattributes"}


def test_a_model(api: HfApi, folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    done = publish_folder(folder, "publish/model", "model", tag="v1", message="m")
    assert fetch_revision("publish/model", "model", "v1") == done.commit


def test_a_report_is_a_static_space(api: HfApi, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("---\ntitle: Report\nsdk: static\napp_file: report.html\n---\n")
    with pytest.raises(UnpublishableError, match="holds no HTML page"):
        publish_folder(tmp_path, "publish/report", "space", tag=None, message="m")
    (tmp_path / "report.html").write_text("<!doctype html>")
    done = publish_folder(tmp_path, "publish/report", "space", tag="v1", message="m")
    assert fetch_revision("publish/report", "space", "v1") == done.commit
    assert "report.html" in api.list_repo_files("publish/report", repo_type="space")


# What goes wrong


def test_bytes_that_come_back_different_are_not_tagged(
    api: HfApi, hub: RunningHub, repo: str, folder: Path
) -> None:
    send(folder)
    digest = sha256(FILES["h4-full/train.parquet"]).hexdigest()
    (stored,) = hub.root.glob(f"lfs/*/*/{digest}")
    stored.write_bytes(b"!" + FILES["h4-full/train.parquet"][1:])
    try:
        with pytest.raises(PublishError, match=r"other bytes than were sent \(h4-full/train.parquet\)"):
            send(folder, "v1.0.1")
        assert state(api)[1].keys() == {"v1.0.0"}
        stored.write_bytes(b"cut short")
        with pytest.raises(PublishError):
            send(folder, "v1.0.1")
    finally:
        stored.write_bytes(FILES["h4-full/train.parquet"])
    assert send(folder, "v1.0.1").created


@pytest.mark.parametrize("step", ["_read_back", "_tag"])
def test_killed_after_the_commit_it_continues(
    step: str, api: HfApi, repo: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publish, step, killed)
        with pytest.raises(KeyboardInterrupt):
            send(folder)
    assert state(api) == (2, {})
    done = send(folder)
    assert done.created
    assert state(api) == (2, {"v1.0.0": done.commit})


def test_a_commit_of_someone_else_in_between_is_retried(
    api: HfApi, repo: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = HfApi.create_commit, [2]

    def create_commit(self: HfApi, repo_id: str, *rest: object, **more: object) -> object:
        if self is not api and others[0]:
            others[0] -= 1
            theirs = [CommitOperationAdd(f"theirs-{others[0]}.txt", b"")]
            real(api, repo_id, theirs, commit_message="theirs", repo_type="dataset")
        return real(self, repo_id, *rest, **more)

    monkeypatch.setattr(HfApi, "create_commit", create_commit)
    done = send(folder)
    assert state(api) == (4, {"v1.0.0": done.commit})  # first, theirs, theirs, ours
    assert contents(api, done.commit, tmp_path / "cache").keys() == FILES.keys() | {".gitattributes"}


def test_a_tag_that_someone_else_sets_in_between(
    api: HfApi, repo: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = publish._read_back

    def read_back(target: object, commit: str, local: object) -> None:
        real(target, commit, local)
        api.create_tag(REPO, tag="v1.0.0", repo_type="dataset", revision=revision or commit)

    monkeypatch.setattr(publish, "_read_back", read_back)
    revision = None
    done = send(folder)
    assert state(api)[1] == {"v1.0.0": done.commit}
    api.delete_tag(REPO, tag="v1.0.0", repo_type="dataset")
    revision = api.list_repo_commits(REPO, repo_type="dataset")[-1].commit_id
    with pytest.raises(PublishError, match="bump the version"):
        send(folder)


def test_a_hub_that_is_down_is_one_clear_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for action in (lambda: send(folder), lambda: fetch_revision(REPO, "dataset", "main")):
            with pytest.raises(
                PublishError, match=r"cannot reach http://127.0.0.1:\d+: .*is the Hub running"
            ) as caught:
                action()
            assert "\n" not in str(caught.value)


# What may not be published


@pytest.mark.parametrize(
    "name",
    [
        "pytorch_model.bin",
        "training_args.bin",
        "deep/x.PT",
        "x.pth",
        "x.pkl",
        "x.pickle",
        "x.ckpt",
        "x.joblib",
    ],
)
def test_a_pickle_is_refused(name: str, api: HfApi, repo: str, folder: Path) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"")
    with pytest.raises(PublishError, match=f"{name} is a pickle by its name"):
        send(folder)
    assert not api.repo_exists(REPO, repo_type="dataset")


def test_a_folder_must_hold_a_card_and_plain_files(
    api: HfApi, repo: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "link.txt").symlink_to(folder / "README.md")
    with pytest.raises(PublishError, match=r"link.txt is a symbolic link"):
        send(folder)
    (folder / "link.txt").unlink()
    (folder / "linked").symlink_to(tmp_path)
    with pytest.raises(PublishError, match="linked is a symbolic link"):
        send(folder)
    (folder / "linked").unlink()
    (folder / "README.md").unlink()
    with pytest.raises(PublishError, match=r"has no README.md"):
        send(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PublishError, match="holds no file"):
        send(tmp_path / "empty")
    with pytest.raises(PublishError, match="is not a folder"):
        send(tmp_path / "nowhere")
    assert not api.repo_exists(REPO, repo_type="dataset")


def test_a_bad_name_or_card_is_one_clear_line(api: HfApi, repo: str, folder: Path) -> None:
    with pytest.raises(PublishError, match="bad//name"):
        publish_folder(folder, "bad//name", "dataset", tag=None, message="m")
    (folder / "README.md").write_text("---\ntags: [unclosed\n---\n")
    with pytest.raises(PublishError, match="YAML"):
        send(folder)


@pytest.mark.parametrize(
    "tag", ["v 1", "a..b", "v1.", ".v1", "v1.lock", "v~1", "v1:2", "", "-v1", "a/b", "v1@{2}", "a" * 40]
)
def test_a_malformed_tag_is_refused_before_anything_is_sent(
    tag: str, api: HfApi, repo: str, folder: Path
) -> None:
    with pytest.raises(UnpublishableError, match=re.escape(repr(tag))):
        send(folder, tag)
    assert not api.repo_exists(REPO, repo_type="dataset")


@pytest.mark.parametrize("name", ["bad repo!!", "a/b/c", "", "a--b/c", "x" * 97])
def test_a_bad_hub_id_is_refused_before_anything_is_sent(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UnpublishableError, match="is not a Hub id such as"):
        publish_folder(folder, name, "dataset", tag=None, message="m")


def test_a_data_set_is_no_model_and_a_model_no_data_set(api: HfApi, folder: Path) -> None:
    with pytest.raises(
        UnpublishableError, match=r"holds a data set \(h4-full/train.parquet\).*--type dataset"
    ):
        publish_folder(folder, "publish/kind", "model", tag=None, message="m")
    (folder / "h4-full/train.parquet").unlink()
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(UnpublishableError, match=r"holds a model \(adapter_config.json\).*--type model"):
        publish_folder(folder, "publish/kind", "dataset", tag=None, message="m")
    for kind in ("model", "dataset"):
        assert not api.repo_exists("publish/kind", repo_type=kind)


@pytest.mark.parametrize(
    ("manifest", "tag", "says"),
    [
        ('{"version": "1.1.0"}', "v1.0.0", "holds version 1.1.0 by its manifest: --tag v1.1.0, not v1.0.0"),
        ('{"version": "1.1.0"}', "1.1.0", "--tag v1.1.0, not 1.1.0"),
        ("{}", "v1.0.0", "tells no version"),
        ("[]", "v1.0.0", "tells no version"),
        ("{", "v1.0.0", "tells no version"),
    ],
)
def test_a_tag_that_contradicts_the_manifest_is_refused(
    manifest: str, tag: str, says: str, api: HfApi, repo: str, folder: Path
) -> None:
    (folder / "manifest.json").write_text(manifest)
    with pytest.raises(UnpublishableError, match=re.escape(says)):
        send(folder, tag)
    assert not api.repo_exists(REPO, repo_type="dataset")


def test_examples_in_the_docstrings() -> None:
    assert doctest.testmod(publishable).failed == 0
    assert doctest.testmod(publish).failed == 0


# Where to, and with which token


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://localhost", True),
        ("http://[::1]:80", True),
        ("http://127.0.0.1.hub.example", False),
        ("http://localhost.hub.example", False),
        ("https://hub.example", False),
        ("http://127.0.0.1@hub.example", False),
        ("http://10.0.0.1", False),
        ("", False),
    ],
)
def test_what_is_loopback(endpoint: str, local: bool) -> None:
    assert publish.is_loopback(endpoint) is local


def test_another_hub_needs_a_yes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")
    with pytest.raises(PublishError) as caught:
        send(folder)
    assert f"send 4 files (0.0 MB) of {folder} to the private dataset {REPO} at https://hub.invalid" in str(
        caught.value
    )
    assert "--yes" in str(caught.value)
    assert "hf_secret" not in str(caught.value)
    with pytest.raises(PublishError, match="to the public dataset"):
        send(folder, public=True)


@pytest.fixture
def recorded(
    tmp_path: Path,
    served: Callable[[web.Application], AbstractContextManager[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> object:
    """A Hub in this process that notes who calls; the user has a token of their own."""
    seen: list[str | None] = []
    app = make_app(Store(tmp_path / "store"), part_size=1000)

    async def note(request: web.Request, response: web.StreamResponse) -> None:
        seen.append(request.headers.get("Authorization"))

    app.on_response_prepare.append(note)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with served(app) as endpoint:
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield seen


def test_loopback_never_gets_the_users_token(recorded: list[str | None], folder: Path) -> None:
    send(folder)
    fetch_revision(REPO, "dataset", "v1.0.0")
    assert len(recorded) > 10
    # the parts of a large file travel without any, by an address that the server gave out
    assert set(recorded) == {"Bearer loopback", None}


def test_another_hub_gets_a_private_repository_unless_asked(
    recorded: list[str | None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code path, told that this Hub is not on loopback."""
    monkeypatch.setattr(publish, "is_loopback", lambda endpoint: False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    owner = HfApi(endpoint=constants.ENDPOINT, token="t")
    assert send(folder, yes=True).created
    assert owner.repo_info(REPO, repo_type="dataset").private
    assert set(recorded) - {"Bearer t"} == {"Bearer hf_secret", None}
    assert send(folder, yes=True, public=True).created is False  # what is private stays so

    owner.update_repo_settings(REPO, repo_type="dataset", private=False)
    (folder / "empty.txt").write_text("secret")
    with pytest.raises(PublishError, match="is public already"):
        send(folder, "v2", yes=True)
    assert state(owner)[0] == 2
    assert send(folder, "v2", yes=True, public=True).created


# Revisions


def test_fetch_revision(api: HfApi, repo: str, folder: Path) -> None:
    commit = send(folder).commit
    api.create_branch(REPO, branch="dev", repo_type="dataset")
    assert {fetch_revision(REPO, "dataset", r) for r in ("main", "dev", "v1.0.0", commit)} == {commit}
    with pytest.raises(PublishError, match=r"has no revision v9; tags: v1.0.0; branches: dev, main$"):
        fetch_revision(REPO, "dataset", "v9")
    with pytest.raises(PublishError, match="there is no model publish/tables"):
        fetch_revision(REPO, "model", "main")


def test_a_users_process_publishes_and_another_loads(
    repo: str, folder: Path, run_client: Callable[..., str], hub: RunningHub
) -> None:
    """Nothing but HF_ENDPOINT is set: not the token, and not xet, which publishing must see to."""
    program = f"""
from pathlib import Path
from stsr.hub_cards.publish import publish_folder
print(publish_folder(Path({str(folder)!r}), {repo!r}, "dataset", tag="v1", message="m").endpoint)
"""
    assert run_client(program, HF_HUB_DISABLE_XET="0", HF_TOKEN="") == hub.endpoint
    load = f"""
from huggingface_hub import snapshot_download
print(snapshot_download({repo!r}, repo_type="dataset", revision="v1"))
"""
    assert (Path(run_client(load, HF_HUB_DISABLE_XET="0")) / "größe/a b.json").read_bytes() == b"{}"
