"""Names that a recipe or an experiment declares for all its views and seeds at once. Pure; nothing to run."""

from __future__ import annotations

from stsr.generators.declaration import DeclarationError


def fill(pattern: str, view: str, seed: int) -> str:
    """`pattern` with its {view} and {seed} filled in. Raises DeclarationError for any other placeholder.

    >>> fill("stsr/tiny-h4-{view}-s{seed}", "full", 7)
    'stsr/tiny-h4-full-s7'
    """
    try:
        return pattern.format(view=view, seed=seed)
    except (LookupError, ValueError, AttributeError):
        raise DeclarationError(f"{pattern!r}: only {{view}} and {{seed}} stand for something") from None
