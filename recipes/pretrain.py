"""Pretrains the tiny base model from scratch on a CPU, tokenizer included.

    python -m stsr.recipes.pretrain recipes/pretraining/tiny-base.yaml --out out/tiny-base

The command continues from its last checkpoint when it was interrupted. Invariant: a resumed run equals an
uninterrupted one on the same machine and thread count, since data depend on the step number alone.
Source: ours (the curriculum of recipes/curriculum.py).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from stsr.generators import prompts
from stsr.generators.declaration import load
from stsr.recipes import curriculum, tokenizer
from stsr.recipes.chat import QWEN3_TEMPLATE

IGNORED = -100
"""Label of positions that carry no loss."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The keys of a pretraining recipe; all are required."""

    vocabulary: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    max_position_embeddings: int
    rope_theta: float
    tokenizer_examples: int
    held_out_examples: int
    seed: int
    steps: int
    examples_per_step: int
    microbatches: int
    learning_rate: float
    warmup_steps: int
    beta1: float
    beta2: float
    weight_decay: float
    max_grad_norm: float
    checkpoint_every: int

    def rate(self, step: int) -> float:
        """Learning rate at `step` (0-based)."""
        return (
            self.learning_rate * min(1.0, (step + 1) / self.warmup_steps) * max(0.05, 1 - step / self.steps)
        )


Batch = tuple[torch.Tensor, torch.Tensor]


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """The tokenizer, fitted to pretraining examples and to the words of the project's instruction."""
    examples = [curriculum.example(index, "tokenizer", 1.0) for index in range(recipe.tokenizer_examples)]
    texts = [f"{turn.prompt}\n{turn.completion}" for example in examples for turn in example]
    return tokenizer.train([*texts, *[prompts.INSTRUCTION] * 300], recipe.vocabulary, QWEN3_TEMPLATE)


def build_model(recipe: Recipe, tok: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A freshly initialised model, in float32."""
    torch.manual_seed(recipe.seed)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tok),
            hidden_size=recipe.hidden_size,
            intermediate_size=recipe.intermediate_size,
            num_hidden_layers=recipe.num_hidden_layers,
            num_attention_heads=recipe.num_attention_heads,
            num_key_value_heads=recipe.num_attention_heads,
            head_dim=recipe.head_dim,
            max_position_embeddings=recipe.max_position_embeddings,
            rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tok.eos_token_id,
            pad_token_id=tok.pad_token_id,
        )
    )


def conversation(tok: PreTrainedTokenizerFast, turns: list[curriculum.Turn]) -> tuple[list[int], list[int]]:
    """(ids, labels) of one example; each turn begins exactly as an evaluation prompt does."""
    ids: list[int] = []
    labels: list[int] = []
    for turn in turns:
        user = [{"role": "user", "content": turn.prompt}]
        head = tok.apply_chat_template(
            user, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        context, answer = tok(head)["input_ids"], [*tok(turn.completion)["input_ids"], tok.eos_token_id]
        newline = tok("\n")["input_ids"]
        ids += [*context, *answer, *newline]
        labels += [*[IGNORED] * len(context), *answer, *[IGNORED] * len(newline)]
    return ids, labels


def encode(tok: PreTrainedTokenizerFast, examples: list[list[curriculum.Turn]]) -> Batch:
    """(input ids, labels), both [n, longest], right-padded; labels cover completions and ends of turn."""
    rows = [conversation(tok, turns) for turns in examples]
    width = max(len(ids) for ids, _ in rows)
    return (
        torch.tensor([[*ids, *[tok.pad_token_id] * (width - len(ids))] for ids, _ in rows]),
        torch.tensor([[*labels, *[IGNORED] * (width - len(labels))] for _, labels in rows]),
    )


def logits_and_labels(model: Qwen3ForCausalLM, batch: Batch) -> Batch:
    """([m, vocabulary], [m]) for the m positions of completions; the head runs on those alone."""
    ids, labels = batch
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    wanted = labels[:, 1:] != IGNORED
    return model.lm_head(hidden[wanted]), labels[:, 1:][wanted]


def accuracy(
    model: Qwen3ForCausalLM, tok: PreTrainedTokenizerFast, questions: list[curriculum.Turn]
) -> dict[str, float]:
    """Share of questions whose whole completion is the argmax at every position, by kind and under "all".

    That is what greedy decoding would return: each position's context is right if all before it were.
    """
    model.eval()
    right: dict[str, list[bool]] = {}
    questions = sorted(questions, key=lambda turn: len(turn.prompt))
    for begin in range(0, len(questions), 32):
        part = questions[begin : begin + 32]
        batch = encode(tok, [[turn] for turn in part])
        with torch.inference_mode():
            logits, labels = logits_and_labels(model, batch)
        wanted = batch[1][:, 1:] != IGNORED
        hit = torch.ones_like(wanted)
        hit[wanted] = logits.argmax(-1) == labels
        for turn, ok in zip(part, hit.all(1).tolist(), strict=True):
            right.setdefault(turn.kind, []).append(ok)
    model.train()
    right["all"] = [ok for oks in right.values() for ok in oks]
    return {kind: sum(oks) / len(oks) for kind, oks in sorted(right.items())}


class Losses(NamedTuple):
    """Mean cross-entropy in nats per token."""

    completion: float
    prompt: float


def train_step(
    model: Qwen3ForCausalLM,
    tok: PreTrainedTokenizerFast,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    step: int,
) -> Losses:
    """One optimizer step on examples step*n .. step*n + n-1.

    The loss is the mean over completion tokens plus the mean over prompt tokens. States repeat most of their
    rows from table to table, so reading them is where the model learns to copy.
    """
    n = recipe.examples_per_step
    examples = [curriculum.example(index, "train", step / recipe.steps) for index in range(step * n, (step + 1) * n)]
    examples.sort(key=lambda turns: sum(len(turn.prompt) for turn in turns))
    size = n // recipe.microbatches
    batches = [encode(tok, examples[at : at + size]) for at in range(0, n, size)]
    padding = tok.pad_token_id
    answers = sum(int((labels != IGNORED).sum()) for _, labels in batches)
    others = sum(int((ids[:, 1:] != padding).sum()) for ids, _ in batches) - answers
    completion = prompt = 0.0
    for ids, labels in batches:
        logits = model.lm_head(model.model(input_ids=ids).last_hidden_state[:, :-1]).flatten(0, 1)
        targets, is_answer = ids[:, 1:].flatten(), (labels[:, 1:] != IGNORED).flatten()
        losses = torch.nn.functional.cross_entropy(logits, targets, ignore_index=padding, reduction="none")
        on_answers, on_prompts = losses[is_answer].sum() / answers, losses[~is_answer].sum() / others
        (on_answers + on_prompts).backward()  # type: ignore[no-untyped-call]
        completion, prompt = completion + on_answers.item(), prompt + on_prompts.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate(step)
    optimizer.step()
    optimizer.zero_grad()
    return Losses(completion, prompt)


def save_checkpoint(
    folder: Path, step: int, model: Qwen3ForCausalLM, optimizer: torch.optim.Optimizer
) -> None:
    """Weights and optimizer state after `step` steps, as one safetensors file, replaced atomically."""
    tensors = {f"model.{name}": value for name, value in model.named_parameters()}
    for name, value in model.named_parameters():
        for key, moment in optimizer.state[value].items():
            tensors[f"optimizer.{key}.{name}"] = moment
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, folder / "new", {"step": str(step)})
    os.replace(folder / "new", folder / "checkpoint.safetensors")


def load_checkpoint(folder: Path, model: Qwen3ForCausalLM, optimizer: torch.optim.Optimizer) -> int:
    """Restores model and optimizer in place; returns the number of steps done (0 without a checkpoint)."""
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return 0
    tensors = load_file(path)
    for name, value in model.named_parameters():
        value.data.copy_(tensors[f"model.{name}"])
        optimizer.state[value] = {
            key: tensors[f"optimizer.{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq")
        }
    return int(next(iter(optimizer.state.values()))["step"].item())


def pretrain(recipe: Recipe, out: Path) -> dict[str, Any]:
    """Trains, and saves model (bfloat16), tokenizer and `pretrain.json` to `out`; returns what that holds.

    Raises FileExistsError if `out` exists.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists already; delete it to pretrain again")
    work = out.with_name(out.name + ".work")
    tok = build_tokenizer(recipe)
    model = build_model(recipe, tok)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=recipe.weight_decay,
    )
    held_out = [curriculum.example(index, "held-out", 1.0, 1)[0] for index in range(recipe.held_out_examples)]
    done = load_checkpoint(work, model, optimizer)
    bar = tqdm(range(done, recipe.steps), initial=done, total=recipe.steps, unit="step", mininterval=5)
    model.train()
    for step in bar:
        losses = train_step(model, tok, optimizer, recipe, step)
        bar.set_postfix(completion=f"{losses.completion:.3f}", prompt=f"{losses.prompt:.3f}")
        if (step + 1) % recipe.checkpoint_every == 0 or step + 1 == recipe.steps:
            save_checkpoint(work, step + 1, model, optimizer)
        if (step + 1) % (2 * recipe.checkpoint_every) == 0:
            bar.write(json.dumps({"step": step + 1, **_rounded(accuracy(model, tok, held_out))}))
    model.to(torch.bfloat16)
    facts = {
        "recipe": asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "held_out_accuracy": _rounded(accuracy(model, tok, held_out)),
        "torch": torch.__version__,
    }
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tok.save_pretrained(partial)
    (partial / "pretrain.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    os.replace(partial, out)
    return facts


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {kind: round(score, 4) for kind, score in scores.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    pretrain(load(Recipe, arguments.recipe), arguments.out)


if __name__ == "__main__":
    main()
