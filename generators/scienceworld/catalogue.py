"""The frozen catalogue: every reference path of the study with the states along it, as a file. Pure.

    catalogue = read_catalogue()
    catalogue.workflows["scienceworld-boil/3"].steps[0].look

The simulator of release 1.2.3, asked twice for a path, may give two (see simulator.py). So paths are frozen:
of all official train and dev variations of five families, each cut at the first score of 100. `freeze` makes
and verifies the file. Nothing here needs Java.

Invariant: a file is used only if each workflow has the fingerprint that was frozen with it, and the whole the
digest in its header.
Source: appendix F of the paper (119 of 120 and 55 of 60 reach 100 within 100 actions; bins by path length).
"""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from stsr.generators.canonical import fingerprint
from stsr.generators.scienceworld.variations import Variation

SCHEMA = "stsr.scienceworld-catalogue/1"
CATALOGUE_FILE = "catalogue.jsonl.xz"
MOST_ACTIONS = 100
"""Longest path that counts, and the budget of a free run."""
SHORT_MOST, MEDIUM_MOST = 24, 40

Bin = Literal["short", "medium", "long"]
BINS: tuple[Bin, ...] = ("short", "medium", "long")


class CatalogueError(ValueError):
    """A catalogue that cannot be used. The message is one line."""


def bin_of(actions: int) -> Bin:
    """The bin of a reference path by its length.

    >>> bin_of(24), bin_of(25), bin_of(40), bin_of(41)
    ('short', 'medium', 'medium', 'long')
    """
    return "short" if actions <= SHORT_MOST else "medium" if actions <= MEDIUM_MOST else "long"


@dataclass(frozen=True)
class Step:
    """One decision of a reference path: the state before it, the action, and what the simulator said."""

    look: str
    """The room, before the action."""
    inventory: str
    """What the agent carries, before the action."""
    action: str
    """The reference action."""
    feedback: str
    """The simulator's answer to it."""
    score: int
    """0 to 100, after it."""


@dataclass(frozen=True)
class Workflow:
    """One variation and its reference path, cut at the first score of 100."""

    family: str
    variation: int
    description: str
    """The task in words."""
    generated: int
    """Length of the path as the simulator made it, before it was cut."""
    best: int
    """Highest score on the whole path."""
    first_hundred: int | None
    """Number of actions up to the first score of 100; None if it never comes."""
    steps: tuple[Step, ...]
    """The path; empty unless it reaches 100 within 100 actions."""

    @property
    def task(self) -> Variation:
        """The variation."""
        return Variation(self.family, self.variation)

    @property
    def id(self) -> str:
        """Task id, for example "scienceworld-boil/12"."""
        return self.task.id

    @property
    def usable(self) -> bool:
        """Whether the path reaches 100 within 100 actions."""
        return bool(self.steps)

    @property
    def bin(self) -> Bin:
        """short, medium or long. Only usable workflows have one."""
        assert self.usable, self.id
        return bin_of(len(self.steps))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything above."""
        return fingerprint(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The workflow as plain JSON; `first_hundred` is 0 where it is None."""
        return {
            **asdict(self),
            "first_hundred": self.first_hundred or 0,
            "steps": [asdict(s) for s in self.steps],
        }


@dataclass(frozen=True)
class Origin:
    """What made a catalogue."""

    simulator: str
    """Version of the package scienceworld."""
    jar_sha256: str
    java: str
    """Version of the Java runtime; it does not enter the digest."""
    jvm_flags: tuple[str, ...]
    simplification: str
    templates: tuple[str, ...]
    """The forms of actions that the simulator understands."""


@dataclass(frozen=True)
class Catalogue:
    """All workflows by task id, those without a usable path included, and what made them."""

    origin: Origin
    workflows: dict[str, Workflow]

    @property
    def usable(self) -> list[Workflow]:
        """Workflows whose path reaches 100 within 100 actions, in order."""
        return [workflow for workflow in self.workflows.values() if workflow.usable]

    @property
    def digest(self) -> str:
        """Hash of origin (but for the Java version) and all workflows in order."""
        origin = {name: value for name, value in asdict(self.origin).items() if name != "java"}
        prints = [[workflow.id, workflow.fingerprint] for workflow in self.workflows.values()]
        return fingerprint({"origin": origin, "workflows": prints})


def write_catalogue(catalogue: Catalogue, path: Path) -> None:
    """Writes the catalogue as compressed JSON lines: a header, then one workflow a line."""
    header = {"schema": SCHEMA, "digest": catalogue.digest, "origin": asdict(catalogue.origin)}
    lines = [header, *({"fingerprint": w.fingerprint, **w.to_json()} for w in catalogue.workflows.values())]
    text = "".join(json.dumps(line, sort_keys=True, ensure_ascii=False) + "\n" for line in lines)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


@cache
def read_catalogue(path: Path | None = None) -> Catalogue:
    """The catalogue in `path`, by default the frozen one.

    Raises CatalogueError if it is broken or was changed.
    """
    source = path or Path(str(files("stsr.generators.scienceworld").joinpath(CATALOGUE_FILE)))
    try:
        header, *lines = map(json.loads, lzma.decompress(source.read_bytes()).decode().splitlines())
        if header["schema"] != SCHEMA:
            raise CatalogueError(f"{source}: schema {header['schema']!r}, this version reads {SCHEMA}")
        told: dict[str, Any] = header["origin"]
        told |= {"jvm_flags": tuple(told["jvm_flags"]), "templates": tuple(told["templates"])}
        origin = Origin(**told)
        workflows = [_workflow(line, source) for line in lines]
    except CatalogueError:
        raise
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError) as error:
        raise CatalogueError(f"{source}: not a catalogue: {error!r}") from error
    catalogue = Catalogue(origin, {workflow.id: workflow for workflow in workflows})
    if catalogue.digest != header["digest"]:
        raise CatalogueError(
            f"{source}: its content has digest {catalogue.digest}, its header {header['digest']}"
        )
    return catalogue


def _workflow(line: dict[str, Any], source: Path) -> Workflow:
    told = line.pop("fingerprint")
    steps = tuple(Step(**step) for step in line.pop("steps"))
    workflow = Workflow(**{**line, "first_hundred": line["first_hundred"] or None, "steps": steps})
    if workflow.fingerprint != told:
        raise CatalogueError(f"{source}: {workflow.id} was changed after it was frozen")
    return workflow
