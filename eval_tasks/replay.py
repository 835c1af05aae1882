"""Records played again: what stood before every call, what was on offer, and what stands after it. Pure.

    found = list(records.read(paths))
    run = Player(find_tasks(found)).replay(found[0])
    run.moments[2].state, run.moments[2].look, run.moments[2].after

Records hold what the model said, not what it saw as tables; that follows from the task. Invariant: states and
verdicts come from the environment that judged the run (through `episodes`), and a task is used only if it has
the record's fingerprint. Where the environment judges a call otherwise today, `Moment.differs` says how.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from stsr.eval_tasks.episodes import ERROR_AFTER, Episode, Probe, Rollout
from stsr.eval_tasks.records import Cell, EpisodeRecord, Record, Turn
from stsr.generators.canonical import canonical
from stsr.generators.environment import State
from stsr.generators.rows import decision_rows, generate, gold_states, parse_row_id
from stsr.generators.tasks import Task, candidates
from stsr.hub_cards.decision import Look, Option, look_under, options

Tasks = dict[tuple[str, str], Task]
"""(task id, fingerprint) -> task."""


class Moment(NamedTuple):
    """One call."""

    turn: Turn
    """As recorded."""
    state: State
    """Before the call; `state.error` is the previous error."""
    look: Look
    """The state as the prompt showed it."""
    options: list[Option]
    """What was on offer, in the order shown."""
    chosen: int | None
    """Which of the options the reply is, from 0; None if it is none of them."""
    canonical: bool
    """Whether the call is accepted and the evaluator-selected next action."""
    after: State
    """After the call."""
    differs: str
    """How the environment judges the call today, if otherwise than the record says; else ""."""

    @property
    def made(self) -> str:
        """Name of the artifact that the call made; "" if it was rejected."""
        return next((name for name in self.after.artifacts if name not in self.state.artifacts), "")


class Run(NamedTuple):
    """A record, played again."""

    record: Record
    task: Task
    moments: list[Moment]


class Player:
    """Plays records again. Decisions of one task in a row are cheap."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self._last: tuple[tuple[str, str, str], list[dict[str, Any]], list[State]] = (("", "", ""), [], [])

    def replay(self, record: Record) -> Run:
        """Plays the recorded outputs again, each from the state that the ones before it led to.

        Raises KeyError if the task is not there.
        """
        task, view = self.tasks[record.task, record.fingerprint], view_of(record)
        rollout, turns = self._begin(record, task, view), turns_of(record)
        return Run(record, task, [_moment(rollout, view, turn) for turn in turns])

    def _begin(self, record: Record, task: Task, view: str) -> Rollout:
        if isinstance(record, EpisodeRecord):
            return Episode(task, view, error_after=ERROR_AFTER if record.kind == "matched_error" else None)
        key = (task.id, task.fingerprint, view)
        if self._last[0] != key:
            self._last = (key, list(decision_rows(task, [view])), gold_states(task))
        _, rows, states = self._last
        # A choice, too, is played as a probe: its output is the likeliest reply.
        return Probe(rows[record.stage - 1], states[record.stage - 1])


def view_of(record: Record) -> str:
    """The view that the record's id names."""
    return record.id.rpartition("@")[2]


def turns_of(record: Record) -> list[Turn]:
    """The calls of an episode, or the one of a decision."""
    return record.turns if isinstance(record, EpisodeRecord) else [record.turn]


def _moment(rollout: Rollout, view: str, turn: Turn) -> Moment:
    """Takes one recorded call."""
    state = rollout.state
    shown = candidates(state.task, state.stage)
    look = look_under(view, state, shown)
    rollout.take(turn.output, prompt=turn.prompt)
    today = rollout.turns[-1]
    said = None if today.call is None else canonical(today.call)
    # Under a view with ids the reply is an id, and ids were on offer.
    by_id = "recipe" in (today.call or {})
    texts = today.candidates or [] if by_id else [recipe.key for recipe in shown.shown]
    differs = (turn.verdict, turn.remaining) != (today.verdict, today.remaining)
    return Moment(
        turn=turn,
        state=state,
        look=look,
        options=options(look, state, shown),
        chosen=texts.index(said) if said in texts else None,
        canonical=bool(today.canonical),
        after=rollout.state,
        differs=(today.error or "accepted") if differs else "",
    )


# -- whole tasks


def find_tasks(found: Iterable[Record], data: Path | None = None) -> Tasks:
    """The tasks of the records, as far as they can be had with the records' fingerprints.

    A task is generated from its id. What today's generators make otherwise, or don't know, is read from
    `data`, a folder with a data set; without it, from the data set and revision that the record names. Raises
    DataError or PinError if that can't be read and nothing else was found.
    """
    cells: dict[tuple[str, str], Cell] = {}
    for record in found:
        cells.setdefault((record.task, record.fingerprint), record.cell)
    tasks: Tasks = {}
    for key in cells:
        task = _generated(key[0])
        if task is not None and task.fingerprint == key[1]:
            tasks[key] = task
    missing = {key: cell for key, cell in cells.items() if key not in tasks}
    if missing:
        try:
            tasks.update(_published(missing, data))
        except (ValueError, OSError):
            if not tasks:
                raise
    return tasks


def _generated(task_id: str) -> Task | None:
    try:
        parts = parse_row_id(f"{task_id}#1@full")
        return generate(parts.family, parts.horizon, parts.seed, parts.variant)
    except ValueError:
        return None


def _published(missing: dict[tuple[str, str], Cell], data: Path | None) -> Tasks:
    """Those of the missing tasks that their data sets hold."""
    import datasets

    from stsr.eval_tasks.data import load_split, tasks_by_id

    found: Tasks = {}
    places = dict.fromkeys(
        (
            str(data or cell.data),
            None if data or cell.data_revision.startswith("sha256:") else cell.data_revision,
            cell.split,
        )
        for cell in missing.values()
    )
    for source, revision, split in places:
        for config in datasets.get_dataset_config_names(source, revision=revision):
            if config.endswith("tasks") and split in datasets.get_dataset_split_names(
                source, config, revision=revision
            ):
                tasks = tasks_by_id(load_split(source, config, split, revision))
                found |= {
                    key: task for task in tasks.values() if (key := (task.id, task.fingerprint)) in missing
                }
    return found
