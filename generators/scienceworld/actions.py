"""Actions as text: from an output to what the simulator is sent, agreement, kinds of feedback. Pure.

The simulator takes `open cupboard` but neither `open cupboard.` nor `Action: open cupboard`, so the rule that
reads outputs moves the rejection rate. It is therefore frozen, as EXTRACTION, and in every record.

Source: appendix F of the paper (a rejection is one exact string); the rule is ours.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

EXTRACTION = "first-line/1"
"""Rule of `extract`. Another rule gets another name, since results under the two do not compare."""

REJECTION = "No known action matches that input."
"""The feedback that counts as a parser rejection, exactly."""
AMBIGUOUS = "Ambiguous request: Please enter the number"
"""How the feedback begins that asks for a number from a menu; the next call answers it."""
CANCELLED = "Unknown action."
"""How the feedback begins when a menu was answered with anything but one of its numbers."""

Verdict = Literal["accepted", "rejected", "ambiguous", "cancelled"]


def extract(output: str) -> str:
    r"""The action in a model's output: its first line that is not blank, runs of white space as one blank.

    Nothing else is taken away: no punctuation, quotes or label. "" if there is no such line, which the
    simulator rejects.

    >>> extract("\n  open   cupboard \nbecause it is closed"), extract("Action: wait"), extract(" \n")
    ('open cupboard', 'Action: wait', '')
    """
    text = unicodedata.normalize("NFC", output.encode("utf-8", "replace").decode("utf-8"))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return next(filter(None, lines), "")


def agrees(action: str, reference: str) -> bool:
    """Whether an extracted action is the reference action, upper and lower case alike.

    >>> agrees("Open cupboard", "open cupboard"), agrees("open cupboard door", "open cupboard")
    (True, False)
    """
    return extract(action).lower() == extract(reference).lower()


def verdict(feedback: str) -> Verdict:
    """The kind of an answer of the simulator.

    >>> verdict("No known action matches that input."), verdict("No known action matches that input")
    ('rejected', 'accepted')
    """
    if feedback == REJECTION:
        return "rejected"
    if feedback.startswith(AMBIGUOUS):
        return "ambiguous"
    return "cancelled" if feedback.startswith(CANCELLED) else "accepted"
