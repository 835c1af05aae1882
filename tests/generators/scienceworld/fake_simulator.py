"""A simulator without Java: it knows the frozen reference paths and rejects everything else.

It takes the place of `Simulator` where a test is about episodes and not about physics.
"""

from __future__ import annotations

from collections.abc import Iterator

from stsr.generators.scienceworld.actions import REJECTION
from stsr.generators.scienceworld.catalogue import read_catalogue
from stsr.generators.scienceworld.simulator import SimulatorDied
from stsr.generators.scienceworld.states import Outcome, Seen
from stsr.generators.scienceworld.variations import Variation


class FakeSimulator:
    """The next reference action is taken, "fail" fails the task, anything else is rejected."""

    def __init__(self, dies: Iterator[bool] | None = None) -> None:
        """`dies` says of each call in turn whether the JVM dies on it; never by default."""
        self._dies, self.alive, self.loads, self.made = dies, True, 0, 0

    def load(self, variation: Variation) -> None:
        self._breathe()
        self.loads += 1
        self.workflow, self.at, self.score = read_catalogue().workflows[variation.id], 0, 0

    def call(self, action: str) -> Outcome:
        self._breathe()
        self.made += 1
        steps = self.workflow.steps
        if action == "fail":
            self.score = -100
            return Outcome("You focus on the wrong thing.", self.score)
        if self.at < len(steps) and action.lower() == steps[self.at].action:
            step, self.at = steps[self.at], self.at + 1
            self.score = step.score
            return Outcome(step.feedback, step.score)
        return Outcome(REJECTION, self.score)

    def see(self) -> Seen:
        step = self.workflow.steps[min(self.at, len(self.workflow.steps) - 1)]
        return Seen(step.look, step.inventory)

    def description(self) -> str:
        return self.workflow.description

    def close(self) -> None:
        self.alive = False

    def _breathe(self) -> None:
        if not self.alive or (self._dies is not None and next(self._dies, False)):
            self.alive = False
            raise SimulatorDied("the JVM ended")
