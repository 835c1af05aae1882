"""Episodes over a few simulators: an episode goes on, the same, when its JVM dies or is lent to another.

    with Pool(2) as pool:
        session = pool.open(Variation("boil", 3))
        outcome, seen = pool.call(session, "look around")

A session is the list of its calls. Whenever a simulator does not hold it, the task is loaded and the calls
are made again, and each answer must be the one that was noted; then the new call is made.

Invariants: a fault gives the trajectory that there would have been without it, or an error; never another
result. A call is noted once, when its answer is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from stsr.generators.scienceworld.simulator import Simulator, SimulatorDied, SimulatorError
from stsr.generators.scienceworld.states import Call, Outcome, Seen
from stsr.generators.scienceworld.variations import Variation

T = TypeVar("T")

SIMULATORS = 2
"""JVMs of a pool. They are bound by the CPU: on two cores a third one adds nothing."""
ATTEMPTS = 3
"""JVMs that may die on one call before it is given up."""


@dataclass(eq=False)
class Session:
    """One episode: a variation and the calls so far."""

    variation: Variation
    calls: list[Call] = field(default_factory=list)


@dataclass(eq=False)
class _Slot:
    """A place for one JVM: the JVM, if it runs, and the session that it is in the middle of."""

    simulator: Simulator | None = None
    session: Session | None = None
    used: int = 0


class Pool:
    """At most `size` JVMs, started when needed, for any number of sessions. Not for several threads."""

    def __init__(self, size: int = SIMULATORS, start: Callable[[], Simulator] = Simulator) -> None:
        if size < 1:
            raise ValueError(f"a pool needs at least one simulator, not {size}")
        self.size, self._start, self._clock = size, start, 0
        self._slots = [_Slot() for _ in range(size)]
        self.restarts = 0
        """JVMs that died in the middle of something."""

    def open(self, variation: Variation) -> Session:
        """A new episode at the start of a task. Costs nothing until it is used."""
        return Session(variation)

    def describe(self, session: Session) -> tuple[str, Seen]:
        """The task in words, and what the session's state shows."""
        return self._with(session, lambda simulator: (simulator.description(), simulator.see()))

    def call(self, session: Session, action: str) -> tuple[Outcome, Seen]:
        """Makes one call of a session. Raises SimulatorError if that cannot be done faithfully."""

        def make(simulator: Simulator) -> tuple[Outcome, Seen]:
            return simulator.call(action), simulator.see()

        outcome, seen = self._with(session, make)
        session.calls.append(Call(action, outcome))
        return outcome, seen

    def close(self, session: Session | None = None) -> None:
        """Frees the simulator of a session, or ends all JVMs."""
        for slot in self._slots:
            if session is None and slot.simulator is not None:
                slot.simulator.close()
                slot.simulator = None
            if session is None or slot.session is session:
                slot.session, slot.used = None, 0

    def _with(self, session: Session, what: Callable[[Simulator], T]) -> T:
        """Runs `what` on a simulator that holds the session; on another JVM if that one dies."""
        slot = self._slot(session)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                result = what(self._held(slot, session))
            except SimulatorDied:
                if slot.simulator is not None:
                    slot.simulator.close()
                slot.simulator, slot.session = None, None
                self.restarts += 1
                if attempt == ATTEMPTS:
                    raise
            else:
                self._clock += 1
                slot.used = self._clock
                return result
        raise AssertionError("unreachable")

    def _slot(self, session: Session) -> _Slot:
        """The slot that holds the session, or else the one that was used longest ago."""
        holding = (slot for slot in self._slots if slot.session is session)
        return next(holding, min(self._slots, key=lambda slot: slot.used))

    def _held(self, slot: _Slot, session: Session) -> Simulator:
        """The slot's simulator, in the state of the session."""
        if slot.simulator is None:
            slot.simulator, slot.session = self._start(), None
        if slot.session is not session:
            slot.session = None
            slot.simulator.load(session.variation)
            for number, call in enumerate(session.calls, 1):
                outcome = slot.simulator.call(call.action)
                if outcome != call.outcome:
                    raise SimulatorError(
                        f"{session.variation.id}: made again, call {number} ({call.action!r}) gives score "
                        f"{outcome.score} and {outcome.feedback!r}, not {call.outcome.score} and "
                        f"{call.outcome.feedback!r}; the episode cannot go on"
                    )
            slot.session = session
        return slot.simulator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()
