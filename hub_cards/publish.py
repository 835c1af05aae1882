"""Publishing a folder as a data set, model or static Space, to the Hub on loopback or the public one alike.

    publish_folder(Path("out/table-workflows"), "stsr/table-workflows", "dataset",
                   tag="v1.0.0", message="Version 1.0.0")

HF_ENDPOINT alone decides where to. Invariant: a tag names bytes that were read back after the commit and
equal the folder's, and never moves. So the order is commit, read back, tag; a run that was killed in
between is continued by running it again, and a run over a finished one changes nothing.

A token is never printed or stored. To loopback the constant "loopback" is sent, never the user's own.
"""

from __future__ import annotations

import hashlib
import ipaddress
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, RepoFile, constants
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

from stsr.hub_cards.publishable import DEFAULT_IGNORE, PublishError, RepoType, publishable

LOOPBACK_TOKEN = "loopback"

# The Hub puts this file into each new repository; a folder need not hold it.
_HUB_OWN = ".gitattributes"
_ATTEMPTS = 5


class UnreachableError(PublishError):
    """No Hub answers at the endpoint."""


class Published(NamedTuple):
    """A publication: where, at which commit (40 hex digits) and tag; whether this call changed anything."""

    repo_id: str
    commit: str
    tag: str | None
    endpoint: str
    created: bool


class _File(NamedTuple):
    """A file of the folder: its path on disk, size in bytes, SHA-256 and git id."""

    path: Path
    size: int
    sha256: str
    git_oid: str


class _Target(NamedTuple):
    """The repository to publish to. `api` holds the endpoint and the token."""

    api: HfApi
    repo_id: str
    repo_type: RepoType

    def __str__(self) -> str:
        return f"{self.repo_type} {self.repo_id} at {self.api.endpoint}"


# The endpoint


def is_loopback(endpoint: str) -> bool:
    """Whether an address names this machine and nothing else.

    >>> is_loopback("http://127.0.0.1:8080"), is_loopback("http://127.0.0.1.example")
    (True, False)
    """
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _api() -> HfApi:
    endpoint = constants.ENDPOINT
    return HfApi(endpoint=endpoint, token=LOOPBACK_TOKEN if is_loopback(endpoint) else None)


@contextmanager
def _without_xet() -> Iterator[None]:
    """Have huggingface_hub move bytes over plain HTTP. It looks this flag up at each call."""
    before = constants.HF_HUB_DISABLE_XET
    constants.HF_HUB_DISABLE_XET = True
    try:
        yield
    finally:
        constants.HF_HUB_DISABLE_XET = before


@contextmanager
def _plain_errors(target: _Target) -> Iterator[None]:
    """Turn what the client raises about the network or the Hub's answer into one PublishError."""
    try:
        yield
    except httpx2.ConnectError as error:
        raise UnreachableError(f"cannot reach {target.api.endpoint}: {error}; is the Hub running?") from error
    except PublishError:
        raise
    except (HfHubHTTPError, httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        # for a large file the client raises a bare RuntimeError, and what happened is its cause
        reasons = " ".join(f"{error} {error.__cause__ or ''}".split())
        raise PublishError(f"{target}: {reasons}") from error


# The folder


def _digest(path: Path) -> _File:
    size = path.stat().st_size
    sha256, sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            sha256.update(chunk)
            sha1.update(chunk)
    return _File(path, size, sha256.hexdigest(), sha1.hexdigest())


# The repository


def _remote(target: _Target, revision: str) -> dict[str, RepoFile]:
    """The repository's files at a revision, without the Hub's own one."""
    rows = target.api.list_repo_tree(
        target.repo_id, recursive=True, revision=revision, repo_type=target.repo_type
    )
    return {row.path: row for row in rows if isinstance(row, RepoFile)}


def _same(local: _File, remote: RepoFile | None) -> bool:
    if remote is None or remote.size != local.size:
        return False
    return remote.lfs.sha256 == local.sha256 if remote.lfs else remote.blob_id == local.git_oid


def _changed(local: Mapping[str, _File], remote: Mapping[str, RepoFile]) -> tuple[list[str], list[str]]:
    """(files to upload, files to delete) that make the repository equal to the folder."""
    upload = [name for name, file in local.items() if not _same(file, remote.get(name))]
    return upload, sorted(remote.keys() - local.keys() - {_HUB_OWN})


def _commit_of_tag(target: _Target, tag: str, local: Mapping[str, _File]) -> str | None:
    """The commit of a tag that exists and names the folder's contents; None if there is no such tag.

    Raises PublishError if the tag names other contents.
    """
    refs = target.api.list_repo_refs(target.repo_id, repo_type=target.repo_type)
    if tag not in {ref.name for ref in refs.tags}:
        return None
    upload, vanished = _changed(local, _remote(target, tag))
    if different := sorted([*upload, *vanished]):
        shown = ", ".join(different[:5]) + (f" and {len(different) - 5} more" if len(different) > 5 else "")
        raise PublishError(
            f"tag {tag} of {target} names other contents ({shown}) and must not change: bump the version"
        )
    return _head(target, tag)


def _head(target: _Target, revision: str | None) -> str:
    info = target.api.repo_info(target.repo_id, revision=revision, repo_type=target.repo_type)
    if info.sha is None:
        raise PublishError(f"{target} does not tell the commit of {revision or 'its default branch'}")
    return info.sha


def _commit(target: _Target, local: Mapping[str, _File], message: str) -> tuple[str, bool]:
    """Make main equal to the folder in one commit, on top of the very head that was compared.

    Returns the commit and whether it is new; there is none if main equals the folder already.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        head = _head(target, "main")
        upload, vanished = _changed(local, _remote(target, head))
        if not upload and not vanished:
            return head, False
        # deletions first: a file may give way to a folder of its name
        deletions = [CommitOperationDelete(name) for name in vanished]
        additions = [CommitOperationAdd(name, local[name].path) for name in upload]
        try:
            done = target.api.create_commit(
                target.repo_id,
                [*deletions, *additions],
                commit_message=message,
                repo_type=target.repo_type,
                parent_commit=head,
            )
        except HfHubHTTPError as error:
            # someone else has committed since: compare with what they left, and try again
            if error.response.status_code != 412 or attempt == _ATTEMPTS:
                raise
        else:
            return done.oid, True
    raise AssertionError("the last attempt returns or raises")


def _read_back(target: _Target, commit: str, local: Mapping[str, _File]) -> None:
    """Download the commit into an empty cache over plain HTTP and compare. Raises PublishError."""
    with tempfile.TemporaryDirectory(prefix="stsr-read-back-") as cache, _without_xet():
        got = Path(
            target.api.snapshot_download(
                target.repo_id, repo_type=target.repo_type, revision=commit, cache_dir=cache
            )
        )
        names = {path.relative_to(got).as_posix() for path in got.rglob("*") if path.is_file()}
        wrong = (names ^ local.keys()) - ({_HUB_OWN} - local.keys())
        wrong |= {name for name in names & local.keys() if _digest(got / name).sha256 != local[name].sha256}
    if wrong:
        shown = ", ".join(sorted(wrong)[:5])
        raise PublishError(
            f"{target} gives back other bytes than were sent ({shown}); {commit} is not tagged"
        )


def _tag(target: _Target, commit: str, tag: str, message: str, local: Mapping[str, _File]) -> str:
    """Tag the commit; return the commit that the tag names."""
    try:
        target.api.create_tag(
            target.repo_id, tag=tag, tag_message=message, revision=commit, repo_type=target.repo_type
        )
    except HfHubHTTPError as error:
        # someone else was faster; that is fine if they published the same
        if error.response.status_code != 409 or not (theirs := _commit_of_tag(target, tag, local)):
            raise
        return theirs
    return commit


def _prepare(target: _Target, public: bool) -> None:
    """Make the repository if need be. Raises PublishError rather than publish to more eyes than asked."""
    local = is_loopback(target.api.endpoint)
    target.api.create_repo(
        target.repo_id,
        repo_type=target.repo_type,
        private=not (public or local),
        exist_ok=True,
        space_sdk="static" if target.repo_type == "space" else None,
    )
    info = target.api.repo_info(target.repo_id, repo_type=target.repo_type)
    if not (public or local or info.private):
        raise PublishError(f"{target} is public already: publish with --public, or make it private first")


def publish_folder(
    folder: Path,
    repo_id: str,
    repo_type: RepoType,
    *,
    tag: str | None,
    message: str,
    public: bool = False,
    yes: bool = False,
    ignore: Sequence[str] = DEFAULT_IGNORE,
) -> Published:
    """Publish the contents of `folder` as one commit to main, read it back, and tag it.

    The repository is made if need be: public on loopback, else private unless `public`. Any Hub but the
    one on loopback needs `yes`. `ignore` are patterns over paths in the folder, `*` matching slashes too.

    Raises PublishError, having changed nothing: the folder or a name is refused (UnpublishableError, see
    `publishable`); `yes` is missing; the tag exists with other contents. Raises it, with the commit
    made but not tagged, if the bytes read back differ or the Hub fails; run again to continue.
    """
    paths = publishable(folder, repo_id, repo_type, tag, ignore)
    target = _Target(_api(), repo_id, repo_type)
    loopback = is_loopback(target.api.endpoint)
    if not loopback and not yes:
        size = sum(path.stat().st_size for path in paths.values()) / 1e6
        seen = "public" if public else "private"
        raise PublishError(
            f"this would send {len(paths)} files ({size:.1f} MB) of {folder} to the {seen} {target}: "
            "confirm with --yes, or set HF_ENDPOINT to a Hub on loopback"
        )
    local = {name: _digest(path) for name, path in paths.items()}
    with _plain_errors(target), _without_xet() if loopback else nullcontext():
        _prepare(target, public)
        if tag is not None and (commit := _commit_of_tag(target, tag, local)):
            return Published(repo_id, commit, tag, target.api.endpoint, created=False)
        commit, is_new = _commit(target, local, message)
        _read_back(target, commit, local)
        if tag is not None:
            commit = _tag(target, commit, tag, message, local)
        return Published(repo_id, commit, tag, target.api.endpoint, created=is_new or tag is not None)


def fetch_revision(repo_id: str, repo_type: RepoType, revision: str | None) -> str:
    """The commit (40 hex digits) of a branch, tag or commit of a repository; None is the default branch.

    Raises PublishError if the repository does not exist, or the revision does not; then it names those
    that do.
    """
    target = _Target(_api(), repo_id, repo_type)
    with _plain_errors(target):
        try:
            return _head(target, revision)
        except RepositoryNotFoundError as error:
            raise PublishError(f"there is no {target}, or its token may not see it") from error
        except RevisionNotFoundError as error:
            refs = target.api.list_repo_refs(repo_id, repo_type=repo_type)
            tags, branches = ([ref.name for ref in found] for found in (refs.tags, refs.branches))
            raise PublishError(
                f"{target} has no revision {revision}; tags: {', '.join(sorted(tags)) or 'none'}; "
                f"branches: {', '.join(sorted(branches)) or 'none'}"
            ) from error
