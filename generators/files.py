"""Hashes of files and folders: what "the same bytes" means for whatever lies on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_sha256(folder: Path) -> str:
    """SHA-256 over names and bytes of all files below `folder`; hidden files and folders do not count."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            digest.update(f"{name.as_posix()}\0{file_sha256(path)}\n".encode())
    return digest.hexdigest()
