"""The control families: small changes to a chain, each of which isolates one difficulty.

| family | one seed gives | what varies |
|---|---|---|
| state-load | an H8 chain under seven loads | extra source tables that no recipe uses |
| prefix | H4, H8 and H16 chains | length alone: each is the beginning of the next, candidates included |
| interface | an H16 chain | how state and recipes are shown (the views of this name) |
| distractors | 24 decisions of an H8 chain, twice | one or three distractors |
| factorial | 48 first decisions of an H2 chain | tools, rank of the target, names of the outputs |
| supplied | H4, H8 and H16 chains | nothing: the one recipe shown is the right one |
| padding | an H4 chain | inert text in a table (the views of this name) |

Source: section 4.2, appendices A.8, C.1 and C.2 of the paper. Counts are the paper's; where it does not say
how probes are laid out, the layout is ours: twelve ordered pairs of tools at two ranks are 24 decisions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count, permutations

from stsr.generators import chain
from stsr.generators.chain import CYCLE, DeadEnd
from stsr.generators.randomness import Stream, keyed
from stsr.generators.tables import TOOLS, Table
from stsr.generators.tasks import Family, Recipe, Task, draw_pair

LOADS = {
    "none": (0, 0),
    **{f"{tables}x{rows}": (tables, rows) for tables in (4, 8) for rows in (8, 16, 32)},
}
"""State loads, artifacts x rows (table 13)."""
TOOL_PAIRS = tuple(permutations(CYCLE, 2))
"""The twelve ordered pairs (target's tool, distractor's tool)."""
RANKS = ("first", "second")
LABELS = ("plain", "swapped")
SHORT = {tool: tool.partition("_")[0] for tool in CYCLE}
"""map_column -> map: tools as variants spell them."""


def state_load(horizon: int, seed: int, variant: str) -> Task:
    """An H8 chain with the extra sources of LOADS[variant]; everything else depends on the seed alone.

    >>> [name for name, _ in state_load(8, 127000, "4x8").sources]
    ['s0', 's1', 's2', 's3', 's4']
    """
    task = chain.generate(horizon, seed, variant, family="state-load")
    tables, rows = LOADS[variant]
    extra = tuple(
        (f"s{number}", _load(rows, keyed("state-load", seed, "load", number)))
        for number in range(1, tables + 1)
    )
    return replace(task, sources=(*task.sources, *extra))


def _load(rows: int, stream: Stream) -> Table:
    return Table(
        ("id", "x", "y"),
        tuple((row, stream.between(-9, 9), stream.between(-9, 9)) for row in range(1, rows + 1)),
    )


def prefix(horizon: int, seed: int, variant: str = "") -> Task:
    """The first `horizon` operations of the seed's H16 chain.

    At stages 1-4 the distractor comes from the first four operations, at 5-8 from the first eight, then from
    all. So a decision shows the same candidates at each horizon that has it.
    """
    whole = chain.generate(16, seed, family="prefix")
    shown = tuple(
        draw_pair("prefix", seed, 16, stage, stage - 1, [i for i in range(_block(stage)) if i != stage - 1])
        for stage in range(1, horizon + 1)
    )
    return replace(
        whole, horizon=horizon, recipes=whole.recipes[:horizon], gold=whole.gold[:horizon], shown=shown
    )


def _block(stage: int) -> int:
    return 4 if stage <= 4 else 8 if stage <= 8 else 16


def supplied(horizon: int, seed: int, variant: str = "") -> Task:
    """A chain that shows the right recipe alone: what is left is to copy it."""
    task = chain.generate(horizon, seed, family="supplied")
    return replace(task, shown=tuple((index,) for index in task.gold))


def distractors(horizon: int, seed: int, variant: str) -> Task:
    """One decision of an H8 chain with one distractor, or the same decision with three.

    A variant such as "map-sort-first-one" names the target's tool, the distractor's, the target's rank and
    the number of distractors. The chain has each tool twice; which of the two is drawn by hash. The condition
    "three" adds one recipe of each other tool and keeps the pair side by side in its order. The target then
    stands first to fourth in 4, 8, 8 and 4 of the 24 decisions, all of which differ.
    """
    target_tool, distractor_tool, rank, number = variant.split("-")
    task = chain.generate(horizon, seed, family="distractors")
    stream = keyed("distractors", seed, "candidates", horizon, target_tool, distractor_tool, rank)
    by_tool = {SHORT[tool]: [i for i in task.gold if task.recipes[i].tool == tool] for tool in CYCLE}
    target = stream.choice(by_tool[target_tool])
    shown = [target, stream.choice(by_tool[distractor_tool])]
    if rank == "second":
        shown.reverse()
    if number == "three":
        wrong = [tool for tool in by_tool if tool != target_tool]
        more = [stream.choice(by_tool[tool]) for tool in wrong if tool != distractor_tool]
        if rank == "second":
            more.reverse()
        before = wrong.index(distractor_tool)
        shown = [*more[:before], *shown, *more[before:]]
    pivot = task.gold.index(target) + 1
    stages = tuple(tuple(shown) if stage == pivot else () for stage in range(1, horizon + 1))
    return replace(task, variant=variant, shown=stages, pivot=pivot)


def factorial(horizon: int, seed: int, variant: str) -> Task:
    """The first decision of two operations; a variant such as "map-sort-first-plain" is one of 48 cells.

    It names the target's tool, the tool of the distractor (the second operation, whose input is missing), the
    target's rank, and whether the first operation writes result_1 ("plain") or result_2 ("swapped").
    """
    first, second, rank, labels = variant.split("-")
    tool = {short: name for name, short in SHORT.items()}
    outputs = ("result_1", "result_2") if labels == "plain" else ("result_2", "result_1")
    for attempt in count():
        stream = keyed("factorial", seed, "task", first, second, attempt)
        try:
            source = chain.draw_source(stream, 2)
            one, middle = _operation(tool[first], source, "s0", outputs[0], 1, stream)
            two, _ = _operation(tool[second], middle, outputs[0], outputs[1], 0, stream)
        except DeadEnd:
            continue
        shown = (0, 1) if rank == "first" else (1, 0)
        sources = (("s0", source),)
        return Task("factorial", horizon, seed, sources, (one, two), (0, 1), variant, "", (shown, (1,)), 1)
    raise AssertionError("unreachable")


def _operation(
    tool: str, table: Table, name: str, output: str, filters_left: int, stream: Stream
) -> tuple[Recipe, Table]:
    params = chain.draw_params(tool, table, filters_left, stream)
    changed = TOOLS[tool](table, params)
    if changed == table:
        raise DeadEnd
    return Recipe(tool, (name,), output, params), changed


def _cells(*last: str) -> tuple[str, ...]:
    """ "map-sort-first-..." for each pair of tools, each rank and each of `last`."""
    return tuple(
        f"{SHORT[target]}-{SHORT[other]}-{rank}-{end}"
        for end in last
        for target, other in TOOL_PAIRS
        for rank in RANKS
    )


FAMILIES = (
    Family("state-load", (8,), tuple(LOADS), state_load, "A chain with tables that no recipe uses."),
    Family("prefix", (4, 8, 16), ("",), prefix, "Chains of which each is the beginning of the next."),
    Family(
        "interface",
        (16,),
        ("",),
        partial(chain.generate, family="interface"),
        "A chain, to be shown in several forms.",
    ),
    Family(
        "distractors",
        (8,),
        _cells("one", "three"),
        distractors,
        "One decision of a chain with one distractor or with three.",
    ),
    Family(
        "factorial",
        (2,),
        _cells(*LABELS),
        factorial,
        "The first of two steps; tools, rank and output names are crossed.",
    ),
    Family("supplied", (4, 8, 16), ("",), supplied, "A chain that shows the right recipe alone."),
    Family(
        "padding",
        (4,),
        ("",),
        partial(chain.generate, family="padding"),
        "A chain, to be shown with inert text in a table.",
    ),
)
