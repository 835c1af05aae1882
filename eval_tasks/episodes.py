"""Probes, choices and episodes: what one model is asked, and what the environment says to each answer. Pure.

    run = Episode(task, "compact")
    while not run.finished:
        run.take(ask(run.messages()), prompt="...")
    run.result()                                 # a record without its cell

Invariant: verdicts, agreement and success come from `stsr.generators.environment` and nowhere else, and the
prompts from `stsr.generators.prompts` or from the published row. A result holds the fields of
`records.DecisionRecord` or `records.EpisodeRecord`, except `cell` and `schema`.
Source: section 3.2 of the paper (oracle-prefix probes and free runs), 4.6 (matched error), A.9 (choices).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stsr.eval_tasks.records import Turn
from stsr.generators.environment import Rejected, State, agrees, gold_prefix, parse_call, start, step
from stsr.generators.prompts import Message, render
from stsr.generators.tables import compact_json
from stsr.generators.tasks import Task, candidates
from stsr.generators.views import ID_VIEWS
from stsr.generators.views import view as find_view

ERROR_AFTER = 4
"""Gold actions before the injected error of a matched-error episode (section 4.6)."""


class Rollout:
    """Calls of one model on one task, from a given state on."""

    ranks = False
    """Whether an answer is one log-likelihood a candidate (`rank`) instead of a text (`take`)."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.turns: list[Turn] = []
        self.most_calls = 1
        """Calls that the rollout can take at most."""

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

    def offered(self) -> list[str]:
        """The replies that the next prompt offers, in the order shown."""
        return [recipe.text for recipe in candidates(self.state.task, self.state.stage).shown]

    def reference(self) -> str:
        """The right reply to the next prompt."""
        return self.state.reference.text

    def longest(self) -> list[Message]:
        """The prompt that is likely the longest one of this rollout, known before the first call."""
        return self.messages()

    def result(self) -> dict[str, Any]:
        """The finished rollout as JSON: its record without `cell` and `schema`."""
        raise NotImplementedError

    def take(
        self, output: str, *, prompt: str, prompt_tokens: int | None = None, output_tokens: int | None = None
    ) -> None:
        """Runs the model's raw `output` in the environment and notes the turn. Lengths are in tokens."""
        self._note(output, output, parse_call(output), prompt, prompt_tokens, output_tokens)

    def _note(
        self,
        output: str,
        call: str,
        parsed: dict[str, Any] | None,
        prompt: str,
        prompt_tokens: int | None,
        output_tokens: int | None,
    ) -> None:
        """Runs `call`, which is what `output` amounts to."""
        before, offered, reference = self.state, self.offered(), self.reference()
        outcome = step(before, call)
        self.state = outcome.state
        self.turns.append(
            Turn(
                prompt=prompt,
                output=output,
                call=parsed,
                verdict=outcome.reason if isinstance(outcome, Rejected) else "accepted",
                error=outcome.state.error,
                remaining=before.remaining,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
                candidates=offered,
                reference=reference,
                canonical=agrees(before, call),
            )
        )


class Probe(Rollout):
    """One oracle-prefix decision: the gold prefix is restored and the model makes one call."""

    kind = "oracle_prefix"

    def __init__(self, row: Mapping[str, Any], state: State) -> None:
        """`row` is a published decision row and `state` the state before its stage on the gold path.

        Raises ValueError if the two belong to different tasks or decisions.
        """
        super().__init__(state)
        told = (row["fingerprint"], row["stage"], row["calls_left"], list(row["candidates"]))
        found = (state.task.fingerprint, state.stage, state.remaining, super().offered())
        if told != found:
            raise ValueError(
                f"{row['id']}: the row says (fingerprint, stage, calls left, candidates) = {told}, "
                f"its task gives {found}"
            )
        self.row, self.before = row, state
        self._ids = row["view"] in ID_VIEWS

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
        if not self._ids:
            return list(self.row["candidates"])
        return [
            compact_json({"recipe": f"r{number}"}) for number in range(1, len(self.row["candidates"]) + 1)
        ]

    def reference(self) -> str:
        """The published completion."""
        return str(self.row["completion"][0]["content"])

    def take(
        self, output: str, *, prompt: str, prompt_tokens: int | None = None, output_tokens: int | None = None
    ) -> None:
        """As every rollout's. Under a view with ids, the reply is an id and amounts to that recipe's call."""
        if not self._ids:
            self._note(output, output, parse_call(output), prompt, prompt_tokens, output_tokens)
            return
        chosen = parse_id(output)
        call, parsed = "", None
        if chosen is not None:
            parsed = {"recipe": chosen}
            known = {f"r{number}": text for number, text in enumerate(self.row["candidates"], 1)}
            call = known.get(chosen, NO_RECIPE)
        self._note(output, call, parsed, prompt, prompt_tokens, output_tokens)

    def result(self) -> dict[str, Any]:
        (turn,) = self.turns
        return {
            "kind": self.kind,
            "id": self.id,
            "task": self.before.task.id,
            "fingerprint": self.before.task.fingerprint,
            "stage": self.before.stage,
            "agree": turn.canonical,
            "progress": len(self.state.verified) > len(self.before.verified),
            "turn": asdict(turn),
        }


NO_RECIPE = '{"tool":"","inputs":[],"output":"","params":{}}'
"""A well-formed call that no workflow knows: what an unknown id amounts to."""


def parse_id(text: str) -> str | None:
    """The id in a reply to a view with ids, or None. Read as strictly as a call: the first JSON value counts,
    and it must be an object with the key `recipe` alone, a string.

    >>> parse_id('It is {"recipe": "r2"}.'), parse_id('{"recipe":"r1","recipe":"r2"}'), parse_id("r1")
    ('r2', None, None)
    """
    begin = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    try:
        value, _ = _PAIRS.raw_decode(text, begin) if begin >= 0 else (None, 0)
    except (ValueError, RecursionError):
        return None
    # pairs, so that a key given twice shows
    if not isinstance(value, tuple) or len(value) != 1:
        return None
    key, chosen = value[0]
    return chosen if key == "recipe" and isinstance(chosen, str) else None


_PAIRS = json.JSONDecoder(object_pairs_hook=tuple)


class Choice(Probe):
    """One decision by likelihood: the candidate that the model finds likelier after the prompt."""

    kind = "choice"
    ranks = True

    def rank(self, logprobs: Sequence[float], *, prompt: str, prompt_tokens: int | None = None) -> None:
        """Notes one log-likelihood a candidate. A tie for the first place chooses nothing, which is wrong.

        Raises ValueError for a value that is not finite: that is a failure of the backend.
        """
        if not all(map(math.isfinite, logprobs)):
            raise ValueError(f"{self.id}: the backend gave log-likelihoods {list(logprobs)}")
        self.logprobs = [float(value) for value in logprobs]
        best = max(self.logprobs)
        chosen = self.offered()[self.logprobs.index(best)] if self.logprobs.count(best) == 1 else ""
        self.take(chosen, prompt=prompt, prompt_tokens=prompt_tokens)

    def result(self) -> dict[str, Any]:
        return {**super().result(), "logprobs": self.logprobs}


class Episode(Rollout):
    """One free run: the model's own calls drive the environment until success or the budget's end."""

    def __init__(self, task: Task, view: str, *, error_after: int | None = None) -> None:
        """`error_after` begins a matched-error episode: so many gold actions are made, and the last of them
        is then repeated, which is rejected and costs a call. Raises ValueError for an unknown view, or one
        that asks for ids.
        """
        if view in ID_VIEWS:
            raise ValueError(f"the view {view} asks for ids; a free run needs calls")
        super().__init__(start(task) if error_after is None else gold_prefix(task, error_after))
        self.task, self.view, self._show = task, view, find_view(view)
        self.kind, self.injected = "free_run", list[str]()
        if error_after is not None:
            self.kind = "matched_error"
            self.injected = [task.recipes[index].text for index in task.gold[:error_after]]
            self.injected.append(self.injected[-1])
            outcome = step(self.state, self.injected[-1])
            if not isinstance(outcome, Rejected):
                raise RuntimeError(f"{task.id}: the environment accepts a call that was made before")
            self.state = outcome.state
        self.most_calls = self.state.remaining

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
        accepted = [turn for turn in self.turns if turn.verdict == "accepted"]
        return {
            "kind": self.kind,
            "id": self.id,
            "task": self.task.id,
            "fingerprint": self.task.fingerprint,
            "success": self.state.success,
            "verified": len(self.state.verified),
            "calls": len(self.turns),
            "rejections": len(self.turns) - len(accepted),
            "noncanonical": sum(not turn.canonical for turn in accepted),
            "injected": self.injected,
            "turns": [asdict(turn) for turn in self.turns],
        }
