"""The declaration of a data set: what a YAML file under recipes/datasets says, checked and typed.

A data set has parts, one a family; a part has splits, and gives one config a view (and, where its name says
so, a horizon or a variant). A mixture is a config whose rows are taken from others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from stsr.generators.declaration import DeclarationError, load
from stsr.generators.rows import find_family, parse_row_id
from stsr.generators.tokens import NAMES
from stsr.generators.views import view


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split: `tasks` consecutive seeds from `first_seed`, at each of `horizons`."""

    name: str
    purpose: str
    first_seed: int
    tasks: int
    horizons: tuple[int, ...]

    @property
    def seeds(self) -> range:
        """The seeds of the split."""
        return range(self.first_seed, self.first_seed + self.tasks)


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one family contributes."""

    family: str
    config: str
    """Name of the configs; {horizon}, {variant} and {view} are filled in."""
    tasks: str
    """Name of the config of whole tasks, filled in likewise; "" for none."""
    variants: str
    """Which variants of the family, as a pattern; "*" is all."""
    pivot_only: bool
    """Whether rows are left to each task's pivotal stage."""
    views: tuple[str, ...]
    splits: tuple[Split, ...]

    def __post_init__(self) -> None:
        known = find_family(self.family).horizons
        for name in self.views:
            view(name)
        if not self.chosen_variants:
            raise ValueError(f"{self.config}: no variant of {self.family} is like {self.variants!r}")
        for split in self.splits:
            if extra := sorted(set(split.horizons) - set(known)):
                raise ValueError(
                    f"split {split.name}: {self.family} has horizons {list(known)}; not {extra[0]}"
                )
            if split.tasks < 1:
                raise ValueError(f"split {split.name}: needs at least one task")
        if len(self.views) > 1 and "{view}" not in self.config:
            raise ValueError(f"{self.config}: several views need {{view}} in the name")

    @property
    def chosen_variants(self) -> tuple[str, ...]:
        """The family's variants that `variants` lets through, in its order."""
        return tuple(v for v in find_family(self.family).variants if fnmatchcase(v, self.variants))

    @property
    def horizons(self) -> tuple[int, ...]:
        """Horizons of all splits, ascending."""
        return tuple(sorted({horizon for split in self.splits for horizon in split.horizons}))

    def config_name(self, horizon: int, variant: str, view_name: str) -> str:
        """Name of the config that a row goes to, for example "h16-compact"."""
        return self.config.format(horizon=horizon, variant=variant, view=view_name)

    def tasks_name(self, horizon: int, variant: str) -> str:
        """Name of the config that a whole task goes to, for example "h16-tasks"."""
        return self.tasks.format(horizon=horizon, variant=variant)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A training config of which half of the rows show one view, and half others (appendix E).

    The first `tasks` tasks of a chain split give the rows. They are ordered by a hash of (seed, fingerprint,
    stage): as many rows as `masked` counts take its views, in that order; the rest takes `plain`. So mixtures
    with one seed agree on which rows are masked.
    """

    config: str
    horizon: int
    split: str
    tasks: int
    seed: int
    plain: str
    masked: dict[str, int]

    def __post_init__(self) -> None:
        for name in (self.plain, *self.masked):
            view(name)
        if sum(self.masked.values()) > self.tasks * self.horizon:
            raise ValueError(f"{self.config}: masks more rows than it has")


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The keys of a data set declaration; all are required."""

    repo: str
    version: str
    title: str
    summary: str
    """A paragraph for the card: what this is, for a reader who knows nothing of it."""
    changes: dict[str, str]
    """Version -> what it changed, oldest first."""
    canary: str
    """A text in every row of test splits, by which leaks into training text can be found; "" for none."""
    example: str
    """A decision, as `{task}#{stage}`, that the card shows under every view."""
    tokenizers: tuple[str, ...]
    """Tokenizers under which lengths are checked (generators/tokens.py); the first one is the prompts'."""
    parts: tuple[Part, ...]
    mixtures: tuple[Mixture, ...]

    def __post_init__(self) -> None:
        parse_row_id(f"{self.example}@full")
        for name in self.tokenizers:
            if name not in NAMES:
                raise ValueError(f"unknown tokenizer {name!r}; there are {', '.join(NAMES)}")
        if self.version not in self.changes:
            raise ValueError(f"changes: has no entry for version {self.version}")
        seen: set[tuple[str, str]] = set()
        for part in self.parts:
            for split in part.splits:
                for config in part_configs(part, split):
                    if (config, split.name) in seen:
                        raise ValueError(f"{config}: split {split.name} is declared twice")
                    seen.add((config, split.name))
        for mixture in self.mixtures:
            for name in (mixture.plain, *mixture.masked):
                source = (f"h{mixture.horizon}-{name}", mixture.split)
                if source not in seen:
                    raise ValueError(f"{mixture.config}: there is no {source[0]} with {source[1]}")

    @property
    def tag(self) -> str:
        """The Hub tag of this version, for example "v1.0.0"."""
        return f"v{self.version}"


def part_configs(part: Part, split: Split) -> Iterator[str]:
    """Names of all configs that a split of a part writes to, each once."""
    names: dict[str, None] = {}
    for horizon in split.horizons:
        for variant in part.chosen_variants:
            for name in part.views:
                names[part.config_name(horizon, variant, name)] = None
            if part.tasks:
                names[part.tasks_name(horizon, variant)] = None
    return iter(names)


def read_declaration(path: Path) -> Declaration:
    """The declaration in a YAML file. Raises DeclarationError, one line, for anything wrong in it."""
    try:
        return load(Declaration, path)
    except DeclarationError:
        raise
    except ValueError as error:
        raise DeclarationError(f"{path}: {error}") from error
