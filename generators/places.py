"""Where a row is declared: data set, version, config and split, looked up in recipes/datasets."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from stsr.generators import declaration
from stsr.generators.dataset import Declaration, Part, Split
from stsr.generators.rows import RowId


class Place(NamedTuple):
    """A split that holds a row's decision."""

    declared: Declaration
    file: str
    """Name of the declaration's file."""
    part: Part
    split: Split
    config: str
    """Config that holds the row; "" if its decision is there but its view is not."""

    @property
    def text(self) -> str:
        """For example "stsr/table-workflows 1.1.0, h16-compact, test"."""
        config = self.config or "other views only"
        return f"{self.declared.repo} {self.declared.version}, {config}, {self.split.name}"


def places(row: RowId, pivot: int) -> list[Place]:
    """Every config and split that declares the row, each under the newest version that has it.

    `pivot` is the pivotal stage of the row's task, 0 for none.
    """
    found: dict[tuple[str, str, str], Place] = {}
    for file, declared in _declarations():
        for part in declared.parts:
            if (
                part.family != row.family
                or row.variant not in part.chosen_variants
                or (part.pivot_only and row.stage != pivot)
            ):
                continue
            name = part.config_name(row.horizon, row.variant, row.view) if row.view in part.views else ""
            for split in part.splits:
                if row.seed in split.seeds and row.horizon in split.horizons:
                    key = (declared.repo, part.config, split.name)
                    found.setdefault(key, Place(declared, file, part, split, name))
    return list(found.values())


def _declarations() -> Iterator[tuple[str, Declaration]]:
    """The declared data sets of table workflows (those with parts), newest versions first."""
    folder = Path(str(files("stsr.recipes"))) / "datasets"
    raw = {path: declaration.read(path) for path in sorted(folder.glob("*.yaml"))}
    declared = [
        (path.name, declaration.build(Declaration, keys, str(path)))
        for path, keys in raw.items()
        if "parts" in keys
    ]
    yield from sorted(
        declared, key=lambda one: tuple(int(n) for n in one[1].version.split(".")), reverse=True
    )
