"""Whether the batch size changes answers: probes, choices and free runs at several sizes, flips one by one.

    python -m stsr.eval_tasks.flips recipes/bases/tiny
    python -m stsr.eval_tasks.flips recipes/bases/tiny --adapter DIR --horizon 16 --workflows 20

A batch pads its prompts to one length, and other shapes round otherwise in the last bits. So an answer can
flip where two tokens are all but equally likely. Everything runs on our backend under each size; a rollout
whose answers are not the same under all of them is listed with its first difference. A change of an answer
need not change what is scored: the list says whether it does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stsr.eval_tasks.bench import MAX_GEN_TOKS, requests
from stsr.eval_tasks.episodes import Choice, Probe, Rollout
from stsr.eval_tasks.rollout import RolloutRequest, run
from stsr.generators import chain, choice
from stsr.generators.rows import decision_rows, gold_states
from stsr.generators.tasks import Task

SIZES = (1, 4, 16)


@dataclass(frozen=True)
class Flip:
    """A rollout whose answers differ between batch sizes."""

    id: str
    """Of the decision or the episode."""
    kind: str
    call: int
    """The first call that differs, from 1."""
    outputs: dict[int, str]
    """Batch size -> the raw output of that call."""
    scored: bool
    """Whether agreement or legality differs too; of a free run success, progress, calls or rejections."""

    def __str__(self) -> str:
        said = "; ".join(f"{size}: {output!r}" for size, output in self.outputs.items())
        scores = "scores differ" if self.scored else "scores are equal"
        return f"{self.id}, {self.kind}, call {self.call}, {scores}. {said}"


def find_flips(lm: Any, asked: Sequence[RolloutRequest], sizes: Sequence[int] = SIZES) -> list[Flip]:
    """Runs `asked` on an HFLM at each batch size; the rollouts that are not the same at all of them.

    Two rollouts are the same if all raw outputs are.
    """
    before, found = lm.batch_size_per_gpu, dict[int, list[Any]]()
    for size in sizes:
        lm.batch_size_per_gpu = size
        found[size] = [json.loads(result) for result in run(lm, asked, disable_tqdm=True)]
    lm.batch_size_per_gpu = before
    return [
        flip
        for results in zip(*found.values(), strict=True)
        if (flip := _flip(dict(zip(sizes, results, strict=True))))
    ]


def _flip(results: dict[int, dict[str, Any]]) -> Flip | None:
    turns = {size: result.get("turns") or [result["turn"]] for size, result in results.items()}
    outputs = {size: [turn["output"] for turn in some] for size, some in turns.items()}
    first = next(iter(results))
    if all(said == outputs[first] for said in outputs.values()):
        return None
    at = next(at for at in range(max(map(len, outputs.values()))) if len({*_at(outputs, at).values()}) > 1)
    scores = [_scored(result) for result in results.values()]
    return Flip(
        id=results[first]["id"],
        kind=results[first]["kind"],
        call=at + 1,
        outputs=_at(outputs, at),
        scored=any(score != scores[0] for score in scores),
    )


def _at(outputs: dict[int, list[str]], at: int) -> dict[int, str]:
    return {size: said[at] if at < len(said) else "" for size, said in outputs.items()}


def _scored(result: dict[str, Any]) -> tuple[Any, ...]:
    if "turn" in result:
        return result["agree"], result["turn"]["verdict"]
    return tuple(result[key] for key in ("success", "verified", "calls", "rejections"))


def asked_of(chat: Any, horizon: int, views: Iterable[str], workflows: int) -> list[RolloutRequest]:
    """Every decision and a free run of so many test workflows under each view, and as many pivotal choices.

    `chat` is the LM's apply_chat_template.
    """
    seeds = range(62000, 62000 + workflows)
    tasks = [chain.generate(horizon, seed) for seed in seeds]
    variants = choice.FAMILY.variants
    pairs = [choice.generate(16, 72000 + seed, variant) for seed in range(workflows) for variant in variants]
    asked: list[RolloutRequest] = []
    for view in views:
        asked += requests(tasks, view, chat)
        for task in tasks:
            asked += _probes(Probe, task, view, chat)
        for task in pairs:
            asked += _probes(Choice, task, view, chat, pivot_only=True)
    return asked


def _probes(
    kind: type[Probe], task: Task, view: str, chat: Any, *, pivot_only: bool = False
) -> list[RolloutRequest]:
    states = gold_states(task)
    rows = decision_rows(task, [view], pivot_only)
    begins: list[Callable[[], Rollout]] = [partial(kind, row, states[row["stage"] - 1]) for row in rows]
    template = requests([task] * len(begins), view, chat, MAX_GEN_TOKS)
    for request, begin in zip(template, begins, strict=True):
        request.begin = begin
    return template


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", help="Hub id or folder")
    parser.add_argument("--adapter", help="folder of an adapter to put on the model")
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--views", nargs="+", default=["full", "compact"])
    parser.add_argument("--workflows", type=int, default=10)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    from stsr.eval_tasks.shared_prefix import SharedPrefixLM

    options = {"pretrained": chosen.model, "dtype": chosen.dtype, "device": chosen.device}
    lm = SharedPrefixLM(
        **options, enable_thinking=False, **({"peft": chosen.adapter} if chosen.adapter else {})
    )
    asked = asked_of(lm.apply_chat_template, chosen.horizon, chosen.views, chosen.workflows)
    found = find_flips(lm, asked)
    for flip in found:
        print(flip)
    print(f"{len(found)} of {len(asked)} rollouts differ between batch sizes {', '.join(map(str, SIZES))}")


if __name__ == "__main__":
    main()
