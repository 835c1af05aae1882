"""Revisions: what exactly was read. A Hub repository is pinned to a commit, a folder to its content.

Invariant: equal pins mean equal bytes. A branch or tag is resolved once, before anything is loaded, so that
one run never mixes two states of a repository that moves meanwhile. HF_ENDPOINT decides which Hub is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from stsr.generators.files import folder_sha256

Kind = Literal["model", "dataset"]

DATA = "stsr/table-workflows"
"""The published data set."""
DATA_REVISION = "v1.1.0"
"""The tag that the task files pin (a test holds them to it)."""


class PinError(ValueError):
    """A source or revision that doesn't exist; the message names the alternatives."""


class Pin(NamedTuple):
    """A source and its exact revision."""

    source: str
    """Hub id or path."""
    revision: str
    """Commit, or "local-" and 16 hex digits of the folder's content hash."""

    @property
    def commit(self) -> str | None:
        """The revision to hand to a loader: None for a folder, which has only one."""
        return None if self.revision.startswith("local-") else self.revision


def pin(source: str, revision: str | None, kind: Kind) -> Pin:
    """Resolves `revision` (branch, tag or commit; None or "" is the default branch) of a Hub id or folder.

    Raises PinError for a repository or revision that doesn't exist, and for a revision of a folder.
    """
    if Path(source).is_dir():
        refuse_revision_of_folder(source, revision)
        return Pin(source, f"local-{content_hash(Path(source))}")
    try:
        info = HfApi().repo_info(source, revision=revision or None, repo_type=kind)
    except RevisionNotFoundError as error:
        raise PinError(unknown_revision(source, revision, kind)) from error
    except RepositoryNotFoundError as error:
        raise PinError(
            f"{source}: neither a folder nor a {kind} that {HfApi().endpoint} shows to you"
        ) from error
    assert info.sha is not None
    return Pin(source, info.sha)


def refuse_revision_of_folder(source: str, revision: str | None) -> None:
    """Raises PinError for a revision of a folder; what a default may have filled in counts as none."""
    if revision not in (None, "", "main", DATA_REVISION):
        raise PinError(f"{source} is a folder and has no revision {revision!r}; leave the revision out")


def unknown_revision(source: str, revision: str | None, kind: Kind) -> str:
    """The error text for a revision that doesn't exist, with those that do."""
    refs = HfApi().list_repo_refs(source, repo_type=kind)
    known = ", ".join(ref.name for ref in (*refs.tags, *refs.branches))
    return f"{source}: no revision {revision!r}; there are {known}, and commits"


def content_hash(folder: Path) -> str:
    """The first 16 hex digits of `folder_sha256`."""
    return folder_sha256(folder)[:16]
