"""`stsr adapters`: results on an adapter's card, and the proof of a published adapter in words."""

from __future__ import annotations

from pathlib import Path

from stsr.cli.evaluating import split_revision
from stsr.eval_tasks.records import Cell
from stsr.hub_cards.adapter_card import CardError, Result, add_results
from stsr.hub_cards.pins import Pin, pin
from stsr.hub_cards.publish import Published
from stsr.stats.estimators import wilson
from stsr.stats.outcomes import Outcome
from stsr.stats.reading import read

MEASURES = {
    "oracle_prefix": "decisions after a gold prefix",
    "free_run": "free runs",
    "choice": "choices by likelihood",
    "matched_error": "free runs after an injected error",
}
"""Kind of evaluation -> what its k of n counts."""


def card(repo: str, records: Path, tag: str, public: bool, yes: bool) -> Published:
    """Puts the results of `repo` at `tag` in the records below `records` on its card, as one more commit.

    Raises CardError if there are none.
    """
    outcomes = read(sorted(records.rglob("*.jsonl")))
    revisions = {row.cell.adapter_revision for row in outcomes if row.cell.adapter == repo}
    if not revisions:
        known = sorted({row.cell.adapter for row in outcomes} - {""})
        raise CardError(f"{records} holds no records of {repo}; there are {', '.join(known) or 'none'}")
    commit = pin(repo, tag, "model").revision
    if commit not in revisions:
        raise CardError(
            f"{records} holds no records of {repo} at {tag}, commit {commit}; there are "
            f"{', '.join(sorted(revisions))}"
        )
    cells: dict[tuple[str, Cell], list[Outcome]] = {}
    for row in outcomes:
        if (row.cell.adapter, row.cell.adapter_revision) == (repo, commit):
            cells.setdefault((row.kind, row.cell), []).append(row)
    results = [_result(kind, cell, rows) for (kind, cell), rows in cells.items()]
    return add_results(repo, results, commit, tag=tag, public=public, yes=yes)


def _result(kind: str, cell: Cell, rows: list[Outcome]) -> Result:
    right = sum(bool(row.agree if row.success is None else row.success) for row in rows)
    found = wilson(right, len(rows))
    tasks = cell.tasks.removeprefix("chain ")
    condition = f" {cell.condition}" if cell.condition else ""
    return Result(
        cell=f"{tasks}{condition}, {cell.view} view: {MEASURES[kind]}",
        k=found.k,
        n=found.n,
        low=found.low,
        high=found.high,
        data=Pin(cell.data, cell.data_revision),
        split=cell.split,
    )


def verify(name: str, device: str) -> str:
    """What proving the adapter `name` (ID, ID@REVISION or a folder) again showed, as a line.

    Raises ValueError for an unknown device, AdapterError or PinError, see `adapter_release.verify`.
    """
    from stsr.hub_cards import adapter_release, bases  # torch and peft are needed for this alone

    bases.check_device(device)
    done = adapter_release.verify(*split_revision(name), device)
    return (
        f"{done.source.source} at {done.source.revision}: {done.proof.keys} weights, none missing, none "
        f"unexpected, no pickle. On {done.base.source} in {done.precision} it moves a logit by up to "
        f"{done.proof.effect:.4g}; its card says {done.stated:.4g}."
    )
