"""One bare git repository on disk, written with hashlib and zlib alone.

Invariant: objects are written before the reference that leads to them, each under a temporary name that
is then moved into place. So a reader, or a restart after a kill, finds the old commit or the new one and
never half of one; `git fsck` and `git clone` agree. (A power cut is not covered: nothing is fsynced.)
Writers must hold `Store.writing()`; readers need no lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

from stsr.hub_cards.loopback.errors import StoreError, entry_not_found, revision_not_found
from stsr.hub_cards.loopback.names import is_sha1, ref_name

_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)
_POINTER_MAX = 200
_WRITER = "local <local@localhost>"


class Meta(TypedDict):
    """What a repository has beside git: its visibility, gating, and when it was made (unix seconds)."""

    private: bool
    gated: bool
    created: float


class Pointer(NamedTuple):
    """A large file as git sees it: the SHA-256 and size in bytes of its contents."""

    sha256: str
    size: int

    def encode(self) -> bytes:
        return b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n" % (
            self.sha256.encode(),
            self.size,
        )


class Blob(NamedTuple):
    """A stored file: git id, size of the blob itself in bytes, and the large file it points to, if any."""

    oid: str
    blob_size: int
    pointer: Pointer | None

    @property
    def size(self) -> int:
        """Size in bytes of the file that a user downloads."""
        return self.pointer.size if self.pointer else self.blob_size


class Commit(NamedTuple):
    """A commit: its id, tree, first parent (None for the root), author, unix seconds and message."""

    oid: str
    tree: str
    parent: str | None
    author: str
    time: int
    message: str

    @property
    def title(self) -> str:
        return self.message.partition("\n")[0]


class Tree(NamedTuple):
    """A whole tree, flat: path -> git id, for files and for folders."""

    files: dict[str, str]
    folders: dict[str, str]


def blob_oid(data: bytes) -> str:
    """The git id that `data` has as a file.

    >>> blob_oid(b"")
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def write_atomic(path: Path, data: bytes, scratch: Path) -> None:
    """Write `data` to `path` by way of a temporary file in `scratch`, which must be on the same disk."""
    temporary = scratch / f"{os.getpid()}-{os.urandom(8).hex()}"
    try:
        temporary.write_bytes(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class Repo:
    """The bare repository in the folder `path`; temporary files go to `scratch`."""

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path = path
        self.scratch = scratch

    @classmethod
    def initialise(cls, path: Path, scratch: Path, meta: Meta, files: Mapping[str, bytes]) -> Repo:
        """Make a repository whose branch `main` has one commit that holds `files`."""
        for folder in ("objects", "refs/heads", "refs/tags"):
            (path / folder).mkdir(parents=True)
        (path / "HEAD").write_text("ref: refs/heads/main\n")
        (path / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
        repo = cls(path, scratch)
        repo.meta = meta
        repo.commit(
            "main", None, {name: repo.put("blob", data) for name, data in files.items()}, "initial commit"
        )
        return repo

    # Meta data

    @property
    def meta(self) -> Meta:
        meta: Meta = json.loads((self.path / "hub.json").read_text())
        return meta

    @meta.setter
    def meta(self, meta: Meta) -> None:
        write_atomic(self.path / "hub.json", json.dumps(meta).encode(), self.scratch)

    # Objects

    def _object(self, oid: str) -> Path:
        return self.path / "objects" / oid[:2] / oid[2:]

    def put(self, kind: str, data: bytes) -> str:
        """Store an object of `kind` blob, tree or commit; return its id. Storing twice is harmless."""
        raw = f"{kind} {len(data)}\0".encode() + data
        oid = hashlib.sha1(raw).hexdigest()
        path = self._object(oid)
        if not path.exists():
            write_atomic(path, zlib.compress(raw, 1), self.scratch)
        return oid

    def get(self, oid: str) -> bytes:
        """The contents of an object. Raises StoreError (410) if it is missing or damaged."""
        try:
            raw = zlib.decompress(self._object(oid).read_bytes())
        except (FileNotFoundError, zlib.error) as error:
            raise StoreError(410, f"the store is damaged: object {oid} of {self.path.name}") from error
        return raw.partition(b"\0")[2]

    def blob(self, oid: str) -> Blob:
        """Size and kind of a file, from the first bytes of its object."""
        try:
            with self._object(oid).open("rb") as file:
                head = zlib.decompressobj().decompress(file.read(4096), 64 + _POINTER_MAX)
        except (FileNotFoundError, zlib.error) as error:
            raise StoreError(410, f"the store is damaged: object {oid} of {self.path.name}") from error
        header, _, start = head.partition(b"\0")
        size = int(header.removeprefix(b"blob "))
        match = _POINTER.fullmatch(start) if size <= _POINTER_MAX else None
        return Blob(oid, size, Pointer(match[1].decode(), int(match[2])) if match else None)

    # Trees

    def _tree_rows(self, oid: str) -> Iterator[tuple[bool, str, str]]:
        """(is a folder, name, id) of each direct entry of a tree."""
        data, at = self.get(oid), 0
        while at < len(data):
            space, nul = data.index(b" ", at), data.index(b"\0", at)
            yield data[at:space] == b"40000", data[space + 1 : nul].decode(), data[nul + 1 : nul + 21].hex()
            at = nul + 21

    def tree(self, commit: str) -> Tree:
        """Every file and folder of a commit."""
        found = Tree({}, {})
        pending = [("", self.read_commit(commit).tree)]
        while pending:
            prefix, oid = pending.pop()
            for is_folder, name, child in self._tree_rows(oid):
                if is_folder:
                    found.folders[prefix + name] = child
                    pending.append((f"{prefix}{name}/", child))
                else:
                    found.files[prefix + name] = child
        return found

    def find(self, commit: str, path: str) -> str:
        """The id of the file at `path`. Raises StoreError (404 EntryNotFound)."""
        oid, is_folder = self.read_commit(commit).tree, True
        for part in path.split("/"):
            rows = self._tree_rows(oid) if is_folder else iter(())
            match = next(((folder, child) for folder, name, child in rows if name == part), None)
            if match is None:
                raise entry_not_found(path)
            is_folder, oid = match
        if is_folder:
            raise entry_not_found(path)
        return oid

    def _write_tree(self, files: Mapping[str, str], prefix: str = "") -> str:
        """Store nested trees for a flat {path: blob id}; return the id of the top one."""
        entries: dict[str, str] = {}
        folders: dict[str, dict[str, str]] = {}
        for path, oid in files.items():
            head, _, rest = path.partition("/")
            if rest:
                folders.setdefault(head, {})[rest] = oid
            else:
                entries[head] = oid
        if both := sorted(entries.keys() & folders.keys()):
            raise StoreError(400, f"{prefix}{both[0]} would be a file and a folder")
        rows = [(name.encode(), b"100644", oid) for name, oid in entries.items()]
        for name, inner in folders.items():
            rows.append((name.encode(), b"40000", self._write_tree(inner, f"{prefix}{name}/")))
        # git orders a folder as though its name ended in a slash
        rows.sort(key=lambda row: row[0] + (b"/" if row[1] == b"40000" else b""))
        return self.put(
            "tree", b"".join(b"%s %s\0" % (mode, name) + bytes.fromhex(oid) for name, mode, oid in rows)
        )

    # Commits

    def read_commit(self, oid: str) -> Commit:
        head, _, message = self.get(oid).decode().partition("\n\n")
        fields = dict(line.split(" ", 1) for line in reversed(head.splitlines()))
        author, _, when = fields["author"].partition(" <")
        return Commit(
            oid,
            fields["tree"],
            fields.get("parent"),
            author,
            int(when.split()[1]),
            message.removesuffix("\n"),
        )

    def commit(self, branch: str, parent: str | None, files: Mapping[str, str], message: str) -> str:
        """Store a commit of a flat {path: blob id} and move `branch` to it; return its id."""
        if "\0" in message:
            raise StoreError(400, "a commit message cannot hold NUL")
        lines = [f"tree {self._write_tree(files)}"]
        if parent:
            lines.append(f"parent {parent}")
        stamp = f"{_WRITER} {int(time.time())} +0000"
        lines += [f"author {stamp}", f"committer {stamp}", "", f"{message}\n"]
        oid = self.put("commit", "\n".join(lines).encode())
        self._set_ref(f"refs/heads/{branch}", oid)
        return oid

    def history(self, oid: str) -> Iterator[Commit]:
        """The commit `oid` and its ancestors, newest first."""
        at: str | None = oid
        while at:
            commit = self.read_commit(at)
            yield commit
            at = commit.parent

    def last_commits(self, oid: str, paths: set[str]) -> dict[str, Commit]:
        """For each of `paths`, files or folders of commit `oid`, the last commit that changed it."""
        found: dict[str, Commit] = {}
        pending = set(paths)
        history = self.history(oid)
        commit = next(history)
        now = self.tree(commit.oid)
        while pending:
            before_commit = next(history, None)
            before = self.tree(before_commit.oid) if before_commit else Tree({}, {})
            here, there = now.files | now.folders, before.files | before.folders
            changed = {path for path in pending if here.get(path) != there.get(path)}
            found.update(dict.fromkeys(changed, commit))
            pending -= changed
            if before_commit is None:
                break
            commit, now = before_commit, before
        return found

    # References

    def refs(self, kind: str) -> dict[str, str]:
        """Name -> commit id, sorted by name. `kind` is heads (branches) or tags."""
        base = self.path / "refs" / kind
        files = sorted(path for path in base.rglob("*") if path.is_file())
        return {path.relative_to(base).as_posix(): path.read_text().strip() for path in files}

    def _set_ref(self, ref: str, oid: str) -> None:
        try:
            write_atomic(self.path / ref, f"{oid}\n".encode(), self.scratch)
        except (NotADirectoryError, FileExistsError, IsADirectoryError) as error:
            raise StoreError(409, f"{ref} collides with another branch or tag") from error

    def create_ref(self, kind: str, name: str, oid: str) -> None:
        """Make a branch (`kind` heads) or tag (tags). Raises StoreError: 409 exists, 400 no such names."""
        if ref_name(name) in self.refs(kind):
            raise StoreError(409, f"{'branch' if kind == 'heads' else 'tag'} {name} exists already")
        self._set_ref(f"refs/{kind}/{name}", oid)

    def delete_ref(self, kind: str, name: str) -> None:
        """Remove a branch or a tag. Raises StoreError (404 RevisionNotFound)."""
        if name not in self.refs(kind):
            raise revision_not_found(name)
        base = self.path / "refs" / kind
        (base / name).unlink()
        # an empty folder refs/tags/v1 would stand in the way of a later tag v1
        for folder in list((base / name).relative_to(base).parents)[:-1]:
            if not any((base / folder).iterdir()):
                (base / folder).rmdir()

    def tip(self, branch: str) -> str:
        """The commit of a branch. Raises StoreError (404 RevisionNotFound)."""
        name = branch.removeprefix("refs/heads/")
        try:
            return self.refs("heads")[name]
        except KeyError:
            raise revision_not_found(branch) from None

    def resolve(self, revision: str) -> str:
        """The commit id of a branch, tag, full or shortened (>= 7 digits) commit id, or HEAD.

        Raises StoreError (404 RevisionNotFound).
        """
        name = "main" if revision == "HEAD" else revision
        heads, tags = self.refs("heads"), self.refs("tags")
        for refs, short in (
            (heads, name.removeprefix("refs/heads/")),
            (tags, name.removeprefix("refs/tags/")),
        ):
            if short in refs:
                return refs[short]
        if is_sha1(name) and self._is_commit(name):
            return name
        if re.fullmatch(r"[0-9a-f]{7,39}", name):
            tips = {*heads.values(), *tags.values()}
            matches = {
                commit.oid for tip in tips for commit in self.history(tip) if commit.oid.startswith(name)
            }
            if len(matches) == 1:
                return matches.pop()
        raise revision_not_found(revision)

    def _is_commit(self, oid: str) -> bool:
        path = self._object(oid)
        return path.exists() and zlib.decompress(path.read_bytes()).startswith(b"commit ")
