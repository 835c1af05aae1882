"""States as they are shown: what the simulator prints, taken apart into named entries. Pure.

    state = state_at(workflow, 7)              # before the seventh reference action
    state.room.things[0]                       # Entry("a cupboard", "The cupboard door is open. ...")

Invariant: nothing that the simulator prints is lost; a line that cannot be taken apart is an entry without
detail. The wording of entries is the simulator's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from stsr.generators.scienceworld.actions import agrees
from stsr.generators.scienceworld.catalogue import MOST_ACTIONS, Workflow


class Outcome(NamedTuple):
    """What the simulator says to one call."""

    feedback: str
    score: int
    """-100 to 100, after the call; below 0 the task has failed."""


class Call(NamedTuple):
    """One call and its answer."""

    action: str
    outcome: Outcome


class Seen(NamedTuple):
    """What a state shows, at no cost in calls or ticks."""

    look: str
    inventory: str


class State(NamedTuple):
    """Everything that a view may show of one moment of an episode."""

    description: str
    """The task in words."""
    seen: Seen
    calls: tuple[Call, ...]
    """Calls so far, oldest first, rejected ones included."""
    most_calls: int = MOST_ACTIONS
    """The budget."""

    @property
    def remaining(self) -> int:
        """Calls left of the budget."""
        return self.most_calls - len(self.calls)

    @property
    def feedback(self) -> str:
        """The simulator's answer to the last call; "" before the first."""
        return self.calls[-1].outcome.feedback if self.calls else ""


def state_at(workflow: Workflow, stage: int) -> State:
    """The state before the reference action of a stage, from 1 on."""
    step, before = workflow.steps[stage - 1], workflow.steps[: stage - 1]
    calls = tuple(Call(past.action, Outcome(past.feedback, past.score)) for past in before)
    return State(workflow.description, Seen(step.look, step.inventory), calls)


def reference_after(workflow: Workflow, actions: Sequence[str]) -> str:
    """The reference action that an episode is at: the first one of the path that it has not made in order.

    Off the path "the next action" is undefined; this is our reading of it, by a pointer that moves on when
    the action it points at is made, and stays at the last one.
    """
    at = 0
    for action in actions:
        if at < len(workflow.steps) - 1 and agrees(action, workflow.steps[at].action):
            at += 1
    return workflow.steps[at].action


class Entry(NamedTuple):
    """A thing or a door: what it is, and how it is."""

    name: str
    detail: str
    """How it is, or what is on or in it; "" if the simulator says no more than the name."""


class Room(NamedTuple):
    """A look around, taken apart."""

    name: str
    things: tuple[Entry, ...]
    doors: tuple[Entry, ...]


_SPLIT = re.compile(r"(?P<name>.+?)(?: \((?P<inside>.*)\)|[.,] (?P<rest>.*))")


@lru_cache(maxsize=1 << 14)
def entry(line: str) -> Entry:
    """One line of what the simulator prints.

    >>> entry("a door to the hallway (that is open)")
    Entry(name='a door to the hallway', detail='that is open')
    >>> entry("a sink, which is turned off. In the sink is: nothing.")
    Entry(name='a sink', detail='which is turned off. In the sink is: nothing.')
    >>> entry("a substance called air")
    Entry(name='a substance called air', detail='')
    """
    text = line.strip()
    if match := _SPLIT.fullmatch(text):
        return Entry(match["name"], (match["inside"] if match["rest"] is None else match["rest"]).strip())
    return Entry(text, "")


@lru_cache(maxsize=1 << 14)
def room(look: str) -> Room:
    """A look around, taken apart. The agent itself is left out: it is in every room."""
    head, _, body = look.partition("\n")
    inside, _, outside = body.partition("You also see:\n")
    named = re.search(r"is called (?:the )?(.+?)\. ", head)
    things = tuple(e for e in map(entry, _lines(inside)) if e.name != "the agent")
    return Room(named[1] if named else head.strip(), things, tuple(map(entry, _lines(outside))))


@lru_cache(maxsize=1 << 14)
def inventory(text: str) -> tuple[Entry, ...]:
    """What the agent carries, taken apart."""
    return tuple(map(entry, _lines(text.partition("\n")[2])))


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


_EMPTY = frozenset("a an the of in on to from into with and called substance door it is that".split())


@lru_cache(maxsize=1 << 14)
def words(text: str) -> frozenset[str]:
    """Words of a text that can name a thing: lower case, without articles and the like, numbers kept.

    >>> sorted(words("move the Red Apple to flower pot 3"))
    ['3', 'apple', 'flower', 'move', 'pot', 'red']
    """
    return frozenset(re.findall(r"[a-z0-9]+", text.lower())) - _EMPTY


@lru_cache(maxsize=1 << 14)
def names(action: str, thing: Entry) -> bool:
    """Whether an action names a thing: with all words of the thing's name.

    >>> names("pour jug into flower pot 3", entry("a flower pot 3 (containing soil)"))
    True
    >>> names("pour jug into flower pot 3", entry("a flower pot 4 (containing soil)"))
    False
    """
    wanted = words(thing.name)
    return bool(wanted) and wanted <= words(action)
