"""Protects: what each view shows and hides, and that only those that say so consult the target."""

import pytest

from stsr.generators.scienceworld.catalogue import read_catalogue
from stsr.generators.scienceworld.prompts import HEAD, render
from stsr.generators.scienceworld.rows import decision_rows
from stsr.generators.scienceworld.states import (
    Call,
    Entry,
    Outcome,
    Seen,
    State,
    entry,
    inventory,
    names,
    reference_after,
    room,
    state_at,
)
from stsr.generators.scienceworld.views import VIEWS, view

LOOK = (
    "This room is called the kitchen. In it, you see: \n\tthe agent\n\ta substance called air\n"
    "\ta cupboard. The cupboard door is closed. \n\ta stove, which is turned off. On the stove is: nothing.\n"
    "\ta flower pot 3 (containing soil)\n\ta flower pot 4 (containing nothing)\n"
    "You also see:\n\tA door to the hallway (that is open)\n"
)
INVENTORY = "In your inventory, you see:\n\tan orange\n\ta metal pot (containing a substance called water)\n"


def call(action, feedback="Done."):
    return Call(action, Outcome(feedback, 10))


HISTORY = (
    call("wait1"),
    call("open cupboard", "The cupboard is now open."),
    call("activate stove"),
    call("frobnicate the metal pot", "No known action matches that input."),
    call("go to kitchen", "You move to the kitchen."),
    call("look around", LOOK),
)
STATE = State("Your task is to boil water in the kitchen with a stove.", Seen(LOOK, INVENTORY), HISTORY)
TARGET = "pour metal pot into flower pot 3"


def details(name, state=STATE, target=TARGET):
    """Names of the entries whose details are shown."""
    seen = view(name)(state, target)
    return {n for part in (seen.things, seen.doors, seen.inventory) for n, d in part or () if d}


ALL = {"a cupboard", "a stove", "a flower pot 3", "a flower pot 4", "A door to the hallway", "a metal pot"}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("full", ALL),
        ("full-cue", ALL),
        ("no-history", ALL),
        ("compact-ref", {"a metal pot", "a flower pot 3"}),
        ("compact-cue", {"a metal pot", "a flower pot 3"}),
        ("compact-recent2", set()),
        ("compact-task", {"a stove"}),
        ("compact-names", set()),
        ("status", {"a metal pot"}),
        ("history-only", set()),
    ],
)
def test_details_shown(name, shown):
    assert details(name) == shown


def test_recent2_follows_the_last_two_accepted_actions():
    """The rejected call between them does not count, though it names the metal pot."""
    earlier = STATE._replace(calls=HISTORY[:4])
    assert details("compact-recent2", earlier) == {"a cupboard", "a stove"}


def test_names_are_always_shown():
    for name in ("compact-ref", "compact-recent2", "compact-task", "compact-names", "compact-cue"):
        seen = view(name)(STATE, TARGET)
        for part in ("things", "doors", "inventory"):
            full = getattr(view("full")(STATE, TARGET), part)
            assert [n for n, _ in getattr(seen, part)] == [n for n, _ in full]


def test_hints_name_what_the_reference_action_names():
    assert view("full-cue")(STATE, TARGET).hint == ("a flower pot 3", "a metal pot")
    assert view("full")(STATE, TARGET).hint == ()


@pytest.mark.parametrize("name", VIEWS)
def test_only_some_views_consult_the_target(name):
    same = view(name)(STATE, TARGET) == view(name)(STATE, "open cupboard")
    assert same == (name not in ("compact-ref", "full-cue", "compact-cue"))
    assert view(name).needs_target == (not same)


@pytest.mark.parametrize("name", VIEWS)
def test_no_view_shows_the_score(name):
    other = STATE._replace(calls=tuple(Call(c.action, Outcome(c.outcome.feedback, 77)) for c in HISTORY))
    assert view(name)(STATE, TARGET) == view(name)(other, TARGET)


def test_history():
    assert view("full")(STATE, TARGET).actions == tuple(c.action for c in HISTORY[1:])
    assert view("full")(STATE, TARGET).remaining == 94
    assert view("no-history")(STATE, TARGET).actions is None
    alone = view("history-only")(STATE, TARGET)
    assert alone.actions == tuple(c.action for c in HISTORY)
    assert (alone.room, alone.things, alone.inventory, alone.feedback, alone.remaining) == (None,) * 5


def test_an_unknown_view_names_the_others():
    with pytest.raises(ValueError, match="there are full, compact-ref"):
        view("compact")


def test_the_prompt_word_for_word():
    state = STATE._replace(calls=HISTORY[:3])
    (message,) = render(view("compact-cue")(state, TARGET))
    assert message["role"] == "user"
    assert message["content"] == (
        HEAD.rstrip("\n")
        + """

Task: Your task is to boil water in the kitchen with a stove.

Room: kitchen
a substance called air
a cupboard: available
a stove: available
a flower pot 3: containing soil
a flower pot 4: available
A door to the hallway: available

Inventory:
an orange
a metal pot: containing a substance called water

relevance_hint: a flower pot 3, a metal pot

Last actions:
wait1
open cupboard
activate stove

Last feedback: Done.

Calls left: 97"""
    )


def test_the_first_prompt_has_neither_actions_nor_feedback():
    (message,) = render(view("full")(STATE._replace(calls=()), TARGET))
    assert message["content"].endswith("Last actions:\nnone\n\nLast feedback: none\n\nCalls left: 100")


@pytest.mark.parametrize(
    ("line", "name", "detail"),
    [
        ("\ta stopwatch, which is deactivated. ", "a stopwatch", "which is deactivated."),
        ("\tA recipe titled instructions to make dough", "A recipe titled instructions to make dough", ""),
        ("\ta book shelf (containing A book (Beowulf) titled Beowulf by B)", "a book shelf",
         "containing A book (Beowulf) titled Beowulf by B"),
    ],
)  # fmt: skip
def test_entries(line, name, detail):
    assert entry(line) == Entry(name, detail)


def test_a_room_outside():
    look = (
        "This outside location is called the outside. Here you see: \n\tthe agent\n\tan axe\n"
        "You also see:\n\tA door to the kitchen (that is closed)\n"
    )
    assert room(look) == (
        "outside",
        (Entry("an axe", ""),),
        (Entry("A door to the kitchen", "that is closed"),),
    )


def test_every_state_of_the_catalogue_comes_apart_and_loses_nothing():
    for workflow in read_catalogue().usable:
        for step in workflow.steps:
            here = room(step.look)
            assert here.name
            assert here.name in step.look.partition("\n")[0]
            assert here.doors
            lines = [
                line
                for line in step.look.splitlines()[1:]
                if line not in ("", "\tthe agent", "You also see:")
            ]
            assert len(here.things) + len(here.doors) == len(lines)
            entries = (*here.things, *here.doors, *inventory(step.inventory))
            for e in entries:
                assert e.name in step.look + step.inventory
                assert e.detail in step.look + step.inventory


def test_numbers_tell_things_apart():
    assert names("move soil to flower pot 3", entry("a flower pot 3"))
    assert not names("move soil to flower pot 3", entry("a flower pot 4"))


def test_states_of_a_workflow():
    workflow = read_catalogue().workflows["scienceworld-freeze/1"]
    assert state_at(workflow, 1).calls == ()
    assert state_at(workflow, 1).remaining == 100
    third = state_at(workflow, 3)
    assert [c.action for c in third.calls] == [s.action for s in workflow.steps[:2]]
    assert third.feedback == workflow.steps[1].feedback


def test_the_reference_of_an_episode_waits_until_it_is_made():
    workflow = read_catalogue().workflows["scienceworld-freeze/1"]
    first, second, third = (step.action for step in workflow.steps[:3])
    assert reference_after(workflow, []) == first
    assert reference_after(workflow, ["frobnicate", first.upper()]) == second
    assert reference_after(workflow, [first, "wait", second]) == third
    assert reference_after(workflow, [s.action for s in workflow.steps] * 2) == workflow.steps[-1].action


def test_rows_of_a_decision_differ_in_the_prompt_only():
    workflow = read_catalogue().workflows["scienceworld-freeze/1"]
    rows = list(decision_rows(workflow, list(VIEWS)))
    assert len(rows) == len(workflow.steps) * len(VIEWS)
    assert rows[0]["id"] == "scienceworld-freeze/1#1@full"
    for k in range(0, len(rows), len(VIEWS)):
        common = [
            {k: v for k, v in r.items() if k not in ("id", "view", "prompt")}
            for r in rows[k : k + len(VIEWS)]
        ]
        assert all(c == common[0] for c in common)
