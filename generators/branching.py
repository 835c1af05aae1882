"""Shallow branching graphs: each operation reads the source or an earlier output, at most three deep.

Several operations can be ready at once. The canonical target is the ready one with the lowest number, which
is the first whose output is missing. Another ready recipe is legal, makes progress and only disagrees with
the target.

Invariants (ours; the paper gives no construction): every step visibly changes its table, values stay in
-99..99, no table is empty, no two operations run the same tool with the same parameters on the same table,
and at half of the stages or more another recipe is ready too.
Source: section 3.1 and appendix D.1 of the paper.
"""

from __future__ import annotations

from itertools import count

from stsr.generators import chain
from stsr.generators.chain import CYCLE, DeadEnd
from stsr.generators.randomness import Stream, keyed
from stsr.generators.tables import TOOLS, Table
from stsr.generators.tasks import Family, Recipe, Task

DEPTH = 3
"""Longest path from the source, in operations."""


def generate(horizon: int, seed: int, variant: str = "") -> Task:
    """The graph of `horizon` operations for `seed`.

    >>> task = generate(8, 65000)
    >>> len(task.recipes), task.recipes[0].inputs
    (8, ('s0',))
    """
    for attempt in count():
        try:
            source, recipes = _graph(horizon, keyed("branching", seed, "task", horizon, attempt))
        except DeadEnd:
            continue
        task = Task("branching", horizon, seed, (("s0", source),), recipes, tuple(range(horizon)))
        if sum(ready(task, stage) > 1 for stage in range(1, horizon + 1)) >= horizon // 2:
            return task
    raise AssertionError("unreachable")


def ready(task: Task, stage: int) -> int:
    """How many recipes can run at `stage` (1..H) of the canonical path."""
    exists = {name for name, _ in task.sources} | {task.recipes[i].output for i in task.gold[: stage - 1]}
    return sum(r.output not in exists and exists.issuperset(r.inputs) for r in task.recipes)


def _graph(horizon: int, stream: Stream) -> tuple[Table, tuple[Recipe, ...]]:
    tables, depth = {"s0": chain.draw_source(stream, DEPTH)}, {"s0": 0}
    recipes: list[Recipe] = []
    for number in range(1, horizon + 1):
        parent = stream.choice([name for name in tables if depth[name] < DEPTH])
        tool = stream.choice(CYCLE)
        params = chain.draw_params(tool, tables[parent], DEPTH - depth[parent] - 1, stream)
        changed = TOOLS[tool](tables[parent], params)
        twin = any((r.tool, r.inputs, r.params) == (tool, (parent,), params) for r in recipes)
        if changed == tables[parent] or twin:
            raise DeadEnd
        name = f"a{number}"
        tables[name], depth[name] = changed, depth[parent] + 1
        recipes.append(Recipe(tool, (parent,), name, params))
    return tables["s0"], tuple(recipes)


FAMILY = Family(
    "branching",
    (8, 16),
    ("",),
    generate,
    "A shallow graph; several steps can be ready, the first is the target.",
)
