"""`stsr adapters`: results on an adapter's card, and the proof of a published adapter in words."""

from __future__ import annotations

from pathlib import Path

from stsr.hub_cards.adapter_card import CardError, Result, add_results
from stsr.hub_cards.pins import Pin
from stsr.hub_cards.publish import Published
from stsr.stats.cells import AnyCell, load

MEASURES = {"oracle_prefix": "decisions after a gold prefix", "free_run": "free runs"}
"""Kind of evaluation -> what its k of n counts."""


def card(repo: str, records: Path, tag: str, public: bool, yes: bool) -> Published:
    """Puts the results of `repo` in the records below `records` on its card, as one more commit on main.

    Raises CardError if there are none, or if they are of two revisions of the adapter.
    """
    cells = load(sorted(records.rglob("*.jsonl")))
    mine = [cell for cell in cells if cell.cell.adapter == repo]
    if not mine:
        known = sorted({cell.cell.adapter for cell in cells} - {""})
        raise CardError(f"{records} holds no records of {repo}; there are {', '.join(known) or 'none'}")
    commits = sorted({cell.cell.adapter_revision for cell in mine})
    if len(commits) > 1:
        raise CardError(
            f"{records} holds records of {repo} at {len(commits)} revisions: {', '.join(commits)}"
        )
    return add_results(repo, [_result(cell) for cell in mine], commits[0], tag=tag, public=public, yes=yes)


def _result(cell: AnyCell) -> Result:
    where, found = cell.cell, cell.headline
    family = "" if where.family == "chain" else f"{where.family} "
    condition = f" {where.condition}" if where.condition else ""
    return Result(
        cell=f"{family}H{where.horizon}{condition}, {where.view} view: {MEASURES[cell.kind]}",
        k=found.k,
        n=found.n,
        low=found.low,
        high=found.high,
        data=Pin(where.data, where.data_revision),
        split=where.split,
    )


def verify(name: str, device: str) -> str:
    """What proving the adapter `name` (ID, ID@REVISION or a folder) again showed, as a line.

    Raises AdapterError or PinError, see `adapter_release.verify`.
    """
    from stsr.hub_cards import adapter_release  # torch and peft are needed for this alone

    source, _, revision = name.partition("@")
    done = adapter_release.verify(source, revision or None, device)
    return (
        f"{done.source.source} at {done.source.revision}: {done.proof.keys} weights, none missing, none "
        f"unexpected, no pickle. On {done.base.source} in {done.precision} it moves a logit by up to "
        f"{done.proof.effect:.4g}; its card says {done.stated:.4g}."
    )
