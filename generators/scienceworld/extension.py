"""The planned rollouts on 58 official test variations, which nobody has run. Pure.

    len(plan())                # 696 rollouts, none of which has been run

Invariant: it is a plan. It holds no result, and nothing runs it unless told to by an explicit flag.
Source: appendix F of the paper: 58 tasks x 3 training seeds x 4 cells of training and test view.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from stsr.generators.scienceworld.splits import read_splits
from stsr.generators.scienceworld.variations import parse

TRAINING_SEEDS = (20260910, 20260911, 20260912)
FULL, COMPACT = "full", "compact-recent2"
"""The views of the crossover. Test variations have no reference path, so neither view may need one."""
RUN_FLAG = "--run-frozen-extension"
"""What an experiment over the extension must be told, word for word."""


class Planned(NamedTuple):
    """One rollout of the plan."""

    task: str
    seed: int
    """Training seed of the adapter."""
    train_view: str
    test_view: str
    status: str

    @property
    def id(self) -> str:
        """For example "scienceworld-boil/22@full/full-s20260910": trained under full, tested under full."""
        return f"{self.task}@{self.test_view}/{self.train_view}-s{self.seed}"

    @property
    def family(self) -> str:
        """The task's family."""
        return parse(self.task).family


def plan() -> list[Planned]:
    """The 696 rollouts of the extension, each with the status "planned"."""
    cells = product(read_splits().extension, TRAINING_SEEDS, (FULL, COMPACT), (FULL, COMPACT))
    return [Planned(task, seed, train, test, "planned") for task, seed, train, test in cells]
