"""A task of four steps written out by hand, and records of it, for the tests of replays, pages and traces.

s0 -> a1 -> a3 and s0 -> a2 -> a4. The recipes on offer are, by stage: 4 and 1, 3 and 2, 1 and 3, 4 alone. The
fifth recipe makes another a2, which is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from stsr.eval_tasks.records import Cell, DecisionRecord, EpisodeRecord, Turn
from stsr.generators.tables import Table
from stsr.generators.tasks import Recipe, Task

S0 = ((1, 50), (2, -31), (3, 80))
A1 = ((1, 57), (2, -24), (3, 87))
A2 = ((2, -31), (1, 50), (3, 80))
A3 = ((1, 57), (3, 87))
TASK = Task(
    "branching",
    4,
    1,
    (("s0", Table(("id", "x"), S0)),),
    (
        Recipe("map_column", ("s0",), "a1", {"column": "x", "operation": "add", "value": 7}),
        Recipe("sort_rows", ("s0",), "a2", {"column": "x", "order": "ascending", "ties": "keep"}),
        Recipe("filter_rows", ("a1",), "a3", {"column": "x", "operator": "at_least", "value": 0}),
        Recipe("select_columns", ("a2",), "a4", {"columns": ["x"], "others": "drop"}),
        Recipe("sort_rows", ("s0",), "a2", {"column": "x", "order": "descending", "ties": "keep"}),
    ),
    (0, 1, 2, 3),
    shown=((3, 0), (2, 1), (0, 2), (3,)),
)
TASKS = {(TASK.id, TASK.fingerprint): TASK}
MAKE_A1 = (
    '{"tool":"map_column","inputs":["s0"],"output":"a1","params":{"column":"x","operation":"add","value":7}}'
)
MAKE_A2 = (
    '{"tool":"sort_rows","inputs":["s0"],"output":"a2",'
    '"params":{"column":"x","order":"ascending","ties":"keep"}}'
)
MAKE_A3 = (
    '{"tool":"filter_rows","inputs":["a1"],"output":"a3",'
    '"params":{"column":"x","operator":"at_least","value":0}}'
)
MAKE_A4 = '{"tool":"select_columns","inputs":["a2"],"output":"a4","params":{"columns":["x"],"others":"drop"}}'
WRONG_A2 = MAKE_A2.replace("ascending", "descending")
NOT_JSON = "malformed: the reply is not one JSON call with tool, inputs, output and params"
EXISTS = "output-exists: a1 exists already"


CELL = Cell(
    model="me/base",
    model_revision="r1",
    adapter="me/one",
    adapter_revision="r2",
    data="me/data",
    data_revision="r3",
    split="test",
    family="branching",
    horizon=4,
    view="full",
    chat_template="none",
    dtype="float32",
    backend="HFLM",
)


def cell(view: str = "full", adapter: str = "me/one", **changes: object) -> Cell:
    return replace(CELL, view=view, adapter=adapter, **changes)  # type: ignore[arg-type]


def turn(output: str, verdict: str = "accepted", error: str = "", remaining: int = 8) -> Turn:
    call = json.loads(output) if output.startswith('{"tool"') else None
    return Turn(f"head\n\nCalls left: {remaining}\ntail", output, call, verdict, error, remaining, 100, 7)


def episode(
    calls: Sequence[tuple[str, str]], where: Cell | None = None, *, verified: int = 0, success: bool = False
) -> EpisodeRecord:
    """A free run. `calls` are (output, error); the verdict is what the error begins with."""
    where = where or cell()
    turns = [
        turn(output, error.partition(":")[0] or "accepted", error, 8 - number)
        for number, (output, error) in enumerate(calls)
    ]
    rejected = sum(bool(error) for _, error in calls)
    return EpisodeRecord(
        *(f"{TASK.id}@{where.view}", TASK.id, TASK.fingerprint, success, verified, len(turns), rejected),
        turns=turns,
        cell=where,
    )


WON = episode([(MAKE_A1, ""), (MAKE_A2, ""), (MAKE_A3, ""), (MAKE_A4, "")], verified=4, success=True)
LOST = episode(
    [(MAKE_A1, ""), (MAKE_A1, EXISTS), ("Sorry.", NOT_JSON), (MAKE_A3, ""), (WRONG_A2, "")],
    cell("compact", "me/two"),
    verified=2,
)
"""Not over, but enough to look at: two rejections, another order, and a wrong a2."""


def decision(
    stage: int, output: str, agree: bool, where: Cell | None = None, error: str = ""
) -> DecisionRecord:
    where = where or cell()
    verdict = error.partition(":")[0] or "accepted"
    return DecisionRecord(
        *(f"{TASK.id}#{stage}@{where.view}", TASK.id, TASK.fingerprint, stage, agree),
        turn=turn(output, verdict, error, 9 - stage),
        cell=where,
    )
