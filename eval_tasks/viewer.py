"""The page of episodes: every recorded call with the state as tables, what was on offer, and the verdict.

    found = list(records.read(paths))
    album = collect(found, find_tasks(found), cell_id)
    Path("episodes.html").write_text(page(album), encoding="utf-8")

The page stands alone: no server, no network, one file. What it shows is computed here, by playing the records
again; of ScienceWorld, whose simulator is elsewhere, it shows what is recorded. Its script
(templates/episodes.js) looks things up and draws. `#cell=ID&task=ID&turn=N` points at a turn, and `&kind=`
tells free runs from decisions where a cell has both.

Invariants: text of a model is data, never markup: the page's data hold no "<", its script sets text alone,
and no other script can run there (its hash is in the page's policy). Each text and table is embedded once.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, PrefixLoader, StrictUndefined
from markupsafe import Markup

from stsr.eval_tasks.any_records import Record
from stsr.eval_tasks.records import Cell, DecisionRecord, EpisodeRecord
from stsr.eval_tasks.replay import Moment, Player, Run, Tasks
from stsr.eval_tasks.scienceworld_records import ActionTurn, FreeRunRecord, LocalRecord
from stsr.generators.environment import State
from stsr.generators.scienceworld.catalogue import MOST_ACTIONS
from stsr.generators.tables import Table
from stsr.hub_cards.decision import Look, Option

PLAIN = 2_000_000
"""Up to so many characters the data are embedded as they are, to be read by people; beyond, compressed."""

KINDS = {
    "free_run": "Free run",
    "oracle_prefix": "Oracle prefix",
    "matched_error": "After an injected error",
    "choice": "Choice by likelihood",
}
"""Kind -> what the page calls it, in the order offered."""
SIMULATED = {"scienceworld_free_run": "free_run", "scienceworld_local": "oracle_prefix"}
"""Kind of a record of ScienceWorld -> the kind that it is on the page, as in reports."""


class Album(NamedTuple):
    """What the page embeds."""

    data: dict[str, Any]
    """As JSON; templates/episodes.js says what stands where."""
    runs: int
    """Rows of calls to look at: an episode, or the decisions of one task."""
    calls: int
    missing: int
    """Records that are left out since their tasks can't be had."""
    differing: int
    """Calls that the environment judges otherwise today."""


class _Pool:
    """Values by number, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._index: dict[Any, int] = {}

    def add(self, key: Any, value: Any = None) -> int:
        """The number of `key`; `value` is what to embed for it, by default the key itself."""
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = len(self.values)
            self.values.append(key if value is None else value)
        return found


class _Collector:
    """Turns runs into numbers that point at texts, tables and the like."""

    def __init__(self) -> None:
        self.texts, self.lines, self.tables = _Pool(), _Pool(), _Pool()
        self.prompts, self.looks, self.offers, self.tasks = _Pool(), _Pool(), _Pool(), _Pool()
        self.texts.add("")
        self.differing = 0

    def task(self, run: Run) -> int:
        task = run.task
        facts = [task.id, task.family, task.horizon, task.budget, task.goal, task.fingerprint]
        return self.tasks.add((task.id, task.fingerprint), facts)

    def turn(self, moment: Moment) -> list[Any]:
        """One call; the order is that of `TURN` in templates/episodes.js."""
        turn, made = moment.turn, moment.made
        self.differing += bool(moment.differs)
        return [
            moment.state.stage,
            turn.remaining,
            self._look(moment.look, moment.state),
            self.offers.add(tuple(map(self._option, moment.options))),
            -1 if moment.chosen is None else moment.chosen,
            self.texts.add(moment.state.error),
            self.texts.add(turn.output),
            self.texts.add(turn.verdict),
            self.texts.add(turn.error),
            int(moment.canonical),
            self.texts.add(made),
            self._table(moment.after.artifacts[made]) if made else -1,
            len(moment.after.verified),
            self._prompt(turn.prompt),
            turn.prompt_tokens,
            turn.output_tokens,
            self.texts.add(moment.differs),
        ]

    def simulated(self, record: LocalRecord | FreeRunRecord) -> tuple[int, list[list[Any]]]:
        """(task, calls) of a record of ScienceWorld; the call's own facts stand behind those of all calls."""
        if isinstance(record, LocalRecord):
            stage, budget, turns = record.stage, MOST_ACTIONS, [record.turn]
        else:
            stage, budget, turns = 0, record.turns[0].remaining, record.turns
        facts = [record.task, record.family, record.horizon, budget, "", record.fingerprint]
        task = self.tasks.add((record.task, record.fingerprint, budget), facts)
        return task, [self._action(stage, turn) for turn in turns]

    def _action(self, stage: int, turn: ActionTurn) -> list[Any]:
        nothing = self.texts.add("")
        return [
            *(stage, turn.remaining, -1, -1, -1, nothing),  # neither tables nor recipes
            self.texts.add(turn.output),
            self.texts.add(turn.verdict),
            self.texts.add(turn.error),
            int(turn.canonical is not False),
            *(nothing, -1, 0),
            self._prompt(turn.prompt),
            turn.prompt_tokens,
            turn.output_tokens,
            *(nothing, None),
            self.texts.add(turn.action),
            self.texts.add(turn.feedback),
            turn.score,
            self.texts.add(turn.reference),
        ]

    def _table(self, table: Table) -> int:
        return self.tables.add(table.text, [table.columns, table.rows])

    def _look(self, look: Look, state: State) -> int:
        task = state.task
        right = {name for name, _ in task.sources} | {task.recipes[done].output for done in state.verified}
        artifacts = tuple(
            (
                self.texts.add(one.name),
                self._table(one.table),
                one.shown + 2 * one.cue + 4 * one.read + 8 * (one.name not in right),
                -1 if one.text is None else self.texts.add(one.text),
            )
            for one in look.artifacts
        )
        return self.looks.add((look.moved, *artifacts), [int(look.moved), *artifacts])

    def _option(self, option: Option) -> tuple[int, ...]:
        texts = (option.words, option.printed, option.kind, option.reason)
        made = -1 if option.makes is None else self._table(option.makes)
        return (*map(self.texts.add, texts), made)

    def _prompt(self, prompt: str) -> int:
        """Prompts share most of their lines: [first line, how many, first line, how many, ...]."""
        numbers = [self.lines.add(line) for line in prompt.split("\n")]
        spans: list[int] = []
        for number in numbers:
            if spans and number == spans[-2] + spans[-1]:
                spans[-1] += 1
            else:
                spans += [number, 1]
        return self.prompts.add(tuple(spans))


def collect(found: Iterable[Record], tasks: Tasks, cell_id: Callable[[Cell], str]) -> Album:
    """What the page shows of the records whose tasks are known.

    `cell_id` names a cell in links: the caller's, so that the tables of a report can point here.
    """
    to, player, missing, calls = _Collector(), Player(tasks), 0, 0
    groups: dict[tuple[str, Cell], dict[int, dict[str, Any]]] = defaultdict(dict)
    for record in found:
        if isinstance(record, DecisionRecord | EpisodeRecord):
            if (record.task, record.fingerprint) not in tasks:
                missing += 1
                continue
            run = player.replay(record)
            task, turns = to.task(run), list(map(to.turn, run.moments))
        else:
            task, turns = to.simulated(record)
        calls += len(turns)
        kind = SIMULATED.get(record.kind, record.kind)
        mine = groups[kind, record.cell].setdefault(task, {"turns": []})
        mine["turns"] += turns
        _sum_up(mine, record)
    order = sorted(groups, key=lambda key: (list(KINDS).index(key[0]), key[1].family, key[1].horizon))
    cells = [_cell(cell_id(key[1]), *key, groups[key], names) for key, names in _named(order)]
    data = {
        "cells": cells,
        "tasks": to.tasks.values,
        "texts": to.texts.values,
        "tables": to.tables.values,
        "looks": to.looks.values,
        "offers": to.offers.values,
        "lines": to.lines.values,
        "prompts": to.prompts.values,
    }
    return Album(data, sum(len(cell["runs"]) for cell in cells), calls, missing, to.differing)


def _sum_up(mine: dict[str, Any], record: Record) -> None:
    """How a run ended; over decisions of one task, how many agree."""
    if isinstance(record, DecisionRecord | LocalRecord):
        mine["right"] = mine.get("right", 0) + record.agree
        if isinstance(record, DecisionRecord) and record.logprobs is not None:
            mine["turns"][-1].append([round(value, 4) for value in record.logprobs])
    elif isinstance(record, FreeRunRecord):
        mine.update(success=record.success, score=record.score)
    else:
        mine.update(success=record.success, verified=record.verified, injected=record.injected)


def _cell(
    id: str, kind: str, cell: Cell, runs: dict[int, dict[str, Any]], names: dict[str, str]
) -> dict[str, Any]:
    """One cell with its runs, in order of the records."""
    if kind in ("oracle_prefix", "choice"):
        for run in runs.values():
            run["turns"].sort(key=lambda turn: turn[0])
        k, n = sum(run["right"] for run in runs.values()), sum(len(run["turns"]) for run in runs.values())
    else:
        k, n = sum(run["success"] for run in runs.values()), len(runs)
    listed = [{"task": task, **run} for task, run in runs.items()]
    return {"id": id, "kind": kind, **names, "k": k, "n": n, "facts": asdict(cell), "runs": listed}


def _named(order: Sequence[tuple[str, Cell]]) -> Iterable[tuple[tuple[str, Cell], dict[str, str]]]:
    """What people call each cell: its evaluation, model and view.

    Fields that would leave two cells with one name are told beside the model.
    """
    short = {(kind, cell): _names(kind, cell) for kind, cell in order}
    taken = Counter(tuple(names.values()) for names in short.values())
    for (kind, cell), names in short.items():
        if taken[tuple(names.values())] > 1:
            twins = [other for (_, other), theirs in short.items() if theirs == names]
            differing = [name for name in asdict(cell) if len({getattr(twin, name) for twin in twins}) > 1]
            told = ", ".join(f"{name} {str(getattr(cell, name))[:12] or 'none'}" for name in differing)
            yield (kind, cell), {**names, "model": f"{names['model']} ({told})"}
        else:
            yield (kind, cell), names


def _names(kind: str, cell: Cell) -> dict[str, str]:
    variant = f", {cell.condition}" if cell.condition not in ("", "choice", "matched-error") else ""
    return {
        "evaluation": f"{KINDS[kind]}, {cell.tasks}{variant}, {cell.split}",
        "model": cell.adapter or f"{cell.model}, untuned",
        "view": cell.view,
    }


# -- the page


def page(album: Album, report: str = "") -> str:
    """HTML that stands alone. `report` is the address of the report that belongs to it, "" for none."""
    text = json.dumps(album.data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    packed = len(text) > PLAIN
    if packed:
        text = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")
    script = files("stsr.eval_tasks").joinpath("templates", "episodes.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    own, house = PackageLoader("stsr.eval_tasks"), PackageLoader("stsr.hub_cards")
    jinja = Environment(
        loader=PrefixLoader({"episodes": own, "house": house}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return jinja.get_template("episodes/episodes.html").render(
        album=album,
        data=Markup(text),
        packed=packed,
        script=Markup(script),
        digest=digest,
        report=report,
    )
