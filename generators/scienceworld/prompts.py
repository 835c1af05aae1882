"""The prompt: one function from what is shown to chat messages.

As in the project's other prompts there is one user message and no system turn, and what never changes stands
first, what changes with every call last. The forms of actions are the simulator's own list.
"""

from __future__ import annotations

from stsr.generators.prompts import Message
from stsr.generators.scienceworld.views import Observation, Shown

TEMPLATES = (
    "activate OBJ, close OBJ, connect OBJ to OBJ, deactivate OBJ, disconnect OBJ, dunk OBJ in OBJ, eat OBJ, "
    "flush OBJ, focus on OBJ, go OBJ, inventory, look around, look at OBJ, look in OBJ, mix OBJ, "
    "move OBJ to OBJ, open OBJ, pick up OBJ, pour OBJ in OBJ, put down OBJ, read OBJ, reset task, task, "
    "use OBJ on OBJ, wait, wait1"
)
"""Forms of actions, as the frozen catalogue lists them; a test compares."""

HEAD = f"""\
You carry out a task in a simulated building by giving one action at a time.

Actions, where OBJ stands for the name of a thing or a place:
{TEMPLATES}

If a request is called ambiguous, answer with the number of what you mean. If it says available, the thing \
is there but its details are hidden. Reply with your next action only, on one line.
"""


def render(observation: Observation) -> list[Message]:
    """Chat messages for a decision: exactly one, from the user."""
    seen, parts = observation, [HEAD, f"Task: {observation.description}"]
    if seen.room is not None:
        parts.append("\n".join([f"Room: {seen.room}", *_lines(seen.things), *_lines(seen.doors)]))
    if seen.inventory is not None:
        parts.append("\n".join(["Inventory:", *(_lines(seen.inventory) or ["nothing"])]))
    if seen.hint:
        parts.append(f"relevance_hint: {', '.join(seen.hint)}")
    if seen.actions is not None:
        parts.append("\n".join(["Last actions:", *(seen.actions or ["none"])]))
    if seen.feedback is not None:
        parts.append(f"Last feedback: {seen.feedback.strip() or 'none'}")
    if seen.remaining is not None:
        parts.append(f"Calls left: {seen.remaining}")
    return [Message(role="user", content="\n\n".join(part.rstrip("\n") for part in parts))]


def _lines(entries: Shown | None) -> list[str]:
    return [
        name if detail == "" else f"{name}: {'available' if detail is None else detail}"
        for name, detail in entries or ()
    ]
