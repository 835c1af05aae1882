"""One process a folder: whoever works in it holds its lock file.

    with held(Path("out/tiny-h4-full"), "training"):
        ...

Invariant: the lock is the kernel's (flock), so it ends with the process that holds it, also after kill -9.
The file `.lock` says nothing. It stays where there is work beside it, and goes where nothing was done, with
the folders that were made for it; whoever then holds a file that is no longer the folder's tries again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = ".lock"


class BusyError(RuntimeError):
    """Another process works in the folder; the message is one line for a person."""


@contextmanager
def held(folder: Path, work: str) -> Iterator[None]:
    """Holds `folder`, made if need be, while the block runs. `work` is what is done there, for the message.

    Raises BusyError, at once, if another process holds it.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / LOCK, work):
        try:
            yield
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()
                with suppress(OSError):  # somebody else has put something there
                    for path in made:
                        path.rmdir()


@contextmanager
def _locked(path: Path, work: str) -> Iterator[None]:
    while True:
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyError(
                    f"another process is {work} in {path.parent}: wait for its end, or use another folder"
                ) from error
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
