"""A filled table as text: ours, its interval, and the paper's value beside it where it has one.

Nothing to run; `report` calls `tables_of`. Invariant: under every table stand unit, conditioning and null of
each of its metrics, taken from the numbers themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from stsr.stats.hierarchy import Crossed
from stsr.stats.metrics import METRICS
from stsr.stats.numbers import Number
from stsr.stats.render import Link, Table
from stsr.stats.specs import Label, TableSpec
from stsr.stats.tables import Built
from stsr.stats.words import DASH, p_value, percent, points

HEADS = {
    "base": "model",
    "trained": "trained on",
    "view": "tested on",
    "horizon": "H",
    "condition": "condition",
}


def tables_of(built: Built, link: Link) -> list[Table]:
    """The table, and the summary over training seeds where it has one."""
    spec = built.spec
    rows: dict[tuple[Label, ...], list[Number]] = {}
    for number in built.numbers:
        rows.setdefault(tuple(number.labels[name] for name in spec.rows), []).append(number)
    places = _places(spec)
    paper = {place for place in places for row in rows.values() if _find(row, place).paper}
    head: list[str | tuple[str, str]] = [HEADS.get(name, name) for name in spec.rows]
    for place in places:
        parts = _parts(place) if place not in paper else [*_parts(place), "paper"]
        head += [(place[0], part) if part else place[0] for part in parts]
    if any(isinstance(name, tuple) for name in head):
        head = [name if isinstance(name, tuple) else ("", name) for name in head]
    lines, links = [], []
    for labels, numbers in rows.items():
        line, targets = [_label(value) for value in labels], [""] * len(labels)
        for place in places:
            number = _find(numbers, place)
            shown = _texts(number, len(_parts(place)))
            line += [*shown, _paper(number)] if place in paper else shown
            first = (
                link(number.cells[0], number.kinds[-1])
                if (number.cells and number.value is not None) or number.text
                else ""
            )
            targets += [first, *[""] * (len(shown) - 1 + (place in paper))]
        lines.append(tuple(line))
        links.append(tuple(targets))
    table = Table(
        caption=f"{_source(spec.id)}. {spec.title}",
        head=tuple(head),
        rows=tuple(lines),
        note=_note(built),
        words=len(spec.rows),
        links=tuple(links),
        id=spec.id,
    )
    return [table, *_summary(built)]


def _source(id: str) -> str:
    """Where the paper has a table; "Ours" for tables that it does not have.

    >>> _source("table-14-blocks"), _source("section-c1-factorial"), _source("isolating-views")
    ('Table 14', 'Section C.1', 'Ours')
    """
    kind, number = id.split("-")[:2]
    if kind not in ("table", "section"):
        return "Ours"
    return f"{kind.capitalize()} {number if number[0].isdigit() else f'{number[0].upper()}.{number[1:]}'}"


Place = tuple[str, str, tuple[tuple[str, Label], ...]]
"""Head, metric, and the labels that tell its numbers from the others of a row."""


def _places(spec: TableSpec) -> list[Place]:
    found: list[Place] = []
    for values in itertools.product(*spec.columns.values()):
        at = tuple(zip(spec.columns, values, strict=True))
        words = "→".join(_column(name, value) for name, value in at)
        for metric in spec.metrics:
            title = METRICS[metric].title
            head = f"{words}: {title}" if words and len(spec.metrics) > 1 else words or title
            found.append((head, metric, at))
    if "contrast" in spec.rows:
        found.append(("effect", "effect", ()))
    else:
        found += [(c.name, "effect", (("contrast", c.name),)) for c in spec.contrasts]
    return found


def _column(name: str, value: Label) -> str:
    return {"horizon": f"H{value}", "step": f"step {value}", "block": f"stages {value}"}.get(name, str(value))


def _find(numbers: Sequence[Number], place: Place) -> Number:
    _, metric, at = place
    return next(n for n in numbers if n.metric == metric and all(n.labels.get(k) == v for k, v in at))


def _parts(place: Place) -> list[str]:
    """What stands under a head: a number with its interval, and a p value for an effect."""
    return ["points", "p"] if place[1] == "effect" else ["ours"]


def _label(value: Label) -> str:
    return DASH if value == 0 and not isinstance(value, bool) else str(value)


def _texts(number: Number, parts: int) -> list[str]:
    if number.text or number.value is None:
        return [number.text or DASH, *[DASH] * (parts - 1)]
    if number.metric == "effect":
        p = number.p if number.p_adjusted is None else number.p_adjusted
        interval = f" ({points(number.low)} to {points(number.high)})" if number.low is not None else ""
        return [f"{points(number.value)}{interval}", DASH if p is None else p_value(p)]
    if number.k is None:
        decimals = 0 if number.method.startswith("count") else 2
        return [f"{number.value:.{decimals}f}"]
    interval = f" ({percent(number.low)}–{percent(number.high)})" if number.low is not None else ""
    if METRICS[number.metric].show == "percent":
        return [f"{percent(number.value)}{interval}"]
    return [f"{number.k}/{number.n}{interval}"]


def _paper(number: Number) -> str:
    """The paper's value as it prints it; an effect with its interval and p."""
    text = number.paper or DASH
    if number.metric == "effect" and number.paper:
        text = points(float(number.paper) / 100)
        if number.paper_low is not None and number.paper_high is not None:
            text += f" ({points(number.paper_low / 100)} to {points(number.paper_high / 100)})"
        if number.paper_p is not None:
            text += f", p {p_value(number.paper_p)}"
    return text


def _note(built: Built) -> str:
    """Unit, conditioning, null and method of each metric; metrics that share them are named together."""
    said: dict[str, list[str]] = {}
    for number in built.numbers:
        if not number.unit:
            continue
        text = (
            f"unit: {number.unit} (n = {number.n}); given: {number.conditioning}; {_method(number)}; "
            f"null: {number.null}"
        )
        if number.test:
            text += f"; p: {number.test}{', Holm-adjusted' if number.p_adjusted is not None else ''}"
        name = METRICS[number.metric].title if number.metric in METRICS else "effect, in percentage points"
        if name not in said.setdefault(_without_n(text), []):
            said[_without_n(text)].append(name)
    parts = [f"{', '.join(names)}: {text}." for text, names in said.items()]
    if any(n.metric == "effect" and n.low is not None and n.low == n.high for n in built.numbers):
        parts.append("An interval of zero width: every task shows the same difference, not certainty.")
    if any(n.metric == "effect" for n in built.numbers) and not any(c.holm for c in built.spec.contrasts):
        parts.append("Tests are not adjusted for their number.")
    parts += [*_trainings(built.spec.named), *filter(None, [built.spec.note])]
    if built.spec.beside_any_base:
        bases = {row[head.index("base")] for head, *rows in built.spec.paper for row in rows}
        parts.append(f"The paper's values are of {', '.join(sorted(bases))}.")
    if built.missing:
        shown = "; ".join(built.missing[:5])
        more = f" and {len(built.missing) - 5} more" if len(built.missing) > 5 else ""
        parts.append(f"Rows left out, since these have no records: {shown}{more}.")
    return " ".join(parts)


def _trainings(named: Mapping[str, Mapping[str, Label]]) -> list[str]:
    """What the trainings that a table calls by name were shown.

    >>> _trainings({"untuned": {"trained": "untuned"}, "H4 SFT": {"trained": "full", "trained_horizon": 4}})
    ['H4 SFT: trained on the view full at H4.']
    >>> _trainings({"horizon-matched": {"trained": "full", "matched": True}})
    ['horizon-matched: trained on the view full at the horizon of the test.']
    """
    said = []
    for name, labels in named.items():
        if labels.get("trained", "untuned") != "untuned":
            horizon = f" at H{labels['trained_horizon']}" if "trained_horizon" in labels else ""
            matched = " at the horizon of the test" if labels.get("matched") else ""
            said.append(f"{name}: trained on the view {labels['trained']}{horizon}{matched}.")
    return [" ".join(said)] if said else []


def _without_n(text: str) -> str:
    """Rows may differ in n alone; the counts themselves show it."""
    head, _, rest = text.partition(" (n = ")
    return head + rest[rest.index(")") + 1 :]


def _method(number: Number) -> str:
    return f"interval: {number.method}" if number.low is not None else number.method


def _summary(built: Built) -> list[Table]:
    if not built.summaries:
        return []
    spec = built.spec
    names = [name for name in spec.rows if name not in ("seed", "contrast")]
    rows = []
    for labels, each, mean, sd, crossed in built.summaries:
        interval = f"{points(crossed.low)} to {points(crossed.high)}" if crossed.low is not None else DASH
        effects = ", ".join(points(value) for value in each)
        p = DASH if crossed.p is None else p_value(crossed.p)
        first = [_label(labels[name]) for name in names]
        rows.append((*first, str(len(each)), effects, points(mean), percent(sd), interval, p))
    head = ("seeds", "each", "mean", "sample SD", "secondary: 95% interval", "secondary: p")
    return [
        Table(
            caption=f"{_source(spec.id)}, {spec.summary} over training seeds, in percentage points",
            head=(*[HEADS.get(name, name) for name in names], *head),
            rows=tuple(rows),
            note=_summary_note(built.summaries[0].crossed),
            words=len(names),
            id=f"{spec.id}-seeds",
        )
    ]


def _summary_note(crossed: Crossed) -> str:
    return (
        "Mean and sample SD: unit: training seed; given: the seeds that were run; null: none. "
        f"Secondary analysis, declared in advance: {crossed.method}; unit: {crossed.unit}; given: "
        f"{crossed.conditioning}; null: {crossed.null}. Seed-by-task outcomes are not pooled. With few seeds "
        "the interval is wide: that is what few seeds can say about others."
    )
