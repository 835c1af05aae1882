"""The exposure audit: which rows a run was shown, in which order, and how many tokens they had.

    steps = read(Path("out/tiny-h4-full/adapter/exposure.jsonl"))
    print(table([Path("out/tiny-h4-full")]))                 # stsr adapters exposure out/tiny-h4-full

Invariant: a line is what one optimizer step consumed, counted on the very batches that the loss saw (what was
merely prefetched is not in it), so an interrupted and an uninterrupted run leave the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

import torch

from stsr.generators.declaration import DeclarationError


class Step(NamedTuple):
    """One optimizer step."""

    step: int
    """Number of the step, from 1."""
    rows: tuple[str, ...]
    """Row ids in the order presented."""
    input_tokens: int
    """Tokens of those rows, padding not counted."""
    supervised_tokens: int
    """Tokens that carry loss: completions with their end of turn."""


class Summary(TypedDict):
    """`exposure.json`: the audit in numbers."""

    rows: int
    """Rows of the training set."""
    distinct_rows: int
    """Rows presented at least once."""
    presentations: int
    """Rows presented, repeats counted."""
    workflows: int
    """Tasks that at least one presented row comes from."""
    input_tokens: int
    supervised_tokens: int
    longest_row: int
    """Tokens of the longest row of the training set."""
    order_sha256: str
    """Hash of the decisions in order, see `order_sha256`."""


def write(path: Path, steps: Sequence[Step]) -> None:
    """One JSON line a step."""
    path.write_text("".join(json.dumps(step._asdict()) + "\n" for step in steps), encoding="utf-8")


COLUMNS = {
    "training rows": "rows",
    "presentations": "presentations",
    "distinct rows": "distinct_rows",
    "workflows": "workflows",
    "input tokens": "input_tokens",
    "supervised tokens": "supervised_tokens",
    "longest row": "longest_row",
}
"""Heading -> key of `exposure.json`, in the order of table 12 of the paper."""


def table(runs: Sequence[Path]) -> str:
    """A Markdown table of the audits of finished runs, one a line.

    Raises DeclarationError for a folder that holds none.
    """
    lines = ["| run | " + " | ".join(COLUMNS) + " | row order |", "|---" * (len(COLUMNS) + 2) + "|"]
    for run in runs:
        path = run / "adapter" / "exposure.json"
        if not path.exists():
            raise DeclarationError(f"{run} holds no finished training: there is no {path}")
        audit = json.loads(path.read_text(encoding="utf-8"))
        numbers = " | ".join(f"{audit[key]:,}" for key in COLUMNS.values())
        lines.append(f"| {run.name} | {numbers} | {audit['order_sha256'][:12]} |")
    return "\n".join(lines)


def read(path: Path) -> list[Step]:
    """The steps of a log that `write` left."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Step(line["step"], tuple(line["rows"]), line["input_tokens"], line["supervised_tokens"])
        for line in lines
    ]


def row_order(rows: int, presentations: int, data_seed: int) -> list[int]:
    """Indices of the first `presentations` rows that Trainer presents: one seeded permutation an epoch.

    Source: accelerate's SeedableRandomSampler, which seeds epoch k with data_seed + k. Data seeds that are
    neighbours therefore share epochs: space them widely.
    """
    order: list[int] = []
    for epoch in range(-(-presentations // rows)):
        generator = torch.Generator().manual_seed(data_seed + epoch)
        order += torch.randperm(rows, generator=generator).tolist()
    return order[:presentations]


def order_sha256(row_ids: Sequence[str]) -> str:
    """SHA-256 over the ids in order, one a line, without `@view`: equal for the views of a pair.

    >>> order_sha256(["chain-h4/1#2@full"]) == order_sha256(["chain-h4/1#2@compact"])
    True
    """
    return hashlib.sha256("\n".join(row_id.rpartition("@")[0] for row_id in row_ids).encode()).hexdigest()


def summarise(steps: Sequence[Step], tasks: Mapping[str, str], longest_row: int) -> Summary:
    """The audit in numbers. `tasks` maps the id of each training row to its task's id."""
    presented = [row for step in steps for row in step.rows]
    return {
        "rows": len(tasks),
        "distinct_rows": len(set(presented)),
        "presentations": len(presented),
        "workflows": len({tasks[row] for row in presented}),
        "input_tokens": sum(step.input_tokens for step in steps),
        "supervised_tokens": sum(step.supervised_tokens for step in steps),
        "longest_row": longest_row,
        "order_sha256": order_sha256(presented),
    }
