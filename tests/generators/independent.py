"""A second implementation of the protocol, which judges what a data set publishes.

It imports nothing of the package. It reads whole tasks as their published JSON, replays them, and says for
each row whether the target, the other candidates, the completion and every line of the prompt are what the
protocol's words ask for. Where a view draws by hash, it checks what must hold of any draw.

    replay = Replay("chain-h4/62000", definition)     # raises AssertionError if the task is not sound
    check_row(replay, row, tally)                     # the same for a row
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection
from copy import copy
from functools import cache
from typing import Any, NamedTuple

Call = dict[str, Any]
Table = dict[str, Any]
"""{"columns": [name, ...], "rows": [[int, ...], ...]}, as prompts print it."""


# -- tables and tools (section 3.1 of the paper, appendix A.1)


def run(call: Call, tables: dict[str, Table]) -> Table:
    """What a call makes of its input."""
    (source,) = call["inputs"]
    columns, params = tables[source]["columns"], call["params"]
    records = [dict(zip(columns, row, strict=True)) for row in tables[source]["rows"]]
    if call["tool"] == "map_column":
        assert params.keys() == {"column", "operation", "value"}
        assert params["operation"] == "add"
        for record in records:
            record[params["column"]] += params["value"]
    elif call["tool"] == "sort_rows":
        assert params.keys() == {"column", "order", "ties"}
        down = {"ascending": False, "descending": True}[params["order"]]
        records.sort(key=lambda record: record[params["column"]], reverse=down)  # equal rows stay in order
    elif call["tool"] == "filter_rows":
        assert params.keys() == {"column", "operator", "value"}
        assert params["operator"] == "at_least"
        records = [record for record in records if record[params["column"]] >= params["value"]]
    else:
        assert call["tool"] == "select_columns"
        assert params.keys() == {"columns", "others"}
        assert params["others"] == "drop"
        columns = params["columns"]
    return {"columns": list(columns), "rows": [[record[name] for name in columns] for record in records]}


def printed(value: Any) -> str:
    """JSON without spaces, keys as they come."""
    return json.dumps(value, separators=(",", ":"))


def _any_order(value: Any) -> str:
    """Equal for equal JSON values: the order of keys does not count, and true is not 1."""
    return json.dumps(value, sort_keys=True)


# -- the environment


class World:
    """An episode: what exists, what made it, and the calls that are left."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.recipes: list[Call] = definition["recipes"]
        self.known = [_any_order(recipe) for recipe in self.recipes]
        self.gold: list[int] = definition["gold"]
        self.sources = {source["name"]: _table(source) for source in definition["sources"]}
        self.tables = dict(self.sources)
        self.made_by: dict[str, int] = {}
        self.left = 2 * len(self.gold)

    def submit(self, call: Any) -> str:
        """Runs a call; returns "" or why it was rejected. Either way it costs one call."""
        if self.left == 0:
            return "budget-exhausted"
        self.left -= 1
        if (text := _any_order(call)) not in self.known:
            return "unknown-recipe"
        if call["output"] in self.tables:
            return "output-exists"
        if not all(name in self.tables for name in call["inputs"]):
            return "missing-input"
        self.tables[call["output"]] = run(call, self.tables)
        self.made_by[call["output"]] = self.known.index(text)
        return ""

    def fork(self) -> World:
        """The same state, to try something on."""
        other = copy(self)
        other.tables, other.made_by = dict(self.tables), dict(self.made_by)
        return other

    def ready(self) -> list[int]:
        """Recipes that can run now."""
        return [n for n, recipe in enumerate(self.recipes) if self.standing(recipe) == "ready"]

    def standing(self, recipe: Call) -> str:
        """ "finished", "ready" or "future": where a recipe stands now."""
        if recipe["output"] in self.tables:
            return "finished"
        return "ready" if all(name in self.tables for name in recipe["inputs"]) else "future"

    def verified(self) -> set[int]:
        """Required operations whose output was made by the right call from verified inputs, and is right."""
        right, done = dict(self.sources), set()
        for number in self.gold:
            recipe = self.recipes[number]
            output = recipe["output"]
            if self.made_by.get(output) == number and all(name in right for name in recipe["inputs"]):
                expected = run(recipe, right)
                if self.tables[output] == expected:
                    right[output] = expected
                    done.add(number)
        return done


def _table(source: dict[str, Any]) -> Table:
    assert len(set(source["columns"])) == len(source["columns"])
    assert all(len(row) == len(source["columns"]) for row in source["rows"])
    return {"columns": source["columns"], "rows": source["rows"]}


# -- whole tasks


class Decision(NamedTuple):
    """What there is to know of a stage on the gold path, before its call."""

    stage: int
    lines: dict[str, str]
    """Name -> contents as printed, in order of creation."""
    target: str
    """The gold call, as printed."""
    inputs: list[str]
    """Names that it reads."""
    standings: dict[str, str]
    """Recipe as printed -> "finished", "ready" or "future"."""
    left: int


class Replay:
    """A published task, replayed along its gold path. Raises AssertionError if anything is unsound."""

    def __init__(self, task_id: str, definition: str) -> None:
        match = re.fullmatch(r"([a-z-]+)-h(\d+)/(\d+)(~[a-z0-9-]+)?", task_id)
        assert match, f"{task_id} is no task id"
        self.id, self.family, self.horizon, self.seed = task_id, match[1], int(match[2]), int(match[3])
        self.variant = (match[4] or "~")[1:]
        self.definition = json.loads(definition)
        assert definition == json.dumps(self.definition, sort_keys=True, separators=(",", ":"))
        self.fingerprint = hashlib.sha256(definition.encode()).hexdigest()[:32]
        self.texts = [call_text(recipe) for recipe in self.definition["recipes"]]
        """Recipes as prompts print them."""
        self.decisions = self._decisions()

    def _decisions(self) -> list[Decision]:
        world, out = World(self.definition), []
        texts, lines = self.texts, {name: printed(table) for name, table in world.tables.items()}
        assert len(world.gold) == len(set(world.gold)) == self.horizon
        for stage, number in enumerate(world.gold, 1):
            recipe = world.recipes[number]
            standings = {text: world.standing(r) for text, r in zip(texts, world.recipes, strict=True)}
            out.append(Decision(stage, dict(lines), texts[number], recipe["inputs"], standings, world.left))
            assert world.submit(recipe) == "", f"{self.id}: the gold call of stage {stage} is rejected"
            table = world.tables[recipe["output"]]
            lines[recipe["output"]] = printed(table)
            assert table["rows"], f"{self.id}: stage {stage} leaves no rows"
            assert table["columns"], f"{self.id}: stage {stage} leaves no columns"
            assert all(-99 <= value <= 99 for row in table["rows"] for value in row)
            assert table != world.tables[recipe["inputs"][0]], f"{self.id}: stage {stage} changes nothing"
        assert world.verified() == set(world.gold), f"{self.id}: the gold path does not verify"
        assert world.left == self.horizon
        return out

    def listed(self, stage: int) -> list[str]:
        """Candidates that the definition lists for a stage, as printed; [] where it lists none."""
        shown = self.definition.get("shown")
        return [self.texts[number] for number in shown[stage - 1]] if shown else []


def call_text(call: Call) -> str:
    """A call as prompts print it: tool, inputs, output, params, and parameters by name."""
    params = dict(sorted(call["params"].items()))
    return printed(
        {"tool": call["tool"], "inputs": call["inputs"], "output": call["output"], "params": params}
    )


# -- rows


class Tally:
    """Counts over rows, for what holds on average only."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[str, str]] = Counter()
        """(config, split) -> rows."""
        self.artifacts: Counter[str] = Counter()
        """View -> artifacts shown by name."""
        self.hidden: Counter[str] = Counter()
        """View -> artifacts of which the contents were hidden."""
        self.moved: Counter[str] = Counter()
        """View -> decisions whose artifacts stand in another order than that of creation."""
        self.blocks: Counter[tuple[int, int]] = Counter()
        """(number of artifacts, where the hidden block begins) -> decisions."""
        self.positions: Counter[tuple[str, int]] = Counter()
        """(family, place of the target) -> rows."""
        self.labels: Counter[tuple[str, str]] = Counter()
        """(family, what is wrong with the distractors) -> rows."""
        self.notes: dict[str, set[int]] = {}
        """View -> numbers of inert words."""


SHARED_HEAD = "You run a table workflow by calling tools."
ID_VIEWS = ("recipe-ids", "output-ids")


def check_row(replay: Replay, row: dict[str, Any], tally: Tally) -> None:
    """Raises AssertionError if a row is not what the protocol says of its task, stage and view.

    `row` has the published columns, but `prompt` and `completion` are the text of their only message.
    """
    decision, view = replay.decisions[row["stage"] - 1], row["view"]
    assert row["id"] == f"{replay.id}#{decision.stage}@{view}"
    assert (row["task"], row["fingerprint"]) == (replay.id, replay.fingerprint)
    assert (row["family"], row["horizon"], row["seed"]) == (replay.family, replay.horizon, replay.seed)
    assert row["calls_left"] == decision.left == 2 * replay.horizon - decision.stage + 1

    shown, target = row["candidates"], decision.target
    assert len(set(shown)) == len(shown), "a candidate occurs twice"
    assert all(text in decision.standings for text in shown), "a candidate is no recipe of the task"
    assert shown[row["target_index"]] == target, "the target is not the gold call"
    assert decision.standings[target] == "ready", "the target cannot run"
    if listed := replay.listed(decision.stage):
        assert shown == listed
    else:
        assert len(shown) == 2
    others = sorted({decision.standings[text] for text in shown if text != target})
    assert row["distractor"] == ("+".join(others) or "none")
    right = printed({"recipe": f"r{row['target_index'] + 1}"}) if view in ID_VIEWS else target
    assert row["completion"] == right
    tally.positions[replay.family, row["target_index"]] += 1
    tally.labels[replay.family, row["distractor"]] += 1

    if view in ID_VIEWS:
        _check_id_prompt(row["prompt"], view, decision, shown)
    else:
        _check_prompt(row["prompt"], view, replay, decision, shown, tally)


def _check_id_prompt(prompt: str, view: str, decision: Decision, shown: list[str]) -> None:
    head, rest = prompt.split("\n\nArtifacts: ")
    names, rest = rest.split("\n\nRecipes:\n")
    recipes, left = rest.split("\n\nCalls left: ")
    assert "id" in head
    assert names.split(", ") == list(decision.lines)
    told = [json.loads(text)["output"] for text in shown] if view == "output-ids" else shown
    assert recipes.split("\n") == [f"r{number}: {text}" for number, text in enumerate(told, 1)]
    assert left == str(decision.left)


def _check_prompt(
    prompt: str, view: str, replay: Replay, decision: Decision, shown: list[str], tally: Tally
) -> None:
    head, rest = prompt.split("\n\nState:\n")
    state, rest = rest.split("\n\nRecipes:\n")
    recipes, rest = rest.split("\n\nCalls left: ")
    left, error = rest.split("\nPrevious error: ")
    assert head.startswith(SHARED_HEAD)
    assert recipes.split("\n") == shown
    assert (left, error) == (str(decision.left), "none")
    artifacts, *more = state.split("\n\n")
    goal = replay.definition.get("goal")
    hint = f"relevance_hint: {', '.join(decision.inputs)}"
    assert more == [hint] * view.endswith("-cue") + [f"Goal: {goal}"] * bool(goal)
    lines = [tuple(line.split(": ", 1)) for line in artifacts.split("\n")]
    assert sorted(name for name, _ in lines) == sorted(decision.lines), "names are not all shown, once"
    check_view(view, decision, lines, shown, tally)


# -- views (protocol, section 3)


def check_view(
    view: str, decision: Decision, lines: list[tuple[str, str]], shown: list[str], tally: Tally
) -> None:
    """Raises AssertionError if the State block `lines`, (name, contents), breaks the rule of `view`."""
    created, inputs, told = list(decision.lines), decision.inputs, dict(lines)
    order = [name for name, _ in lines]
    tally.artifacts[view] += len(lines)
    tally.moved[view] += order != created
    if view == "full-target-last":
        assert order == [name for name in created if name not in inputs] + [
            name for name in created if name in inputs
        ]
    elif view != "full-shuffled":
        assert order == created, "artifacts are not in order of creation"

    if view == "compact-filler":
        for name in created:
            if name in inputs:
                assert told[name] == decision.lines[name]
            else:
                _check_filler(told[name], decision.lines[name])
        return
    if view.startswith("padded-"):
        told[created[0]] = _without_note(view, told[created[0]], tally)

    open_ = [name for name in created if told[name] == decision.lines[name]]
    closed = [name for name in created if told[name] == "available"]
    assert len(open_) + len(closed) == len(created), "contents are neither the artifact's nor `available`"
    tally.hidden[view] += len(closed)
    assert _follows_rule(view, created, inputs, open_, closed, shown, tally), f"{open_} are visible"


def _follows_rule(
    view: str,
    created: list[str],
    inputs: list[str],
    open_: list[str],
    closed: list[str],
    shown: list[str],
    tally: Tally,
) -> bool:
    visible: Collection[str]
    if view.startswith(("full", "padded-")):
        visible = created
    elif view in ("compact", "compact-cue"):
        visible = inputs
    elif view == "recent2":
        visible = created[-2:]
    elif view == "names":
        visible = ()
    elif view == "candidates":
        visible = {name for text in shown for name in json.loads(text)["inputs"] if name in created}
    elif view == "decoy":
        wrong = set(created) - set(inputs)
        return len(open_) == min(1, len(wrong)) and wrong.issuperset(open_)
    elif view == "block":
        ordered = sorted(created)
        size = len(created) // 2
        begin = min((ordered.index(name) for name in closed), default=0)
        tally.blocks[len(created), begin] += 1
        return sorted(closed) == ordered[begin : begin + size]
    else:
        assert view in ("random25", "random50", "random75"), f"no rule for the view {view}"
        return True  # any mask can be drawn; the tally says how often
    return set(open_) == set(visible)


@cache
def _check_filler(text: str, contents: str) -> None:
    shape = json.loads(re.sub(r"0+", "0", text))  # JSON has no number 00
    table = json.loads(contents)
    assert shape.keys() == table.keys()
    assert set(shape["columns"]) == {"c"}
    assert len(shape["columns"]) == len(table["columns"])
    assert {value for row in shape["rows"] for value in row} == {0}, "a filler shows contents"
    assert [len(row) for row in shape["rows"]] == [len(row) for row in table["rows"]]


def _without_note(view: str, text: str, tally: Tally) -> str:
    table = json.loads(text)
    note = table.pop("note")
    assert set(note.split(" ")) == {"pad"}
    tally.notes.setdefault(view, set()).add(len(note.split(" ")))
    return printed(table)
