"""What files of recipes share: variants, and names for all views and seeds at once. Nothing to run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stsr.generators.declaration import DeclarationError, read


def fill(pattern: str, view: str, seed: int) -> str:
    """`pattern` with its {view} and {seed} filled in. Raises DeclarationError for any other placeholder.

    >>> fill("stsr/tiny-h4-{view}-s{seed}", "full", 7)
    'stsr/tiny-h4-full-s7'
    """
    try:
        return pattern.format(view=view, seed=seed)
    except (LookupError, ValueError, AttributeError):
        raise DeclarationError(f"{pattern!r}: only {{view}} and {{seed}} stand for something") from None


def read_recipe(path: Path) -> dict[str, Any]:
    """Keys and values of a recipe file; those of a variant lie over the recipe that its `extends:` names.

    Raises DeclarationError, also for a variant of a variant: one file beside it says the rest.
    """
    raw = read(path)
    if "extends" not in raw:
        return raw
    whole = path.parent / str(raw.pop("extends"))
    base = read(whole)
    if "extends" in base:
        raise DeclarationError(f"{path}: extends {whole.name}, a variant itself: extend {base['extends']}")
    return {**base, **raw}


def kept_steps(save_at_steps: Iterable[int], max_steps: int) -> tuple[int, ...]:
    """Optimizer steps whose adapters a run keeps, in order: the declared ones, and always the last.

    >>> kept_steps([40, 20], 100)
    (20, 40, 100)
    """
    return tuple(sorted({*save_at_steps, max_steps}))
