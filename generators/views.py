"""Views: which artifact contents a prompt shows. Names are always shown.

A view is a pure function (state, reference action) -> Observation, with three facts that the cards print:
what it shows, what it isolates and what it consults. To add one, write the function, add it to VIEWS, name it
in the declaration of a data set, and let `python -m stsr.eval_tasks.suite` write its task files.

Masks drawn by hash depend on the task's content and on which artifacts exist: equal states, equal masks.
Source: section 3.2, appendices B, C and E of the paper. The isolating views are ours: `candidates`, `decoy`,
`compact-filler`, `full-target-last` and `full-shuffled` each change one thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from stsr.generators.environment import State
from stsr.generators.randomness import Stream, keyed
from stsr.generators.tables import Table
from stsr.generators.tasks import Recipe, candidates

Reply = Literal["call", "id", "output-id"]


class Observation(NamedTuple):
    """What a prompt shows of the artifacts, and in what form it shows recipes."""

    artifacts: tuple[tuple[str, Table | str | None], ...]
    """(name, contents) in the order shown; None stands for contents that are hidden, a text for itself."""
    hint: tuple[str, ...] = ()
    """Names that the prompt marks as relevant."""
    reply: Reply = "call"
    """"call": recipes are printed and one is to be repeated. "id": recipes have ids and the id is to be
    given. "output-id": the same, and a recipe is shown by the name of its output alone."""
    inert: tuple[str, ...] = ()
    """Names that have a filler in the place of their contents."""

    @property
    def visible(self) -> list[str]:
        """Names whose contents are shown."""
        return [name for name, contents in self.artifacts if contents is not None and name not in self.inert]


class View(NamedTuple):
    """A function and what there is to know about it. Call it like the function."""

    show: Callable[[State, Recipe], Observation]
    """(state, reference action) -> what is shown."""
    keeps: str
    """What the prompt shows."""
    isolates: str
    """What a comparison with another view tells apart."""
    consults: str
    """What the view looks at beyond the artifacts. "target" is the reference action."""

    def __call__(self, state: State, reference: Recipe) -> Observation:
        return self.show(state, reference)

    @property
    def rule(self) -> str:
        """One line for a card."""
        return f"{self.keeps} Consults {self.consults}."


def _showing(state: State, names: Collection[str]) -> Observation:
    return Observation(
        tuple((name, table if name in names else None) for name, table in state.artifacts.items())
    )


def full(state: State, reference: Recipe) -> Observation:
    """All contents."""
    return Observation(tuple(state.artifacts.items()))


def compact(state: State, reference: Recipe) -> Observation:
    """Contents of the reference action's inputs only (equation 1)."""
    return _showing(state, reference.inputs)


def recent2(state: State, reference: Recipe) -> Observation:
    """Contents of the two artifacts created last."""
    return _showing(state, list(state.artifacts)[-2:])


def names(state: State, reference: Recipe) -> Observation:
    """No contents."""
    return _showing(state, ())


def full_cue(state: State, reference: Recipe) -> Observation:
    """All contents, and the reference action's inputs named as relevant."""
    return full(state, reference)._replace(hint=reference.inputs)


def compact_cue(state: State, reference: Recipe) -> Observation:
    """The reference action's inputs, which are also named as relevant."""
    return compact(state, reference)._replace(hint=reference.inputs)


def _drawn(state: State, purpose: str, *more: str | int) -> Stream:
    """Numbers for a mask: they depend on the task's content and on the names that exist.

    Whoever draws goes through the names in sorted order, as the order of creation is not to matter.
    """
    return keyed(purpose, *more, state.task.fingerprint, *sorted(state.artifacts))


def random_mask(percent: int) -> Callable[[State, Recipe], Observation]:
    """A view that hides each artifact with a probability of `percent` / 100."""

    def show(state: State, reference: Recipe) -> Observation:
        stream = _drawn(state, "random", percent)
        return _showing(state, {name for name in sorted(state.artifacts) if stream.below(100) >= percent})

    return show


BLOCK_SEED = 2026092002
"""Appendix E."""


def block(state: State, reference: Recipe) -> Observation:
    """Hides a contiguous block of half of the artifacts, rounded down, in sorted order of names."""
    ordered = sorted(state.artifacts)
    size = len(ordered) // 2
    begin = _drawn(state, "block", BLOCK_SEED).below(len(ordered) - size + 1)
    return _showing(state, {*ordered[:begin], *ordered[begin + size :]})


def candidates_view(state: State, reference: Recipe) -> Observation:
    """Contents of the inputs of every candidate."""
    shown = candidates(state.task, state.stage).shown
    return _showing(state, {name for recipe in shown for name in recipe.inputs})


def decoy(state: State, reference: Recipe) -> Observation:
    """Contents of one artifact, drawn by hash, that the reference action does not read."""
    wrong = [name for name in sorted(state.artifacts) if name not in reference.inputs]
    return _showing(state, [_drawn(state, "decoy").choice(wrong)] if wrong else ())


def filler(table: Table) -> str:
    """Text in the shape of `table` without its contents: every digit is 0, every column is c, no signs.

    A tokenizer that splits numbers by digit gives it the length of the table's own text.

    >>> filler(Table(("id", "x"), ((1, -12),)))
    '{"columns":["c","c"],"rows":[[0,00]]}'
    """
    zeros = re.sub(r"-?(\d+)", lambda match: "0" * len(match[1]), table.text[table.text.index("],") :])
    return '{"columns":[' + ",".join('"c"' for _ in table.columns) + zeros


def compact_filler(state: State, reference: Recipe) -> Observation:
    """Compact, with inert text of the same length in the place of hidden contents."""
    hidden = tuple(name for name in state.artifacts if name not in reference.inputs)
    return Observation(
        tuple((name, filler(table) if name in hidden else table) for name, table in state.artifacts.items()),
        inert=hidden,
    )


def full_target_last(state: State, reference: Recipe) -> Observation:
    """All contents; the reference action's inputs stand last."""
    return _ordered(state, sorted(state.artifacts, key=lambda name: name in reference.inputs))


def full_shuffled(state: State, reference: Recipe) -> Observation:
    """All contents in an order drawn by hash."""
    return _ordered(state, _drawn(state, "shuffled").shuffled(sorted(state.artifacts)))


def _ordered(state: State, order: Sequence[str]) -> Observation:
    return Observation(tuple((name, state.artifacts[name]) for name in order))


def recipe_ids(state: State, reference: Recipe) -> Observation:
    """No contents; recipes in full, each with an id."""
    return names(state, reference)._replace(reply="id")


def output_ids(state: State, reference: Recipe) -> Observation:
    """No contents; of each recipe its id and output."""
    return names(state, reference)._replace(reply="output-id")


def padded(words: int) -> Callable[[State, Recipe], Observation]:
    """A view that shows everything, with a note of `words` inert words inside the first source's table."""

    def show(state: State, reference: Recipe) -> Observation:
        (first, table), *rest = state.artifacts.items()
        note = ',"note":"' + " ".join(["pad"] * words) + '"}'
        return Observation(((first, table.text[:-1] + note), *rest))

    return show


VIEWS: dict[str, View] = {
    "full": View(full, "All contents.", "The reference point.", "nothing"),
    "compact": View(
        compact,
        "Contents of the next action's inputs only.",
        "Less content, with relevance given away.",
        "the target",
    ),
    "recent2": View(
        recent2,
        "Contents of the two artifacts created last.",
        "Less content, without the target.",
        "the order of creation",
    ),
    "full-cue": View(
        full_cue,
        "All contents, and a line `relevance_hint` with the next action's inputs.",
        "Relevance, against `full`.",
        "the target",
    ),
    "compact-cue": View(
        compact_cue,
        "As `compact`, and the line `relevance_hint`.",
        "Content, against `full-cue`: both give the relevance away.",
        "the target",
    ),
    "names": View(names, "No contents.", "Contents as such.", "nothing"),
    "random25": View(
        random_mask(25), "Each artifact's contents with probability 0.75.", "Chance hiding.", "a hash"
    ),
    "random50": View(
        random_mask(50), "Each artifact's contents with probability 0.50.", "Chance hiding.", "a hash"
    ),
    "random75": View(
        random_mask(75), "Each artifact's contents with probability 0.25.", "Chance hiding.", "a hash"
    ),
    "block": View(
        block,
        "All contents but a contiguous block of half of the names, in sorted order.",
        "A mask not used in training.",
        "a hash",
    ),
    "candidates": View(
        candidates_view,
        "Contents of the inputs of both candidates.",
        "Relevance without the answer.",
        "the candidates",
    ),
    "decoy": View(
        decoy,
        "Contents of one artifact that the next action does not read.",
        "A wrong cue.",
        "the target, to avoid it",
    ),
    "compact-filler": View(
        compact_filler,
        "As `compact`, with inert text of the same token length for hidden contents.",
        "Content, with length held.",
        "the target",
    ),
    "full-target-last": View(
        full_target_last,
        "All contents; the next action's inputs stand last.",
        "Position, against `full`.",
        "the target",
    ),
    "full-shuffled": View(
        full_shuffled,
        "All contents, artifacts in an order drawn by hash.",
        "Order, against `full`.",
        "a hash",
    ),
    "recipe-ids": View(
        recipe_ids,
        "No contents, a short instruction, recipes with ids; the reply is an id.",
        "Selection without writing the call.",
        "nothing",
    ),
    "output-ids": View(
        output_ids,
        "As `recipe-ids`, but a recipe is its id and the name of its output.",
        "Selection without reading the call.",
        "nothing",
    ),
    "padded-600": View(padded(160), "All contents and 160 inert words in a table.", "Length.", "nothing"),
    "padded-800": View(padded(360), "All contents and 360 inert words in a table.", "Length.", "nothing"),
    "padded-1000": View(padded(560), "All contents and 560 inert words in a table.", "Length.", "nothing"),
    "padded-1200": View(padded(760), "All contents and 760 inert words in a table.", "Length.", "nothing"),
}
"""Every view by the name that ids, configs and tasks use."""

ID_VIEWS = ("recipe-ids", "output-ids")
"""Views that ask for a recipe's id; in all others the reply is a call."""


def view(name: str) -> View:
    """The view called `name`. Raises ValueError that names the alternatives."""
    try:
        return VIEWS[name]
    except KeyError:
        raise ValueError(f"unknown view {name!r}; there are {', '.join(VIEWS)}") from None
