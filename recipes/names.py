"""What a recipe or an experiment declares for all its views and seeds at once, and settings that replace it.

Pure; nothing to run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

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


def settings(given: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE words as a mapping, values read as YAML. Raises DeclarationError for another form.

    >>> settings(["max_steps=2", "save_at_steps=[1, 2]", "data_config=h16-{view}"])
    {'max_steps': 2, 'save_at_steps': [1, 2], 'data_config': 'h16-{view}'}
    """
    found = {}
    for word in given:
        key, equals, value = word.partition("=")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            equals = ""
        if not equals or not key:
            raise DeclarationError(f"--set {word!r}: expected KEY=VALUE, as max_steps=200")
    return found
