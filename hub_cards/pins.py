"""Revisions: what exactly was read. A Hub repository is pinned to a commit, a folder to its content.

    data = pin("stsr/table-workflows", "v1.0.0", "dataset")
    load_dataset(data.source, "h4-full", revision=data.commit)

Invariant: equal revisions mean equal bytes. A branch or tag is resolved once, before anything is loaded, so
that one run never mixes two states of a repository that moves meanwhile. HF_ENDPOINT decides where to look.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from stsr.generators.files import folder_sha256
from stsr.hub_cards.publish import UnreachableError, fetch_revision
from stsr.hub_cards.publishable import PublishError, RepoType

FOLDER = "sha256:"
"""Begins the revision of a folder."""


class PinError(ValueError):
    """A source or revision that doesn't exist; the message names the alternatives."""


class Pin(NamedTuple):
    """A source and its exact revision, as run files, records and cards state it."""

    source: str
    """Hub id or path."""
    revision: str
    """Commit (40 hex digits), or "sha256:" and 64 hex digits over a folder's names and bytes."""

    @property
    def commit(self) -> str | None:
        """The revision to hand to a loader: None for a folder, which has only one.

        >>> Pin("stsr/tiny-base", "a1" * 20).commit
        'a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1'
        >>> Pin("out/tiny-base", "sha256:" + "b2" * 32).commit is None
        True
        """
        return None if self.revision.startswith(FOLDER) else self.revision


def pin(source: str, revision: str | None, kind: RepoType) -> Pin:
    """Resolves `revision` (branch, tag or commit; None is the default branch) of a Hub id or folder.

    A whole commit is not looked up. Raises PinError for a repository or revision that doesn't exist, and for
    a revision of a folder.
    """
    if Path(source).is_dir():
        refuse_revision_of_folder(source, revision)
        return Pin(source, FOLDER + folder_sha256(Path(source)))
    if revision and re.fullmatch("[0-9a-f]{40}", revision):
        return Pin(source, revision)
    try:
        return Pin(source, fetch_revision(source, kind, revision))
    except UnreachableError as error:
        raise PinError(
            f"{source} is no folder here; {error}; a commit of 40 hex digits needs no look-up"
        ) from error
    except PublishError as error:
        raise PinError(f"{source} is no folder here; {error}") from error


def refuse_revision_of_folder(source: str, revision: str | None) -> None:
    """Raises PinError unless `revision` is None."""
    if revision is not None:
        raise PinError(
            f"{source} is a folder and has no revision {revision!r}; leave it out (null in a recipe)"
        )
