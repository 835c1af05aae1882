"""Protects: a preview says what is true of its decision, stands alone, and hides what a view hides.

pytest tests/hub_cards/test_preview.py

The facts come from two tasks written out here, and from ids whose meaning is in the id.
"""

from __future__ import annotations

import doctest
import io
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from stsr.generators.tables import Table
from stsr.generators.tasks import Recipe, Task
from stsr.hub_cards import decision, drawing
from stsr.hub_cards import preview as previewing
from stsr.hub_cards.preview import look, page, show

# s0 -> a1 -> a3 and s0 -> a2 -> a4: after one step a2 is the target and a3 can run as well
S0 = Table(("id", "x"), ((1, 50), (2, -31), (3, 80)))
A1 = ((1, 57), (2, -24), (3, 87))
A3 = ((1, 57), (3, 87))
GRAPH = Task(
    "branching",
    4,
    1,
    (("s0", S0),),
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
ROW = "branching-h4/1#2@compact"


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Previews show GRAPH, whatever their id says."""
    monkeypatch.setattr(previewing, "generate", lambda *parts: GRAPH)


def parsed(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html.partition("\n")[2])


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def tables(element: ElementTree.Element) -> list[list[tuple[str, ...]]]:
    """Rows of each table, the header first."""
    return [
        [tuple(words(cell) for cell in row) for row in table.iter("tr")] for table in element.iter("table")
    ]


def cells(columns: tuple[str, ...], rows: tuple[tuple[int, ...], ...]) -> list[tuple[str, ...]]:
    return [columns, *(tuple(map(str, row)) for row in rows)]


def tiles(element: ElementTree.Element) -> dict[str, ElementTree.Element]:
    """Artifact -> its figure."""
    return {figure.find(".//b").text: figure for figure in element.iter("figure")}


def section(html: str, title: str) -> ElementTree.Element:
    return next(s for s in parsed(html).iter("section") if s.find("h2").text.startswith(title))


def card(html: str, view: str) -> ElementTree.Element:
    return next(
        article
        for article in parsed(html).iter("article")
        if article.get("class") == "card" and article.find("header/h3").text == view
    )


def printed(row_id: str, width: int = 120) -> str:
    out = io.StringIO()
    show(look(row_id), Console(file=out, width=width))
    return out.getvalue()


# What it says


def test_the_head(graph: None) -> None:
    head = parsed(page(look(ROW))).find(".//header")
    assert head is not None
    facts = {words(one[0]): words(one[1]) for one in head.iter("div")}
    assert facts.pop("Prompt").endswith("characters")
    assert facts == {
        "Family": "branching",
        "Horizon": "4 operations",
        "Stage": "2 of 4",
        "Calls left": "7 of 8",
        "View": "compact",
        "Contents shown": "1 of 2",
        "Declared": "in no data set",
    }


def test_hidden_contents_are_drawn_greyed_under_the_rows_own_view(graph: None) -> None:
    drawn = tiles(section(page(look(ROW)), "State"))
    assert list(drawn) == ["s0", "a1"]
    assert drawn["s0"].get("class") == "tile shown read"
    assert drawn["a1"].get("class") == "tile hidden"
    assert "hidden" in words(drawn["a1"])
    assert tables(drawn["s0"]) == [cells(("id", "x"), S0.rows)]
    assert tables(drawn["a1"]) == [cells(("id", "x"), A1)]


def test_the_target_and_a_step_that_can_run_too(graph: None) -> None:
    html = page(look(ROW))
    first, second = section(html, "Recipes").findall("article")
    assert first.get("class") == "option"
    assert words(first[0]) == "1. keep the rows of a1 with x at least 0, in a3 ✗ ready"
    assert "It can run now, but step 2 of the reference path is another." in words(first)
    assert tables(first) == [cells(("id", "x"), A3)]
    assert second.get("class") == "option target"
    assert words(second[0]) == "2. sort s0 by x, ascending, into a2 ✓ target"
    assert tables(second) == [cells(("id", "x"), ((2, -31), (1, 50), (3, 80)))]
    reply = '{"tool":"sort_rows","inputs":["s0"],"output":"a2",'
    reply += '"params":{"column":"x","order":"ascending","ties":"keep"}}'
    assert words(section(html, "Recipes").find("pre[@class='reply']")) == reply


@pytest.mark.parametrize(
    ("stage", "number", "kind", "reason"),
    [
        (1, 1, "future", "It would be rejected: a2 does not exist yet."),
        (3, 1, "finished", "It would be rejected: a1 exists already."),
    ],
)
def test_why_a_recipe_is_wrong(graph: None, stage: int, number: int, kind: str, reason: str) -> None:
    option = look(f"branching-h4/1#{stage}@full").options[number - 1]
    assert (option.kind, option.reason, option.makes) == (kind, reason, None)


def test_a_wrong_call_that_runs_dooms_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    doomed = Task(
        GRAPH.family,
        4,
        1,
        GRAPH.sources,
        GRAPH.recipes,
        GRAPH.gold,
        "",
        "Sort upwards.",
        ((), (1, 4), (), ()),
    )
    monkeypatch.setattr(previewing, "generate", lambda *parts: doomed)
    preview = look(ROW)
    assert preview.options[1].reason == (
        "It can run now, but its a2 is not the right one: after it the task can no longer succeed."
    )
    assert "Sort upwards." in words(parsed(page(preview)).find(".//header"))
    assert "Sort upwards." in printed(ROW)


def test_a_recipe_that_is_shown_alone(graph: None) -> None:
    (option,) = look("branching-h4/1#4@full").options
    assert option.target
    assert "shows the right one alone" in page(look("branching-h4/1#4@full"))


def test_the_drawing(graph: None) -> None:
    nodes = {node.name: node for node in look(ROW).nodes}
    assert {name: node.kind for name, node in nodes.items()} == {
        "s0": "source",
        "a1": "done",
        "a2": "target",
        "a3": "ready",
        "a4": "future",
    }
    assert {name: (node.column, node.row) for name, node in nodes.items()} == {
        "s0": (0, 0),
        "a1": (1, 0),
        "a3": (2, 0),
        "a2": (1, 1),
        "a4": (2, 1),
    }
    assert (nodes["a3"].shown_by, nodes["a2"].shown_by, nodes["a4"].shown_by) == ("1", "2", "")
    drawing = section(page(look(ROW)), "Where").find("svg")
    assert drawing is not None
    assert words(drawing.find("title")) == "Done: a1. Target: a2. Can run too: a3."
    assert len(drawing.findall("path")) == 4  # one arrow a step


def test_a_long_chain_goes_on_in_the_next_row() -> None:
    nodes = look("chain-h16/62017#7@full").nodes
    assert [(node.column, node.row) for node in nodes] == [(n % 5, n // 5) for n in range(17)]


def test_sources_of_a_choice_stand_in_two_columns() -> None:
    nodes = {node.name: node for node in look("choice-h16/72000~negative#1@full").nodes}
    at = {name: (nodes[name].column, nodes[name].row) for name in ("s0", "a1", "s1", "a2", "s2", "a3")}
    assert at == {"s0": (0, 0), "a1": (1, 0), "s1": (2, 0), "a2": (3, 0), "s2": (0, 1), "a3": (1, 1)}
    assert nodes["a1"].shown_by == "1+2"


# Views


def test_the_other_views_leave_hidden_contents_out(graph: None) -> None:
    html = page(look(ROW))
    assert [a.find("header/h3").text for a in section(html, "The same").iter("article")] == [
        "full",
        "recent2",
        "names",
    ]
    assert tables(card(html, "full")) == [cells(("id", "x"), S0.rows), cells(("id", "x"), A1)]
    names = card(html, "names")
    assert tables(names) == []
    assert {name: words(tile) for name, tile in tiles(names).items()} == {
        "s0": "s0 hidden",
        "a1": "a1 hidden",
    }
    assert [words(fact) for fact in names.iter("dd")] == ["No contents.", "Contents as such.", "nothing"]


def test_chosen_views_and_their_marks(graph: None) -> None:
    html = page(look("branching-h4/1#2@names", ["compact", "full-cue", "compact-filler", "full-target-last"]))
    assert words(tiles(section(html, "State"))["s0"]).startswith("s0 hidden read by the target")
    assert tables(card(html, "compact")) == [cells(("id", "x"), S0.rows)]
    assert "the target" in words(card(html, "compact"))
    assert "★ cue" in words(tiles(card(html, "full-cue"))["s0"])
    assert "★ cue" not in words(tiles(card(html, "full-cue"))["a1"])
    assert words(tiles(card(html, "compact-filler"))["a1"]) == "a1 text 51 characters"
    assert list(tiles(card(html, "full-target-last"))) == ["a1", "s0"]
    assert "2 of 2, in another order" in words(card(html, "full-target-last"))


def test_inert_text_stands_as_such(graph: None) -> None:
    drawn = tiles(section(page(look("branching-h4/1#2@compact-filler")), "State"))
    assert words(drawn["a1"]) == 'a1 text {"columns":["c","c"],"rows":[[0,00],[0,00],[0,00]]}'
    assert tables(drawn["a1"]) == []


def test_a_note_in_a_table_does_not_count_as_hidden(graph: None) -> None:
    preview = look("branching-h4/1#2@padded-600")
    assert preview.own.shows == "2 of 2"
    assert words(tiles(section(page(preview), "State"))["s0"]).count("pad") == 160


def test_where_a_reply_is_an_id(graph: None) -> None:
    preview = look("branching-h4/1#2@output-ids")
    assert [option.printed for option in preview.options] == ["r1: a3", "r2: a2"]
    assert preview.reply == '{"recipe":"r2"}'


def test_long_tables_are_cut_in_cards_only() -> None:
    html = page(look("state-load-h8/127000~8x32#1@full", ["full-shuffled"]))
    assert len(tables(tiles(section(html, "State"))["s8"])[0]) == 1 + 32
    cut = tiles(card(html, "full-shuffled"))["s8"]
    assert len(tables(cut)[0]) == 1 + 3
    assert "29 more rows" in words(cut)


def test_declared_views_are_shown_by_default() -> None:
    preview = look("interface-h16/10000#9@recipe-ids")
    assert {other.name for other in preview.others} == {"full", "names", "output-ids"}
    assert re.fullmatch(r"stsr/workflow-controls [\d.]+, interface-recipe-ids, test", preview.places[0].text)


def test_a_row_is_declared_in_the_newest_version_only() -> None:
    places = [place.text for place in look("chain-h16/62017#7@compact").places]
    assert len([place for place in places if place.startswith("stsr/table-workflows ")]) == 1
    pivotal = look("choice-h16/72000~negative#4@full").places  # the pivot of this seed is stage 4
    assert [(place.config, place.split.name) for place in pivotal] == [
        ("choice-h16-full", "test"),
        ("choice-h16-pivotal-full", "test"),
    ]
    elsewhere = look("choice-h16/72000~negative#5@compact-cue").places
    assert [place.text for place in elsewhere] == ["stsr/table-workflows 1.1.0, other views only, test"]


# The page as a page


@pytest.mark.parametrize(
    "row_id",
    [
        "chain-h16/62017#7@compact",
        "branching-h16/65003#9@full",
        "choice-h16/72000~positive#16@recent2",
        "state-load-h8/127000~8x32#8@full",
        "interface-h16/10000#1@recipe-ids",
        "distractors-h8/30000~map-sort-first-three#5@full",
        "supplied-h4/10000#2@full",
        "padding-h4/128000#4@padded-1200",
        "factorial-h2/40000~map-sort-second-swapped#1@full",
    ],
)
def test_every_page_stands_alone_and_names_every_artifact(row_id: str) -> None:
    preview = look(row_id)
    html = page(preview)
    root = parsed(html)  # well-formed, or it raises
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\((?!#)|https?://", html)
    existing = {name for name, _ in preview.task.sources}
    existing |= {preview.task.recipes[index].output for index in preview.task.gold[: preview.stage - 1]}
    assert set(tiles(section(html, "State"))) == existing
    for other in preview.others:
        assert set(tiles(card(html, other.name))) == existing
    assert {node.name for node in preview.nodes} == set(preview.task.gold_tables)
    assert root.find("head/title").text == row_id
    for header in root.iter("th"):
        assert header.get("scope") == "col"


def test_what_a_task_says_is_text_and_not_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = tuple(
        Recipe(r.tool, tuple(i.replace("s0", "<s>&0") for i in r.inputs), r.output, r.params)
        for r in GRAPH.recipes
    )
    hostile = Task(
        "branching", 4, 1, (("<s>&0", S0),), recipes, GRAPH.gold, "", '</p><script>"x"</script>', GRAPH.shown
    )
    monkeypatch.setattr(previewing, "generate", lambda *parts: hostile)
    html = page(look(ROW, ["full", "compact-cue"]))
    assert "<script" not in html
    assert list(tiles(card(html, "full"))) == ["<s>&0", "a1"]
    assert '</p><script>"x"</script>' in words(parsed(html).find(".//header"))


def test_words_stand_out_from_their_ground_in_both_modes() -> None:
    style = parsed(page(look("chain-h4/62000#1@full"))).find("head/style").text
    assert style is not None

    def brightness(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light_mode, _, rest = style.partition("@media (prefers-color-scheme: dark)")
    dark_mode = rest.partition("}")[0]
    modes = [dict(re.findall(r"--([\w-]+): (#\w{6})", mode)) for mode in (light_mode, dark_mode)]
    assert modes[0].keys() == modes[1].keys()
    pairs = "ink/page soft/page soft/card hidden/page hidden/hatch ink/line other/card target/target-card"
    for mode in modes:
        for pair in [*pairs.split(), "page/target", "page/other"]:
            one, other = sorted((brightness(mode[name]) for name in pair.split("/")), reverse=True)
            assert (one + 0.05) / (other + 0.05) >= 4.5, pair  # WCAG 2, level AA


# The terminal and the command


def test_plain_text_where_there_is_no_terminal(graph: None) -> None:
    text = printed(ROW)
    assert "\x1b" not in text
    assert text.isascii()
    lines = [line.rstrip() for line in text.splitlines()]
    assert "stage     2 of 4, 7 of 8 calls left" in lines
    assert "s0 [input]    a1 [hidden]" in lines
    assert " 2  -31        2  -24" in lines
    assert "1 ready  keep the rows of a1 with x at least 0, in a3" in lines
    assert "2 target  sort s0 by x, ascending, into a2" in lines
    assert lines[lines.index("Right reply") + 1].startswith('  {"tool":"sort_rows","inputs":["s0"]')
    assert any(re.match(r"names +0 of 2 +Contents as such\. +nothing +\d", line) for line in lines)


def test_a_narrow_terminal_does_not_cut_a_call(graph: None) -> None:
    assert '"ties":"keep"}}' in printed(ROW, width=40)


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stsr.cli.main", "preview", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_command_writes_the_page_and_prints_the_decision(tmp_path: Path) -> None:
    out = tmp_path / "new" / "row.html"
    done = run("chain-h4/62000#3@compact", "--out", out, "--views", "full,names")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("chain-h4/62000#3@compact\n")
    assert done.stdout.endswith(f"The page is {out}.\n")
    assert parsed(out.read_text(encoding="utf-8")).find("head/title").text == "chain-h4/62000#3@compact"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chain-h16/62017#7@compct"], "unknown view 'compct'; there are full, compact, recent2"),
        (["chian-h16/62017#7@compact"], "unknown family 'chian'; there are chain, neutral"),
        (["chain-h4/62000#3@compact", "--views", "full,nmes"], "unknown view 'nmes'; there are full"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], message: str, tmp_path: Path) -> None:
    done = run(*words, "--out", tmp_path / "x.html")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "x.html").exists()


def test_examples() -> None:
    for module in (decision, drawing, previewing):
        assert doctest.testmod(module).failed == 0
