"""The project's only source of randomness: streams of numbers, keyed by what they are for.

Invariant: the same key gives the same numbers in any process, on any platform and Python version, and
two different keys give unrelated numbers. So neighbouring seeds share nothing, and adding a new use of
randomness never moves an old one.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TypeVar

T = TypeVar("T")

_WORD = 1 << 32
_EIGHT_WORDS = struct.Struct(">8I")


def _words(key: str) -> Iterator[int]:
    """Uniform 32-bit words without end: SHA-256 over (key, counter)."""
    hashed = hashlib.sha256(key.encode())
    for counter in count():
        block = hashed.copy()
        block.update(counter.to_bytes(8, "big"))
        yield from _EIGHT_WORDS.unpack(block.digest())


class Stream:
    """An endless stream of uniform 32-bit words. Made by `keyed`."""

    def __init__(self, key: str) -> None:
        self._next = _words(key).__next__

    def below(self, n: int) -> int:
        """A uniform integer in 0..n-1. Raises ValueError unless 1 <= n <= 2**32."""
        if not 1 <= n <= _WORD:
            raise ValueError(f"below({n}): n must be in 1..2**32")
        limit = _WORD - _WORD % n  # words past the last full multiple of n would favour small results
        while (word := self._next()) >= limit:
            pass
        return word % n

    def between(self, low: int, high: int) -> int:
        """A uniform integer in low..high, both ends included."""
        return low + self.below(high - low + 1)

    def choice(self, items: Sequence[T]) -> T:
        """One item, each equally likely. Raises ValueError for an empty sequence."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """A new list in uniformly random order (Fisher-Yates)."""
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out


def keyed(*key: str | int) -> Stream:
    """The stream for a key such as ("chain", 62000, "table"): family, seed, purpose, and more if needed.

    >>> keyed("chain", 1, "table").below(1000) == keyed("chain", 1, "table").below(1000)
    True
    >>> keyed("a", "b").below(1000) == keyed("ab").below(1000)  # parts cannot run into each other
    False
    """
    return Stream(repr(tuple(key)))
