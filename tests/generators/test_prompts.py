"""Protects: the order and content of the prompt, and that turns share their beginning."""

from itertools import pairwise, takewhile
from operator import eq

from stsr.generators import chain
from stsr.generators.environment import gold_prefix, step
from stsr.generators.prompts import render
from stsr.generators.rows import FAMILIES
from stsr.generators.tasks import candidates
from stsr.generators.views import view

TASK = chain.generate(16, 62_000)


def prompt(state, name="full"):
    return render(view(name)(state, state.reference), candidates(TASK, state.stage), state)[0]["content"]


def test_one_user_message_with_everything_in_its_order():
    state = step(gold_prefix(TASK, 2), "no").state
    messages = render(view("compact")(state, state.reference), candidates(TASK, 3), state)
    assert [message["role"] for message in messages] == ["user"]
    text = messages[0]["content"]
    shown = candidates(TASK, 3).shown
    parts = [
        "Tools:",
        "Choose the recipe that can run now.",
        "\nState:\ns0: available\na1: available\na2: " + state.artifacts["a2"].text + "\n",
        f"\nRecipes:\n{shown[0].text}\n{shown[1].text}\n",
        "\nCalls left: 29\n",
        "Previous error: malformed: the reply is not one JSON call with tool, inputs, output and params",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.endswith(parts[-1])
    assert prompt(gold_prefix(TASK, 2)).endswith("Calls left: 30\nPrevious error: none")


def test_most_of_a_full_prompt_is_the_beginning_of_the_next():
    prompts = [prompt(gold_prefix(TASK, calls)) for calls in range(16)]
    shared = sum(len(list(takewhile(bool, map(eq, *pair)))) for pair in pairwise(prompts))
    assert shared / sum(map(len, prompts[1:])) > 0.7


def test_a_goal_and_a_hint_stand_after_the_artifacts():
    task = FAMILIES["choice"].generate(16, 72_000, "negative")
    state = gold_prefix(task, 15)
    shown = candidates(task, 16)
    text = render(view("compact-cue")(state, state.reference), shown, state)[0]["content"]
    assert "Several recipes can run now. Choose the one that serves the goal." in text
    assert text.split("\na15: available\n\n")[1] == (
        "relevance_hint: s15\n\nGoal: If the input table has a negative value, drop the rows with a "
        "negative value; otherwise sort its rows by key.\n\n"
        f"Recipes:\n{shown.shown[0].text}\n{shown.shown[1].text}\n\nCalls left: 17\nPrevious error: none"
    )


def test_the_interface_with_ids_to_the_letter():
    state = gold_prefix(TASK, 1)
    shown = candidates(TASK, 2)
    texts = [
        render(view(name)(state, state.reference), shown, state)[0]["content"]
        for name in ("recipe-ids", "output-ids")
    ]
    head = (
        "A recipe can run when all of its inputs exist and its output does not exist yet. Choose the recipe "
        'that can run now. Reply with its id only, as in {"recipe":"r1"}.\n\nArtifacts: s0, a1\n\nRecipes:\n'
    )
    one, two = shown.shown
    assert texts[0] == f"{head}r1: {one.text}\nr2: {two.text}\n\nCalls left: 31"
    assert texts[1] == f"{head}r1: {one.output}\nr2: {two.output}\n\nCalls left: 31"


def test_views_differ_in_the_state_only():
    state = gold_prefix(TASK, 5)
    heads, tails = zip(
        *(prompt(state, name).split("State:\n") for name in ("full", "compact", "recent2")), strict=True
    )
    assert len(set(heads)) == 1
    assert len({tail.split("\n\n", 1)[1] for tail in tails}) == 1
