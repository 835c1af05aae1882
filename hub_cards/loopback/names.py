"""What a repository, a file in it and a revision may be called.

Invariant: a name that passes here can be joined to a folder of the store without leaving it, and is
accepted by `git fsck`. Everything that a client sends passes through this file before it nears the disk.
"""

from __future__ import annotations

import re

from stsr.hub_cards.loopback.errors import RepoAbsent, StoreError

KINDS = ("models", "datasets", "spaces")

# Path heads of the protocol itself. As a namespace they would make a URL mean two things.
_RESERVED = {"api", "lfs", *KINDS}
_SEGMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_SHA1 = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_REF_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
# Names under which git, on some file system, would find its own folder or obey a file's contents.
_GIT_RESERVED = {".", "..", ".git", "git~1", ".gitmodules"}


def is_sha1(text: str) -> bool:
    """Whether `text` is a full git object id: 40 lower-case hex digits."""
    return _SHA1.fullmatch(text) is not None


def is_sha256(text: str) -> bool:
    """Whether `text` is a large file's id: 64 lower-case hex digits."""
    return _SHA256.fullmatch(text) is not None


def is_repo_id(repo_id: str) -> bool:
    """Whether `repo_id` is `namespace/name` by the Hub's rules.

    >>> is_repo_id("stsr/table-workflows"), is_repo_id("stsr/../x"), is_repo_id("api/x")
    (True, False, False)
    """
    parts = repo_id.split("/")
    if len(parts) != 2 or parts[0] in _RESERVED:
        return False
    return all(
        _SEGMENT.fullmatch(part) and ".." not in part and "--" not in part and not part.endswith(".git")
        for part in parts
    )


def known_repo_id(repo_id: str) -> str:
    """`repo_id` itself, for reading. Raises StoreError (404) for an id that no repository can have."""
    if not is_repo_id(repo_id):
        raise RepoAbsent(repo_id)
    return repo_id


def new_repo_id(repo_id: str) -> str:
    """`repo_id` itself, for a repository about to be made. Raises StoreError (400)."""
    if not is_repo_id(repo_id):
        raise StoreError(400, f"{repo_id!r} is not a repository id: namespace/name of letters, digits, ._-")
    return repo_id


def file_path(path: str) -> str:
    """`path` itself, if a file of a repository may have it. Raises StoreError (400).

    >>> file_path("h16-compact/train.parquet")
    'h16-compact/train.parquet'
    """
    parts = path.split("/")
    bad = (
        "\\" in path
        or _CONTROL.search(path)
        or len(path.encode()) > 4096
        or any(not part or part.lower() in _GIT_RESERVED or len(part.encode()) > 255 for part in parts)
    )
    if bad:
        raise StoreError(400, f"{path!r} is not a path that a repository may hold")
    return path


def ref_name(name: str) -> str:
    """`name` itself, if a branch or tag may have it (git's own rules, and never a commit id). Raises 400."""
    parts = name.split("/")
    bad = (
        not name
        or len(name.encode()) > 200
        or name in {"HEAD", "@"}
        or name.startswith(("-", "refs/"))
        or name.endswith(".")
        or is_sha1(name)
        or _REF_FORBIDDEN.search(name)
        or any(not part or part.startswith(".") or part.endswith(".lock") for part in parts)
    )
    if bad:
        raise StoreError(400, f"{name!r} is not a name for a branch or tag")
    return name
