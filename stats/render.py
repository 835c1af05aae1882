"""One table as HTML, Markdown and LaTeX: pandas' Styler and `to_markdown` over the same frame of strings.

    html(table); markdown(table); latex(table)

Invariant: the three differ in markup only. Text is escaped for each; links exist in HTML alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from markupsafe import escape
from pandas.io.formats.style import Styler

TEX = str.maketrans(
    {
        "→": r"$\to$",
        "−": "$-$",
        "–": "--",
        "×": r"$\times$",
        "≤": r"$\le$",
        "<": "$<$",
        ">": "$>$",
        **{sup: f"$^{{{digit}}}$" for sup, digit in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)},
    }
)
"""What plain LaTeX lacks."""
SPECIAL = str.maketrans(
    {
        **{c: f"\\{c}" for c in "&%$#_{}"},
        "~": r"\textasciitilde ",
        "^": r"\textasciicircum ",
        "\\": r"\textbackslash ",
    }
)


Link = Callable[[str, str], str]
"""Cell id and kind of outcomes -> what to link to."""


@dataclass(frozen=True)
class Table:
    """A table with its caption and the note under it."""

    caption: str
    head: tuple[str | tuple[str, str], ...]
    """Column heads; a pair is a head that spans and one below it."""
    rows: tuple[tuple[str, ...], ...]
    note: str
    words: int
    """How many leading columns hold words; the others hold numbers and are set flush right."""
    links: tuple[tuple[str, ...], ...] = ()
    """Target of each text, "" for none; no links at all if empty."""
    anchors: tuple[str, ...] = ()
    """An id for each row, to link to; none if empty."""
    id: str = ""
    """Name of its LaTeX file; no file if empty."""

    def __post_init__(self) -> None:
        for row in (*self.rows, *self.links):
            if len(row) != len(self.head):
                raise ValueError(f"{self.caption}: a row of {len(row)} under {len(self.head)} heads: {row}")

    @property
    def frame(self) -> pd.DataFrame:
        """The strings, under one or two levels of heads."""
        pairs = [name if isinstance(name, tuple) else ("", name) for name in self.head]
        if all(isinstance(name, str) for name in self.head):
            columns: pd.Index = pd.Index(self.head)
        else:
            columns = pd.MultiIndex.from_tuples(pairs)
        return pd.DataFrame(list(self.rows), columns=columns, dtype=object)


def html(table: Table) -> str:
    """A `<table>` element. Words are set flush left by the class "word"; a new first word starts a group."""
    texts = [
        [_linked(text, _at(table.links, row, column)) for column, text in enumerate(line)]
        for row, line in enumerate(table.rows)
    ]
    for row, anchor in enumerate(table.anchors):
        texts[row][0] = f'<span id="{escape(anchor)}">{texts[row][0]}</span>'
    frame = table.frame
    shown = pd.DataFrame(texts, columns=_escaped(frame.columns), dtype=object)
    firsts = [row[0] for row in table.rows]
    classes = [
        [
            ("word" if column < table.words else "")
            + (" new" if table.words > 1 and row and firsts[row] != firsts[row - 1] else "")
            for column in range(len(table.head))
        ]
        for row in range(len(table.rows))
    ]
    styler = Styler(shown, uuid=table.id or "t", cell_ids=False).hide(axis="index")
    styler.set_td_classes(pd.DataFrame(classes, columns=shown.columns, index=shown.index))
    kind = f"numbers words{table.words}" if table.words < len(table.head) else "numbers wrap"
    text = str(styler.to_html(table_attributes=f'class="{kind}"'))
    return text.replace("<th ", '<th scope="col" ')  # the index is hidden, so every head is a column's


def _linked(text: str, target: str) -> str:
    first, bracket, rest = text.partition(" (")
    shown = str(escape(first)) + (f" <small>({escape(rest)}</small>" if bracket else "")
    return f'<a href="{escape(target)}">{shown}</a>' if target else shown


def _at(rows: tuple[tuple[str, ...], ...], row: int, column: int) -> str:
    return rows[row][column] if rows else ""


def _escaped(columns: pd.Index) -> pd.Index:
    if isinstance(columns, pd.MultiIndex):
        return pd.MultiIndex.from_tuples([tuple(str(escape(part)) for part in pair) for pair in columns])
    return pd.Index([str(escape(name)) for name in columns])


def markdown(table: Table) -> str:
    """A pipe table. Bars inside texts are escaped."""
    heads = [" ".join(filter(None, name)) if isinstance(name, tuple) else name for name in table.head]
    frame = pd.DataFrame(
        [[_cell(text) for text in row] for row in table.rows], columns=[_cell(head) for head in heads]
    )
    align = ["left" if column < table.words else "right" for column in range(len(heads))]
    return str(frame.to_markdown(index=False, tablefmt="pipe", colalign=align, disable_numparse=True))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def latex(table: Table) -> str:
    """A `tabular` with booktabs rules in a `table`, its caption and note included."""
    frame = table.frame
    columns = "l" * table.words + "r" * (len(table.head) - table.words)
    styler = frame.style.hide(axis="index").format(escape="latex").format_index(escape="latex", axis=1)
    body = styler.to_latex(
        hrules=True, column_format=columns, multicol_align="c", caption=_tex(table.caption),
        label=f"tab:{table.id}", position="t", position_float="centering",
    )  # fmt: skip
    note = f"\\par\\footnotesize {_tex(table.note)}\n\\end{{table}}"
    return str(body).translate(TEX).replace("\\end{table}", note.translate(TEX))


def _tex(text: str) -> str:
    """Text with LaTeX's special characters escaped, as pandas does it for cells."""
    return text.translate(SPECIAL)
