"""Our driver: one base model, alone or under adapters, on some tasks, into one file of records a task.

    evaluate(model="Qwen/Qwen3-1.7B", model_revision=None, adapters=[None, Adapter("me/h16-full", "v1.0.0")],
             tasks=["stsr_oracle_h16", "stsr_free_run_h16"],
             sources={"workflows": ("stsr/table-workflows", "v1.1.0")}, split=None, out=Path("out/records"),
             batch_size=16, limit=None, dtype="bfloat16", device="cuda")

It calls what the `lm_eval` command calls, with the same tasks; what it adds is pinned revisions, strict
adapters, and records. Each task leaves `<task>.jsonl` (records) and `<task>.results.json` (numbers). The base
is loaded once, whatever the number of adapters.

Invariants: every revision is a commit or a content hash before anything is loaded; a file of records appears
whole or not at all, and until then the journal beside it loses nothing (journal.py); a finished task is not
run again, and a file of another cell is an error, never merged or overwritten.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import lm_eval
import torch
from lm_eval.tasks import TaskManager
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from stsr.eval_tasks import scienceworld_suite, suite
from stsr.eval_tasks.journal import Journal
from stsr.eval_tasks.records import Cell
from stsr.eval_tasks.shared_prefix import SharedPrefixLM
from stsr.eval_tasks.suite import HARNESS
from stsr.eval_tasks.task import SOURCES, StsrTask
from stsr.hub_cards.bases import PRECISIONS, check_device, load_base
from stsr.hub_cards.pins import Pin, pin


class EvaluateError(ValueError):
    """A request that cannot be carried out. The message is one line that says what to do."""


class Adapter(NamedTuple):
    """An adapter that is asked for."""

    source: str
    """Hub id or folder."""
    revision: str | None
    """Branch, tag or commit; None is the default branch, and right for a folder."""

    @property
    def label(self) -> str:
        """Name of its folder, where several models share one `out`: the last part of the Hub id or path, or
        the part before it for the `adapter` folder that a training run leaves."""
        path = Path(self.source)
        return path.parent.name if path.name == "adapter" else path.name


HARNESSES = [str(HARNESS), str(scienceworld_suite.HARNESS)]
UNTUNED = "untuned"
"""Name of the base's folder, likewise."""


@dataclass(frozen=True)
class _Job:
    """One task to run under one model: what its file must hold."""

    task: StsrTask
    journal: Journal

    @property
    def name(self) -> str:
        return str(self.task.task_name)


def evaluate(
    *,
    model: str,
    model_revision: str | None,
    adapters: Sequence[Adapter | None],
    tasks: list[str],
    sources: Mapping[str, tuple[str, str | None]],
    split: str | None,
    out: Path,
    batch_size: int,
    limit: int | None,
    dtype: str,
    device: str,
    resume: bool = True,
    run_extension: bool = False,
    workflows: int | None = None,
    calls: int | None = None,
) -> list[Path]:
    """Runs `tasks` (tasks or groups) under each of `adapters`; returns the files of records, in order.

    None among `adapters` is the base alone. With more than one, each has a folder of its own in `out`.
    `sources` says where each data set of the tasks is, as a pair (Hub id or folder, revision) for "workflows"
    and "controls" (and "scienceworld"); a revision of None is the default branch. `run_extension` lets the
    frozen ScienceWorld extension run. A split of None is each task's own. `dtype` is one of bases.PRECISIONS,
    or "auto" for the checkpoint's type. `workflows` keeps the first so many seeds of each task, `limit` the
    first so many decisions or episodes; `calls` ends ScienceWorld's free runs after so many calls. A run that
    was interrupted continues; `resume=False` refuses to.

    Raises EvaluateError, RecordError (a file of another cell), PinError, DataError, AdapterError or
    PromptTooLongError.
    """
    if dtype not in ("auto", *PRECISIONS):
        raise EvaluateError(f"unknown dtype {dtype!r}; there are auto, {', '.join(PRECISIONS)}")
    folders = _folders(adapters, out)
    check_device(device)
    _check_names(tasks)
    base = pin(model, model_revision, "model")
    extras = {one: pin(one.source, one.revision, "model") for one in adapters if one}
    tokenizer = AutoTokenizer.from_pretrained(base.source, revision=base.commit)
    if dtype == "auto":
        dtype = str(AutoConfig.from_pretrained(base.source, revision=base.commit).dtype).removeprefix(
            "torch."
        )
    loaded, pins = _load(tasks, sources, split, run_extension, workflows, calls)
    common = {
        "model": base.source,
        "model_revision": base.revision,
        "chat_template": template_hash(tokenizer),
        "dtype": dtype,
        "backend": SharedPrefixLM.__name__,
    }
    jobs: dict[Adapter | None, list[_Job]] = {}
    for adapter, folder in folders.items():
        named = common | _adapter_fields(extras.get(adapter) if adapter else None)
        jobs[adapter] = [_job(task, named, pins[task.source], folder, limit) for task in loaded]
    missing = {a: [job for job in todo if not job.journal.complete] for a, todo in jobs.items()}
    if not resume:
        _refuse_begun([job for todo in missing.values() for job in todo])
    if any(missing.values()):
        network: torch.nn.Module = load_base(base, dtype, device)
        # The base alone comes first: an adapter wraps its layers.
        for adapter in sorted(missing, key=lambda adapter: adapter is not None):
            if not missing[adapter]:
                continue
            if adapter:
                network = add_adapter(network, extras[adapter], tokenizer, f"adapter-{len(extras)}")
            lm = SharedPrefixLM(
                pretrained=network, tokenizer=tokenizer, batch_size=batch_size, enable_thinking=False
            )
            for job in missing[adapter]:
                _run(job, lm, limit)
            if adapter:
                network = drop_adapter(network)
    return [job.journal.path for todo in jobs.values() for job in todo]


def _folders(adapters: Sequence[Adapter | None], out: Path) -> dict[Adapter | None, Path]:
    """Where the records of each model go."""
    if len(adapters) == 1:
        return {adapters[0]: out}
    plain = [adapter.label if adapter else UNTUNED for adapter in adapters]
    labels = [
        f"{label}@{adapter.revision}" if adapter and adapter.revision and plain.count(label) > 1 else label
        for label, adapter in zip(plain, adapters, strict=True)
    ]
    for label in labels:
        if labels.count(label) > 1:
            raise EvaluateError(f"{labels.count(label)} models are called {label!r}; give them apart")
    return {adapter: out / label for adapter, label in zip(adapters, labels, strict=True)}


def _adapter_fields(extra: Pin | None) -> dict[str, str]:
    return {
        "adapter": extra.source if extra else "",
        "adapter_revision": extra.revision if extra else "",
    }


def _refuse_begun(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.journal.begun:
            raise EvaluateError(
                f"{job.journal.path.parent} holds an unfinished {job.name}: continue it with --resume, or "
                "choose another folder"
            )


def template_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """First 16 hex digits of the SHA-256 of the chat template. Raises EvaluateError if there is none."""
    if not tokenizer.chat_template:
        raise EvaluateError(f"{tokenizer.name_or_path}: the tokenizer has no chat template")
    return hashlib.sha256(tokenizer.get_chat_template().encode()).hexdigest()[:16]


def add_adapter(
    network: torch.nn.Module, adapter: Pin, tokenizer: PreTrainedTokenizerBase, name: str
) -> torch.nn.Module:
    """The network with the adapter on it and active.

    Raises AdapterError for keys that don't fit, and for an adapter that changes no logit.
    """
    from stsr.hub_cards.adapters import load_proven, proof_ids  # peft is needed for adapters alone

    tuned: torch.nn.Module = load_proven(
        network, adapter.source, proof_ids(tokenizer), revision=adapter.commit, name=name
    ).model
    return tuned


def drop_adapter(network: Any) -> torch.nn.Module:
    """The base alone again, its weights untouched."""
    base: torch.nn.Module = network.unload()
    return base


def _check_names(names: list[str]) -> None:
    """Raises EvaluateError for a name that is no task or group of ours."""
    known = TaskManager(include_path=HARNESSES, include_defaults=False).all_tasks
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=4, cutoff=0.4)
            raise EvaluateError(
                f"no task {name!r}; near are {', '.join(near) or 'none'}; `stsr tasks` lists all {len(known)}"
            )


def _load(
    names: list[str],
    sources: Mapping[str, tuple[str, str | None]],
    split: str | None,
    run_extension: bool,
    workflows: int | None,
    calls: int | None,
) -> tuple[list[StsrTask], dict[str, Pin]]:
    """The tasks behind names of tasks and groups, with data; and the pins of the data sets that they read."""
    pins = {name: pin(*sources[name], "dataset") for name in _needed(names) if name in sources}
    metadata: dict[str, Any] = {"stsr_split": split, "stsr_scienceworld_split": split} if split else {}
    if workflows:
        metadata |= {"stsr_seeds": workflows, "stsr_scienceworld_workflows": workflows}
    if calls:
        metadata["stsr_scienceworld_calls"] = calls
    if run_extension:
        metadata["stsr_scienceworld_run_extension"] = True
    for name, found in pins.items():
        data, revision = SOURCES[name]
        metadata[data] = found.source
        if found.commit:
            metadata[revision] = found.commit
    manager = TaskManager(include_path=HARNESSES, include_defaults=False, metadata=metadata)
    return list(manager.load(list(dict.fromkeys(names)))["tasks"].values()), pins


def _needed(names: list[str]) -> list[str]:
    """Data sets that the tasks behind `names` read."""
    tasks = suite.members()
    made = suite.groups(tasks)
    tasks |= suite.fast(tasks, made)
    made["stsr_fast"] = suite.fast_group(tasks)
    return list(
        dict.fromkeys(
            "scienceworld" if leaf.startswith("stsr_scienceworld_") else tasks[leaf].source
            for name in names
            for leaf in suite.leaves(name, made)
        )
    )


def _job(task: StsrTask, common: dict[str, str], data: Pin, folder: Path, limit: int | None) -> _Job:
    docs = task.task_docs.select(range(min(limit or len(task.task_docs), len(task.task_docs))))
    cells = {}
    for asked in map(task.asked, docs):
        cells[asked.id] = Cell(
            **common,
            data=data.source,
            data_revision=data.revision,
            split=str(task.config.test_split),
            family=asked.family,
            horizon=asked.horizon,
            view=asked.view,
            condition=task.condition,
        )
    return _Job(task, task.journal_of(folder / f"{task.task_name}.jsonl", cells))


def _run(job: _Job, lm: SharedPrefixLM, limit: int | None) -> None:
    """Runs what is missing of one task. The records appear last: whoever finds them finds the numbers too."""
    with job.journal as journal:
        job.task.journal = journal
        # lm_eval.evaluate is the core of simple_evaluate, without its report on the machine (seconds a call).
        results = lm_eval.evaluate(
            lm, {"tasks": {job.name: job.task}}, limit=limit, bootstrap_iters=0, apply_chat_template=True
        )
        job.task.journal = None
        report = {
            "task": job.name,
            "task_version": results["versions"][job.name],
            "stsr": version("stsr"),
            "lm_eval": version("lm_eval"),
            "cell": asdict(next(iter(journal.cells.values()))),
            "records": len(journal.cells),
            "results": _numbers(results["results"][job.name]),
            "higher_is_better": results["higher_is_better"][job.name],
        }
        numbers = json.dumps(report, indent=2, sort_keys=True, allow_nan=False)
        _write(journal.path.with_suffix(".results.json"), f"{numbers}\n")
        journal.finish()


def _numbers(results: dict[str, Any]) -> dict[str, float | None]:
    """lm-eval's numbers under plain names: "agreement", "agreement_stderr"; null where undefined."""
    return {
        key.removesuffix(",none"): None if math.isnan(value) else value
        for key, value in results.items()
        if isinstance(value, float) and not key.startswith("sample")
    }


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
