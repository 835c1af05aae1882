"""Reading the published data set: one split of one config, and whole tasks by id.

Invariant: an unknown config, split or revision is one error that names the alternatives, and a task is used
only if its definition gives the fingerprint that was published with it.
"""

from __future__ import annotations

from pathlib import Path

import datasets
from datasets.exceptions import DatasetNotFoundError

from stsr.generators.tasks import Task, from_json
from stsr.hub_cards.pins import pin, refuse_revision_of_folder


class DataError(ValueError):
    """Data that is not there or contradicts itself. The message names the alternatives or the id."""


def load_split(source: str, config: str, split: str, revision: str | None) -> datasets.Dataset:
    """The rows of one split. `source` is a Hub id or a folder whose README lists its configs.

    Raises DataError for an unknown config or split, PinError for an unknown source or revision.
    """
    if Path(source).is_dir():
        refuse_revision_of_folder(source, revision)
    try:
        loaded = datasets.load_dataset(source, config, revision=revision)
    except DatasetNotFoundError as error:
        pin(source, revision, "dataset")  # says what is wrong with source or revision, if it is that
        raise DataError(f"{source}: {error}") from error
    except ValueError as error:
        known = datasets.get_dataset_config_names(source, revision=revision)
        if config in known:
            raise
        raise DataError(f"{source}: no config {config!r}; there are {', '.join(known)}") from error
    if split not in loaded:
        raise DataError(f"{source}, {config}: no split {split!r}; there are {', '.join(loaded)}")
    return loaded[split]


def tasks_by_id(rows: datasets.Dataset) -> dict[str, Task]:
    """Task id -> task, from the rows of a `tasks` config. Raises DataError for a wrong fingerprint."""
    tasks = {}
    for row in rows:
        task = from_json(row["id"], row["definition"])
        if task.fingerprint != row["fingerprint"]:
            raise DataError(
                f"{task.id}: the definition has fingerprint {task.fingerprint}, "
                f"published with it is {row['fingerprint']}"
            )
        tasks[task.id] = task
    return tasks
