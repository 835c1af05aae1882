"""TRL's SFTTrainer with the promises that its configuration cannot express.

- A row that is too long is refused; TRL would truncate it, or drop it without a word.
- Every row's training context is checked against the prompt that an evaluation sends.
- Each optimizer step leaves a line in the exposure audit.
- The adapter keeps its declared type; PEFT casts it when a run resumes, TRL when the base is quantised.
- The loss is weighted by tokens over a whole update, for every architecture.
- A checkpoint counts only once it is sealed, so a half-written one is never resumed from.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from trl import SFTTrainer

from stsr.recipes import exposure
from stsr.recipes.sft_data import Row, check_lengths, check_tokens

SEAL = "sealed.json"
"""Written into a checkpoint last: SHA-256 of each of its files, and the seconds trained so far."""
EXPOSURE = "exposure.jsonl"


class Steps(TrainerCallback):  # type: ignore[misc]
    """Asks for a checkpoint at the declared steps and shows a progress bar."""

    def __init__(self, save_at: frozenset[int], name: str) -> None:
        self.save_at = save_at
        self.name = name

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar = tqdm(
            total=state.max_steps,
            initial=state.global_step,
            desc=self.name,
            unit="step",
            disable=not state.is_world_process_zero,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self.bar.update(1)
        if state.global_step in self.save_at:
            control.should_save = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any) -> None:
        if "loss" in logs:
            self.bar.set_postfix(loss=f"{float(logs['loss']):.4f}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.close()


class WithRowIndex:
    """TRL's collator, with the row indices of a batch kept beside it: `row_idx` [b]."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        batch: dict[str, torch.Tensor] = self.inner(examples)
        batch["row_idx"] = torch.tensor([example["row_idx"] for example in examples])
        return batch


class RecipeTrainer(SFTTrainer):  # type: ignore[misc]
    """Trains an adapter on `rows`; see the top of the file for what it adds to SFTTrainer.

    Raises TrainError from the constructor for rows that are too long or whose tokens are not as promised.
    """

    _signature_columns: list[str] | None

    def __init__(
        self,
        *,
        rows: list[Row],
        adapter_dtype: torch.dtype,
        save_at: frozenset[int],
        name: str,
        **kwargs: Any,
    ) -> None:
        self.rows = rows
        self.adapter_dtype = adapter_dtype
        self.exposed: list[exposure.Step] = []
        self.seconds = 0.0
        self.longest_row = 0
        columns = ("prompt", "completion", "chat_template_kwargs")
        data = [{**{key: row[key] for key in columns}, "row_idx": i} for i, row in enumerate(rows)]
        # in memory, so that no tokenised copy of it can go stale in a cache
        super().__init__(train_dataset=Dataset.from_list(data), callbacks=[Steps(save_at, name)], **kwargs)
        for callback in (ProgressCallback, PrinterCallback):
            self.remove_callback(callback)
        self.data_collator = WithRowIndex(self.data_collator)  # type: ignore[has-type]
        # some architectures report that they take no num_items_in_batch; SFTTrainer's own loss always does
        self.model_accepts_loss_kwargs = True
        self._cast_adapter()

    def _send_telemetry(self) -> None:
        """A training tells nobody that it runs."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """The card is written once, from the finished run."""

    def _cast_adapter(self) -> None:
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(self.adapter_dtype)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns = self._signature_columns or []
        if "row_idx" not in columns:
            self._signature_columns = [*columns, "row_idx"]

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, *rest: Any) -> Any:
        limit, args.max_length = args.max_length, None  # no limit: SFTTrainer neither truncates nor drops
        try:
            prepared = super()._prepare_dataset(dataset, processing_class, args, *rest)
        finally:
            args.max_length = limit
        lengths = [len(ids) for ids in prepared["input_ids"]]
        check_lengths([(row["id"], n) for row, n in zip(self.rows, lengths, strict=True)], limit)
        for row, ids, labels in zip(self.rows, prepared["input_ids"], prepared["labels"], strict=True):
            check_tokens(row, ids, labels, processing_class)
        self.longest_row = max(lengths)
        return prepared

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self._record(inputs.pop("row_idx"), inputs)
        return super().compute_loss(model, inputs, *args, **kwargs)

    def _record(self, row_idx: torch.Tensor, inputs: dict[str, Any]) -> None:
        """Adds a microbatch, on all processes together, to the line of the step in progress."""
        counts = torch.stack([inputs["attention_mask"].sum(), (inputs["labels"] != -100).sum()])
        ids = tuple(self.rows[i]["id"] for i in self.accelerator.gather(row_idx).tolist())
        read, supervised = self.accelerator.gather(counts).view(-1, 2).sum(0).tolist()
        step = self.state.global_step + 1
        if self.exposed and self.exposed[-1].step == step:
            last = self.exposed.pop()
            ids, read, supervised = (
                last.rows + ids,
                last.input_tokens + read,
                last.supervised_tokens + supervised,
            )
        self.exposed.append(exposure.Step(step, ids, read, supervised))

    def train(self, resume_from_checkpoint: str | None = None, **kwargs: Any) -> Any:
        self.started = time.monotonic()
        result = super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
        self.seconds += time.monotonic() - self.started
        return result

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            exposure.write(folder / EXPOSURE, self.exposed)
            seal(folder, self.seconds + time.monotonic() - self.started)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self._cast_adapter()
        folder = Path(resume_from_checkpoint)
        self.exposed = exposure.read(folder / EXPOSURE)
        self.seconds = json.loads((folder / SEAL).read_text(encoding="utf-8"))["seconds"]


def seal(folder: Path, seconds: float) -> None:
    """Declares a checkpoint whole: the hashes of its files, in a file that appears at once or not at all."""
    files = {
        path.relative_to(folder).as_posix(): _sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    partial = folder / f"{SEAL}.partial"
    partial.write_text(json.dumps({"seconds": seconds, "sha256": files}, indent=1), encoding="utf-8")
    os.replace(partial, folder / SEAL)


def last_sealed(checkpoints: Path) -> Path | None:
    """The sealed checkpoint with the highest step, or None. Deletes those that are not whole."""
    found = sorted(checkpoints.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    last = None
    for folder in found:
        if _whole(folder):
            last = folder
        else:
            shutil.rmtree(folder)
    return last


def _whole(folder: Path) -> bool:
    try:
        files = json.loads((folder / SEAL).read_text(encoding="utf-8"))["sha256"]
        return all(_sha256(folder / name) == sha256 for name, sha256 in files.items())
    except OSError:
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
