"""The two errors of the loopback Hub: one that a request is answered with, one that a person reads."""

from __future__ import annotations


class HubError(RuntimeError):
    """The server cannot start or was lost. Its message is one line that says what to do."""


class StoreError(Exception):
    """A request that cannot be met, as the protocol tells it: an HTTP status, a sentence, an error code.

    `code` goes into the header X-Error-Code, from which huggingface_hub makes RepositoryNotFoundError,
    RevisionNotFoundError or EntryNotFoundError.
    """

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RepoAbsent(StoreError):
    """The store does not hold this repository, so another Hub may be asked for it."""

    def __init__(self, repo_id: str, why: str = "") -> None:
        super().__init__(404, f"no repository {repo_id} here{why}", "RepoNotFound")
        self.repo_id = repo_id


def repo_hidden(repo_id: str) -> StoreError:
    """The answer to who may not see a private repository: as though it did not exist, anywhere."""
    return StoreError(404, f"no repository {repo_id} here", "RepoNotFound")


def revision_not_found(revision: str) -> StoreError:
    return StoreError(404, f"no branch, tag or commit {revision!r}", "RevisionNotFound")


def entry_not_found(path: str) -> StoreError:
    return StoreError(404, f"no file or folder {path!r} at this revision", "EntryNotFound")
