"""The store: bare git repositories in one folder, and the large files (LFS objects) that they share.

    <root>/{models,datasets,spaces}/<namespace>/<name>.git    bare repositories; `git clone` works on them
    <root>/lfs/<ab>/<cd>/<sha256>                             large files, named by their contents
    <root>/tmp                                                uploads under way, emptied at the next start

Invariant: whatever has its final name is whole. Everything is made in tmp and moved into place with one
rename, so a kill or a full disk leaves rubbish in tmp at most. A large file gets its name only after its
bytes were hashed. Deleting a repository keeps its large files: another may point to them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stsr.hub_cards.loopback.errors import RepoAbsent, StoreError
from stsr.hub_cards.loopback.gitrepo import Meta, Repo
from stsr.hub_cards.loopback.names import KINDS, is_repo_id, is_sha256, known_repo_id, new_repo_id

# Extensions that the Hub keeps as large files whatever their size.
LFS_EXTENSIONS = (
    *("7z", "arrow", "bin", "bz2", "ckpt", "flac", "ftz", "gguf", "gif", "gz", "h5", "joblib", "jpeg", "jpg"),
    *("model", "mp3", "mp4", "msgpack", "npy", "npz", "onnx", "ot", "parquet", "pb", "pickle", "pkl", "png"),
    *("pt", "pth", "rar", "safetensors", "tar", "tflite", "tgz", "wasm", "wav", "webp", "xz", "zip", "zst"),
)
_GITATTRIBUTES = "".join(
    f"*.{name} filter=lfs diff=lfs merge=lfs -text\n" for name in LFS_EXTENSIONS
).encode()


class Store:
    """The store in the folder `root`, made if need be. `kind` is models, datasets or spaces throughout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scratch = root / "tmp"
        self.scratch.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the store's one write lock, against other threads and other processes alike.

        One lock for all repositories: a commit takes milliseconds, and creating, moving and deleting
        then need no rules among themselves.
        """
        with (self.root / "write.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def temporary(self) -> Path:
        """A path for a new file in tmp. The caller removes the file or moves it into place."""
        return self.scratch / f"{os.getpid()}-{os.urandom(8).hex()}"

    def clear_scratch(self) -> None:
        """Remove what a killed server left behind. Only for the process that owns the store."""
        for left in self.scratch.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    # Repositories

    def _path(self, kind: str, repo_id: str) -> Path:
        if kind not in KINDS:
            raise StoreError(400, f"{kind!r} is not one of {', '.join(KINDS)}")
        return self.root / kind / f"{repo_id}.git"

    def repo(self, kind: str, repo_id: str) -> Repo:
        """The repository. Raises StoreError (404 RepoNotFound)."""
        path = self._path(kind, known_repo_id(repo_id))
        if not path.is_dir():
            raise RepoAbsent(repo_id)
        return Repo(path, self.scratch)

    def repo_ids(self, kind: str) -> list[str]:
        """Ids of all repositories of a kind, sorted."""
        found = (self.root / kind).glob("*/*.git")
        ids = (f"{path.parent.name}/{path.name.removesuffix('.git')}" for path in found)
        return sorted(repo_id for repo_id in ids if is_repo_id(repo_id))

    def create(self, kind: str, repo_id: str, private: bool) -> Repo:
        """A new repository with a first commit that holds .gitattributes. Raises StoreError (409)."""
        path = self._path(kind, new_repo_id(repo_id))
        work = Path(tempfile.mkdtemp(dir=self.scratch))
        try:
            meta = Meta(private=private, gated=False, created=time.time())
            Repo.initialise(work / "repo", self.scratch, meta, {".gitattributes": _GITATTRIBUTES})
            with self.writing():
                if path.exists():
                    raise StoreError(409, f"{repo_id} exists already")
                path.parent.mkdir(parents=True, exist_ok=True)
                (work / "repo").rename(path)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return Repo(path, self.scratch)

    def move(self, kind: str, old: str, new: str) -> None:
        """Rename a repository. The old id is free afterwards. Raises StoreError (404, 409)."""
        target = self._path(kind, new_repo_id(new))
        with self.writing():
            source = self.repo(kind, old).path
            if target.exists():
                raise StoreError(409, f"{new} exists already")
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)

    def delete(self, kind: str, repo_id: str) -> None:
        """Remove a repository. Raises StoreError (404 RepoNotFound)."""
        doomed = self.temporary()
        with self.writing():
            self.repo(kind, repo_id).path.rename(doomed)
        shutil.rmtree(doomed)

    # Large files

    def lfs_path(self, sha256: str) -> Path:
        """Where the large file is or would be. Raises StoreError (400) unless `sha256` is 64 hex digits."""
        if not is_sha256(sha256):
            raise StoreError(400, f"{sha256!r} is not a SHA-256 of 64 lower-case hex digits")
        return self.root / "lfs" / sha256[:2] / sha256[2:4] / sha256

    def lfs_size(self, sha256: str) -> int | None:
        """Size in bytes of a large file, or None if the store does not hold it."""
        path = self.lfs_path(sha256)
        return path.stat().st_size if path.exists() else None

    def adopt(self, upload: Path, sha256: str, size: int) -> None:
        """Move a finished upload to its final name. Raises StoreError (422) if it is not those bytes."""
        path = self.lfs_path(sha256)
        with upload.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        got = upload.stat().st_size
        if (digest, got) != (sha256, size):
            raise StoreError(422, f"expected {sha256} of {size} bytes, got {digest} of {got}")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(upload, path)
