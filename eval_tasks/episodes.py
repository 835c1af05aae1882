"""Probes and episodes: what one model is asked, and what the environment says to each answer. Pure.

    run = Episode(task, "compact")
    while not run.finished:
        run.take(ask(run.messages()), prompt="...")
    run.result()                                 # a record without its cell

Invariant: verdicts, agreement and success come from `stsr.generators.environment` and nowhere else, and the
prompts from `stsr.generators.prompts` or from the published row. A result holds the fields of
`records.DecisionRecord` or `records.EpisodeRecord`, except `cell` and `schema`.
Source: section 3.2 of the paper (oracle-prefix probes and free runs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from stsr.eval_tasks.records import Turn
from stsr.generators.environment import Rejected, State, agrees, gold_prefix, parse_call, start, step
from stsr.generators.prompts import Message, render
from stsr.generators.tasks import Task, candidates
from stsr.generators.views import view as find_view


class Rollout:
    """Calls of one model on one task, from a given state on."""

    most_calls: int
    """Calls that a rollout can take at most."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.turns: list[Turn] = []

    @property
    def id(self) -> str:
        """Id of the record that the rollout becomes."""
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        """Whether no further call is wanted."""
        raise NotImplementedError

    def messages(self) -> list[Message]:
        """The next prompt, as chat messages."""
        raise NotImplementedError

    def longest(self) -> list[Message]:
        """The prompt that is likely the longest one of this rollout, known before the first call."""
        raise NotImplementedError

    def result(self) -> dict[str, Any]:
        """The finished rollout as JSON: its record without `cell` and `schema`."""
        raise NotImplementedError

    def take(
        self, output: str, *, prompt: str, prompt_tokens: int | None = None, output_tokens: int | None = None
    ) -> None:
        """Runs the model's raw `output` in the environment and notes the turn. Lengths are in tokens."""
        before, outcome = self.state, step(self.state, output)
        self.state = outcome.state
        self.turns.append(
            Turn(
                prompt=prompt,
                output=output,
                call=parse_call(output),
                verdict=outcome.reason if isinstance(outcome, Rejected) else "accepted",
                error=outcome.state.error,
                remaining=before.remaining,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
            )
        )


class Probe(Rollout):
    """One oracle-prefix decision: the gold prefix is restored and the model makes one call."""

    most_calls = 1

    def __init__(self, row: Mapping[str, Any], state: State) -> None:
        """`row` is a published decision row and `state` the state before its stage on the gold path.

        Raises ValueError if the two belong to different tasks or decisions.
        """
        super().__init__(state)
        told = (row["fingerprint"], row["stage"], row["calls_left"])
        found = (state.task.fingerprint, state.stage, state.remaining)
        if told != found:
            raise ValueError(
                f"{row['id']}: the row says (fingerprint, stage, calls left) = {told}, its task gives {found}"
            )
        self.row, self.before = row, state

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def finished(self) -> bool:
        return bool(self.turns)

    def messages(self) -> list[Message]:
        """The published prompt, unchanged, so that training and evaluation share every token."""
        return [Message(role=turn["role"], content=turn["content"]) for turn in self.row["prompt"]]

    def longest(self) -> list[Message]:
        return self.messages()

    def result(self) -> dict[str, Any]:
        return {
            "kind": "oracle_prefix",
            "id": self.id,
            "task": self.before.task.id,
            "fingerprint": self.before.task.fingerprint,
            "stage": self.before.stage,
            "agree": agrees(self.before, self.turns[0].output),
            "turn": asdict(self.turns[0]),
        }


class Episode(Rollout):
    """One free run: the model's own calls drive the environment until success or the budget's end."""

    def __init__(self, task: Task, view: str) -> None:
        """Raises ValueError for an unknown view."""
        super().__init__(start(task))
        self.task, self.view, self._show = task, view, find_view(view)
        self.most_calls = task.budget

    @property
    def id(self) -> str:
        return f"{self.task.id}@{self.view}"

    @property
    def finished(self) -> bool:
        return self.state.finished

    def _messages(self, state: State) -> list[Message]:
        return render(self._show(state, state.reference), candidates(self.task, state.stage), state)

    def messages(self) -> list[Message]:
        return self._messages(self.state)

    def longest(self) -> list[Message]:
        """The last decision on the gold path: by then every artifact but one exists."""
        return self._messages(gold_prefix(self.task, self.task.horizon - 1))

    def result(self) -> dict[str, Any]:
        return {
            "kind": "free_run",
            "id": self.id,
            "task": self.task.id,
            "fingerprint": self.task.fingerprint,
            "success": self.state.success,
            "verified": len(self.state.verified),
            "calls": len(self.turns),
            "rejections": sum(turn.verdict != "accepted" for turn in self.turns),
            "turns": [asdict(turn) for turn in self.turns],
        }
