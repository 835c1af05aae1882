"""Builds a data set from its declaration: parquet configs, task configs, card and manifest.

    stsr build recipes/datasets/table-workflows.yaml --out out/table-workflows

Invariants: the same declaration gives the same rows on any machine, and the same files under the same
pyarrow; no task occurs in two splits; every gold path replays; two views of a decision differ in the prompt
only. A folder is either whole or absent: work happens beside it and is renamed at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from stsr.generators.declaration import DeclarationError, load
from stsr.generators.files import file_sha256
from stsr.generators.rows import GENERATORS, Row, decision_rows, generate, task_row
from stsr.generators.tasks import GENERATOR_VERSION, Task
from stsr.generators.views import view

ROW_GROUP = 1000
"""Rows a parquet row group: a few hundred kilobytes of prompts, which the Hub's viewer pages through."""


class BuildError(RuntimeError):
    """A build that must not go on; the message is one line for a person."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """One split: `tasks` consecutive seeds from `first_seed`, at each of `horizons`."""

    name: str
    purpose: str
    first_seed: int
    tasks: int
    horizons: tuple[int, ...]

    @property
    def seeds(self) -> range:
        """The seeds of the split."""
        return range(self.first_seed, self.first_seed + self.tasks)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The keys of a data set declaration; all are required."""

    repo: str
    version: str
    title: str
    family: str
    horizons: tuple[int, ...]
    views: tuple[str, ...]
    splits: tuple[Split, ...]

    def __post_init__(self) -> None:
        if self.family not in GENERATORS:
            raise DeclarationError(f"unknown family {self.family!r}; there are {', '.join(GENERATORS)}")
        for name in self.views:
            view(name)
        names = [split.name for split in self.splits]
        if len(set(names)) != len(names):
            raise DeclarationError(f"a split name occurs twice in {', '.join(names)}")
        for split in self.splits:
            extra = sorted(set(split.horizons) - set(self.horizons))
            if extra:
                raise DeclarationError(
                    f"split {split.name}: horizon {extra[0]} is not among {list(self.horizons)}"
                )
            if split.tasks < 1:
                raise DeclarationError(f"split {split.name}: needs at least one task")

    @property
    def tag(self) -> str:
        """The Hub tag of this version, for example "v1.0.0"."""
        return f"v{self.version}"


def read_declaration(path: Path) -> Declaration:
    """The declaration in a YAML file. Raises DeclarationError, one line, for anything wrong in it."""
    try:
        return load(Declaration, path)
    except DeclarationError:
        raise
    except ValueError as error:
        raise DeclarationError(f"{path}: {error}") from error


Manifest = dict[str, Any]


def build(declaration: Declaration, out: Path, card: Callable[[Manifest], str]) -> Manifest:
    """Builds into `out` and returns the manifest; does nothing if `out` holds this very build already.

    `card` writes README.md from the manifest. Raises BuildError if `out` holds anything else, if a task
    occurs in two splits, or if a gold path fails.
    """
    existing = _existing(declaration, out)
    if existing is not None:
        return existing
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    manifest: Manifest = {
        "schema": "stsr.manifest/1",
        "repo": declaration.repo,
        "version": declaration.version,
        "generator_version": GENERATOR_VERSION,
        "declaration": json.loads(json.dumps(asdict(declaration))),
        "configs": {},
        "tasks": {},
    }
    owner: dict[str, tuple[str, str]] = {}
    total = sum(split.tasks * len(split.horizons) for split in declaration.splits)
    with tqdm(total=total, unit="task", desc="build") as bar:
        for horizon in declaration.horizons:
            for split in declaration.splits:
                if horizon in split.horizons:
                    tasks = _tasks(declaration, split, horizon, owner, bar)
                    _write_split(partial, declaration, split.name, horizon, tasks, manifest)
    check_pairs(partial, declaration)
    (partial / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    (partial / "README.md").write_text(card(manifest), encoding="utf-8")
    if out.exists():
        out.rmdir()  # empty, or _existing would have raised
    os.replace(partial, out)
    return manifest


def _existing(declaration: Declaration, out: Path) -> Manifest | None:
    if not out.exists() or not any(out.iterdir()):
        return None
    try:
        manifest: Manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
        version, declared, generator = (manifest[k] for k in ("version", "declaration", "generator_version"))
    except (OSError, ValueError, KeyError):
        raise BuildError(f"{out} is not empty and holds no built data set; choose another folder") from None
    if version != declaration.version:
        raise BuildError(f"{out} holds version {version}, not {declaration.version}; choose another folder")
    if declared != json.loads(json.dumps(asdict(declaration))) or generator != GENERATOR_VERSION:
        raise BuildError(f"{out} holds version {version} built from another declaration; bump the version")
    for path, facts in files_of(manifest):
        if not (out / path).exists() or file_sha256(out / path) != facts["sha256"]:
            raise BuildError(f"{out / path} is missing or was changed; delete {out} and build again")
    return manifest


def files_of(manifest: Manifest) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, {"rows", "sha256", "rows_sha256"}) of every parquet file of a build."""
    for config, splits in manifest["configs"].items():
        for split, facts in splits.items():
            yield f"{config}/{split}.parquet", facts


def _tasks(
    declaration: Declaration, split: Split, horizon: int, owner: dict[str, tuple[str, str]], bar: tqdm[Any]
) -> Iterator[Task]:
    for seed in split.seeds:
        task = generate(declaration.family, horizon, seed)
        other = owner.setdefault(task.fingerprint, (split.name, task.id))
        if other != (split.name, task.id):
            raise BuildError(
                f"{task.id} in {split.name} equals {other[1]} in {other[0]} (fingerprint {task.fingerprint})"
            )
        yield task
        bar.update()


def _write_split(
    folder: Path,
    declaration: Declaration,
    split: str,
    horizon: int,
    tasks: Iterator[Task],
    manifest: Manifest,
) -> None:
    """Streams one split of one horizon into its files and enters them in the manifest."""
    schemas = {f"h{horizon}-{name}": DECISION_SCHEMA for name in declaration.views}
    schemas[f"h{horizon}-tasks"] = TASK_SCHEMA
    with ExitStack() as stack:
        files = {
            config: stack.enter_context(_Writer(folder / config / f"{split}.parquet", schema))
            for config, schema in schemas.items()
        }
        for task in tasks:
            manifest["tasks"][task.id] = {"fingerprint": task.fingerprint, "split": split}
            files[f"h{horizon}-tasks"].add(task_row(task))
            for row in decision_rows(task, declaration.views):
                files[f"h{horizon}-{row['view']}"].add(row)
    for config, file in files.items():
        manifest["configs"].setdefault(config, {})[split] = file.facts


class _Writer:
    """A parquet file that is written a row group at a time; `facts` describe it once it is closed."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.schema, self.rows = path, schema, 0
        self.buffer: list[Row] = []
        self.content = hashlib.sha256()
        self.file = pq.ParquetWriter(path, schema, compression="zstd", write_page_index=True)

    def add(self, row: Row) -> None:
        self.buffer.append(row)
        self.content.update(json.dumps(row, sort_keys=True).encode() + b"\n")
        if len(self.buffer) == ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        if self.buffer:
            self.file.write_table(pa.Table.from_pylist(self.buffer, self.schema))
            self.rows += len(self.buffer)
            self.buffer = []

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.flush()
        self.file.close()

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "bytes": self.path.stat().st_size,
            "sha256": file_sha256(self.path),
            "rows_sha256": self.content.hexdigest(),
        }


def check_pairs(folder: Path, declaration: Declaration) -> None:
    """Reads the files back: the views of a split must agree in every column but id, view and prompt.

    Raises BuildError that names the first config, split and column that differ.
    """
    shared = [name for name in DECISION_SCHEMA.names if name not in ("id", "view", "prompt")]
    for horizon in declaration.horizons:
        for split in declaration.splits:
            if horizon in split.horizons:
                tables = _tables(folder, horizon, split.name, declaration.views, shared)
                for name, table in zip(declaration.views[1:], tables[1:], strict=True):
                    for column in shared:
                        if table[column] != tables[0][column]:
                            raise BuildError(
                                f"h{horizon}-{name}, {split.name}: {column} differs from "
                                f"h{horizon}-{declaration.views[0]}"
                            )


def _tables(
    folder: Path, horizon: int, split: str, views: Sequence[str], columns: list[str]
) -> list[pa.Table]:
    return [
        pq.read_table(folder / f"h{horizon}-{name}" / f"{split}.parquet", columns=columns) for name in views
    ]


_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))

DECISION_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("view", pa.string()),
        ("prompt", _MESSAGES),
        ("task", pa.string()),
        ("fingerprint", pa.string()),
        ("family", pa.string()),
        ("horizon", pa.int32()),
        ("seed", pa.int64()),
        ("stage", pa.int32()),
        ("completion", _MESSAGES),
        ("candidates", pa.list_(pa.string())),
        ("target_index", pa.int32()),
        ("distractor", pa.string()),
        ("calls_left", pa.int32()),
        ("chat_template_kwargs", pa.struct([("enable_thinking", pa.bool_())])),
    ]
)
"""Columns of a view config; the card's data dictionary documents each."""

TASK_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("fingerprint", pa.string()),
        ("family", pa.string()),
        ("horizon", pa.int32()),
        ("seed", pa.int64()),
        ("definition", pa.string()),
    ]
)
"""Columns of a tasks config."""
