"""What a run is trained on: rows loaded and checked.

    data = pin("stsr/table-workflows", "v1.0.0", "dataset")
    rows = load_rows(data, "h4-full", count=800)

Invariant: rows are read at a pinned revision only, and render the very tokens that an evaluation with
`enable_thinking=False` sends.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from typing import Any

from datasets import get_dataset_config_names, load_dataset
from datasets.exceptions import DatasetsError

from stsr.hub_cards.pins import Pin
from stsr.recipes.sft_recipe import TrainError

Row = dict[str, Any]


def load_rows(data: Pin, config: str, count: int) -> list[Row]:
    """The first `count` rows of the split `train` of a configuration of `data`.

    Raises TrainError, naming the alternatives: no such configuration, fewer rows, ids that repeat, or a row
    whose `chat_template_kwargs` are not `{"enable_thinking": false}`.
    """
    source, revision = data.source, data.commit
    try:
        configs = get_dataset_config_names(source, revision=revision)
    except (DatasetsError, OSError) as error:
        raise TrainError(f"{source}: {' '.join(str(error).split())}") from error
    if config not in configs:
        raise TrainError(f"{source} has no configuration {config!r}; there are {', '.join(configs)}")
    with tempfile.TemporaryDirectory() as empty:
        # the cache tells commits of a repository apart, but not two folders of one name
        cache = None if revision else empty
        split = load_dataset(source, config, split="train", revision=revision, cache_dir=cache)
        if count > len(split):
            raise TrainError(f"train_rows is {count}, but {source} {config} has {len(split)} training rows")
        rows: list[Row] = split.select(range(count)).to_list()
    _check_rows(rows)
    return rows


def _check_rows(rows: Sequence[Row]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row["id"] in seen:
            raise TrainError(f"the row id {row['id']} occurs twice")
        seen.add(row["id"])
        if row["chat_template_kwargs"] != {"enable_thinking": False}:
            raise TrainError(
                f"{row['id']}: chat_template_kwargs are {row['chat_template_kwargs']}, not "
                "{'enable_thinking': False}: the loss would cover the think block of the prompt"
            )


def rows_sha256(rows: Sequence[Row]) -> str:
    """SHA-256 over the rows as JSON lines with sorted keys: equal wherever the same rows were read from."""
    lines = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    return hashlib.sha256(lines.encode()).hexdigest()


def context_tokens(tokenizer: Any, prompt: list[dict[str, str]]) -> list[int]:
    """Token ids that an evaluation sends for a prompt: the generation prompt with thinking disabled."""
    rendered = tokenizer.apply_chat_template(
        prompt, add_generation_prompt=True, enable_thinking=False, return_dict=True
    )
    return list(rendered["input_ids"])


def check_lengths(lengths: Sequence[tuple[str, int]], max_length: int | None) -> None:
    """Refuses rows of more than `max_length` tokens. `lengths` are (row id, tokens).

    Raises TrainError that counts them, names one of the longest and the `max_length` that would do.
    """
    if max_length is None:
        return
    if long := [(row_id, tokens) for row_id, tokens in lengths if tokens > max_length]:
        worst, tokens = max(long, key=lambda item: item[1])
        raise TrainError(
            f"{len(long)} of {len(lengths)} rows exceed max_length {max_length}; the longest, {worst}, has "
            f"{tokens} tokens. Rows are never truncated: use max_length {tokens} or more, or a shorter view"
        )


def check_tokens(row: Row, input_ids: list[int], labels: list[int], tokenizer: Any) -> None:
    """Checks what TRL made of a row: context as evaluated, loss on completion and end of turn alone.

    Raises TrainError that names the row.
    """
    context, end = context_tokens(tokenizer, row["prompt"]), tokenizer.eos_token_id
    n = len(context)
    if input_ids[:n] != context or any(label != -100 for label in labels[:n]):
        raise TrainError(f"{row['id']}: the training context is not the prompt that an evaluation sends")
    if labels[n:] != input_ids[n:] or end not in labels[n:]:
        raise TrainError(f"{row['id']}: the loss does not cover the whole completion and its end of turn")
