"""What the tiny base model is pretrained on: other instructions over the same kind of state.

The base must read a state and copy a recipe, but must not know the project's task. So each example shows a
state and one or two recipes as the project does, with an instruction of its own: reply with the recipe, the
first, the second, or the one whose output, input, both or neither is (or is not) in the state. The project's
instruction never occurs, nor does its condition: input in the state, output not. Half of the tasks have names
that do not count upward, so order of names is no substitute for reading the state. States grow as training
goes on. Most examples leave out the description of the tools, all of them at first; that saves computation.

Invariant: tasks come from streams keyed "pretrain", which no split of a data set uses.
Source: ours; the paper fine-tunes released Qwen3 models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stsr.generators import chain, prompts
from stsr.generators.environment import REASONS
from stsr.generators.randomness import Stream, keyed
from stsr.generators.tables import Table
from stsr.generators.tasks import Recipe
from stsr.generators.views import Observation

INSTRUCTIONS = {
    "only": "Reply with the recipe, exactly as it is printed.",
    "first": "Reply with the first recipe, exactly as it is printed.",
    "second": "Reply with the second recipe, exactly as it is printed.",
    "output_in": "Reply with the recipe whose output exists in the state, exactly as it is printed.",
    "output_not_in": "Reply with the recipe whose output does not exist in the state, exactly as it is "
    "printed.",
    "input_in": "Reply with the recipe whose input exists in the state, exactly as it is printed.",
    "input_not_in": "Reply with the recipe whose input does not exist in the state, exactly as it is "
    "printed.",
    "both_in": "Reply with the recipe whose input and output both exist in the state, exactly as it is "
    "printed.",
    "neither_in": "Reply with the recipe whose input and output are both missing in the state, exactly as it "
    "is printed.",
}
CONDITIONS: dict[str, Callable[[bool, bool], bool]] = {
    "output_in": lambda input_in, output_in: output_in,
    "output_not_in": lambda input_in, output_in: not output_in,
    "input_in": lambda input_in, output_in: input_in,
    "input_not_in": lambda input_in, output_in: not input_in,
    "both_in": lambda input_in, output_in: input_in and output_in,
    "neither_in": lambda input_in, output_in: not input_in and not output_in,
}
"""Kinds that need the state: the condition that exactly one of two recipes fulfils."""
KINDS = ("only", "first", "second", *2 * tuple(CONDITIONS))
"""Kinds of question, each equally likely; those that need the state are asked twice as often."""
HORIZONS = (2, 3, 4, 3, 4, 6, 8, 4, 8, 12, 16, 10, 14, 16, 16)
"""Number of operations, each equally likely; the beginning of training uses the beginning of the list."""
VIEWS = ("full", "names", "names", "recent2", "half")
ERRORS = ("", "", *(f"{reason}: the previous call was rejected" for reason in REASONS))


class Example(NamedTuple):
    """One question and its answer."""

    kind: str
    """Key of INSTRUCTIONS."""
    prompt: str
    """The user message."""
    completion: str
    """The recipe to copy."""


def example(index: int, purpose: str, progress: float) -> Example:
    """Example number `index`. Purposes share nothing; `progress` 0..1 is the share of training done."""
    horizons = HORIZONS[: max(3, round(min(1.0, 3 * progress) * len(HORIZONS)))]
    for attempt in range(10_000):
        stream = keyed("pretrain", purpose, index, attempt)
        try:
            source, recipes = chain.chain(stream.choice(horizons), stream)
        except chain.DeadEnd:
            continue
        made = _example(stream, source, recipes, progress)
        if made is not None:
            return made
    raise AssertionError("no valid example in 10,000 attempts")


def _example(stream: Stream, source: Table, recipes: tuple[Recipe, ...], progress: float) -> Example | None:
    tables = {"s0": source}
    for recipe in recipes[: stream.below(len(recipes))]:
        tables[recipe.output] = recipe.run(tables)
    if stream.below(2):
        tables, recipes = _renamed(stream, tables, recipes)
    kind = stream.choice(KINDS)
    picked = _pick(stream, kind, set(tables), recipes)
    if picked is None:
        return None
    shown, gold = picked
    prompt = prompts.text(
        _observe(stream, tables),
        [recipe.text for recipe in shown],
        1 + stream.below(32),
        stream.choice(ERRORS),
        INSTRUCTIONS[kind] + "\n",
    )
    if progress < 0.2 or stream.below(3):
        prompt = prompt.removeprefix(prompts.TOOLS_TEXT + "\n")
    return Example(kind, prompt, gold.text)


def _renamed(
    stream: Stream, tables: dict[str, Table], recipes: tuple[Recipe, ...]
) -> tuple[dict[str, Table], tuple[Recipe, ...]]:
    names = ["s0", *(recipe.output for recipe in recipes)]
    pool = stream.shuffled([f"{letter}{number}" for letter in "abcs" for number in range(20)])
    new = dict(zip(names, pool, strict=False))
    renamed = tuple(Recipe(r.tool, tuple(new[i] for i in r.inputs), new[r.output], r.params) for r in recipes)
    return {new[name]: table for name, table in tables.items()}, renamed


def _pick(
    stream: Stream, kind: str, present: set[str], recipes: tuple[Recipe, ...]
) -> tuple[list[Recipe], Recipe] | None:
    """Recipes to show and the one to copy; None if exactly one match among two cannot be had."""
    if kind == "only":
        gold = stream.choice(recipes)
        return [gold], gold
    if kind in ("first", "second"):
        shown = stream.shuffled(recipes)[:2]
        return shown, shown[kind == "second"]
    fulfils = CONDITIONS[kind]
    fits = [fulfils(recipe.inputs[0] in present, recipe.output in present) for recipe in recipes]
    right = [recipe for recipe, fit in zip(recipes, fits, strict=True) if fit]
    wrong = [recipe for recipe, fit in zip(recipes, fits, strict=True) if not fit]
    if not right or not wrong:
        return None
    gold = stream.choice(right)
    return stream.shuffled([gold, stream.choice(wrong)]), gold


def _observe(stream: Stream, tables: dict[str, Table]) -> Observation:
    view, names = stream.choice(VIEWS), list(tables)
    shown = {
        "full": set(names),
        "names": set[str](),
        "recent2": set(names[-2:]),
        "half": {name for name in names if stream.below(2)},
    }[view]
    return Observation(tuple((name, table if name in shown else None) for name, table in tables.items()))
