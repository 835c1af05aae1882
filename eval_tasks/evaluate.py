"""Our driver: one model on some tasks, through lm-eval, into one file of records a task.

    evaluate(model="Qwen/Qwen3-1.7B", model_revision=None, adapter=None, adapter_revision=None,
             tasks=["stsr_oracle_h16", "stsr_free_run_h16"], data="stsr/table-workflows",
             data_revision="v1.0.0", split="test", out=Path("out/base"), batch_size=16, limit=None,
             dtype="bfloat16", device="cuda")

It calls what the `lm_eval` command calls, with the same tasks; what it adds is pinned revisions, a strict
adapter, and records. Each task leaves `<task>.jsonl` (records) and `<task>.results.json` (lm-eval's numbers).

Invariants: every revision is a commit or a content hash before anything is loaded; a file of records holds
exactly one cell and appears whole or not at all; a finished task is not run again, and a file of another
cell is an error, never merged or overwritten.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lm_eval
import torch
from lm_eval.tasks import TaskManager
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from stsr.eval_tasks import records
from stsr.eval_tasks.records import Cell, RecordError
from stsr.eval_tasks.samples import records_from_samples
from stsr.eval_tasks.shared_prefix import SharedPrefixLM
from stsr.eval_tasks.task import StsrTask
from stsr.hub_cards.pins import Pin, pin

HARNESS = Path(__file__).with_name("harness")
"""The folder of task files, for `lm_eval --include_path`."""


class EvaluateError(ValueError):
    """A request that cannot be carried out. The message is one line that says what to do."""


@dataclass(frozen=True)
class _Job:
    """One task to run: what its file must hold."""

    task: StsrTask
    cell: Cell
    ids: list[str]
    path: Path

    @property
    def name(self) -> str:
        return str(self.task.task_name)


def evaluate(
    *,
    model: str,
    model_revision: str | None,
    adapter: str | None,
    adapter_revision: str | None,
    tasks: list[str],
    data: str,
    data_revision: str | None,
    split: str,
    out: Path,
    batch_size: int,
    limit: int | None,
    dtype: str,
    device: str,
) -> list[Path]:
    """Runs `tasks` (tasks or groups) and returns the files of records, in order.

    `model`, `adapter` and `data` are Hub ids or folders; a revision of None is the default branch.
    `dtype` is a torch type such as "bfloat16", or "auto" for the checkpoint's. `limit` is the number of
    decisions (oracle) or episodes (free run) of each task.

    Raises EvaluateError, RecordError (a file of another cell), PinError, DataError, AdapterError or
    PromptTooLongError.
    """
    if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise EvaluateError(f"unknown dtype {dtype!r}; there are auto, float32, bfloat16, float16")
    base, dataset = pin(model, model_revision, "model"), pin(data, data_revision, "dataset")
    extra = pin(adapter, adapter_revision, "model") if adapter else None
    tokenizer = AutoTokenizer.from_pretrained(base.source, revision=base.commit)
    if dtype == "auto":
        dtype = str(AutoConfig.from_pretrained(base.source, revision=base.commit).dtype).removeprefix(
            "torch."
        )
    common = {
        "model": base.source,
        "model_revision": base.revision,
        "adapter": extra.source if extra else "",
        "adapter_revision": extra.revision if extra else "",
        "data": dataset.source,
        "data_revision": dataset.revision,
        "split": split,
        "chat_template": template_hash(tokenizer),
        "dtype": dtype,
        "backend": SharedPrefixLM.__name__,
    }
    jobs = [_job(task, common, out, limit) for task in _load(tasks, dataset, split)]
    missing = [job for job in jobs if not _kept(job)]
    if missing:
        network = load_model(base, extra, tokenizer, dtype, device)
        lm = SharedPrefixLM(
            pretrained=network, tokenizer=tokenizer, batch_size=batch_size, enable_thinking=False
        )
        out.mkdir(parents=True, exist_ok=True)
        for job in missing:
            _run(job, lm, limit)
    return [job.path for job in jobs]


def template_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """First 16 hex digits of the SHA-256 of the chat template. Raises EvaluateError if there is none."""
    if not tokenizer.chat_template:
        raise EvaluateError(f"{tokenizer.name_or_path}: the tokenizer has no chat template")
    return hashlib.sha256(tokenizer.get_chat_template().encode()).hexdigest()[:16]


def load_model(
    base: Pin, adapter: Pin | None, tokenizer: PreTrainedTokenizerBase, dtype: str, device: str
) -> torch.nn.Module:
    """The base, with the adapter on it if there is one.

    Raises AdapterError for keys that don't fit, and for an adapter that changes no logit.
    """
    loaded = AutoModelForCausalLM.from_pretrained(
        base.source, revision=base.commit, dtype=getattr(torch, dtype)
    )
    network: torch.nn.Module = loaded.to(device).eval()
    if adapter is None:
        return network
    from stsr.hub_cards.adapters import load_proven, proof_ids  # peft is needed for adapters alone

    tuned: torch.nn.Module = load_proven(
        network, adapter.source, proof_ids(tokenizer), revision=adapter.commit
    ).model
    return tuned


def _load(names: list[str], data: Pin, split: str) -> list[StsrTask]:
    """The tasks behind names of tasks and groups, with their data."""
    metadata = {"stsr_data": data.source, "stsr_split": split}
    if data.commit:
        metadata["stsr_revision"] = data.commit
    manager = TaskManager(include_path=str(HARNESS), include_defaults=False, metadata=metadata)
    for name in names:
        if name not in manager.all_tasks:
            raise EvaluateError(f"no task {name!r}; there are {', '.join(manager.all_tasks)}")
    return list(manager.load(list(dict.fromkeys(names)))["tasks"].values())


def _job(task: StsrTask, common: dict[str, str], out: Path, limit: int | None) -> _Job:
    docs = task.task_docs.select(range(min(limit or len(task.task_docs), len(task.task_docs))))
    runs = [task.begin(doc) for doc in docs]
    first = runs[0].state.task
    view = runs[0].id.rpartition("@")[2]
    cell = Cell(**common, family=first.family, horizon=first.horizon, view=view)
    return _Job(task, cell, [run.id for run in runs], out / f"{task.task_name}.jsonl")


def _kept(job: _Job) -> bool:
    """Whether the job's file is there and complete. Raises RecordError if it holds anything else."""
    if not job.path.exists():
        return False
    found = list(records.read([job.path]))
    for record in found:
        if fields := records.differing(record.cell, job.cell):
            told = ", ".join(f"{f} {getattr(record.cell, f)!r}, not {getattr(job.cell, f)!r}" for f in fields)
            raise RecordError(f"{job.path} holds another cell: {told}; choose another folder")
    ids = {record.id for record in found}
    if more := ids - set(job.ids):
        raise RecordError(
            f"{job.path} holds {len(more)} records that are not asked for, such as {min(more)}; "
            "choose another folder or a larger limit"
        )
    return len(ids) == len(job.ids)


def _run(job: _Job, lm: SharedPrefixLM, limit: int | None) -> None:
    """Runs one task and writes its two files, the records last: whoever finds them finds the numbers too."""
    # lm_eval.evaluate is the core of simple_evaluate, without its report on the machine (seconds a call).
    results = lm_eval.evaluate(
        lm, {"tasks": {job.name: job.task}}, limit=limit, bootstrap_iters=0, apply_chat_template=True
    )
    found = records_from_samples(results["samples"][job.name], job.cell)
    if [record.id for record in found] != job.ids:
        raise EvaluateError(
            f"{job.name}: lm-eval returned other documents than the data set's first {len(job.ids)}"
        )
    report = {
        "task": job.name,
        "task_version": results["versions"][job.name],
        "stsr": version("stsr"),
        "lm_eval": version("lm_eval"),
        "cell": asdict(job.cell),
        "records": len(found),
        "results": _numbers(results["results"][job.name]),
        "higher_is_better": results["higher_is_better"][job.name],
    }
    numbers = json.dumps(report, indent=2, sort_keys=True, allow_nan=False)
    _write(job.path.with_suffix(".results.json"), f"{numbers}\n")
    _write(job.path, "".join(f"{records.to_json(record)}\n" for record in found))


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
