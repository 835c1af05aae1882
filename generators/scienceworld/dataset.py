"""Builds the data set of trajectories from the frozen catalogue and splits. Needs neither Java nor simulator.

    stsr build recipes/datasets/scienceworld-trajectories.yaml --out out/scienceworld-trajectories

| config | splits | a row is |
|---|---|---|
| a view's name | train, development, test | a decision of a reference path |
| short-VIEW | train, development | the same, short workflows alone |
| workflows | train, development, test, rest | a whole workflow |
| pilot, extension | test | an official test variation: its number, and nothing that was looked at |
| extension-plan | test | a rollout that was planned and never run |

Invariant: the same declaration, catalogue and splits give the same rows on any machine. A folder is whole or
absent: work happens beside it and is renamed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from stsr.generators.declaration import DeclarationError, load, read
from stsr.generators.errors import BuildError
from stsr.generators.files import file_sha256
from stsr.generators.parquet import Writer
from stsr.generators.scienceworld.actions import EXTRACTION
from stsr.generators.scienceworld.catalogue import Workflow, read_catalogue
from stsr.generators.scienceworld.extension import plan
from stsr.generators.scienceworld.rows import decision_rows, parse_row_id, variation_row, workflow_row
from stsr.generators.scienceworld.splits import read_splits, split_of, workflows_of
from stsr.generators.scienceworld.views import view

Manifest = dict[str, Any]
SCHEMA = "stsr.scienceworld-manifest/1"
STUDY = "scienceworld"
SPLITS = ("train", "development", "test")

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_TASK = [
    ("fingerprint", pa.string()),
    ("family", pa.string()),
    ("horizon", pa.int32()),
    ("bin", pa.string()),
    ("official", pa.string()),
    ("seed", pa.int64()),
]
DECISION_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("view", pa.string()),
        ("prompt", _MESSAGES),
        ("task", pa.string()),
        *_TASK,
        ("stage", pa.int32()),
        ("score", pa.int32()),
        ("calls_left", pa.int32()),
        ("completion", _MESSAGES),
        ("chat_template_kwargs", pa.struct([("enable_thinking", pa.bool_())])),
    ]
)
"""Columns of a view config; the card documents each."""
WORKFLOW_SCHEMA = pa.schema([("id", pa.string()), *_TASK, ("definition", pa.string())])
VARIATION_SCHEMA = pa.schema(
    [("id", pa.string()), ("family", pa.string()), ("seed", pa.int64()), ("official", pa.string())]
)
PLAN_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("task", pa.string()),
        ("family", pa.string()),
        ("seed", pa.int64()),
        ("train_view", pa.string()),
        ("test_view", pa.string()),
        ("status", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The keys of the data set's declaration; all are required."""

    study: str
    """Always "scienceworld": tells this declaration from those of table workflows."""
    repo: str
    version: str
    title: str
    summary: str
    changes: dict[str, str]
    """Version -> what it changed, oldest first."""
    canary: str
    """A text in every row of test splits, by which leaks into training text can be found."""
    example: str
    """A decision, as `{task}#{stage}`, that the card shows under every view."""
    views: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.study != STUDY:
            raise DeclarationError(f"study: must be {STUDY!r}, not {self.study!r}")
        for name in self.views:
            view(name)
        parse_row_id(f"{self.example}@{self.views[0]}")
        if self.version not in self.changes:
            raise DeclarationError(f"changes: has no entry for version {self.version}")

    @property
    def tag(self) -> str:
        """The Hub tag of this version, for example "v1.0.0"."""
        return f"v{self.version}"


def declares(path: Path) -> bool:
    """Whether a YAML file declares this data set, and not one of table workflows."""
    return "study" in read(path)


def read_declaration(path: Path) -> Declaration:
    """The declaration in a YAML file. Raises DeclarationError, one line, for anything wrong in it."""
    try:
        return load(Declaration, path)
    except DeclarationError:
        raise
    except ValueError as error:
        raise DeclarationError(f"{path}: {error}") from error


def build(declaration: Declaration, out: Path, card: Callable[[Manifest], str]) -> Manifest:
    """Builds into `out` and returns the manifest; does nothing if `out` holds this very build already.

    Raises BuildError if `out` holds anything else.
    """
    manifest = _empty_manifest(declaration)
    if (existing := _existing(manifest, out)) is not None:
        return existing
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _write_all(declaration, partial, manifest)
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    (partial / "manifest.json").write_text(text, encoding="utf-8")
    (partial / "README.md").write_text(card(manifest), encoding="utf-8")
    if out.exists():
        out.rmdir()  # empty, or _existing would have raised
    os.replace(partial, out)
    return manifest


def _empty_manifest(declaration: Declaration) -> Manifest:
    catalogue = read_catalogue()
    return {
        "schema": SCHEMA,
        "repo": declaration.repo,
        "version": declaration.version,
        "generator_version": f"{SCHEMA} {EXTRACTION}",
        "declaration": json.loads(json.dumps(asdict(declaration))),
        "catalogue": catalogue.digest,
        "origin": json.loads(json.dumps(asdict(catalogue.origin))),
        "splits": json.loads(json.dumps(read_splits()._asdict())),
        "configs": {},
        "files": {},
        "tasks": {w.id: {"fingerprint": w.fingerprint, "split": split_of(w.id)} for w in catalogue.usable},
    }


def _existing(wanted: Manifest, out: Path) -> Manifest | None:
    if not out.exists() or not any(out.iterdir()):
        return None
    try:
        manifest: Manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise BuildError(f"{out} is not empty and holds no built data set; choose another folder") from None
    for key in ("version", "declaration", "catalogue", "splits", "generator_version"):
        if manifest.get(key) != wanted[key]:
            raise BuildError(f"{out} holds another build ({key} differs); choose another folder")
    for path, facts in manifest["files"].items():
        if not (out / path).exists() or file_sha256(out / path) != facts["sha256"]:
            raise BuildError(f"{out / path} is missing or was changed; delete {out} and build again")
    return manifest


def _write_all(declaration: Declaration, folder: Path, manifest: Manifest) -> None:
    splits, jobs = read_splits(), list[tuple[str, str, pa.Schema, Iterable[dict[str, Any]]]]()
    for split in SPLITS:
        workflows = workflows_of(getattr(splits, split))
        if split == "train":  # in the order of a hash, so that the first rows are of all families
            workflows.sort(key=lambda workflow: workflow.fingerprint)
        short = [workflow for workflow in workflows if workflow.bin == "short"]
        for name in declaration.views:
            jobs.append((name, split, DECISION_SCHEMA, _rows(workflows, name)))
            if split != "test":
                jobs.append((f"short-{name}", split, DECISION_SCHEMA, _rows(short, name)))
    for split in (*SPLITS, "rest"):
        chosen = [w for w in read_catalogue().usable if split_of(w.id) == split]
        jobs.append(("workflows", split, WORKFLOW_SCHEMA, map(workflow_row, chosen)))
    for name in ("pilot", "extension"):
        variations = map(variation_row, getattr(splits, name))
        jobs.append((name, "test", VARIATION_SCHEMA, variations))
    planned = ({**p._asdict(), "id": p.id, "family": p.family} for p in plan())
    jobs.append(("extension-plan", "test", PLAN_SCHEMA, planned))
    for config, split, schema, rows in tqdm(jobs, desc="build", unit="file"):
        _write(declaration, config, split, schema, rows, folder, manifest)


def _rows(workflows: list[Workflow], name: str) -> Iterator[dict[str, Any]]:
    for workflow in workflows:
        yield from decision_rows(workflow, [name])


def _write(
    declaration: Declaration,
    config: str,
    split: str,
    schema: pa.Schema,
    rows: Iterable[dict[str, Any]],
    folder: Path,
    manifest: Manifest,
) -> None:
    path = folder / config / f"{split}.parquet"
    with Writer(path, schema, declaration.canary if split == "test" else "") as file:
        for row in rows:
            file.add(row)
    relative = path.relative_to(folder).as_posix()
    manifest["files"][relative] = file.facts
    manifest["configs"].setdefault(config, {})[split] = [relative]
