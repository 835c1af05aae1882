"""Builds a data set from its declaration: parquet configs, task configs, card and manifest.

    stsr build recipes/datasets/table-workflows.yaml --out out/table-workflows

A scheduler builds shards of it, each by a process of its own, and joins them with one more command:

    stsr build recipes/datasets/large.yaml --out out/large --shards 16 --shard 0     # ... and 1 to 15
    stsr build recipes/datasets/large.yaml --out out/large --shards 16

Invariants: the same declaration gives the same rows on any machine, and the same files under the same
pyarrow; no task occurs in two splits; every gold path replays; two views of a decision differ in the prompt
only. A folder is either whole or absent: work happens beside it and is renamed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tqdm import tqdm

from stsr.generators.canonical import fingerprint
from stsr.generators.checks import Owners, check_choice_lengths, check_filler, check_pairs
from stsr.generators.dataset import Declaration, Mixture, Part, Split
from stsr.generators.errors import BuildError
from stsr.generators.files import file_sha256
from stsr.generators.parquet import DECISION_SCHEMA, TASK_SCHEMA, Writer
from stsr.generators.rows import decision_rows, generate, task_row
from stsr.generators.tasks import GENERATOR_VERSION, Task

Manifest = dict[str, Any]
SCHEMA = "stsr.manifest/2"


def build(declaration: Declaration, out: Path, card: Callable[[Manifest], str]) -> Manifest:
    """Builds into `out` and returns the manifest; does nothing if `out` holds this very build already.

    `card` writes README.md from the manifest. Raises BuildError if `out` holds anything else, if a task
    occurs in two splits, or if a check fails.
    """
    if (existing := _existing(declaration, out)) is not None:
        return existing
    partial = _fresh(out)
    manifest = _write_parts(declaration, partial, 0, 1)
    return _finish(declaration, partial, out, manifest, card)


def build_shard(declaration: Declaration, out: Path, shard: int, shards: int) -> Path:
    """Builds shard `shard` of `shards` (0-based) beside `out`, and returns its folder.

    A shard holds a contiguous share of each split's seeds. One that is already there is left alone.
    """
    if not 0 <= shard < shards:
        raise ValueError(f"shard {shard} is not in 0..{shards - 1}")
    folder = shard_folder(out, shard, shards)
    if _existing(declaration, folder) is None:
        partial = _fresh(folder)
        manifest = _write_parts(declaration, partial, shard, shards)
        _write_manifest(partial, manifest)
        _rename(partial, folder)
    return folder


def join_shards(
    declaration: Declaration, out: Path, shards: int, card: Callable[[Manifest], str]
) -> Manifest:
    """Joins all shards into `out`, checks the whole and removes their folders.

    Raises BuildError that names the shards which are missing. Interrupted, the same call continues.
    """
    folders = [shard_folder(out, shard, shards) for shard in range(shards)]
    manifest = _existing(declaration, out) or _join(declaration, out, folders, card)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return manifest


def _join(
    declaration: Declaration, out: Path, folders: list[Path], card: Callable[[Manifest], str]
) -> Manifest:
    if missing := [str(shard) for shard, folder in enumerate(folders) if not folder.exists()]:
        raise BuildError(f"{out}: shard {', '.join(missing)} of {len(folders)} is not built")
    partial = _fresh(out)
    manifest = _empty_manifest(declaration)
    owners = Owners()
    for folder in tqdm(folders, unit="shard", desc="join"):
        part = _existing(declaration, folder)
        assert part is not None
        for path in part["files"]:
            (partial / path).parent.mkdir(parents=True, exist_ok=True)
            os.link(folder / path, partial / path)
        for task_id, facts in part["tasks"].items():
            owners.claim(facts["fingerprint"], facts["split"], task_id)
        manifest["tasks"].update(part["tasks"])
        manifest["files"].update(part["files"])
        for config, splits in part["configs"].items():
            for split, paths in splits.items():
                manifest["configs"].setdefault(config, {}).setdefault(split, []).extend(paths)
    return _finish(declaration, partial, out, manifest, card)


def shard_folder(out: Path, shard: int, shards: int) -> Path:
    """Where a shard is built."""
    return out.with_name(f"{out.name}.shard-{shard:05d}-of-{shards:05d}")


def files_of(manifest: Manifest) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, {"rows", "bytes", "sha256", "rows_sha256"}) of every parquet file of a build."""
    yield from manifest["files"].items()


def config_rows(manifest: Manifest, config: str, split: str) -> int:
    """Rows of one split of one config."""
    return sum(manifest["files"][path]["rows"] for path in manifest["configs"][config][split])


# -- folders


def _existing(declaration: Declaration, out: Path) -> Manifest | None:
    if not out.exists() or not any(out.iterdir()):
        return None
    try:
        manifest: Manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
        repo, version, declared, generator = (
            manifest[key] for key in ("repo", "version", "declaration", "generator_version")
        )
    except (OSError, ValueError, KeyError):
        raise BuildError(f"{out} is not empty and holds no built data set; choose another folder") from None
    wanted = (declaration.repo, declaration.version)
    if (repo, version) != wanted:
        raise BuildError(f"{out} holds {repo} {version}, not {' '.join(wanted)}; choose another folder")
    if declared != _as_json(declaration) or generator != GENERATOR_VERSION:
        raise BuildError(f"{out} holds version {version} built from another declaration; bump the version")
    for path, facts in files_of(manifest):
        if not (out / path).exists() or file_sha256(out / path) != facts["sha256"]:
            raise BuildError(f"{out / path} is missing or was changed; delete {out} and build again")
    return manifest


def _fresh(out: Path) -> Path:
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def _rename(partial: Path, out: Path) -> None:
    if out.exists():
        out.rmdir()  # empty, or _existing would have raised
    os.replace(partial, out)


def _as_json(declaration: Declaration) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(asdict(declaration)))
    return plain


def _empty_manifest(declaration: Declaration) -> Manifest:
    return {
        "schema": SCHEMA,
        "repo": declaration.repo,
        "version": declaration.version,
        "generator_version": GENERATOR_VERSION,
        "declaration": _as_json(declaration),
        "configs": {},
        "files": {},
        "tasks": {},
    }


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    with open(folder / "manifest.json", "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1, sort_keys=True)  # piece by piece: it may list a million tasks
        file.write("\n")


def _finish(
    declaration: Declaration,
    partial: Path,
    out: Path,
    manifest: Manifest,
    card: Callable[[Manifest], str],
) -> Manifest:
    """What needs all rows: mixtures, the check of pairs, manifest and card."""
    for mixture in declaration.mixtures:
        _write_mixture(declaration, mixture, partial, manifest)
    check_pairs(partial, declaration, manifest)
    _write_manifest(partial, manifest)
    (partial / "README.md").write_text(card(manifest), encoding="utf-8")
    _rename(partial, out)
    return manifest


# -- rows


def _write_parts(declaration: Declaration, folder: Path, shard: int, shards: int) -> Manifest:
    manifest, owners = _empty_manifest(declaration), Owners()
    work = [(part, split, seeds) for part in declaration.parts for split in part.splits
            if (seeds := _share(split.seeds, shard, shards))]  # fmt: skip
    total = sum(len(seeds) * len(s.horizons) * len(p.chosen_variants) for p, s, seeds in work)
    suffix = "" if shards == 1 else f"-{shard:05d}-of-{shards:05d}"
    with tqdm(total=total, unit="task", desc="build") as bar:
        for part, split, seeds in work:
            alone = all("{horizon}" in name for name in (part.config, part.tasks) if name)
            for horizons in [(h,) for h in split.horizons] if alone else [split.horizons]:
                tasks = _tasks(part, split, horizons, seeds, owners, bar)
                _write_split(declaration, part, split, tasks, folder, suffix, manifest)
    return manifest


def _share(seeds: range, shard: int, shards: int) -> range:
    return seeds[len(seeds) * shard // shards : len(seeds) * (shard + 1) // shards]


def _tasks(
    part: Part, split: Split, horizons: tuple[int, ...], seeds: range, owners: Owners, bar: tqdm[Any]
) -> Iterator[Task]:
    for seed in seeds:  # outermost, so that shards in a row are the whole
        for horizon in horizons:
            for variant in part.chosen_variants:
                task = generate(part.family, horizon, seed, variant)
                owners.claim(task.fingerprint, split.name, task.id)
                yield task
                bar.update()


def _write_split(
    declaration: Declaration,
    part: Part,
    split: Split,
    tasks: Iterator[Task],
    folder: Path,
    suffix: str,
    manifest: Manifest,
) -> None:
    """Streams tasks into the files of one split and enters them in the manifest."""
    canary = canary_of(declaration, split.name)
    writers: dict[str, Writer] = {}
    with ExitStack() as stack:

        def writer(config: str, whole: bool) -> Writer:
            if config not in writers:
                path = folder / config / f"{split.name}{suffix}.parquet"
                made = Writer(path, TASK_SCHEMA if whole else DECISION_SCHEMA, canary)
                writers[config] = stack.enter_context(made)
            return writers[config]

        for task in tasks:
            for name in declaration.tokenizers:
                check_choice_lengths(task, name)
            if declaration.tokenizers and "compact-filler" in part.views:
                check_filler(task, declaration.tokenizers[0])
            manifest["tasks"][task.id] = {"fingerprint": task.fingerprint, "split": split.name}
            if part.tasks:
                writer(part.tasks_name(task.horizon, task.variant), True).add(task_row(task))
            for row in decision_rows(task, part.views, part.pivot_only):
                writer(part.config_name(task.horizon, task.variant, row["view"]), False).add(row)
    for config, file in writers.items():
        _enter(manifest, folder, config, split.name, file)


def _enter(manifest: Manifest, folder: Path, config: str, split: str, file: Writer) -> None:
    path = file.path.relative_to(folder).as_posix()
    manifest["files"][path] = file.facts
    manifest["configs"].setdefault(config, {}).setdefault(split, []).append(path)


def canary_of(declaration: Declaration, split: str) -> str | None:
    """The canary column of a split: the canary in test splits, "" in others; None for no column."""
    if not declaration.canary:
        return None
    return declaration.canary if split.startswith("test") else ""


def _write_mixture(declaration: Declaration, mixture: Mixture, folder: Path, manifest: Manifest) -> None:
    count = mixture.tasks * mixture.horizon
    rows = {
        name: _first_rows(folder, manifest, f"h{mixture.horizon}-{name}", mixture.split, count)
        for name in (mixture.plain, *mixture.masked)
    }
    keys = [fingerprint([mixture.seed, row["fingerprint"], row["stage"]]) for row in rows[mixture.plain]]
    order = iter(sorted(range(count), key=keys.__getitem__))
    shown = [mixture.plain] * count
    for name, share in mixture.masked.items():
        for index in islice(order, share):
            shown[index] = name
    sharded = "-of-" in manifest["configs"][f"h{mixture.horizon}-{mixture.plain}"][mixture.split][0]
    suffix = "-00000-of-00001" if sharded else ""  # named like the others, as the card's pattern expects
    path = folder / mixture.config / f"{mixture.split}{suffix}.parquet"
    with Writer(path, DECISION_SCHEMA, canary_of(declaration, mixture.split)) as file:
        for index, name in enumerate(shown):
            file.add(rows[name][index])
    _enter(manifest, folder, mixture.config, mixture.split, file)


def _first_rows(
    folder: Path, manifest: Manifest, config: str, split: str, count: int
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in manifest["configs"][config][split]:
        for batch in pq.ParquetFile(folder / path).iter_batches():
            rows += batch.to_pylist()
            if len(rows) >= count:
                return rows[:count]
    raise BuildError(f"{config}, {split}: a mixture needs {count} rows, there are {len(rows)}")
