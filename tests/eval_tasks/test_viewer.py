"""Protects: the page of episodes embeds what was recorded and replayed, once, and nothing of it is markup.

pytest tests/eval_tasks/test_viewer.py

What the embedded data must say is written out by hand for the task of graph.py. test_viewer_browser.py opens
the page.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from stsr.eval_tasks import viewer
from stsr.eval_tasks.records import Cell, Record
from stsr.eval_tasks.viewer import collect, page
from stsr.stats.outcomes import cell_id
from tests.eval_tasks.graph import (
    A1,
    EXISTS,
    LOST,
    MAKE_A1,
    MAKE_A2,
    S0,
    TASK,
    TASKS,
    WON,
    cell,
    decision,
    episode,
)

SCRIPT = files("stsr.eval_tasks").joinpath("templates", "episodes.js").read_text(encoding="utf-8")
TURN = re.findall(r'"(\w+)"', SCRIPT.partition("const TURN = [")[2].partition("]")[0])
"""Names of the parts of a turn, as the page's script reads them."""
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "]]>",
    "\0\u202e reversed \u2028 \u200f",
    "{{ 1 }}{% x %}",
    "é 漢 🙂",
    "",
    "x" * 100_000,
]


class Page(HTMLParser):
    """Start tags with their attributes, and the text of each script, as a browser's parser splits them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def embedded(html: str) -> dict[str, Any]:
    """The data of a page."""
    text = Page(html).scripts[0]
    if 'data-packed="gzip"' in html:
        text = gzip.decompress(base64.b64decode(text)).decode()
    data: dict[str, Any] = json.loads(text)
    return data


def built(*found: Record) -> dict[str, Any]:
    return embedded(page(collect(found, TASKS, cell_id)))


def turns(data: dict[str, Any], cell: int = 0, run: int = 0) -> list[dict[str, Any]]:
    return [dict(zip(TURN, one, strict=False)) for one in data["cells"][cell]["runs"][run]["turns"]]


def test_what_a_call_says() -> None:
    data = built(LOST)
    text, (one, two, three, four, five) = data["texts"], turns(data)
    assert [text[turn["verdict"]] for turn in (one, two, three, four, five)] == [
        *("accepted", "output-exists", "malformed", "accepted", "accepted")
    ]
    assert [turn["remaining"] for turn in (one, two, three, four, five)] == [8, 7, 6, 5, 4]
    assert [turn["verified"] for turn in (one, two, three, four, five)] == [1, 1, 1, 2, 2]
    assert [turn["canonical"] for turn in (one, two, three, four, five)] == [1, 0, 0, 0, 0]
    assert [turn["chosen"] for turn in (one, two, three, four, five)] == [1, -1, -1, 0, -1]
    assert (text[two["output"]], text[two["error"]], text[two["before"]]) == (MAKE_A1, EXISTS, "")
    assert text[three["before"]] == EXISTS
    assert (text[one["made"]], data["tables"][one["table"]]) == ("a1", [["id", "x"], [list(r) for r in A1]])
    assert (two["made"], two["table"]) == (0, -1)
    assert (one["promptTokens"], one["outputTokens"]) == (100, 7)


def test_the_state_shown_and_hidden() -> None:
    data = built(LOST)
    moved, *artifacts = data["looks"][turns(data)[1]["look"]]
    assert moved == 0
    told = [
        (data["texts"][name], data["tables"][table][1], flags, inert)
        for name, table, flags, inert in artifacts
    ]
    # Before the second call the target is a2, which reads s0; the compact view hides a1.
    assert told == [("s0", [list(row) for row in S0], 1 + 4, -1), ("a1", [list(row) for row in A1], 0, -1)]


def test_an_artifact_that_is_not_the_required_one_says_so() -> None:
    record = replace(LOST, turns=[LOST.turns[0], replace(LOST.turns[4], remaining=7), replace(WON.turns[2])])
    data = built(record)
    flags = {data["texts"][one[0]]: one[2] & 8 for one in data["looks"][turns(data)[2]["look"]][1:]}
    assert flags == {"s0": 0, "a1": 0, "a2": 8}


def test_what_was_on_offer() -> None:
    data = built(LOST)
    offer = data["offers"][turns(data)[1]["offer"]]
    said = [[data["texts"][part] for part in option[:4]] for option in offer]
    assert [words for words, *_ in said] == [
        "keep the rows of a1 with x at least 0, in a3",
        "sort s0 by x, ascending, into a2",
    ]
    assert [kind for _, _, kind, _ in said] == ["ready", "target"]
    assert said[1][1] == MAKE_A2


def test_the_prompt_can_be_put_together_again() -> None:
    data = built(WON)
    for number, turn in enumerate(turns(data)):
        spans = data["prompts"][turn["prompt"]]
        lines = [
            line
            for first, many in zip(spans[::2], spans[1::2], strict=True)
            for line in data["lines"][first : first + many]
        ]
        assert "\n".join(lines) == f"head\n\nCalls left: {8 - number}\ntail"


def test_cells_runs_and_scores() -> None:
    won = replace(WON, cell=cell("compact"), id=f"{TASK.id}@compact")
    choice = replace(
        decision(1, MAKE_A1, True), kind="choice", cell=cell(condition="choice"), logprobs=[-2.5, -1.25]
    )
    decisions = [decision(3, MAKE_A1, False, error=EXISTS), decision(2, MAKE_A2, True)]
    data = built(choice, LOST, *decisions, won)
    said = [
        (one["id"], one["evaluation"], one["model"], one["view"], one["k"], one["n"]) for one in data["cells"]
    ]
    assert said == [
        (cell_id(LOST.cell), "Free run, branching H4, test", "me/two", "compact", 0, 1),
        (cell_id(won.cell), "Free run, branching H4, test", "me/one", "compact", 1, 1),
        (cell_id(cell()), "Oracle prefix, branching H4, test", "me/one", "full", 1, 2),
        (cell_id(choice.cell), "Choice by likelihood, branching H4, test", "me/one", "full", 1, 1),
    ]
    assert [turn["stage"] for turn in turns(data, 2)] == [2, 3]  # one row of decisions, in order
    assert turns(data, 3)[0]["logprobs"] == [-2.5, -1.25]


def test_cells_with_one_name_are_told_apart() -> None:
    other = replace(WON, cell=cell(dtype="bfloat16"))
    names = [one["model"] for one in built(WON, other)["cells"]]
    assert names == ["me/one (dtype float32)", "me/one (dtype bfloat16)"]


def test_every_text_and_table_is_there_once() -> None:
    again = [replace(WON, cell=cell(adapter=f"me/{number}")) for number in range(20)]
    data = built(*again)
    for pool in ("texts", "tables", "lines", "prompts", "looks", "offers", "tasks"):
        values = [json.dumps(value) for value in data[pool]]
        assert len(set(values)) == len(values), pool
    assert len(data["prompts"]) == 4


def test_records_without_a_task_are_counted_and_left_out() -> None:
    elsewhere = replace(WON, task="branching-h4/2", cell=cell("names"))
    album = collect([WON, elsewhere], TASKS, cell_id)
    assert (album.runs, album.calls, album.missing, album.differing) == (1, 4, 1, 0)
    assert "1 record is left out" in page(album)


def test_a_verdict_that_would_be_another_today_is_said() -> None:
    stale = replace(WON, turns=[replace(WON.turns[0], verdict="missing-input", error="missing-input: s9")])
    album = collect([stale], TASKS, cell_id)
    assert album.differing == 1
    assert "1 call is judged otherwise today" in page(album)
    assert album.data["texts"][turns(album.data)[0]["differs"]] == "accepted"


def test_no_records_are_a_page_too() -> None:
    assert built()["cells"] == []


# Text is not markup


@pytest.mark.parametrize("limit", [10**9, 0])
def test_texts_come_back_as_they_were(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "PLAIN", limit)
    record = episode([(output, "malformed: no") for output in HOSTILE])
    html = page(collect([record], TASKS, cell_id))
    data = embedded(html)
    assert [data["texts"][turn["output"]] for turn in turns(data)] == HOSTILE
    assert [tag for tag, _ in Page(html).tags if tag in ("script", "img")] == ["script", "script"]


def test_names_are_not_markup_either() -> None:
    hostile: Cell = cell(adapter="</script><img src=x>/one", model="<b>")
    html = page(collect([replace(WON, cell=hostile)], TASKS, cell_id), 'report.html"><img>')
    assert [tag for tag, _ in Page(html).tags if tag in ("script", "img", "b")] == [
        "b",
        "b",
        "b",
        "script",
        "script",
    ]
    assert embedded(html)["cells"][0]["model"] == "</script><img src=x>/one"


def test_the_page_runs_its_own_script_alone_and_loads_nothing() -> None:
    html = page(collect([WON], TASKS, cell_id), "report.html")
    read = Page(html)
    (policy,) = [
        attrs["content"] for tag, attrs in read.tags if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    digest = base64.b64encode(hashlib.sha256(read.scripts[1].encode()).digest()).decode()
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert not re.search(r"https?://|@import|url\(|<link|<iframe", html)
    assert [value for _, attrs in read.tags for name, value in attrs.items() if name in ("src", "href")] == [
        "report.html"
    ]


def test_the_script_sets_text_and_never_markup() -> None:
    ways = (
        r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|eval\(|Function\(|setTimeout|fetch\("
    )
    assert not re.search(ways, SCRIPT)


def test_equal_records_give_equal_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "PLAIN", 0)
    assert page(collect([WON, LOST], TASKS, cell_id)) == page(collect([WON, LOST], TASKS, cell_id))
