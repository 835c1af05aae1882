"""What a build checks: no task in two splits, views in pairs, lengths under the declared tokenizers.

Each check raises BuildError that names the id or file.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from stsr.generators.dataset import Declaration
from stsr.generators.errors import BuildError
from stsr.generators.parquet import DECISION_SCHEMA, ROW_GROUP
from stsr.generators.tables import Table
from stsr.generators.tasks import Task, candidates
from stsr.generators.tokens import count
from stsr.generators.views import ID_VIEWS, filler

FILLER_TOLERANCE = 0.02
"""`compact-filler` may differ from `full` by this share of the tokens."""


class Owners:
    """Which split each task's content belongs to."""

    def __init__(self) -> None:
        self._owner: dict[str, tuple[str, str]] = {}

    def claim(self, fingerprint: str, split: str, task_id: str) -> None:
        """Enters a task. Raises BuildError if its content is there under another id or split."""
        other = self._owner.setdefault(fingerprint, (split, task_id))
        if other != (split, task_id):
            raise BuildError(
                f"{task_id} in {split} equals {other[1]} in {other[0]} (fingerprint {fingerprint})"
            )


def check_choice_lengths(task: Task, tokenizer: str) -> None:
    """Both candidates at the pivotal stage of a task with a goal must have equally many tokens."""
    if not task.goal:
        return
    lengths = [_tokens(tokenizer, recipe.text) for recipe in candidates(task, task.pivot).shown]
    if len(set(lengths)) > 1:
        raise BuildError(
            f"{task.id}: the candidates at stage {task.pivot} have {lengths} tokens under {tokenizer}"
        )


def check_filler(task: Task, tokenizer: str) -> None:
    """Over a task's tables, inert text must be as long as the contents that it replaces."""
    pairs = [_filled(tokenizer, table) for table in task.gold_tables.values()]
    own, inert = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    if abs(own - inert) > FILLER_TOLERANCE * own:
        raise BuildError(f"{task.id}: compact-filler has {inert} tokens for {own} of full under {tokenizer}")


def _filled(tokenizer: str, table: Table) -> tuple[int, int]:
    return _tokens(tokenizer, table.text), _tokens(tokenizer, filler(table))


@lru_cache(maxsize=10_000)
def _tokens(tokenizer: str, text: str) -> int:
    return count(tokenizer)(text)


def check_pairs(folder: Path, declaration: Declaration, manifest: dict[str, Any]) -> None:
    """Reads the files back: the views of a part must agree in every column but id, view and prompt.

    `completion` may differ as well for a view that asks for an id.
    """
    for part in declaration.parts:
        shapes = {(h, v) for h in part.horizons for v in part.chosen_variants}
        names = {tuple(part.config_name(h, v, name) for name in part.views) for h, v in shapes}
        for configs in sorted(names):
            for config, name in zip(configs[1:], part.views[1:], strict=True):
                for split, paths in manifest["configs"][config].items():
                    first = manifest["configs"][configs[0]][split]
                    for one, other in zip(first, paths, strict=True):
                        _check_pair(folder, one, other, _shared(name))


def _shared(view_name: str) -> list[str]:
    own = {"id", "view", "prompt", *(["completion"] if view_name in ID_VIEWS else [])}
    return [column for column in DECISION_SCHEMA.names if column not in own]


def _check_pair(folder: Path, first: str, other: str, columns: list[str]) -> None:
    files = [
        pq.ParquetFile(folder / path).iter_batches(batch_size=ROW_GROUP, columns=columns)
        for path in (first, other)
    ]
    for a, b in zip_longest(*files):
        if a is None or b is None or a.num_rows != b.num_rows:
            raise BuildError(f"{other} has another number of rows than {first}")
        for column in columns:
            if a[column] != b[column]:
                raise BuildError(f"{other}: {column} differs from {first}")
