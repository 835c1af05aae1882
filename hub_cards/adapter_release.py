"""Adapters on a Hub: publishing a run with its checkpoints, and proving again what a card says.

    publish_run(Path("out/tiny-h16-full-s20260910"), "stsr/tiny-h16-full-s20260910", tag="v1.0.0")
    verify("stsr/tiny-h16-full-s20260910", "v1.0.0")

Invariant: main and the tag of a release hold the adapter after the last step; a checkpoint is a tag
`step-20`, an earlier commit of the same branch. What `verify` returns was measured on downloaded bytes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import HfApi, snapshot_download
from transformers import AutoTokenizer

from stsr.hub_cards.adapter_card import RUN
from stsr.hub_cards.adapters import AdapterError, Proof, proof_ids, prove
from stsr.hub_cards.bases import PRECISIONS, load_base
from stsr.hub_cards.pins import Pin, pin
from stsr.hub_cards.publish import Published, fetch_revision, publish_folder
from stsr.hub_cards.publishable import PublishError, UnpublishableError, pickles, publishable

STEPS = "steps"
"""Folder of a run for the adapters before the last step."""
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.1, "nf4": 0.1}
"""Precision -> relative difference of an effect that other kernels or another device may make."""


class Verified(NamedTuple):
    """What a published adapter showed when it was loaded again."""

    source: Pin
    base: Pin
    precision: str
    """Of the base, see `bases.PRECISIONS`."""
    proof: Proof
    stated: float
    """The effect that run.json states."""


def _checkpoints(out: Path) -> list[tuple[str, Path]]:
    """(revision, folder) of each adapter of a finished run before the last, in the order of steps."""
    steps = sorted((out / STEPS).glob("step-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return [(path.name, path) for path in steps]


def publish_run(
    out: Path, repo: str | None, *, tag: str, public: bool = False, yes: bool = False
) -> list[Published]:
    """Publishes every adapter of the finished run in `out`, checkpoints first; returns what was published.

    `repo` is the name in run.json unless given; `public` and `yes` are as in publish_folder. The same call
    continues what was interrupted and changes nothing once all is there. Raises AdapterError if `out` holds
    no finished run or the release is there without a checkpoint, which would have to go before it; and
    PublishError.
    """
    path = out / "adapter" / RUN
    if not path.exists():
        raise AdapterError(f"{out} holds no finished run: train into it first")
    repo = repo or str(json.loads(path.read_text(encoding="utf-8"))["adapter"])
    folders = [*_checkpoints(out), (tag, out / "adapter")]
    for name, folder in folders:  # all are looked at before the first is sent
        publishable(folder, repo, "model", name)
    if tag in dict(_checkpoints(out)):
        raise UnpublishableError(f"{tag} is the tag of a checkpoint: use another one for the last step")
    missing = [step for step, _ in _checkpoints(out) if not _has(repo, step)]
    if missing and _has(repo, tag):
        raise AdapterError(f"{repo} has {tag} but no {missing[0]}, which goes before it: use a new tag")
    return [
        publish_folder(folder, repo, "model", tag=name, message=f"Adapter, {name}", public=public, yes=yes)
        for name, folder in folders
    ]


def _has(repo: str, revision: str) -> bool:
    try:
        return bool(fetch_revision(repo, "model", revision))
    except PublishError:
        return False


def verify(source: str, revision: str | None, device: str | torch.device) -> Verified:
    """Proves the adapter `source` (Hub id or folder) at `revision` again, on the base that run.json names.

    It is loaded strictly from downloaded bytes. Raises PinError for an unknown source, and AdapterError if
    it holds a pickle, a weight is missing or unexpected, the weights are not those that run.json names,
    prompts render otherwise, or the effect on the logits is another than stated (TOLERANCE).
    """
    adapter = pin(source, revision, "model")
    folder = _downloaded(adapter)
    run = _facts(adapter, folder)
    base = Pin(run["base"]["source"], run["base"]["commit"])
    if pin(base.source, base.commit, "model") != base:
        raise AdapterError(
            f"{base.source} holds another model than {source} was trained on ({base.revision})"
        )
    tokenizer = AutoTokenizer.from_pretrained(base.source, revision=base.commit)
    template = hashlib.sha256(tokenizer.chat_template.encode()).hexdigest()
    if template != run["chat_template_sha256"]:
        raise AdapterError(f"{base.source}: the chat template is not the one that {source} was trained with")
    precision = str(run["recipe"]["evaluate_in"])
    proof = prove(load_base(base, precision, device), folder, proof_ids(tokenizer))
    stated = Proof(**run["proof"])
    if (proof.sha256, proof.keys) != (stated.sha256, stated.keys):
        raise AdapterError(f"{source}: the weights are not those that run.json names ({stated.sha256})")
    if abs(proof.effect - stated.effect) > TOLERANCE[precision] * stated.effect:
        raise AdapterError(
            f"{source}: it moves a logit by up to {proof.effect:.4g}, but its card says {stated.effect:.4g}"
        )
    return Verified(adapter, base, precision, proof, stated.effect)


def _downloaded(adapter: Pin) -> Path:
    """The adapter's files on disk. Raises AdapterError if there is a pickle among those that it has."""
    if adapter.commit is None:
        names = [path.name for path in Path(adapter.source).iterdir()]
    else:
        names = HfApi().list_repo_files(adapter.source, revision=adapter.commit)
    if found := pickles(names):
        raise AdapterError(f"{adapter.source} holds {found[0]}, which may run code when loaded")
    if adapter.commit is None:
        return Path(adapter.source)
    return Path(snapshot_download(adapter.source, revision=adapter.commit))


def _facts(adapter: Pin, folder: Path) -> dict[str, Any]:
    path = folder / RUN
    if not path.exists():
        raise AdapterError(f"{adapter.source} has no {RUN}: it was not published by this project")
    run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if run["recipe"].get("evaluate_in") not in PRECISIONS:
        raise AdapterError(f"{adapter.source}: {RUN} does not say which precision it is evaluated in")
    return run
