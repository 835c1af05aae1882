"""`stsr preview`: one decision as a page and as text, with the same state under other views beside it.

    preview = look("chain-h16/62017#7@compact")
    page(preview)               # HTML that needs no network, no other file and no script
    show(preview, Console())    # the same for a terminal

Invariants: everything comes from the task, the environment, the views and the prompts themselves; what a
recipe would do is asked of `step`. Under the row's own view, contents that the prompt hides are drawn greyed,
for people to see what is missing. Under the other views they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich import box
from rich.columns import Columns
from rich.console import Console, Group
from rich.table import Table as Grid
from rich.text import Text

from stsr.generators.places import Place, places
from stsr.generators.prompts import answer
from stsr.generators.rows import find_family, generate, gold_states, parse_row_id
from stsr.generators.tasks import Task, candidates
from stsr.generators.views import view
from stsr.hub_cards.decision import Artifact, Look, Option, look_under, options
from stsr.hub_cards.drawing import Node, draw

FALLBACK = ("full", "compact", "recent2", "names")
"""Other views of a row that no declaration has."""
CLIPPED = 3
"""Rows of a table that the cards of other views draw; the whole table stands above them."""


class Preview(NamedTuple):
    """One decision, with everything that is drawn of it."""

    row_id: str
    task: Task
    summary: str
    """What a task of this family is."""
    stage: int
    calls_left: int
    places: list[Place]
    """Where it is declared, the newest versions only."""
    own: Look
    options: list[Option]
    reply: str
    """The gold completion."""
    nodes: list[Node]
    others: list[Look]


def look(row_id: str, views: Sequence[str] = ()) -> Preview:
    """The decision `row_id`; `views` are the other ones to show, by default all that are declared for it.

    Raises ValueError, one line that names the alternatives, for a bad id or an unknown view.

    >>> preview = look("chain-h16/62017#7@compact", ["recent2"])
    >>> [option.kind for option in preview.options], preview.own.shows, preview.others[0].shows
    (['target', 'finished'], '1 of 7', '2 of 7')
    """
    parts = parse_row_id(row_id)
    task = generate(parts.family, parts.horizon, parts.seed, parts.variant)
    state, shown = gold_states(task)[parts.stage - 1], candidates(task, parts.stage)
    found = places(parts, task.pivot)
    names = views or dict.fromkeys(name for place in found for name in place.part.views) or FALLBACK
    own = look_under(parts.view, state, shown)
    return Preview(
        row_id=row_id,
        task=task,
        summary=find_family(parts.family).summary,
        stage=parts.stage,
        calls_left=state.remaining,
        places=found,
        own=own,
        options=options(own, state, shown),
        reply=answer(view(parts.view)(state, state.reference), shown),
        nodes=draw(state, shown),
        others=[look_under(name, state, shown) for name in names if name != parts.view],
    )


# -- the page


def page(preview: Preview) -> str:
    """HTML that stands alone; it is also well-formed XML."""
    jinja = Environment(
        loader=PackageLoader("stsr.hub_cards"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.filters["code"] = _code
    values: dict[str, Any] = preview._asdict()
    return jinja.get_template("preview.html").render(**values, clipped=CLIPPED)


def file_name(row_id: str) -> str:
    """A name for the page, without letters that a shell or an address would read otherwise.

    >>> file_name("choice-h16/72000~negative#4@full")
    'choice-h16-72000-negative-4-full.html'
    """
    return re.sub("[^a-z0-9]+", "-", row_id) + ".html"


def _code(text: str) -> Markup:
    """What stands between backticks, as code."""
    return Markup(re.sub("`(.+?)`", r"<code>\1</code>", str(escape(text))))


# -- the terminal


def show(preview: Preview, console: Console) -> None:
    """Prints the decision; with colours in a terminal, plainly elsewhere."""
    task, own = preview.task, preview.own
    console.print(Text(preview.row_id, style="bold"))
    facts = {
        "family": f"{task.family}: {preview.summary}",
        "stage": f"{preview.stage} of {task.horizon}, {preview.calls_left} of {task.budget} calls left",
        "declared": "\n".join(dict.fromkeys(place.text for place in preview.places)) or "in no data set",
        "goal": task.goal,
        "view": f"{own.name}: {own.view.rule}",
    }
    grid = Grid.grid(padding=(0, 2))
    for name, text in facts.items():
        if text:
            grid.add_row(Text(name, style="dim"), Text(text))
    console.print(grid)

    _heading(console, f"State: contents shown {own.shows}, {len(own.prompt):,} characters of prompt")
    console.print(Columns([_tile(artifact) for artifact in own.artifacts], padding=(0, 4)))

    _heading(console, "Recipes")
    for option in preview.options:
        style = "bold green" if option.target else "bold yellow"
        console.print(Text.assemble((f"{option.number} {option.kind}", style), f"  {option.words}"))
        console.print(Text(f"  {option.reason}\n  {option.printed}"), soft_wrap=True)

    _heading(console, "Right reply")
    console.print(Text(f"  {preview.reply}"), soft_wrap=True)

    if preview.others:
        _heading(console, "The same state under other views")
        grid = Grid(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
        for name in ("view", "contents shown", "isolates", "consults", "characters"):
            grid.add_column(name)
        for other in preview.others:
            names = [artifact.name for artifact in other.artifacts if artifact.shown]
            shown = ", ".join(names) if 0 < len(names) < 5 and not other.moved else other.shows
            cells = (other.name, shown, other.view.isolates, other.view.consults)
            grid.add_row(*map(Text, cells), Text(f"{len(other.prompt):,}", justify="right"))
        console.print(grid)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _tile(artifact: Artifact) -> Group:
    """An artifact with its contents; dim if hidden."""
    marks = ["text" if artifact.text is not None else "" if artifact.shown else "hidden"]
    marks += ["cue" if artifact.cue else "", "input" if artifact.read else ""]
    title = Text(artifact.name, style="bold")
    title.append("".join(f" [{mark}]" for mark in marks if mark), style="not bold")
    if artifact.text is not None:
        return Group(title, Text(artifact.text, overflow="fold"), "")
    grid = Grid(box=None, pad_edge=False, padding=(0, 1), header_style="underline")
    for name in artifact.table.columns:
        grid.add_column(Text(name), justify="right")
    for row in artifact.table.rows:
        grid.add_row(*map(str, row), style="" if artifact.shown else "dim")
    return Group(title, grid, "")
