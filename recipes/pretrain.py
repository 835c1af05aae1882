"""Pretrains the tiny base model from scratch on a CPU, tokenizer included.

    stsr pretrain recipes/pretraining/tiny-base.yaml --out out/tiny-base

The command continues from its last checkpoint when it was interrupted. Invariant: a resumed run equals an
uninterrupted one on the same machine and thread count, since data depend on the step number alone.
Source: ours (the curriculum of recipes/curriculum.py).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from stsr.generators import prompts
from stsr.recipes import curriculum, tokenizer
from stsr.recipes.chat import QWEN3_TEMPLATE
from stsr.recipes.wiring import wire

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
        """Learning rate at `step` (0-based): linear warm-up, linear decay to a twentieth."""
        warm = self.learning_rate * min(1.0, (step + 1) / self.warmup_steps)
        return warm * max(0.05, 1 - step / self.steps)


Batch = tuple[torch.Tensor, torch.Tensor]
Facts = dict[str, Any]


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerFast:
    """The tokenizer, fitted to pretraining examples and to the words of the project's instruction."""
    examples = [curriculum.example(index, "tokenizer", 1.0) for index in range(recipe.tokenizer_examples)]
    texts = [f"{example.prompt}\n{example.completion}" for example in examples]
    return tokenizer.train([*texts, *[prompts.INSTRUCTION] * 300], recipe.vocabulary, QWEN3_TEMPLATE)


def build_model(recipe: Recipe, tok: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A fresh model in float32: random weights, and heads that copy (recipes/wiring.py)."""
    torch.manual_seed(recipe.seed)
    model = Qwen3ForCausalLM(
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
    wire(model, recipe.seed)
    return model


def encode(tok: PreTrainedTokenizerFast, examples: list[curriculum.Example]) -> Batch:
    """(input ids, labels), both [n, longest], right-padded; labels cover completion and end of turn."""
    users = [[{"role": "user", "content": example.prompt}] for example in examples]
    heads = tok.apply_chat_template(users, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    contexts = tok(heads)["input_ids"]
    answers = [[*ids, tok.eos_token_id] for ids in tok([e.completion for e in examples])["input_ids"]]
    width = max(len(context) + len(answer) for context, answer in zip(contexts, answers, strict=True))
    ids, labels = [], []
    for context, answer in zip(contexts, answers, strict=True):
        padding = width - len(context) - len(answer)
        ids.append([*context, *answer, *[tok.pad_token_id] * padding])
        labels.append([*[IGNORED] * len(context), *answer, *[IGNORED] * padding])
    return torch.tensor(ids), torch.tensor(labels)


def logits_and_labels(model: Qwen3ForCausalLM, batch: Batch) -> Batch:
    """([m, vocabulary], [m]) for the m positions that carry loss; the head runs on those alone."""
    ids, labels = batch
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
    wanted = labels[:, 1:] != IGNORED
    return model.lm_head(hidden[wanted]), labels[:, 1:][wanted]


def accuracy(
    model: Qwen3ForCausalLM, tok: PreTrainedTokenizerFast, questions: list[curriculum.Example]
) -> dict[str, float]:
    """Share of questions whose whole completion is the argmax at every position, by kind and under "all".

    That is what greedy decoding would return: each position's context is right if all before it were.
    """
    model.eval()
    right: dict[str, list[bool]] = {}
    questions = sorted(questions, key=lambda example: len(example.prompt))
    for begin in range(0, len(questions), 32):
        part = questions[begin : begin + 32]
        batch = encode(tok, part)
        with torch.inference_mode():
            logits, labels = logits_and_labels(model, batch)
        wanted = batch[1][:, 1:] != IGNORED
        hit = torch.ones_like(wanted)
        hit[wanted] = logits.argmax(-1) == labels
        for example, ok in zip(part, hit.all(1).tolist(), strict=True):
            right.setdefault(example.kind, []).append(ok)
    model.train()
    right["all"] = [ok for oks in right.values() for ok in oks]
    return {kind: sum(oks) / len(oks) for kind, oks in sorted(right.items())}


def train_step(
    model: Qwen3ForCausalLM,
    tok: PreTrainedTokenizerFast,
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    step: int,
) -> float:
    """One optimizer step on examples step*n .. step*n + n-1; returns the mean loss per completion token.

    Examples are sorted by length and computed in `microbatches` parts, which pads less.
    """
    n, parts = recipe.examples_per_step, recipe.microbatches
    indexes = range(step * n, (step + 1) * n)
    examples = [curriculum.example(index, "train", step / recipe.steps) for index in indexes]
    examples.sort(key=lambda example: len(example.prompt))
    batches = [encode(tok, examples[n * at // parts : n * (at + 1) // parts]) for at in range(parts)]
    tokens = sum(int((labels != IGNORED).sum()) for _, labels in batches)
    total = 0.0
    for batch in batches:
        loss = torch.nn.functional.cross_entropy(*logits_and_labels(model, batch), reduction="sum") / tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = recipe.rate(step)
    optimizer.step()
    optimizer.zero_grad()
    return total


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


class PretrainError(RuntimeError):
    """A pretraining that must not go on; the message is one line for a person."""


def pretrain(recipe: Recipe, out: Path, card: Callable[[Facts], str]) -> Facts:
    """Trains, saves model (bfloat16), tokenizer, `pretrain.json` and card to `out`, and returns the facts.

    An interrupted run continues; a finished one is left alone. Raises PretrainError if `out`, or the work
    folder beside it, belongs to another recipe.
    """
    declared = json.loads(json.dumps(asdict(recipe)))
    if out.exists():
        if not (out / "pretrain.json").exists():
            raise PretrainError(f"{out} exists and holds no pretrained model; choose another folder")
        facts: Facts = json.loads((out / "pretrain.json").read_text(encoding="utf-8"))
        _same_recipe(out, facts["recipe"], declared)
        return facts
    work = _work_folder(out, declared)
    tok = build_tokenizer(recipe)
    model = build_model(recipe, tok)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=recipe.weight_decay,
    )
    held_out = [curriculum.example(index, "held-out", 1.0) for index in range(recipe.held_out_examples)]
    done = load_checkpoint(work, model, optimizer)
    bar = tqdm(range(done, recipe.steps), initial=done, total=recipe.steps, unit="step", mininterval=5)
    model.train()
    for step in bar:
        bar.set_postfix(loss=f"{train_step(model, tok, optimizer, recipe, step):.3f}")
        if (step + 1) % recipe.checkpoint_every == 0 or step + 1 == recipe.steps:
            save_checkpoint(work, step + 1, model, optimizer)
        if (step + 1) % (2 * recipe.checkpoint_every) == 0:
            bar.write(json.dumps({"step": step + 1, **_rounded(accuracy(model, tok, held_out))}))
    model.to(torch.bfloat16)
    facts = {
        "recipe": declared,
        "parameters": sum(p.numel() for p in model.parameters()),
        "held_out_accuracy": _rounded(accuracy(model, tok, held_out)),
        "torch": torch.__version__,
    }
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    tok.save_pretrained(partial)
    (partial / "pretrain.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")
    (partial / "README.md").write_text(card(facts), encoding="utf-8")
    os.replace(partial, out)
    return facts


def _work_folder(out: Path, declared: Facts) -> Path:
    """Where checkpoints go. Raises PretrainError if it holds those of another recipe."""
    work = out.with_name(out.name + ".work")
    work.mkdir(parents=True, exist_ok=True)
    path = work / "recipe.json"
    if path.exists():
        _same_recipe(work, json.loads(path.read_text(encoding="utf-8")), declared)
    else:
        path.write_text(json.dumps(declared, indent=1) + "\n", encoding="utf-8")
    return work


def _same_recipe(folder: Path, there: Facts, declared: Facts) -> None:
    different = sorted(key for key in {*there, *declared} if there.get(key) != declared.get(key))
    if different:
        raise PretrainError(f"{folder} belongs to another recipe (other {', '.join(different)}); delete it")


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {kind: round(score, 4) for kind, score in scores.items()}
