"""Measures lock step against one episode at a time, and our backend against lm-eval's own.

    python -m stsr.eval_tasks.bench out/tiny-base --horizon 8 --episodes 20 --batch-size 16

Both ways run the same episodes greedily; their transcripts must be equal, or the measurement is an error.
Source: ours (the target is in the design's table of speeds: 3x on two CPU cores, 10x on a GPU).
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
from stsr.eval_tasks.rollout import REQUEST_TYPE, RolloutRequest, stsr_rollout
from stsr.generators import chain
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
    stsr_rollout(lm, asked[:1], disable_tqdm=True)  # warm-up: caches, threads, kernels
    begun = time.perf_counter()
    single = [stsr_rollout(lm, [request], disable_tqdm=True)[0] for request in asked]
    between = time.perf_counter()
    together = stsr_rollout(lm, asked, disable_tqdm=True)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", help="Hub id or folder")
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

    options = {"pretrained": chosen.model, "dtype": chosen.dtype, "device": chosen.device}
    seeds = range(62000, 62000 + chosen.episodes)
    both = [
        benchmark(
            kind(**options, batch_size=chosen.batch_size, enable_thinking=False),
            horizon=chosen.horizon,
            view=chosen.view,
            seeds=seeds,
        )
        for kind in (HFLM, SharedPrefixLM)
    ]
    theirs, ours = both
    report = {
        "backends": [asdict(figures) | {"speedup": figures.speedup} for figures in both],
        "ours_in_lock_step_against_theirs_one_at_a_time": theirs.single_seconds / ours.lock_step_seconds,
    }
    text = json.dumps(report, indent=2)
    print(text)
    if chosen.out:
        chosen.out.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
