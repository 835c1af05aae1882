"""Tasks of the study: five families of ScienceWorld, their variations and official splits. Pure.

Invariant: whether a variation is an official test variation is decided here and nowhere else, so that what
must never happen to test variations can be refused before a simulator runs.
Source: section 4.7 and appendix F of the paper; the blocks are the simulator's own (50, 25 and 25% of a
family's variations in order), which a test with Java compares.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Official = Literal["train", "dev", "test"]

BLOCKS: dict[str, tuple[int, int, int]] = {
    "boil": (14, 7, 9),
    "melt": (14, 7, 9),
    "freeze": (14, 7, 9),
    "chemistry-mix": (16, 8, 8),
    "grow-plant": (62, 31, 33),
}
"""Family -> number of train, dev and test variations, which lie in this order from 0 on."""

FAMILIES = tuple(BLOCKS)


class Variation(NamedTuple):
    """One task: a family and the number of its variation."""

    family: str
    number: int

    @property
    def id(self) -> str:
        """Task id, for example "scienceworld-boil/12"."""
        return f"scienceworld-{self.family}/{self.number}"

    @property
    def official(self) -> Official:
        """The simulator's own split. Raises ValueError for a variation that does not exist.

        >>> Variation("boil", 13).official, Variation("boil", 14).official, Variation("boil", 21).official
        ('train', 'dev', 'test')
        """
        if self.family not in BLOCKS:
            raise ValueError(f"unknown family {self.family!r}; there are {', '.join(FAMILIES)}")
        train, dev, test = BLOCKS[self.family]
        if not 0 <= self.number < train + dev + test:
            raise ValueError(f"{self.id}: {self.family} has variations 0 to {train + dev + test - 1}")
        return "train" if self.number < train else "dev" if self.number < train + dev else "test"


def variations(*official: Official) -> list[Variation]:
    """All variations of the given official splits, families in order.

    >>> len(variations("train")), len(variations("dev")), len(variations("test"))
    (120, 60, 68)
    """
    every = (Variation(family, number) for family in FAMILIES for number in range(sum(BLOCKS[family])))
    return [variation for variation in every if variation.official in official]


def parse(task_id: str) -> Variation:
    """The variation behind a task id. Raises ValueError for anything else.

    >>> parse("scienceworld-grow-plant/3")
    Variation(family='grow-plant', number=3)
    """
    match = re.fullmatch(r"scienceworld-([a-z-]+)/(\d+)", task_id)
    if match is None:
        raise ValueError(f"{task_id!r} is not a task id such as scienceworld-boil/12")
    variation = Variation(match[1], int(match[2]))
    _ = variation.official  # refuses what does not exist
    return variation
