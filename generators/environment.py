"""The environment: what a call does to the state, and what counts as done.

`step` is pure and total: any string is a legal input, none raises, and nothing changes but the returned
state. There is one parser of model output (`parse_call`) and one judge of success (`verified`), used by
training checks, probes and free runs alike.
Source: sections 3.1 and A.1 of the paper; the closed set of reasons is ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from stsr.generators.canonical import canonical
from stsr.generators.tables import Table
from stsr.generators.tasks import Recipe, Task

Reason = Literal["malformed", "unknown-recipe", "output-exists", "missing-input", "budget-exhausted"]
REASONS: tuple[Reason, ...] = (
    "malformed",
    "unknown-recipe",
    "output-exists",
    "missing-input",
    "budget-exhausted",
)


@dataclass(frozen=True)
class State:
    """Where an episode stands. Artifacts keep their order of creation."""

    task: Task
    """The task."""
    artifacts: Mapping[str, Table]
    """Name -> contents of every artifact that exists, sources first."""
    makers: Mapping[str, int]
    """Name -> index of the recipe that made the artifact; sources have none."""
    remaining: int
    """Calls left."""
    error: str = ""
    """What the previous call was rejected for; "" if it was accepted or there was none."""

    @cached_property
    def verified(self) -> frozenset[int]:
        """Recipe indexes of the required operations whose contents and ancestry check out.

        An output counts if the gold recipe made it, every input is a source or itself verified, and its
        contents equal those of the reference solution. Order of execution does not matter.
        """
        task, good, done = self.task, {name for name, _ in self.task.sources}, set()
        if any(self.artifacts.get(name) != table for name, table in task.sources):
            return frozenset()
        for index in task.gold:
            recipe = task.recipes[index]
            made = self.makers.get(recipe.output) == index
            same = self.artifacts.get(recipe.output) == task.gold_tables[recipe.output]
            if made and same and good.issuperset(recipe.inputs):
                good.add(recipe.output)
                done.add(index)
        return frozenset(done)

    @property
    def success(self) -> bool:
        """Every required operation verified."""
        return len(self.verified) == self.task.horizon

    @property
    def finished(self) -> bool:
        """Nothing is left to do: every required output exists, right or wrong, or no calls are left."""
        return self.remaining <= 0 or all(
            self.task.recipes[index].output in self.artifacts for index in self.task.gold
        )

    @cached_property
    def stage(self) -> int:
        """1..H: position on the gold path of the next operation that the evaluator would select."""
        for stage, index in enumerate(self.task.gold, 1):
            if self.task.recipes[index].output not in self.artifacts:
                return stage
        return self.task.horizon

    @property
    def reference(self) -> Recipe:
        """The evaluator-selected next action (section 3.2)."""
        return self.task.recipes[self.task.gold[self.stage - 1]]


class Accepted(NamedTuple):
    """The call ran."""

    state: State


class Rejected(NamedTuple):
    """The call changed no artifact. `state` has one call less and carries the error."""

    state: State
    reason: Reason


def start(task: Task) -> State:
    """The state before the first call."""
    return State(task, dict(task.sources), {}, task.budget)


def gold_prefix(task: Task, calls: int) -> State:
    """The state after the first `calls` gold actions, replayed through `step`.

    Raises RuntimeError if the environment rejects one: the task is broken.
    """
    state = start(task)
    for index in task.gold[:calls]:
        outcome = step(state, task.recipes[index].text)
        if isinstance(outcome, Rejected):
            raise RuntimeError(
                f"{task.id}: gold call {task.recipes[index].text} rejected: {outcome.state.error}"
            )
        state = outcome.state
    return state


def step(state: State, text: str) -> Accepted | Rejected:
    """Runs the call in `text`, the raw output of a model, on `state`. Never raises; costs one call."""
    if state.remaining <= 0:
        return Rejected(replace(state, error="no calls are left"), "budget-exhausted")
    index = state.task.text_index.get(text)  # a recipe as printed is that recipe; it need not be parsed
    if index is None:
        call = parse_call(text)
        if call is None:
            return _reject(
                state, "malformed", "the reply is not one JSON call with tool, inputs, output and params"
            )
        index = state.task.recipe_index.get(canonical(call))
    if index is None:
        return _reject(state, "unknown-recipe", "the call is not one of the recipes of this workflow")
    recipe = state.task.recipes[index]
    if recipe.output in state.artifacts:
        return _reject(state, "output-exists", f"{recipe.output} exists already")
    missing = [name for name in recipe.inputs if name not in state.artifacts]
    if missing:
        return _reject(state, "missing-input", f"{', '.join(missing)} does not exist yet")
    return Accepted(
        State(
            state.task,
            {**state.artifacts, recipe.output: recipe.run(state.artifacts)},
            {**state.makers, recipe.output: index},
            state.remaining - 1,
        )
    )


def _reject(state: State, reason: Reason, message: str) -> Rejected:
    return Rejected(replace(state, remaining=state.remaining - 1, error=f"{reason}: {message}"), reason)


def agrees(state: State, text: str) -> bool:
    """Canonical agreement: the call is the reference action and the environment accepts it (section A.5)."""
    call = parse_call(text)
    if call is None or canonical(call) != state.reference.key:
        return False
    return isinstance(step(state, text), Accepted)


# -- the parser ---------------------------------------------------------------------------------------------


class _NotACall(ValueError):
    pass


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise _NotACall("duplicate key")
    return out


def _no_constant(name: str) -> Any:
    raise _NotACall(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constant)
_KEYS = {"tool", "inputs", "output", "params"}


def parse_call(text: str) -> dict[str, Any] | None:
    """The call in a model's raw output, or None. Never raises.

    The call is the first JSON object or array in the text: reading starts at the first brace or bracket, and
    what follows the value is ignored. It must be an object with exactly the keys tool, inputs, output and
    params; names are strings, parameters are strings, integers or lists of strings. A duplicate key, NaN,
    a float, a boolean, null or nesting too deep to read makes it malformed.

    >>> parse_call('Sure: {"tool":"sort","inputs":["s0"],"output":"a1","params":{"column":"x"}} Done.')
    {'tool': 'sort', 'inputs': ['s0'], 'output': 'a1', 'params': {'column': 'x'}}
    >>> parse_call('[1]') is None and parse_call('{"tool":"sort"}') is None and parse_call('') is None
    True
    """
    begin = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if begin < 0:
        return None
    try:
        value, _ = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None
    return value if _is_call(value) else None


def _is_call(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == _KEYS
        and isinstance(value["tool"], str)
        and isinstance(value["output"], str)
        and _is_names(value["inputs"])
        and isinstance(value["params"], dict)
        and all(type(item) in (str, int) or _is_names(item) for item in value["params"].values())
    )


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
