"""Local decisions and free runs of ScienceWorld: what a model is asked, and what the simulator says.

    run = FreeRun(Variation("freeze", 1), "full", pool)
    while not run.finished:
        run.take(ask(run.messages()), prompt="...")
    run.result()                                 # a record without its cell

A pool holds few simulators, and a simulator one episode at a time. So episodes share `Lane`s: a lane plays
one episode to its end, then takes the next that waits; all lanes advance together.

Invariants: an episode ends with the first score of 100, with a negative score or with the last call of its
budget, a hundred but in smoke runs; every call of the model counts, whatever the simulator makes of it; a
fault of the simulator is an error or leaves no trace (generators/scienceworld/sessions.py), and is never
scored.
Source: appendix F of the paper.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from stsr.eval_tasks.episodes import Rollout
from stsr.eval_tasks.scienceworld_records import ActionTurn, Ended
from stsr.generators.prompts import Message
from stsr.generators.scienceworld.actions import EXTRACTION, agrees, extract, verdict
from stsr.generators.scienceworld.catalogue import MOST_ACTIONS, Workflow
from stsr.generators.scienceworld.prompts import render
from stsr.generators.scienceworld.sessions import Pool
from stsr.generators.scienceworld.simulator import JAR_SHA256, SimulatorError, package_version
from stsr.generators.scienceworld.states import State, reference_after, state_at
from stsr.generators.scienceworld.variations import Variation
from stsr.generators.scienceworld.views import view as find_view


class Local(Rollout):
    """One decision of a reference path: the published prompt, one answer, no simulator."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        """`row` is a published row."""
        self.row, self.most_calls = row, 1
        self.turns = []

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def finished(self) -> bool:
        return bool(self.turns)

    def messages(self) -> list[Message]:
        """The published prompt, unchanged, so that training and evaluation share every token."""
        return [Message(role=turn["role"], content=turn["content"]) for turn in self.row["prompt"]]

    def offered(self) -> list[str]:
        """None: a prompt prints no action to choose."""
        return []

    def reference(self) -> str:
        return str(self.row["completion"][0]["content"])

    def take(
        self, output: str, *, prompt: str, prompt_tokens: int | None = None, output_tokens: int | None = None
    ) -> None:
        """Notes the model's raw `output`."""
        action = extract(output)
        self.turns.append(
            ActionTurn(
                prompt=prompt,
                output=output,
                call=None,
                verdict="unsent",
                error="",
                remaining=self.row["calls_left"],
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
                reference=self.reference(),
                canonical=agrees(action, self.reference()),
                action=action,
                score=self.row["score"],
            )
        )

    def result(self) -> dict[str, Any]:
        (turn,) = self.turns
        same = ("id", "task", "fingerprint", "family", "bin", "horizon", "stage")
        return {
            **{name: self.row[name] for name in same},
            "kind": "scienceworld_local",
            "agree": turn.canonical,
            "extraction": EXTRACTION,
            "turn": asdict(turn),
        }


class FreeRun(Rollout):
    """One episode in the simulator."""

    def __init__(
        self,
        task: Variation,
        view: str,
        pool: Pool,
        workflow: Workflow | None = None,
        most_calls: int = MOST_ACTIONS,
    ) -> None:
        """`workflow` is the task's reference path, or None for an official test variation.

        Raises ValueError for an unknown view, or one that needs a reference path where there is none.
        """
        self.task, self.view, self.workflow, self._show = task, view, workflow, find_view(view)
        if self._show.needs_target and workflow is None:
            raise ValueError(f"{task.id}: the view {view} needs a reference path; test variations have none")
        self.turns, self.most_calls = [], most_calls
        self._pool, self._session = pool, pool.open(task)
        self._state: State | None = None
        self.ended: Ended | None = None

    @property
    def id(self) -> str:
        return f"{self.task.id}@{self.view}"

    @property
    def finished(self) -> bool:
        return self.ended is not None

    @property
    def now(self) -> State:
        """The state of the episode. Raises SimulatorError if the simulator begins it unlike the catalogue."""
        if self._state is None:
            description, seen = self._pool.describe(self._session)
            self._state = State(description, seen, (), self.most_calls)
            begins = state_at(self.workflow, 1) if self.workflow else self._state
            if self._state != begins._replace(most_calls=self.most_calls):
                raise SimulatorError(f"{self.task.id}: the simulator begins otherwise than the catalogue")
        return self._state

    def _prompt(self, state: State) -> list[Message]:
        return render(self._show(state, self._reference(state)))

    def _reference(self, state: State) -> str:
        if self.workflow is None:
            return ""
        return reference_after(self.workflow, [call.action for call in state.calls])

    def messages(self) -> list[Message]:
        return self._prompt(self.now)

    def longest(self) -> list[Message]:
        """The longest prompt along the reference path, where there is one."""
        if self.workflow is None:
            return self.messages()
        stages = range(1, len(self.workflow.steps) + 1)
        prompts = [self._prompt(state_at(self.workflow, stage)) for stage in stages]
        return max(prompts, key=lambda messages: len(messages[0]["content"]))

    def offered(self) -> list[str]:
        """None: a prompt prints no action to choose."""
        return []

    def reference(self) -> str:
        """The first reference action that was not made in order; "" where there is no reference path."""
        return self._reference(self.now)

    def take(
        self, output: str, *, prompt: str, prompt_tokens: int | None = None, output_tokens: int | None = None
    ) -> None:
        """Sends the action in the model's raw `output` to the simulator and notes the turn."""
        before, reference, action = self.now, self.reference(), extract(output)
        outcome, seen = self._pool.call(self._session, action)
        turn = ActionTurn(
            prompt=prompt,
            output=output,
            call=None,
            verdict="",
            error="",
            remaining=before.remaining,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            reference=reference,
            action=action,
            feedback=outcome.feedback,
            score=outcome.score,
        )
        self.turns.append(judged(turn))
        self._state = before._replace(seen=seen, calls=tuple(self._session.calls))
        self.ended = _ended(outcome.score, self._state.remaining)
        if self.ended:
            self._pool.close(self._session)

    def result(self) -> dict[str, Any]:
        assert self.ended is not None, self.id
        turns: list[ActionTurn] = self.turns  # type: ignore[assignment]  # none but these are made above
        return {
            "kind": "scienceworld_free_run",
            "id": self.id,
            "task": self.task.id,
            "fingerprint": self.workflow.fingerprint if self.workflow else "",
            "family": self.task.family,
            "bin": self.workflow.bin if self.workflow else "",
            "horizon": len(self.workflow.steps) if self.workflow else 0,
            **scored(turns),
            "extraction": EXTRACTION,
            "simulator": package_version(),
            "jar_sha256": JAR_SHA256,
            "turns": [asdict(turn) for turn in turns],
        }


def judged(turn: ActionTurn) -> ActionTurn:
    """The turn with what its feedback means, and whether its action is the reference."""
    said = verdict(turn.feedback)
    return replace(
        turn,
        verdict=said,
        error=turn.feedback if said == "rejected" else "",
        canonical=agrees(turn.action, turn.reference) if turn.reference else None,
    )


def _ended(score: int, remaining: int) -> Ended | None:
    if score == 100:
        return "success"
    if score < 0:
        return "failed"
    return None if remaining else "budget"


def scored(turns: list[ActionTurn]) -> dict[str, Any]:
    """What an episode comes to, from its turns alone; see FreeRunRecord for each field."""
    scores = [turn.score for turn in turns]
    first = next((at for at, turn in enumerate(turns) if turn.verdict == "rejected"), None)
    success = scores[-1] == 100
    return {
        "success": success,
        "ended": _ended(scores[-1], turns[-1].remaining - 1),
        "calls": len(turns),
        "score": scores[-1],
        "best": max(0, *scores),
        "rejections": sum(turn.verdict == "rejected" for turn in turns),
        "later_success": None if first is None else success,
        "later_increase": None if first is None else max(scores[first:]) > scores[first],
    }


class Lane(Rollout):
    """Plays waiting episodes one after the other, as if they were one rollout."""

    def __init__(self, waiting: deque[Callable[[], FreeRun]], done: Callable[[FreeRun], None]) -> None:
        """`waiting` is shared among lanes; `done` is called with every episode that has ended."""
        self.most_calls = MOST_ACTIONS
        self._waiting, self._done, self._run = waiting, done, None if not waiting else waiting.popleft()()

    @property
    def _now(self) -> FreeRun:
        assert self._run is not None, "the lane has no episode"
        return self._run

    @property
    def turns(self) -> Any:  # type: ignore[override]  # the base class has an attribute
        """Turns of the episode that is played."""
        return self._now.turns

    @property
    def id(self) -> str:
        return self._now.id

    @property
    def finished(self) -> bool:
        return self._run is None

    def messages(self) -> list[Message]:
        return self._now.messages()

    def longest(self) -> list[Message]:
        return self._now.longest()

    def offered(self) -> list[str]:
        return []

    def reference(self) -> str:
        return self._now.reference()

    def take(
        self, output: str, *, prompt: str, prompt_tokens: int | None = None, output_tokens: int | None = None
    ) -> None:
        run = self._now
        run.take(output, prompt=prompt, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
        if run.finished:
            self._done(run)
            self._run = self._waiting.popleft()() if self._waiting else None

    def result(self) -> dict[str, Any]:
        """Nothing: results are those of the episodes."""
        return {}
