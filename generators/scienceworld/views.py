"""Views: what a prompt shows of a ScienceWorld state. A declared construction of our own, pure.

The paper does not say how its ScienceWorld views were rendered, and its equation 1 does not define them. Ours
follow the equation's idea: a state is a list of named entries; names are always shown, and a view hides the
details of some. Every view but the history controls shows the task, the room's name, the last five actions,
the last feedback word for word, and the calls left; none shows the score.

Invariant: a view depends on the state, and on the reference action only if it says that it consults the
target. The last feedback is shown as it is: after `look around` it repeats the room, whatever a view hides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from stsr.generators.scienceworld.actions import verdict
from stsr.generators.scienceworld.states import Entry, State, inventory, names, room, words

Shown = tuple[tuple[str, str | None], ...]
"""(name, detail) in order; None stands for a detail that is hidden."""


class Observation(NamedTuple):
    """What a prompt shows; None leaves a part out."""

    description: str
    room: str | None
    things: Shown | None
    doors: Shown | None
    inventory: Shown | None
    actions: tuple[str, ...] | None
    """The latest calls, oldest first."""
    feedback: str | None
    remaining: int | None
    hint: tuple[str, ...] = ()
    """Names that the prompt marks as relevant."""


class View(NamedTuple):
    """A function and what there is to know about it. Call it like the function."""

    show: Callable[[State, str], Observation]
    """(state, reference action) -> what is shown."""
    keeps: str
    """What the prompt shows."""
    isolates: str
    """What a comparison with another view tells apart."""
    consults: str
    """What the view looks at beyond the state. "the target" is the reference action."""

    def __call__(self, state: State, reference: str) -> Observation:
        return self.show(state, reference)

    @property
    def needs_target(self) -> bool:
        """Whether the view is undefined without a reference path."""
        return self.consults == "the target"


RECENT_ACTIONS, HISTORY_ACTIONS = 5, 10


def _show(state: State, kept: Callable[[Entry], bool]) -> Observation:
    """The state with the details of the entries that are kept."""

    def shown(entries: Iterable[Entry]) -> Shown:
        return tuple((e.name, e.detail if not e.detail or kept(e) else None) for e in entries)

    here = room(state.seen.look)
    return Observation(
        description=state.description,
        room=here.name,
        things=shown(here.things),
        doors=shown(here.doors),
        inventory=shown(inventory(state.seen.inventory)),
        actions=tuple(call.action for call in state.calls[-RECENT_ACTIONS:]),
        feedback=state.feedback,
        remaining=state.remaining,
    )


def full(state: State, reference: str) -> Observation:
    """All details."""
    return _show(state, lambda entry: True)


def compact_ref(state: State, reference: str) -> Observation:
    """Details of what the reference action names (the analogue of equation 1)."""
    return _show(state, lambda entry: names(reference, entry))


def compact_recent2(state: State, reference: str) -> Observation:
    """Details of what the last two accepted actions named."""
    accepted = [c.action for c in state.calls if verdict(c.outcome.feedback) == "accepted"][-2:]
    return _show(state, lambda entry: any(names(action, entry) for action in accepted))


def compact_task(state: State, reference: str) -> Observation:
    """Details of what shares a word with the task."""
    task = words(state.description)
    return _show(state, lambda entry: bool(words(entry.name) & task))


def compact_names(state: State, reference: str) -> Observation:
    """No details."""
    return _show(state, lambda entry: False)


def status(state: State, reference: str) -> Observation:
    """The room's name and the inventory; nothing else of the room."""
    return full(state, reference)._replace(things=None, doors=None)


def _hint(state: State, reference: str) -> tuple[str, ...]:
    here = room(state.seen.look)
    every = (*here.things, *here.doors, *inventory(state.seen.inventory))
    return tuple(dict.fromkeys(entry.name for entry in every if names(reference, entry)))


def full_cue(state: State, reference: str) -> Observation:
    """All details, and the names that the reference action uses."""
    return full(state, reference)._replace(hint=_hint(state, reference))


def compact_cue(state: State, reference: str) -> Observation:
    """As `compact-ref`, and the names that the reference action uses."""
    return compact_ref(state, reference)._replace(hint=_hint(state, reference))


def no_history(state: State, reference: str) -> Observation:
    """All details; neither actions nor feedback."""
    return full(state, reference)._replace(actions=None, feedback=None)


def history_only(state: State, reference: str) -> Observation:
    """The task and the last ten actions; nothing of the state, and no count of calls."""
    actions = tuple(call.action for call in state.calls[-HISTORY_ACTIONS:])
    return Observation(state.description, None, None, None, None, actions, None, None)


VIEWS: dict[str, View] = {
    "full": View(full, "All details.", "The reference point.", "nothing"),
    "compact-ref": View(
        compact_ref,
        "Details of the entries that the next action names.",
        "Less content, with relevance given away (the analogue of equation 1).",
        "the target",
    ),
    "compact-recent2": View(
        compact_recent2,
        "Details of the entries that the last two accepted actions named.",
        "Less content, without the target.",
        "the history",
    ),
    "compact-task": View(
        compact_task,
        "Details of the entries that share a word with the task.",
        "Less content, without the target, by topic.",
        "the task",
    ),
    "compact-names": View(compact_names, "No details.", "Details as such.", "nothing"),
    "status": View(status, "Nothing of the room but its name.", "The room's list as such.", "nothing"),
    "full-cue": View(
        full_cue,
        "All details, and a line `relevance_hint` with the entries that the next action names.",
        "Relevance, against `full`.",
        "the target",
    ),
    "compact-cue": View(
        compact_cue,
        "As `compact-ref`, and the line `relevance_hint`.",
        "Content, against `full-cue`: both give the relevance away.",
        "the target",
    ),
    "no-history": View(
        no_history,
        "All details, without actions and feedback.",
        "The history, against `full`.",
        "nothing",
    ),
    "history-only": View(
        history_only,
        "The task and the last ten actions, nothing of the state.",
        "A control: how far the history alone predicts the next action.",
        "the history",
    ),
}
"""Every view by the name that ids, configs and tasks use."""


def view(name: str) -> View:
    """The view called `name`. Raises ValueError that names the alternatives."""
    try:
        return VIEWS[name]
    except KeyError:
        raise ValueError(f"unknown view {name!r}; there are {', '.join(VIEWS)}") from None
