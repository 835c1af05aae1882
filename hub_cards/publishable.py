"""What may be published, and under which name: all that can be told before the first byte goes out.

publishable(Path("out/table-workflows"), "stsr/table-workflows", "dataset", "v1.0.0")
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # exported lazily

RepoType = Literal["dataset", "model", "space"]

DEFAULT_IGNORE = (
    ".git",
    ".git/*",
    "*/.git",
    "*/.git/*",
    ".cache/*",
    "*__pycache__/*",
    ".DS_Store",
    "*/.DS_Store",
)

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt", "*.joblib")
_DATA = ("*.parquet", "*.jsonl")
_MODEL = ("config.json", "adapter_config.json", "*.safetensors")


class PublishError(RuntimeError):
    """The folder was not published. The message is one line that says what to do."""


class UnpublishableError(PublishError, ValueError):
    """This folder may not be published, or not under this name. Nothing was sent."""


def pickles(names: Iterable[str]) -> list[str]:
    """Those of the file names that are of a format which runs code when loaded, as training_args.bin.

    >>> pickles(["adapter_model.safetensors", "training_args.bin"])
    ['training_args.bin']
    """
    return [name for name in names if _like([name.lower()], _PICKLES)]


def publishable(
    folder: Path, repo_id: str, repo_type: RepoType, tag: str | None, ignore: Sequence[str] = DEFAULT_IGNORE
) -> dict[str, Path]:
    """Path in the repository -> path on disk. `ignore` are patterns over paths, `*` matching slashes too.

    Raises UnpublishableError for a bad Hub id or tag; a folder that is empty, lacks README.md, or holds a
    symbolic link or a pickle; a data set as a model, a model as a data set, or either as a Space; and a tag
    that contradicts the version in the manifest of a build.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UnpublishableError(f"{repo_id!r} is not a Hub id such as me/table-workflows: {error}") from None
    if tag is not None:
        _check_tag(tag)
    paths = _listed(folder, ignore)
    if not paths:
        raise UnpublishableError(f"{folder} holds no file to publish")
    if "README.md" not in paths:
        raise UnpublishableError(f"{folder} has no README.md: write its card first")
    if found := pickles(paths):
        raise UnpublishableError(
            f"{found[0]} is a pickle by its name; loading one runs code: use safetensors"
        )
    _check_type(folder, paths, repo_type)
    if tag is not None and repo_type == "dataset" and "manifest.json" in paths:
        _check_version(folder, paths["manifest.json"], tag)
    return paths


def _check_tag(tag: str) -> None:
    """A tag is a git reference; of those, the plain ones."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*", tag) or tag.endswith(".lock"):
        raise UnpublishableError(f"{tag!r} is not a tag such as v1.0.0: letters, digits, and . _ - between")
    if re.fullmatch("[0-9a-f]{40}", tag):
        raise UnpublishableError(f"{tag!r} looks like a commit, so it can be no tag")


def _check_type(folder: Path, paths: Iterable[str], repo_type: RepoType) -> None:
    data, model = _like(paths, _DATA), _like(paths, _MODEL)
    if repo_type == "model" and data and not model:
        raise UnpublishableError(f"{folder} holds a data set ({data[0]}) and no model: --type dataset")
    if repo_type == "dataset" and model and not data:
        raise UnpublishableError(f"{folder} holds a model ({model[0]}) and no data: --type model")
    if repo_type == "space" and not _like(paths, ["*.html"]):
        raise UnpublishableError(f"{folder} holds no HTML page, as a static Space must")


def _check_version(folder: Path, manifest: Path, tag: str) -> None:
    try:
        version = json.loads(manifest.read_text(encoding="utf-8"))["version"]
    except (ValueError, LookupError, TypeError):
        raise UnpublishableError(f"{manifest} tells no version, as the manifest of a build does") from None
    if tag != f"v{version}":
        raise UnpublishableError(
            f"{folder} holds version {version} by its manifest: --tag v{version}, not {tag}"
        )


def _like(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]


def _listed(folder: Path, ignore: Sequence[str]) -> dict[str, Path]:
    if not folder.is_dir():
        raise UnpublishableError(f"{folder} is not a folder")
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if any(fnmatch(name, pattern) for pattern in ignore):
            continue
        if path.is_symlink():
            raise UnpublishableError(f"{path} is a symbolic link: publish a folder of plain files")
        if path.is_file():
            found[name] = path
        elif not path.is_dir():
            raise UnpublishableError(f"{path} is neither a file nor a folder")
    return found
