"""What `stsr diff` prints: a Difference in plain lines, the reasons first, then the rows.

print(text(compare(old, new)))
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from textwrap import wrap

from stsr.hub_cards.diff import Declared, Difference, Found, SplitDiff

WIDTH = 100
LINES = 14
"""Lines of a unified diff that are printed."""


def text(done: Difference) -> str:
    """The whole comparison, without a newline at its end."""
    first, second = (
        f"{repo} {version}" + ("" if name == f"v{version}" else f" ({name})")
        for repo, version, name in zip(done.repos, done.versions, done.names, strict=True)
    )
    lines = [f"{first} -> {second}", "", "Why"]
    lines += _why(done)
    lines += ["", "What", *_what(done)]
    read = " and ".join(f"{count:,}" for count in done.files_read)
    return "\n".join(
        [*lines, "", f"Read both manifests, and {read} parquet files whose rows had another hash."]
    )


def _why(done: Difference) -> Iterator[str]:
    for version, change in done.changes.items():
        yield from _item(f"{version}: {change}")
    old, new = done.generators
    yield from _item(
        f"generator version {old} -> {new}" if old != new else f"generator version {old} in both"
    )
    for declared in done.declared:
        yield from _item(_declared(declared))
    if done.unexplained:
        yield from _item(f"UNEXPLAINED: {done.unexplained}")


def _declared(declared: Declared) -> str:
    """For example "parts, h{horizon}-{view}, views: added names, block"."""
    before, after, where = declared.before, declared.after, ", ".join(declared.where.split("."))
    if isinstance(before, list) and isinstance(after, list):
        sides = (("added", after), ("removed", before))
        words = [f"{verb} {', '.join(map(str, items))}" for verb, items in sides if items]
        return f"{where}: {'; '.join(words)}"
    if before is None or after is None:
        verb, value = ("removed", before) if after is None else ("added", after)
        return f"{where}: {verb}" if isinstance(value, dict | list) else f"{where}: {verb} {_short(value)}"
    return f"{where}: {_short(before)} -> {_short(after)}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 70 else f"{text[:60]}..."


def _what(done: Difference) -> Iterator[str]:
    if done.same:
        yield from _item(f"The rows are the same: all {done.compared:,} of them.")
        return
    for verb, configs in (("added", done.configs_added), ("removed", done.configs_removed)):
        if configs:
            size = f"{_count(len(configs), 'config')} {verb} ({_count(sum(configs.values()), 'row')})"
            yield from _item(f"{size}: {', '.join(configs)}")
    for verb, splits in (("added", done.splits_added), ("removed", done.splits_removed)):
        for config, rows in splits.items():
            names = ", ".join(f"{split} ({_count(count, 'row')})" for split, count in rows.items())
            yield from _item(f"{config}: {verb} {names}")
    for verb, columns in (("added to", done.columns_added), ("removed from", done.columns_removed)):
        for column, where in columns.items():
            size = _count(len(where), "config")
            yield from _item(f"column {column} {verb} {size}, which changes no row by itself")
    for move in done.moves:
        size = _count(move.found.rows, "row")
        text = f"{move.config}: {size} moved from {move.before} to {move.after}{_examples(move.found)}"
        yield from _item(text)
    for split in done.splits:
        yield from _split(split)
    yield from _item(_totals(done))
    if done.sample:
        yield from ["", f"{done.sample.column} of {done.sample.row_id}:"]
        yield from (f"  {line}" for line in done.sample.lines[:LINES])
        if len(done.sample.lines) > LINES:
            yield f"  ... and {len(done.sample.lines) - LINES} more lines"


def _split(split: SplitDiff) -> Iterator[str]:
    """A line for the split, and under it what differs in its rows."""
    counts = (("changed", split.changed), ("added", split.added), ("removed", split.removed))
    words = [f"{found.rows:,} {verb}" for verb, found in counts if found.rows]
    words += ["the same rows in another order"] if split.reordered else []
    of = f" of {_count(split.rows, 'row')} now" if split.rows else ""
    yield from _item(f"{split.config}, {split.split}: {', '.join(words)}{of}")
    for column, found in split.columns.items():
        yield from _item(f"{column} differs in {_count(found.rows, 'row')}{_examples(found)}", 4)
    for verb, found in counts[1:]:
        if found.rows:
            yield from _item(f"{verb}{_examples(found)}", 4)


def _totals(done: Difference) -> str:
    def rows(found: Iterable[Found]) -> int:
        return sum(one.rows for one in found)

    changed = rows(split.changed for split in done.splits)
    added = rows(split.added for split in done.splits)
    removed = rows(split.removed for split in done.splits)
    moved = rows(move.found for move in done.moves)
    return (
        f"in all: {changed:,} rows changed, {added:,} added, {removed:,} removed, {moved:,} moved, in splits "
        f"that both versions have, of {done.compared:,} rows now"
    )


def _examples(found: Found) -> str:
    return ", as " + ", ".join(found.examples)


def _count(number: int, noun: str) -> str:
    """
    >>> _count(1, "row"), _count(3200, "row")
    ('1 row', '3,200 rows')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _item(text: str, indent: int = 2) -> list[str]:
    return wrap(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
