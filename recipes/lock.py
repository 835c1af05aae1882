"""One process a folder: whoever works in it holds its lock file.

    with held(Path("out/tiny-h4-full"), "training"):
        ...

Invariant: the lock is the kernel's (flock), so it ends with the process that holds it, also after kill -9.
The file `.lock` stays and says nothing: deleting it would let two processes hold two files of one name.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = ".lock"


class BusyError(RuntimeError):
    """Another process works in the folder; the message is one line for a person."""


@contextmanager
def held(folder: Path, work: str) -> Iterator[None]:
    """Holds `folder`, made if need be, while the block runs. `work` is what is done there, for the message.

    Raises BusyError, at once, if another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(
                f"another process is {work} in {folder}: wait for its end, or use another folder"
            ) from error
        yield
