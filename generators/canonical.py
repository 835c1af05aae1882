"""Canonical JSON and fingerprints: one value, one text, one hash.

Invariant: equal values give equal bytes on every platform. Keys are sorted, integers stay integers, and a
type without one obvious text (a float, a set, None) is an error instead of a guess.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

Json = str | int | bool | list[Any] | dict[str, Any]


_PLAIN = {str, int}


def _fault(value: object) -> str:
    """Where and why `value` has no canonical form, as in ".x[0]: a float has no canonical form"; else ""."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f": the key {key!r} is not a string"
            if type(item) is not str and (fault := _fault(item)):
                return f".{key}{fault}"
    elif isinstance(value, (list, tuple)):
        if set(map(type, value)) <= _PLAIN:
            return ""
        for index, item in enumerate(value):
            if fault := _fault(item):
                return f"[{index}]{fault}"
    elif not isinstance(value, (str, int)):
        return f": a {type(value).__name__} has no canonical form"
    return ""


_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode


def canonical(value: Json) -> str:
    """Canonical JSON text. Raises TypeError, with the place, for anything but str, int, bool, list and dict.

    >>> canonical({"b": [1, -2], "a": "x"})
    '{"a":"x","b":[1,-2]}'
    """
    if fault := _fault(value):
        raise TypeError(f"value{fault}")
    return _ENCODE(value)


def fingerprint(value: Json) -> str:
    """The first 32 hex digits (128 bits) of the SHA-256 of the canonical text.

    >>> fingerprint({"a": 1})
    '015abd7f5cc57a2dd94b7590f04ad808'
    """
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:32]
