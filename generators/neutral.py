"""Chains whose artifact names do not count upward, so that name order can be told from dependency.

Each is the chain of the same seed with its outputs renamed: the same tables, operations, candidates and
number of tokens, but the names a1..aH are dealt out at random, and never in order. Ours, not the paper's.
"""

from __future__ import annotations

from dataclasses import replace

from stsr.generators import chain
from stsr.generators.randomness import keyed
from stsr.generators.tasks import Family, Recipe, Task, draw_pair


def generate(horizon: int, seed: int, variant: str = "") -> Task:
    """The renamed chain of `horizon` operations for `seed`.

    >>> [recipe.output for recipe in generate(4, 62000).recipes] != ["a1", "a2", "a3", "a4"]
    True
    """
    task = chain.generate(horizon, seed)
    outputs = [recipe.output for recipe in task.recipes]
    stream = keyed("neutral", seed, "names", horizon)
    while (dealt := stream.shuffled(outputs)) == outputs:
        pass
    name = {"s0": "s0", **dict(zip(outputs, dealt, strict=True))}
    recipes = tuple(
        Recipe(recipe.tool, tuple(name[i] for i in recipe.inputs), name[recipe.output], recipe.params)
        for recipe in task.recipes
    )
    shown = tuple(
        draw_pair("chain", seed, horizon, stage, index, [i for i in task.gold if i != index])
        for stage, index in enumerate(task.gold, 1)
    )
    return replace(task, family="neutral", recipes=recipes, shown=shown)


FAMILY = Family(
    "neutral", (4, 8, 16), ("",), generate, "The chain of the same seed under names that do not count upward."
)
