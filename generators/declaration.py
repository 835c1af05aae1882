"""Flat YAML files into frozen dataclasses, with errors that name the file, the key and the alternatives.

    recipe = load(Recipe, Path("recipes/pretraining/tiny-base.yaml"))

Invariant: every key of the file is a field of the dataclass and of its type; nothing is ignored.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

T = TypeVar("T")


class DeclarationError(ValueError):
    """A declaration that cannot be used; the message is one line for a person."""


def load(kind: type[T], path: Path) -> T:
    """The declaration in `path`. Raises DeclarationError for a missing file, bad YAML, key or value."""
    return build(kind, read(path), str(path))


def read(path: Path) -> dict[str, Any]:
    """Keys and values of a YAML file. Raises DeclarationError if it holds anything else."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DeclarationError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise DeclarationError(f"{path}: expected keys and values, found {type(raw).__name__}")
    return raw


def build(kind: type[T], raw: object, where: str) -> T:
    """A dataclass of type `kind` from parsed YAML; `where` begins every error message."""
    if not isinstance(raw, dict):
        raise DeclarationError(f"{where}: expected keys and values, found {type(raw).__name__}")
    assert is_dataclass(kind)
    hints, known = get_type_hints(kind), {field.name: field for field in fields(kind)}
    for key in raw:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            guess = f"did you mean {near[0]!r}? " if near else ""
            raise DeclarationError(f"{where}: unknown key {key!r}; {guess}keys are {', '.join(known)}")
    for name, field in known.items():
        if name not in raw and field.default is MISSING and field.default_factory is MISSING:
            raise DeclarationError(f"{where}: the key {name!r} is missing")
    return kind(**{key: convert(hints[key], value, f"{where}: {key}") for key, value in raw.items()})


def convert(hint: Any, value: Any, where: str) -> Any:
    """`value` as the type `hint`: scalar, tuple[X, ...], dict[K, V], X | None, Any or nested dataclass."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        return convert(next(a for a in arguments if a is not NoneType), value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        key_type, item_type = arguments
        return {
            convert(key_type, key, where): convert(item_type, item, f"{where}.{key}")
            for key, item in value.items()
        }
    if isinstance(hint, type) and is_dataclass(hint):
        return build(hint, value, where)
    if hint is float and type(value) is int:
        return float(value)
    if hint in (str, int, float, bool) and type(value) is hint:
        return value
    name = getattr(hint, "__name__", str(hint))
    raise DeclarationError(f"{where}: expected {name if origin is None else hint}, found {value!r}")
