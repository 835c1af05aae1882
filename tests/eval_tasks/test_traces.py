"""Protects: a trace has the documented form and holds every reply word for word.

pytest tests/eval_tasks/test_traces.py

The form: https://huggingface.co/docs/hub/session-traces-format. That the Hub renders it is not tested here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stsr.eval_tasks.replay import Player
from stsr.eval_tasks.traces import export, session
from stsr.stats.outcomes import cell_id
from tests.eval_tasks.graph import EXISTS, LOST, MAKE_A1, NOT_JSON, TASKS, WON, cell, decision

FIELDS = {"role", "content", "reasoningContent", "toolCalls", "toolCallId", "timestamp", "model"}


def test_a_session_line_by_line() -> None:
    header, *lines = session(Player(TASKS).replay(LOST), "x/1")
    assert header["type"] == "session"
    assert (header["harness"], header["id"]) == ("stsr", "x/1")
    assert header["name"] == "branching-h4/1@compact: failed, me/two"
    assert {line["type"] for line in lines} == {"message"}
    said = [line["message"] for line in lines]
    assert all(message.keys() <= FIELDS and isinstance(message["content"], str) for message in said)
    assert [message["role"] for message in said] == [
        *("user", "assistant", "tool"),
        *("user", "assistant", "tool"),
        *("user", "assistant", "system"),
        *("user", "assistant", "tool"),
        *("user", "assistant", "tool"),
    ]
    assert said[1]["content"] == MAKE_A1
    (call,) = said[1]["toolCalls"]
    assert call["function"]["name"] == "map_column"
    assert json.loads(call["function"]["arguments"]) == {
        "inputs": ["s0"],
        "output": "a1",
        "params": {"column": "x", "operation": "add", "value": 7},
    }
    assert said[2] == {
        "role": "tool",
        "toolCallId": call["id"],
        "content": 'a1: {"columns":["id","x"],"rows":[[1,57],[2,-24],[3,87]]}',
    }
    assert said[5]["content"] == EXISTS
    assert (said[7]["content"], said[8]["content"]) == ("Sorry.", NOT_JSON)
    assert "toolCalls" not in said[7]


def documented(lines: list[dict[str, Any]]) -> None:
    """The form's own rules, field by field, as its page states them."""
    header, *rest = lines
    assert header["type"] == "session"
    assert all(isinstance(header[field], str) and header[field] for field in ("harness", "id"))
    assert isinstance(header.get("name", ""), str)
    asked: list[str] = []
    for line in rest:
        assert set(line) == {"type", "message"}
        assert line["type"] == "message"
        message = line["message"]
        assert message["role"] in ("user", "assistant", "system", "tool")
        assert isinstance(message["content"], str)
        assert message.keys() <= FIELDS
        assert isinstance(message.get("model", ""), str)
        for call in message.get("toolCalls", []):
            assert message["role"] == "assistant"
            assert set(call) == {"id", "function"}
            assert set(call["function"]) == {"name", "arguments"}
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            asked.append(call["id"])
        assert ("toolCallId" in message) == (message["role"] == "tool")
        if message["role"] == "tool":
            assert message["toolCallId"] == asked[-1]  # right behind the call that it answers
    assert len(asked) == len(set(asked))


def test_every_line_is_of_the_documented_form(tmp_path: Path) -> None:
    export([WON, LOST], TASKS, cell_id, tmp_path / "out")
    paths = list((tmp_path / "out").rglob("*.jsonl"))
    assert len(paths) == 2
    for path in paths:
        documented([json.loads(line) for line in path.read_text().splitlines()])


def test_a_file_an_episode_and_none_for_decisions(tmp_path: Path) -> None:
    elsewhere = replace(WON, task="branching-h4/2", cell=cell("names"))
    done = export([WON, LOST, decision(1, MAKE_A1, True), elsewhere], TASKS, cell_id, tmp_path / "out")
    assert done == (2, 1)
    paths = sorted(
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.jsonl")
    )
    assert paths == sorted(f"sessions/{cell_id(one.cell)}/branching-h4-1.jsonl" for one in (WON, LOST))
    heads = [json.loads((tmp_path / "out" / path).read_text().splitlines()[0]) for path in paths]
    assert len({head["id"] for head in heads}) == 2
    assert "- agent-traces\n" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(FileExistsError, match="is not empty"):
        export([WON], TASKS, cell_id, tmp_path / "out")


def test_a_decision_has_no_course() -> None:
    with pytest.raises(TypeError, match="has no course"):
        session(Player(TASKS).replay(decision(1, MAKE_A1, True)), "x")
