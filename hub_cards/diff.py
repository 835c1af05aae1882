"""`stsr diff`: which rows changed between two versions of a data set, and why.

    done = compare(open_version("v1.0.0", "stsr/table-workflows"), open_version("out/new", ""))
    print(done.changes, done.splits)

A version is a folder that `stsr build` left, or a revision of a repository at HF_ENDPOINT, which needs no
account if it is public. Manifests are read first, then the parquet files whose rows have another hash.

Invariants: within a config a row is known by its id. A row counts as changed if a column that both versions
have differs; a column that one of them lacks is reported once. Memory holds the rows that moved or are on one
side only, never a whole split.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError

from stsr.generators.build import SCHEMA, Manifest, config_rows, files_of
from stsr.hub_cards.publish import LOOPBACK_TOKEN, fetch_revision, is_loopback
from stsr.hub_cards.publishable import PublishError

EXAMPLES = 3
"""Ids named for each kind of change."""
BATCH = 1000


class DiffError(ValueError):
    """Two versions that cannot be compared; the message is one line for a person."""


class Version(NamedTuple):
    """One side of a comparison."""

    name: str
    """As the user called it: a revision or a folder."""
    manifest: Manifest
    fetch: Callable[[Collection[str]], Path]
    """Paths of parquet files -> a folder that holds them."""


@dataclass(frozen=True)
class Declared:
    """One difference between the declarations; a value that one of them lacks is None."""

    where: str
    """Path of the key, for example "parts.h{horizon}-{view}.views"."""
    before: Any
    after: Any
    """Of two lists of words or numbers, only what the other lacks; all, if just the order differs."""


@dataclass
class Found:
    """Something that holds of several rows."""

    rows: int = 0
    examples: list[str] = field(default_factory=list)
    """Ids of the first few."""

    def add(self, row_id: str) -> None:
        """Counts one more row."""
        self.rows += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(row_id)


@dataclass
class SplitDiff:
    """What became of the rows of a split that both versions have."""

    config: str
    split: str
    rows: int
    """Rows in the new version; 0 for a split that only one has, which is listed for what moved there."""
    added: Found = field(default_factory=Found)
    removed: Found = field(default_factory=Found)
    changed: Found = field(default_factory=Found)
    columns: dict[str, Found] = field(default_factory=dict)
    """Column -> changed rows in which it differs."""
    reordered: bool = False
    """Whether rows stand in another order; told only if none was added or removed."""


@dataclass(frozen=True)
class Move:
    """Rows of one config that are in another split now."""

    config: str
    before: str
    after: str
    found: Found


@dataclass(frozen=True)
class Sample:
    """One changed row in full: the unified diff of one of its columns."""

    row_id: str
    column: str
    lines: list[str]


@dataclass
class Difference:
    """All that differs between two versions."""

    repos: tuple[str, str]
    names: tuple[str, str]
    """The versions as the user called them."""
    versions: tuple[str, str]
    generators: tuple[str, str]
    changes: dict[str, str]
    """Version -> what it changed, where the declarations do not agree on it."""
    declared: list[Declared]
    configs_added: dict[str, int]
    """Config -> rows."""
    configs_removed: dict[str, int]
    splits_added: dict[str, dict[str, int]] = field(default_factory=dict)
    """Config -> split -> rows, for configs that both have."""
    splits_removed: dict[str, dict[str, int]] = field(default_factory=dict)
    columns_added: dict[str, list[str]] = field(default_factory=dict)
    """Column -> configs that have gained it."""
    columns_removed: dict[str, list[str]] = field(default_factory=dict)
    splits: list[SplitDiff] = field(default_factory=list)
    """Splits that both have and whose rows differ."""
    moves: list[Move] = field(default_factory=list)
    sample: Sample | None = None
    compared: int = 0
    """Rows of the new version in splits that both have."""
    files_read: tuple[int, int] = (0, 0)

    @property
    def same(self) -> bool:
        """Whether both have the same configs, splits, columns and rows, whatever else they say."""
        return not (
            self.configs_added
            or self.configs_removed
            or self.splits_added
            or self.splits_removed
            or self.columns_added
            or self.columns_removed
            or self.splits
            or self.moves
        )

    @property
    def unexplained(self) -> str:
        """Why the manifests cannot account for the rows; "" if they can.

        What a row says is the generator's, but for the canary; which rows there are, the declaration's too.
        """
        if self.generators[0] != self.generators[1]:
            return ""
        columns = {column for split in self.splits for column in split.columns} - {"canary"}
        if columns:
            return f"rows differ in {', '.join(sorted(columns))}, but the generator version is the same"
        if not self.declared and not self.same:
            return "the data differ, but generator version and declaration are the same"
        return ""

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {"schema": "stsr.diff/1", "same": self.same, "unexplained": self.unexplained, **asdict(self)}


# -- versions


def open_version(name: str, repo: str) -> Version:
    """The build in the folder `name`, or else the revision `name` of the data set `repo`.

    Raises DiffError: neither exists (it names the tags and branches that do), or stsr did not build it.
    """
    if Path(name).is_dir():
        return Version(name, _manifest(Path(name), name), lambda paths: Path(name))
    try:
        commit = fetch_revision(repo, "dataset", name)
    except PublishError as error:
        raise DiffError(f"{name} is not a folder, and {error}") from error
    endpoint = constants.ENDPOINT
    api = HfApi(endpoint=endpoint, token=LOOPBACK_TOKEN if is_loopback(endpoint) else None)

    def fetch(paths: Collection[str]) -> Path:
        try:
            got = api.snapshot_download(
                repo, repo_type="dataset", revision=commit, allow_patterns=list(paths)
            )
        except (HfHubHTTPError, httpx2.HTTPError, OSError, RuntimeError, ValueError) as error:
            raise DiffError(f"{repo} at {name} cannot be read: {' '.join(str(error).split())}") from error
        return Path(got)

    return Version(name, _manifest(fetch(["manifest.json"]), f"{repo} at {name}"), fetch)


def _manifest(folder: Path, where: str) -> Manifest:
    try:
        manifest: Manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DiffError(f"{where} has no manifest.json, so it is not a data set that stsr built") from None
    except ValueError as error:
        raise DiffError(f"{where}: manifest.json is not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise DiffError(f"{where}: manifest.json does not have the schema {SCHEMA}")
    return manifest


# -- comparing


def compare(old: Version, new: Version) -> Difference:
    """Everything that differs. Reads the parquet files that the manifests cannot decide about."""
    before, after = old.manifest, new.manifest
    declarations = before["declaration"], after["declaration"]
    told = [declaration["changes"] for declaration in declarations]
    done = Difference(
        repos=(before["repo"], after["repo"]),
        names=(old.name, new.name),
        versions=(before["version"], after["version"]),
        generators=(before["generator_version"], after["generator_version"]),
        changes={
            version: text
            for version, text in {**told[0], **told[1]}.items()
            if told[0].get(version) != told[1].get(version)
        },
        declared=list(_declared(*declarations)),
        configs_added=_one_sided(after, before),
        configs_removed=_one_sided(before, after),
    )
    plan = list(_plan(before, after, done))
    paths = [[path for step in plan for path in step.paths[side]] for side in (0, 1)]
    done.files_read = (len(paths[0]), len(paths[1]))
    folders = (
        old.fetch(paths[0]) if paths[0] else Path(),
        new.fetch(paths[1]) if paths[1] else Path(),
    )
    for config in dict.fromkeys(step.config for step in plan):
        _compare_config([step for step in plan if step.config == config], folders, done)
    return done


def _one_sided(these: Manifest, others: Manifest) -> dict[str, int]:
    return {
        config: sum(config_rows(these, config, split) for split in splits)
        for config, splits in these["configs"].items()
        if config not in others["configs"]
    }


def _declared(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> Iterator[Declared]:
    """Differences between two declarations, but for the version and its history."""
    for key in dict.fromkeys([*old, *new]):
        before, after, at = old.get(key), new.get(key), f"{where}{key}"
        if before == after or at in ("version", "changes"):
            continue
        if isinstance(before, list) and isinstance(after, list):
            if any(isinstance(item, dict) for item in [*before, *after]):
                before, after = _by_name(before), _by_name(after)
            else:
                gone = [item for item in before if item not in after]
                come = [item for item in after if item not in before]
                before, after = (gone, come) if gone or come else (before, after)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _declared(before, after, f"{at}.")
        else:
            yield Declared(at, before, after)


def _by_name(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Parts and mixtures by their config, splits by their name."""
    return {str(item.get("config") or item.get("name")): item for item in items}


class _Step(NamedTuple):
    """A split to look into, with the files whose rows differ on each side; one side can lack the split."""

    config: str
    split: str
    paths: tuple[list[str], list[str]]
    rows: int
    both: bool


def _plan(before: Manifest, after: Manifest, done: Difference) -> Iterator[_Step]:
    """Splits to read. Enters in `done` what the manifests say by themselves."""
    moved = {
        split
        for task, facts in before["tasks"].items()
        if (its := after["tasks"].get(task)) and its["split"] != facts["split"]
        for split in (its["split"], facts["split"])
    }
    hashes = [{path: facts["rows_sha256"] for path, facts in files_of(side)} for side in (before, after)]
    for config, old_splits in before["configs"].items():
        new_splits = after["configs"].get(config)
        for split in dict.fromkeys([*old_splits, *(new_splits or ())]) if new_splits else ():
            old_paths, new_paths = old_splits.get(split, []), new_splits.get(split, [])
            known = [{hashes[0][path] for path in old_paths}, {hashes[1][path] for path in new_paths}]
            paths = (
                [path for path in old_paths if hashes[0][path] not in known[1]],
                [path for path in new_paths if hashes[1][path] not in known[0]],
            )
            if split not in new_splits:
                done.splits_removed.setdefault(config, {})[split] = config_rows(before, config, split)
            elif split not in old_splits:
                done.splits_added.setdefault(config, {})[split] = config_rows(after, config, split)
            else:
                rows = config_rows(after, config, split)
                done.compared += rows
                if paths[0] or paths[1]:
                    yield _Step(config, split, paths, rows, True)
                continue
            if split in moved:
                yield _Step(config, split, paths, 0, False)


Rows = dict[str, tuple[str, dict[str, Any]]]
"""Row id -> (split, row)."""


def _compare_config(steps: list[_Step], folders: tuple[Path, Path], done: Difference) -> None:
    """Compares the splits of one config, then sees which rows have moved between them."""
    gone: Rows = {}
    come: Rows = {}
    diffs: dict[str, SplitDiff] = {}
    for step in steps:
        diff = diffs[step.split] = SplitDiff(step.config, step.split, step.rows)
        left, right = (_batches(folders[side], step.paths[side]) for side in (0, 1))
        old_rows, new_rows = _match(left, right, diff, done)
        gone.update({row_id: (step.split, row) for row_id, row in old_rows.items()})
        come.update({row_id: (step.split, row) for row_id, row in new_rows.items()})
    moves: dict[tuple[str, str], Found] = {}
    for row_id in [row_id for row_id in gone if row_id in come]:
        (before, row), (after, twin) = gone.pop(row_id), come.pop(row_id)
        moves.setdefault((before, after), Found()).add(row_id)
        _tally(row, twin, diffs[after], done)
    done.moves += [Move(steps[0].config, *ends, found) for ends, found in moves.items()]
    kept = {step.split for step in steps if step.both}  # others are counted as splits, not row by row
    for row_id, (split, _) in gone.items():
        if split in kept:
            diffs[split].removed.add(row_id)
    for row_id, (split, _) in come.items():
        if split in kept:
            diffs[split].added.add(row_id)
    touched = {split for ends in moves for split in ends}
    for split, diff in diffs.items():
        if diff.added.rows or diff.removed.rows or split in touched:
            diff.reordered = False
        if diff.added.rows or diff.removed.rows or diff.changed.rows or diff.reordered:
            done.splits.append(diff)


def _batches(folder: Path, paths: list[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        yield from pq.ParquetFile(folder / path).iter_batches(batch_size=BATCH)


def _match(
    old: Iterator[pa.RecordBatch], new: Iterator[pa.RecordBatch], diff: SplitDiff, done: Difference
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Pairs the rows of a split and counts those that differ. Returns the rows of either side without a twin.

    Both sides are read in step. While they run alike whole batches are compared, and nothing is kept.
    """
    waiting: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    read = [0, 0]
    for batches in zip_longest(old, new):
        if batches[0] is not None and batches[1] is not None:
            shared = _columns(*batches, diff.config, done)
            if batches[0].select(shared).equals(batches[1].select(shared)):
                read = [count + batches[0].num_rows for count in read]
                continue
        for side, batch in enumerate(batches):
            for row in batch.to_pylist() if batch is not None else ():
                read[side] += 1
                if (twin := waiting[1 - side].pop(row["id"], None)) is None:
                    waiting[side][row["id"]] = (read[side], row)
                    continue
                diff.reordered |= twin[0] != read[side]
                _tally(*((row, twin[1]) if side == 0 else (twin[1], row)), diff, done)
    left, right = ({row_id: row for row_id, (_, row) in rows.items()} for rows in waiting)
    return left, right


def _columns(old: pa.RecordBatch, new: pa.RecordBatch, config: str, done: Difference) -> list[str]:
    """Columns that both have; enters the others in `done`."""
    names = old.schema.names, new.schema.names
    for these, others, noted in ((*names, done.columns_removed), (*names[::-1], done.columns_added)):
        for column in these:
            if column not in others and config not in noted.setdefault(column, []):
                noted[column].append(config)
    return [column for column in names[0] if column in names[1]]


def _tally(old: dict[str, Any], new: dict[str, Any], diff: SplitDiff, done: Difference) -> None:
    """Counts a row that both have if a column differs."""
    differing = [column for column in old if column in new and old[column] != new[column]]
    if not differing:
        return
    diff.changed.add(old["id"])
    for column in differing:
        diff.columns.setdefault(column, Found()).add(old["id"])
    column = "prompt" if "prompt" in differing else differing[0]
    if done.sample is None or (done.sample.column != "prompt" and column == "prompt"):
        lines = difflib.unified_diff(_lines(old[column]), _lines(new[column]), "old", "new", "", "", 1, "")
        done.sample = Sample(old["id"], column, list(lines)[2:])


def _lines(value: Any) -> list[str]:
    """A column's value as lines: messages and JSON opened up, else one line."""
    if isinstance(value, list) and all(isinstance(item, dict) and "content" in item for item in value):
        return [line for message in value for line in message["content"].splitlines()]
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
        return [f"{key}: {json.dumps(value[key])}" for key in sorted(value)]
    return [value if isinstance(value, str) else json.dumps(value)]
