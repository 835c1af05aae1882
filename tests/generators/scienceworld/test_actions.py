"""Protects: the frozen rule that reads actions, agreement, kinds of feedback, examples in docstrings."""

import doctest
import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stsr.generators.scienceworld.actions import EXTRACTION, agrees, extract, verdict


@pytest.mark.parametrize(
    ("output", "action"),
    [
        ("open cupboard", "open cupboard"),
        ("open cupboard\nThen wait.", "open cupboard"),
        ("\n \n\topen   cupboard  ", "open cupboard"),
        ("open cupboard.", "open cupboard."),
        ('"open cupboard"', '"open cupboard"'),
        ("Action: open cupboard", "Action: open cupboard"),
        ("", ""),
        (" \n\t", ""),
        ("cafe\u0301", "caf\u00e9"),
        ("a\u2028b", "a"),
        ("\ud800", "?"),
    ],
)
def test_extraction(output, action):
    """Another rule needs another name, or results stop being comparable."""
    assert EXTRACTION == "first-line/1"
    assert extract(output) == action


@given(st.text())
def test_extraction_is_total_and_settles(output):
    action = extract(output)
    assert extract(action) == action
    assert "\n" not in action
    action.encode()


def test_agreement():
    assert agrees("Open  Cupboard\n", "open cupboard")
    assert not agrees("open cupboard.", "open cupboard")
    assert not agrees("", "open cupboard")


@pytest.mark.parametrize(
    ("feedback", "kind"),
    [
        ("No known action matches that input.", "rejected"),
        ("No known action matches that input", "accepted"),
        ("No known action matches that input. ", "accepted"),
        ("Ambiguous request: Please enter the number for the action you intended", "ambiguous"),
        ("Unknown action.  Type 'help' for a list of actions", "cancelled"),
        ("It's not clear how to get there from here.", "accepted"),
        ("", "accepted"),
    ],
)
def test_verdicts(feedback, kind):
    assert verdict(feedback) == kind


@pytest.mark.parametrize("name", ["actions", "variations", "catalogue", "states", "rows"])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"stsr.generators.scienceworld.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
