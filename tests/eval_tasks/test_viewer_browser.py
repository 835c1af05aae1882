"""Protects: in a browser, from a file, the page of episodes shows the call asked for and runs no other code.

pytest tests/eval_tasks/test_viewer_browser.py

Needs a Chromium: `playwright install --only-shell chromium`, or one of the system's. What must be seen is
written out by hand for the task of graph.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stsr.eval_tasks import viewer
from stsr.eval_tasks.records import Record
from stsr.eval_tasks.scienceworld_records import ActionTurn, FreeRunRecord
from stsr.eval_tasks.viewer import collect, page
from stsr.stats.outcomes import cell_id
from tests.eval_tasks.graph import (
    A1,
    A3,
    EXISTS,
    LOST,
    MAKE_A1,
    MAKE_A3,
    NOT_JSON,
    S0,
    TASK,
    TASKS,
    WON,
    cell,
    decision,
    episode,
)

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'stsr[dev]'"
)
pytestmark = pytest.mark.browser

SYSTEM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Playwright's own Chromium, or else the system's."""
    with sync_api.sync_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        found = None if own.exists() else next(filter(None, map(shutil.which, SYSTEM)), None)
        try:
            chromium = playwright.chromium.launch(executable_path=found)
        except sync_api.Error as error:
            if "Executable doesn't exist" in str(error):
                pytest.skip("no Chromium here: playwright install --only-shell chromium")
            raise
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of some records; afterwards nothing may have gone wrong or been asked of a network."""
    trouble: list[str] = []
    contexts = []

    def open_page(*records: Record, at: str = "", width: int = 1400) -> Any:
        file = tmp_path / "episodes.html"
        file.write_text(page(collect(records, TASKS, cell_id), "report.html"), encoding="utf-8")
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(10_000)
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on("console", lambda message: trouble.append(message.text))
        tab.on("dialog", lambda dialog: trouble.append(f"dialog {dialog.message}") or dialog.dismiss())
        tab.on("request", lambda asked: asked.url.startswith(file.as_uri()) or trouble.append(asked.url))
        tab.goto(file.as_uri() + at)
        tab.wait_for_selector("body[data-ready]")
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def link(record: Record, turn: int, kind: str = "free_run") -> str:
    return f"#cell={cell_id(record.cell)}&kind={kind}&task={record.task}&turn={turn}"


def facts(run: Any) -> dict[str, str]:
    return dict(
        zip(
            run.locator(".facts dt").all_inner_texts(),
            run.locator(".facts dd").all_inner_texts(),
            strict=True,
        )
    )


def tables(place: Any) -> dict[str, tuple[str, list[list[str]]]]:
    """Name -> (class, cells) of the tables in a state."""
    return {
        tile.locator("b").inner_text(): (
            tile.get_attribute("class"),
            [row.locator("td").all_inner_texts() for row in tile.locator("tbody tr").all()],
        )
        for tile in place.locator(".state .tile").all()
    }


def cells(rows: tuple[tuple[int, ...], ...]) -> list[list[str]]:
    return [[str(value) for value in row] for row in rows]


def marks(run: Any) -> list[str]:
    return [text.split()[-1] for text in run.locator(".chip").all_inner_texts()]


# One call


def test_an_address_points_at_a_call(opened: Open) -> None:
    tab = opened(WON, LOST, at=link(LOST, 3))
    (run,) = tab.locator(".run").all()
    assert run.locator("h2").inner_text() == "two compact view"
    assert "Failed: 2 of 4 operations verified in 5 calls, 2 rejected" in run.locator("header").inner_text()
    assert facts(run) == {
        "Call": "3 of 5",
        "Calls left": "6 of 8",
        "Next step": "2 of 4",
        "Contents shown": "1 of 2",
        "Prompt": "100 tokens",
    }
    assert run.locator(".before").inner_text().endswith(EXISTS)
    assert tables(run) == {"s0": ("tile shown read", cells(S0)), "a1": ("tile hidden", cells(A1))}
    assert run.locator(".option h4").all_inner_texts() == [
        "1. keep the rows of a1 with x at least 0, in a3\n✗ ready",
        "2. sort s0 by x, ascending, into a2\n✓ target",
    ]
    assert run.locator("pre.reply").inner_text() == "Sorry."
    assert f"✗ Rejected, {NOT_JSON}" in run.inner_text()
    assert marks(run) == ["✓", "✗", "✗", "≠", "≠"]
    assert run.locator("[aria-current=step]").inner_text().split() == ["3", "✗"]
    assert tab.title() == "branching-h4/1 · Episodes"


def test_a_call_that_was_accepted_shows_what_it_made(opened: Open) -> None:
    run = opened(LOST, at=link(LOST, 4)).locator(".run")
    assert run.locator(".made").inner_text().startswith("a3")
    assert [row.locator("td").all_inner_texts() for row in run.locator(".made tbody tr").all()] == cells(A3)
    assert "Accepted, but the reference action is another." in run.inner_text()
    assert run.locator(".option.chosen code").inner_text() == MAKE_A3
    assert run.locator("pre.reply").inner_text() == MAKE_A3


def test_the_prompt_word_for_word(opened: Open) -> None:
    run = opened(LOST, at=link(LOST, 2)).locator(".run")
    run.locator(".prompt summary").click()
    assert run.locator(".prompt pre").inner_text() == "head\n\nCalls left: 7\ntail"


def test_what_was_evaluated_is_a_list_of_facts(opened: Open) -> None:
    page = opened(LOST, at=link(LOST, 2))
    fold = page.locator("details", has_text="What was evaluated").first
    fold.locator("summary").click()
    heads, facts = fold.locator("dt").all_inner_texts(), fold.locator("dd").all_inner_texts()
    assert len(heads) == len(facts) > 3
    assert "[object" not in fold.inner_text()
    assert dict(zip(heads, facts, strict=True))["dtype"] == "float32"


def test_decisions_go_by_stage(opened: Open) -> None:
    records = [
        decision(2, MAKE_A1, False, error=EXISTS),
        decision(4, MAKE_A3, False),
        decision(1, MAKE_A1, True),
    ]
    tab = opened(*records, at=link(records[0], 2, "oracle_prefix"))
    assert facts(tab.locator(".run"))["Stage"] == "2 of 4"
    assert tab.locator(".chip .n").all_inner_texts() == ["1", "2", "4"]
    assert "1 of 3 decisions right" in tab.locator(".run header").inner_text()
    tab.get_by_role("button", name="First wrong decision: 2").click()
    assert "turn=2" in tab.url


def test_a_tie_is_no_choice(opened: Open) -> None:
    tied = replace(decision(1, "", False, error=NOT_JSON), kind="choice", logprobs=[-1.5, -1.5])
    run = opened(tied).locator(".run")
    assert "No choice: no candidate is likelier than all others" in run.inner_text()
    assert run.inner_text().count("log-likelihood -1.5") == 2


# Moving about


def test_arrows_move_and_the_address_follows(opened: Open) -> None:
    tab = opened(LOST, at=link(LOST, 1))
    for key, turn in [
        ("ArrowRight", 2),
        ("ArrowRight", 3),
        ("ArrowLeft", 2),
        ("ArrowLeft", 1),
        ("ArrowLeft", 1),
    ]:
        tab.keyboard.press(key)
        assert tab.url.endswith(f"task=branching-h4/1&turn={turn}")
        assert facts(tab.locator(".run"))["Call"] == f"{turn} of 5"
    assert "branching-h4/1, call 1: Accepted" in tab.locator("#said").inner_text()
    tab.locator("#view").focus()
    tab.keyboard.press("ArrowRight")  # moves in the list of views, not on the page
    assert tab.url.endswith("turn=1")


def test_a_chip_keeps_the_focus(opened: Open) -> None:
    tab = opened(LOST, at=link(LOST, 1))
    tab.get_by_role("button", name="Call 4:").focus()
    tab.keyboard.press("Enter")
    assert facts(tab.locator(".run"))["Call"] == "4 of 5"
    assert tab.evaluate("document.activeElement.innerText").split() == ["4", "≠"]


def test_the_first_rejection(opened: Open) -> None:
    tab = opened(LOST, WON, at=link(LOST, 5))
    tab.get_by_role("button", name="First rejection: 2").click()
    assert facts(tab.locator(".run"))["Call"] == "2 of 5"
    tab.get_by_role("button", name="First other action: 4").click()
    assert facts(tab.locator(".run"))["Call"] == "4 of 5"
    tab.goto(tab.url.partition("#")[0] + link(WON, 1))
    assert tab.get_by_role("button", name="No rejection").is_disabled()


def test_another_address_moves_the_open_page(opened: Open) -> None:
    tab = opened(LOST, WON, at=link(LOST, 1))
    tab.evaluate("address => { location.hash = address }", link(WON, 3))
    tab.wait_for_function("document.querySelector('.run h2').innerText.startsWith('one')")
    assert facts(tab.locator(".run"))["Call"] == "3 of 4"


def test_an_address_of_something_else_says_so(opened: Open) -> None:
    tab = opened(LOST, at="#cell=nothing")
    assert tab.get_by_role("alert").inner_text() == "This page has no cell nothing; the first one is shown."
    tab = opened(LOST, at=f"#cell={cell_id(LOST.cell)}&task=chain-h4/9&turn=99")
    assert (
        tab.get_by_role("alert").inner_text() == "This cell has no task chain-h4/9; its first one is shown."
    )
    assert facts(tab.locator(".run"))["Call"] == "5 of 5"


def test_a_cell_with_free_runs_and_decisions_says_so(opened: Open) -> None:
    tab = opened(decision(1, MAKE_A1, True), WON, at=f"#cell={cell_id(WON.cell)}")
    assert tab.locator(".chip").count() == 4
    assert "Oracle prefix, branching H4, test" in tab.get_by_role("alert").inner_text()


def test_lists_lead_to_other_cells_and_tasks(opened: Open) -> None:
    full = replace(WON, id=f"{TASK.id}@compact", cell=cell("compact"))
    tab = opened(WON, full, LOST, at=link(WON, 2))
    tab.get_by_label("View", exact=True).select_option("compact")
    assert cell_id(full.cell) in tab.url
    assert tab.url.endswith("turn=2")
    tab.get_by_label("Model", exact=True).select_option("me/two")
    assert cell_id(LOST.cell) in tab.url
    assert tab.locator("#task option").all_inner_texts() == [
        "✗ branching-h4/1 · failed: 2 of 4 operations verified in 5 calls, 2 rejected"
    ]
    assert tab.locator("#model option").all_inner_texts() == ["one · 1/1", "two · 0/1"]


def test_a_filter_without_tasks_shows_all(opened: Open) -> None:
    tab = opened(WON, at=link(WON, 2))
    tab.get_by_label("Tasks", exact=True).select_option("failed")
    assert tab.get_by_role("alert").inner_text() == "No task is failed; all are shown."
    assert tab.get_by_label("Tasks", exact=True).input_value() == "all"


def test_two_side_by_side(opened: Open) -> None:
    tab = opened(WON, LOST, at=link(WON, 1))
    tab.get_by_label("Beside it", exact=True).select_option("two, compact · 0/1")
    one, two = tab.locator(".run").all()
    assert abs(one.bounding_box()["y"] - two.bounding_box()["y"]) < 1
    tab.get_by_role("button", name="First different reply: 2").click()
    assert facts(one)["Call"] == "2 of 4"
    assert facts(two)["Call"] == "2 of 5"
    tab.get_by_label("Tasks", exact=True).select_option("differing")
    for _ in range(9):
        tab.keyboard.press("Control+Home")  # not an arrow: goes nowhere
        tab.evaluate("document.activeElement.blur()")
        tab.keyboard.press("ArrowRight")
    assert tab.locator(".run").first.locator(".over").inner_text() == "This run was over after call 4."
    assert facts(tab.locator(".run").last)["Call"] == "5 of 5"
    again = tab.url
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator(".run").count() == 2
    assert again.endswith(f"&beside={cell_id(LOST.cell)}")


# Text is not markup


def test_replies_are_text_whatever_they_hold(opened: Open) -> None:
    hostile = '</script></pre><img src=x onerror="alert(1)"><svg onload=alert(2)>&amp;{{7*7}}'
    tab = opened(episode([(hostile, "malformed: <b>no</b>")]))
    assert tab.locator("pre.reply").inner_text() == hostile
    assert tab.locator("main img, main svg, .outcome b b").count() == 0
    assert "<b>no</b>" in tab.locator(".run").inner_text()


def test_letters_that_hide_or_turn_the_text_stand_as_code_points(opened: Open) -> None:
    tab = opened(episode([("a\0\0\0b\u202ec\u200fd\r\n\te\ud800f", NOT_JSON)]))
    assert tab.locator("pre.reply .odd").all_inner_texts() == [
        *("U+0000 × 3", "U+202E", "U+200F", "U+000D", "U+D800")
    ]
    assert (
        "".join(
            tab.locator("pre.reply").evaluate(
                "node => [...node.childNodes].filter(n => n.nodeType === 3).map(n => n.data)"
            )
        )
        == "abcd\n\tef"
    )
    tab = opened(episode([("", NOT_JSON)]))
    assert tab.locator("pre.reply").inner_text() == "nothing"


def test_a_long_reply_is_shown_in_part_at_first(opened: Open) -> None:
    tab = opened(episode([("word " * 100_000, NOT_JSON)]), width=420)
    assert len(tab.locator("pre.reply").inner_text()) == 3000
    tab.get_by_role("button", name="Show all 500,000 characters").click()
    assert tab.locator("pre.reply").evaluate("node => node.textContent.length") == 500_000


# The page as a page


def test_compressed_data_are_read_too(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "PLAIN", 0)
    tab = opened(WON, LOST, at=link(LOST, 3))
    assert tab.locator("#data").get_attribute("data-packed") == "gzip"
    assert tab.locator("pre.reply").inner_text() == "Sorry."


@pytest.mark.parametrize("width", [320, 420, 1400])
def test_nothing_sticks_out(opened: Open, width: int) -> None:
    long = replace(LOST, cell=cell("compact", "an-organisation/" + "a-very-long-name-" * 8))
    wide = episode([("x" * 5000, "malformed: " + "y" * 500)], long.cell)
    tab = opened(
        replace(wide, id=long.id),
        WON,
        at=f"#cell={cell_id(long.cell)}&beside={cell_id(WON.cell)}",
        width=width,
    )
    assert tab.locator(".run").count() == 2
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name(opened: Open) -> None:
    tab = opened(WON, LOST)
    for role in ("button", "combobox"):
        for control in tab.get_by_role(role).all():
            name = control.evaluate(
                "node => node.getAttribute('aria-label') || node.labels?.[0]?.innerText || node.innerText"
            )
            assert name.strip()


def test_print_leaves_controls_out(opened: Open) -> None:
    tab = opened(LOST, at=link(LOST, 3))
    tab.emulate_media(media="print")
    assert not tab.locator("#pick").is_visible()
    assert tab.locator("pre.reply").is_visible()


def test_a_free_run_of_scienceworld_shows_prompt_action_and_feedback(opened: Open) -> None:
    def turn(remaining: int, action: str, verdict: str, feedback: str) -> ActionTurn:
        return ActionTurn(
            f"Task: boil\n\nCalls left: {remaining}", f" {action}", None, verdict, "", remaining, 100, 7,
            reference="open <b>door</b>", canonical=False, action=action, feedback=feedback, score=3,
        )  # fmt: skip

    turns = [turn(2, "go kitchen", "accepted", "You move."), turn(1, "dance", "rejected", "No known action.")]
    where = replace(cell(), family="scienceworld", horizon=0, condition="2 calls")
    record = FreeRunRecord(
        "scienceworld-boil/2@full", "scienceworld-boil/2", "f", "boil", "medium", 30, False, "budget",
        2, 3, 3, 1, False, False, "first-line/1", "1.2.3", "0" * 64, turns, where,
    )  # fmt: skip
    run = opened(record, at=link(record, 1)).locator(".run")
    assert "Failed: score 3 in 2 calls, 1 rejected" in run.locator("header").inner_text()
    assert facts(run) == {"Call": "1 of 2", "Calls left": "2 of 2", "Prompt": "100 tokens"}
    assert run.locator(".prompt pre").inner_text() == "Task: boil\n\nCalls left: 2"
    assert run.locator("pre.reply").all_inner_texts() == [" go kitchen", "go kitchen", "You move."]
    assert "Not the reference action, which is: open <b>door</b>" in run.inner_text()
    assert "Score 3 after it." in run.inner_text()
    assert marks(run) == ["≠", "✗"]
    run.locator(".chip").nth(1).click()
    assert "Rejected by the parser." in run.inner_text()
    assert run.locator(".option").count() == 0
