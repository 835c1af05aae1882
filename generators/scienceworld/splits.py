"""Splits of the study, chosen once by a seeded rule and frozen in splits.json. Pure.

    python -m stsr.generators.scienceworld.splits --out generators/scienceworld/splits.json

| split | workflows | reference states | taken from |
|---|---|---|---|
| train | 39 | 1,170 | official train; its 11 short workflows (218 states) are the short-only training set |
| development | 13 | 440 | official dev; its 4 short workflows (80 states) choose short-only checkpoints |
| test | 30 | 208 + 315 + 519 | official train and dev, ten a bin, in the paper's mix of families |
| pilot | 10 | never looked at | official test, two a family |
| extension | 58 | never looked at | the other official test variations |

The paper gives counts and not the workflows, and many assignments meet the counts. Ours starts each group
from a seeded draw and exchanges workflows at random, never for a worse total, until the states are as many as
they should be. The counts cannot be met with the short-only sets apart from train and development: the five
sets would then be 97 workflows with 2,950 states, and ten long ones of 519 states, all 31 short ones and the
56 shortest others already have 3,007. So the short-only sets are read as what is short in train and
development.

Invariant: train, development and test share no workflow; a file that does not meet the counts is refused.
Source: appendix F of the paper. The families of the pilot's ten tasks are not in it; two a family is ours.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import NamedTuple

from stsr.generators.randomness import keyed
from stsr.generators.scienceworld.catalogue import Bin, Catalogue, Workflow, read_catalogue
from stsr.generators.scienceworld.variations import FAMILIES, Variation, parse, variations

SCHEMA = "stsr.scienceworld-splits/1"
SPLITS_FILE = "splits.json"
MOST_EXCHANGES = 20_000
PILOT_A_FAMILY = 2

TEST_MIX: dict[Bin, tuple[dict[str, int], int]] = {
    "short": ({"chemistry-mix": 4, "freeze": 2, "melt": 4}, 208),
    "medium": ({"boil": 3, "freeze": 2, "grow-plant": 3, "melt": 2}, 315),
    "long": (dict.fromkeys(FAMILIES, 2), 519),
}
"""Bin -> workflows by family, and states in all."""
TRAIN_SHORT, TRAIN_OTHER = (11, 218), (28, 952)
"""(workflows, states) that are short, and that are not: 39 and 1,170 together."""
DEVELOPMENT_SHORT, DEVELOPMENT_OTHER = (4, 80), (9, 360)
"""Likewise: 13 and 440 together."""


class SplitError(ValueError):
    """Frozen splits that cannot be used. The message is one line."""


class Splits(NamedTuple):
    """Task ids of each split, in order of families and variations."""

    train: tuple[str, ...]
    development: tuple[str, ...]
    test: tuple[str, ...]
    pilot: tuple[str, ...]
    extension: tuple[str, ...]


class Group(NamedTuple):
    """So many workflows of a pool."""

    pool: list[Workflow]
    number: int


def choose(catalogue: Catalogue) -> Splits:
    """The splits, by the rule above: the first attempt in which every group meets its counts."""
    for attempt in count():
        if (chosen := _attempt(catalogue, attempt)) is not None:
            return chosen
    raise AssertionError("unreachable")


def _attempt(catalogue: Catalogue, attempt: int) -> Splits | None:
    free = list(catalogue.usable)
    parts: dict[str, list[Workflow]] = {"train": [], "development": [], "test": []}

    def take(part: str, name: str, groups: list[Group], states: int) -> bool:
        found = _draw(f"{name}/{attempt}", groups, states)
        for workflow in found or ():
            free.remove(workflow)
            parts[part].append(workflow)
        return found is not None

    def pool(short: bool, official: str) -> list[Workflow]:
        return [w for w in free if (w.bin == "short") == short and w.task.official == official]

    done = all(
        take("test", name, [Group([w for w in free if w.bin == name and w.family == family], n)
                            for family, n in mix.items()], states)
        for name, (mix, states) in TEST_MIX.items()
    )  # fmt: skip
    for part, official, short, other in (
        ("train", "train", TRAIN_SHORT, TRAIN_OTHER),
        ("development", "dev", DEVELOPMENT_SHORT, DEVELOPMENT_OTHER),
    ):
        done = done and take(part, f"{part}-short", [Group(pool(True, official), short[0])], short[1])
        done = done and take(part, f"{part}-other", [Group(pool(False, official), other[0])], other[1])
    families = all({w.family for w in part} == set(FAMILIES) for part in parts.values())
    if not (done and families):
        return None
    ids = {part: tuple(w.id for w in catalogue.usable if w in chosen) for part, chosen in parts.items()}
    return Splits(ids["train"], ids["development"], ids["test"], *_official_test())


def _draw(name: str, groups: Sequence[Group], states: int) -> list[Workflow] | None:
    """Workflows of each group with so many states in all; None if exchanges do not get there."""
    stream = keyed("scienceworld", "split", name)
    halves = [(order[: g.number], order[g.number :]) for g in groups for order in [stream.shuffled(g.pool)]]
    if any(len(inside) < g.number for (inside, _), g in zip(halves, groups, strict=True)):
        return None
    error = sum(len(w.steps) for inside, _ in halves for w in inside) - states
    for _ in range(MOST_EXCHANGES):
        if error == 0:
            return [w for inside, _ in halves for w in inside]
        inside, outside = stream.choice(halves)
        if outside:
            i, o = stream.below(len(inside)), stream.below(len(outside))
            after = error + len(outside[o].steps) - len(inside[i].steps)
            if abs(after) <= abs(error):
                inside[i], outside[o], error = outside[o], inside[i], after
    return None


def _official_test() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pilot's ten and the other 58 official test variations. Only their numbers are known here."""
    every = variations("test")
    pilot: set[Variation] = set()
    for family in FAMILIES:
        own = [task for task in every if task.family == family]
        pilot.update(keyed("scienceworld", "pilot", family).shuffled(own)[:PILOT_A_FAMILY])
    return tuple(t.id for t in every if t in pilot), tuple(t.id for t in every if t not in pilot)


@cache
def read_splits() -> Splits:
    """The frozen splits. Raises SplitError if they do not belong to the frozen catalogue or miss a count."""
    source = files("stsr.generators.scienceworld").joinpath(SPLITS_FILE)
    raw = json.loads(source.read_text(encoding="utf-8"))
    catalogue = read_catalogue()
    if (raw["schema"], raw["catalogue"]) != (SCHEMA, catalogue.digest):
        raise SplitError(f"{source}: made for another catalogue ({raw['catalogue']}, not {catalogue.digest})")
    splits = Splits(**{name: tuple(raw[name]) for name in Splits._fields})
    if problem := check(splits, catalogue):
        raise SplitError(f"{source}: {problem}")
    return splits


def check(splits: Splits, catalogue: Catalogue) -> str:
    """ "" if the splits meet every count, else what is wrong."""
    known = [*splits.train, *splits.development, *splits.test]
    if len(set(known)) < len(known):
        return "a workflow is in two of train, development and test"
    if {parse(task).official for task in (*splits.pilot, *splits.extension)} != {"test"}:
        return "pilot and extension are of official test variations"
    if len({*splits.pilot, *splits.extension}) != 68:
        return "pilot and extension are not the 68 official test variations"
    for name, wanted in (
        ("train", {"short": TRAIN_SHORT, "other": TRAIN_OTHER}),
        ("development", {"short": DEVELOPMENT_SHORT, "other": DEVELOPMENT_OTHER}),
    ):
        workflows = workflows_of(getattr(splits, name), catalogue)
        for length, counts in wanted.items():
            part = [w for w in workflows if (w.bin == "short") == (length == "short")]
            if (len(part), _states(part)) != counts:
                return f"{name}, {length}: {len(part)} workflows, {_states(part)} states, not {counts}"
    for length, (mix, states) in TEST_MIX.items():
        part = [w for w in workflows_of(splits.test, catalogue) if w.bin == length]
        if {f: sum(w.family == f for w in part) for f in mix} != mix or _states(part) != states:
            return f"test, {length}: other families or {_states(part)} states, not {states}"
    return ""


def _states(workflows: Sequence[Workflow]) -> int:
    return sum(len(workflow.steps) for workflow in workflows)


def workflows_of(ids: Sequence[str], catalogue: Catalogue | None = None) -> list[Workflow]:
    """The workflows behind task ids. Raises SplitError for one that has no usable path."""
    known = {w.id: w for w in (catalogue or read_catalogue()).usable}
    if unknown := [task for task in ids if task not in known]:
        raise SplitError(f"{unknown[0]} has no usable reference path")
    return [known[task] for task in ids]


def split_of(task: str) -> str:
    """The split that a task belongs to; "rest" for a usable workflow that none took."""
    splits = read_splits()
    return next((name for name in Splits._fields if task in getattr(splits, name)), "rest")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Choose and freeze the ScienceWorld splits.")
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    catalogue = read_catalogue()
    splits = choose(catalogue)
    assert not check(splits, catalogue)
    lists = {name: list(ids) for name, ids in splits._asdict().items()}
    text = json.dumps({"schema": SCHEMA, "catalogue": catalogue.digest, **lists}, indent=1)
    out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
