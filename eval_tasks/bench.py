"""Measures lock step against one episode at a time, and our backend against lm-eval's own.

    python -m stsr.eval_tasks.bench out/tiny-base --horizon 8 --episodes 20 --batch-size 16
    python -m stsr.eval_tasks.bench out/tiny-base --adapter out/train/tiny-h4-full/adapter --horizon 4

The first table: lock step against one episode at a time, for each backend. The second, `prompts`: the same
prompts answered greedily by lm-eval's HFLM, by ours without candidates tried first, and by ours as it is. All
ways must give the same answers, or the measurement is an error. Source: ours (the design's table of speeds:
3x on two CPU cores, 10x on a GPU; a tenth of the forward passes on tuned models).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stsr.eval_tasks.episodes import Episode
from stsr.eval_tasks.rollout import REQUEST_TYPE, RolloutRequest, run
from stsr.generators import chain
from stsr.generators.rows import decision_rows
from stsr.generators.tasks import Task

MAX_GEN_TOKS = 160


class UnequalError(RuntimeError):
    """Two ways that must give the same did not, so their speeds say nothing. The message is one line."""


@dataclass(frozen=True)
class Figures:
    """What one measurement gave."""

    backend: str
    """lm-eval model class."""
    horizon: int
    view: str
    episodes: int
    batch_size: int | str
    calls: int
    """Calls of the model, rejected ones included; the same for both ways."""
    successes: int
    """Episodes that succeeded; the same for both ways."""
    single_seconds: float
    """Wall time, one episode after the other."""
    lock_step_seconds: float
    """Wall time, all episodes in lock step."""

    @property
    def speedup(self) -> float:
        """How many times the calls a second of one episode at a time."""
        return self.single_seconds / self.lock_step_seconds


def requests(
    tasks: Iterable[Task], view: str, chat: Any, max_gen_toks: int = MAX_GEN_TOKS
) -> list[RolloutRequest]:
    """One free-run request a task, as the lm-eval task makes them. `chat` is the LM's apply_chat_template."""
    arguments = {"until": [], "max_gen_toks": max_gen_toks, "do_sample": False}
    return [
        RolloutRequest(
            request_type=REQUEST_TYPE,
            doc={"id": task.id},
            arguments=("", arguments),
            idx=0,
            metadata=("bench", index, 1),
            begin=partial(Episode, task, view),
            chat=chat,
        )
        for index, task in enumerate(tasks)
    ]


def benchmark(
    lm: Any,
    *,
    horizon: int = 8,
    view: str = "compact",
    seeds: Sequence[int] = range(62000, 62020),
    max_gen_toks: int = MAX_GEN_TOKS,
) -> Figures:
    """Runs the episodes of `seeds` both ways on the LM. Raises UnequalError if transcripts differ."""
    tasks = [chain.generate(horizon, seed) for seed in seeds]
    asked = requests(tasks, view, lm.apply_chat_template, max_gen_toks)
    run(lm, asked[:1], disable_tqdm=True)  # warm-up: caches, threads, kernels
    begun = time.perf_counter()
    single = [run(lm, [request], disable_tqdm=True)[0] for request in asked]
    between = time.perf_counter()
    together = run(lm, asked, disable_tqdm=True)
    ended = time.perf_counter()
    differing = [task.id for task, a, b in zip(tasks, single, together, strict=True) if a != b]
    if differing:
        raise UnequalError(
            f"lock step gave other transcripts than one episode at a time in {len(differing)} of "
            f"{len(tasks)} episodes under {view}, such as {differing[0]}"
        )
    outcomes = [json.loads(result) for result in together]
    return Figures(
        backend=type(lm).__name__,
        horizon=horizon,
        view=view,
        episodes=len(outcomes),
        batch_size=getattr(lm, "batch_size", 1),
        calls=sum(outcome["calls"] for outcome in outcomes),
        successes=sum(outcome["success"] for outcome in outcomes),
        single_seconds=between - begun,
        lock_step_seconds=ended - between,
    )


@dataclass(frozen=True)
class Answered:
    """How one backend answered a list of prompts."""

    backend: str
    calls: int
    """Prompts answered."""
    prompt_tokens: int
    passes: int
    """Forward passes of the network, whatever their size."""
    seconds: float
    """The fastest of the repeats."""
    settled: int
    """Answers that a shown candidate settled without decoding."""

    @property
    def rates(self) -> dict[str, float]:
        """Calls and prompt tokens a second."""
        return {
            "calls_per_second": self.calls / self.seconds,
            "prompt_tokens_per_second": self.prompt_tokens / self.seconds,
        }


def answer(
    lm: Any, backend: str, prompts: Sequence[str], offers: dict[str, list[str]], repeats: int
) -> tuple[Answered, list[str]]:
    """Answers prompts greedily on an HFLM; the figures, and the answers."""
    from lm_eval.api.instance import Instance

    passes, best, answers = [0], float("inf"), list[str]()
    # Every pass looks its tokens up once, with an adapter or without.
    embedding = lm.model.get_input_embeddings()
    hook = embedding.register_forward_hook(lambda *_: passes.__setitem__(0, passes[0] + 1))
    arguments = {"until": [], "max_gen_toks": MAX_GEN_TOKS, "do_sample": False}
    asked = [Instance("generate_until", {}, (prompt, arguments), 0, ("bench", 0, 1)) for prompt in prompts]
    before = 0
    for _ in range(repeats):
        if hasattr(lm, "offers"):
            lm.offers, before = offers, lm.settled
        passes[0] = 0
        begun = time.perf_counter()
        answers = lm.generate_until(asked, disable_tqdm=True)
        best = min(best, time.perf_counter() - begun)
    hook.remove()
    return (
        Answered(
            backend=backend,
            calls=len(prompts),
            prompt_tokens=sum(len(lm.tok_encode(prompt)) for prompt in prompts),
            passes=passes[0],
            seconds=best,
            settled=getattr(lm, "settled", 0) - before,
        ),
        answers,
    )


def prefill_bound(lm: Any, prompts: Sequence[str], repeats: int) -> float:
    """Seconds to run every prompt through the network once, in the same batches, without any decoding; the
    fastest of the repeats."""
    import torch

    ordered = sorted(prompts, key=lambda prompt: -len(lm.tok_encode(prompt)))
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        with torch.inference_mode():
            for at in range(0, len(ordered), lm.batch_size):
                ids, mask = lm.tok_batch_encode(ordered[at : at + lm.batch_size])
                lm.model(input_ids=ids.to(lm.device), attention_mask=mask.to(lm.device), logits_to_keep=1)
        best = min(best, time.perf_counter() - begun)
    return best


def answering(
    options: dict[str, Any], horizon: int, view: str, seeds: Sequence[int], repeats: int = 2
) -> dict[str, Any]:
    """The probes of `seeds`, answered in three ways. Raises UnequalError if answers differ."""
    from lm_eval.models.huggingface import HFLM

    from stsr.eval_tasks.rollout import render
    from stsr.eval_tasks.shared_prefix import SharedPrefixLM

    theirs = HFLM(**options)
    rows = [row for seed in seeds for row in decision_rows(chain.generate(horizon, seed), [view])]
    prompts = [str(render(row["prompt"], theirs.apply_chat_template)) for row in rows]
    offers = {prompt: row["candidates"] for prompt, row in zip(prompts, rows, strict=True)}
    ways = {
        "HFLM": theirs,
        "SharedPrefixLM, decoding all": SharedPrefixLM(**options, verify=False),
        "SharedPrefixLM": SharedPrefixLM(**options),
    }
    found = {name: answer(lm, name, prompts, offers, repeats) for name, lm in ways.items()}
    first = found["HFLM"][1]
    for name, (_, answers) in found.items():
        if answers != first:
            at = next(i for i, (a, b) in enumerate(zip(answers, first, strict=True)) if a != b)
            raise UnequalError(f"{name} answers {rows[at]['id']} otherwise than HFLM")
    bound = prefill_bound(theirs, prompts, repeats)
    plain, decoding, ours = (figures for figures, _ in found.values())
    right = sum(said == row["candidates"][row["target_index"]] for said, row in zip(first, rows, strict=True))
    return {
        "ways": [asdict(figures) | figures.rates for figures, _ in found.values()],
        "right": right,
        "prefill_only_seconds": bound,
        "share_of_prefill_only_bound": bound / ours.seconds,
        "passes_against_HFLM": plain.passes / ours.passes,
        "seconds_against_HFLM": plain.seconds / ours.seconds,
        "seconds_against_decoding_all": decoding.seconds / ours.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", help="Hub id or folder")
    parser.add_argument("--adapter", help="folder of an adapter to put on the model")
    parser.add_argument("--only", choices=["episodes", "prompts"], help="one of the two tables alone")
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--view", default="compact")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="also write the figures there, as JSON")
    chosen = parser.parse_args()
    from lm_eval.models.huggingface import HFLM

    from stsr.eval_tasks.shared_prefix import SharedPrefixLM

    options = {
        "pretrained": chosen.model,
        "dtype": chosen.dtype,
        "device": chosen.device,
        "batch_size": chosen.batch_size,
        "enable_thinking": False,
    } | ({"peft": chosen.adapter} if chosen.adapter else {})
    seeds = range(62000, 62000 + chosen.episodes)
    report: dict[str, Any] = {}
    if chosen.only != "prompts":
        theirs, ours = (
            benchmark(kind(**options), horizon=chosen.horizon, view=chosen.view, seeds=seeds)
            for kind in (HFLM, SharedPrefixLM)
        )
        report["backends"] = [asdict(figures) | {"speedup": figures.speedup} for figures in (theirs, ours)]
        report["ours_in_lock_step_against_theirs_one_at_a_time"] = (
            theirs.single_seconds / ours.lock_step_seconds
        )
    if chosen.only != "episodes":
        report["prompts"] = answering(options, chosen.horizon, chosen.view, seeds)
    text = json.dumps(report, indent=2)
    print(text)
    if chosen.out:
        chosen.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
