"""Six scripted policies in every task of the suite: numbers by hand, and those of an independent environment.

    pytest tests/eval_tasks/test_every_task.py

`tests.generators.independent` judges each reply from the published definitions alone; it shares no code with
the project. Three seeds a split, two of the crossover's.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import lm_eval
import pyarrow.parquet as pq
import pytest

from stsr.eval_tasks import suite
from stsr.eval_tasks.bench import requests
from stsr.eval_tasks.rollout import stsr_rollout
from stsr.generators import chain
from tests.generators.independent import Replay, World

Doc = dict[str, Any]
Policy = Callable[[str, Doc], str]
"""Reply to a prompt of a document, which is a published decision or a published task."""
MEMBERS = suite.members()


def shown(prompt: str) -> list[str]:
    """The replies that a prompt offers."""
    lines = prompt.split("Recipes:\n")[1].split("\n\nCalls left")[0].split("\n")
    return [f'{{"recipe":"{line[:2]}"}}' if line[2:3] == ":" else line for line in lines]


# -- policies


def oracle(prompt: str, doc: Doc) -> str:
    """A decision's published completion; of a task, the first gold call of which no output is there yet."""
    if "completion" in doc:
        return str(doc["completion"][0]["content"])
    state = prompt.split("State:\n")[1].split("\n\n")[0]
    names = {line.split(": ")[0] for line in state.split("\n")}
    targets = (decision.target for decision in replay_of(doc).decisions)
    return next(target for target in targets if json.loads(target)["output"] not in names)


def first(prompt: str, doc: Doc) -> str:
    """Always what is shown first."""
    return shown(prompt)[0]


def stuck(prompt: str, doc: Doc) -> str:
    """The task's first gold call, for ever; the first id where ids are asked for."""
    reply = shown(prompt)[0]
    return reply if reply.startswith('{"recipe"') else replay_of(doc).decisions[0].target


def echo(prompt: str, doc: Doc) -> str:
    """The prompt itself."""
    return prompt


def junk(prompt: str, doc: Doc) -> str:
    """Brackets and braces without end."""
    return "[{" * 900 + "\x00\ud83d NaN}"


def chance(seed: int, prompt: str, doc: Doc) -> str:
    """One of what is shown, each as likely; the same for the same prompt."""
    return random.Random(f"{seed} {prompt}").choice(shown(prompt))


POLICIES: dict[str, Policy] = {
    "oracle": oracle,
    "first": first,
    "stuck": stuck,
    "echo": echo,
    "junk": junk,
    "chance": partial(chance, 1),
}


def meant(prompt: str, output: str) -> str:
    """The call that an output amounts to, "" for none. Of a prompt, its first JSON value: a table's, or the
    example of an id, or else the first recipe."""
    if output != prompt:
        return output if "\x00" not in output else ""
    if " id" in prompt.split("\n")[0] and "State:" not in prompt:
        return json.dumps(
            json.loads(prompt[prompt.index("{") : prompt.index("}") + 1]), separators=(",", ":")
        )
    return "" if "{" in prompt.split("State:\n")[1].split("Recipes:")[0] else shown(prompt)[0]


# -- the independent judge


def replay_of(doc: Doc) -> Replay:
    return _replays(doc["task"] if "completion" in doc else doc["id"], DEFINITIONS[doc["fingerprint"]])


@cache
def _replays(task: str, definition: str) -> Replay:
    return Replay(task, definition)


DEFINITIONS: dict[str, str] = {}
"""Fingerprint -> definition, as published."""


class Judged(NamedTuple):
    agree: bool
    legal: bool
    progress: bool


def judge(doc: Doc, reply: str) -> Judged:
    """One reply to a published decision."""
    replay = replay_of(doc)
    numbered = {f'{{"recipe":"r{at}"}}': text for at, text in enumerate(doc["candidates"], 1)}
    reply = numbered.get(reply, reply)
    world = World(replay.definition)
    for earlier in replay.decisions[: doc["stage"] - 1]:
        world.submit(json.loads(earlier.target))
    before = world.verified()
    legal = bool(reply) and world.submit(json.loads(reply)) == ""
    target = replay.decisions[doc["stage"] - 1].target
    return Judged(legal and reply == target, legal, world.verified() > before)


def mean(values: list[Any]) -> float:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan


def decisions(docs: list[Doc], replies: list[str]) -> dict[str, float]:
    """All metrics of decisions."""
    judged = [judge(doc, reply) for doc, reply in zip(docs, replies, strict=True)]
    paths = defaultdict(list)
    for doc, one in zip(docs, judged, strict=True):
        paths[doc["task"]].append(one.agree)
    return {
        "agreement": mean([one.agree for one in judged]),
        "post4": mean([one.agree for doc, one in zip(docs, judged, strict=True) if doc["stage"] > 4]),
        "legal": mean([one.legal for one in judged]),
        "clean_path": mean([all(path) for path in paths.values()]),
        "noncanonical": mean([one.legal and not one.agree for one in judged]),
        "progress": mean([one.progress for one in judged]),
    }


def choices(docs: list[Doc], replies: list[str]) -> dict[str, float]:
    """All metrics of choices by likelihood: a reply that is not offered leaves all equally likely."""
    right = [
        reply == doc["candidates"][doc["target_index"]] for doc, reply in zip(docs, replies, strict=True)
    ]
    pairs = defaultdict(list)
    for doc, good in zip(docs, right, strict=True):
        pairs[doc["seed"]].append(good)
    tied = [reply not in doc["candidates"] for doc, reply in zip(docs, replies, strict=True)]
    return {"choice": mean(right), "both": mean([all(pair) for pair in pairs.values()]), "tie": mean(tied)}


def episodes(docs: list[Doc], replies: list[list[str]], begun: int) -> dict[str, float]:
    """All metrics of free runs; `begun` gold actions and one error came before."""
    found = defaultdict(list)
    for doc, calls in zip(docs, replies, strict=True):
        replay = replay_of(doc)
        world, rejected, other = World(replay.definition), 0, 0
        for earlier in [*replay.decisions[:begun], *replay.decisions[begun - 1 : begun]] if begun else []:
            world.submit(json.loads(earlier.target))
        required = {world.recipes[number]["output"] for number in world.gold}
        for reply in calls:
            assert world.left > 0, "a call after the budget's end"
            assert not required <= world.tables.keys(), "a call after the end"
            missing = [at for at in world.gold if world.recipes[at]["output"] not in world.tables]
            canonical = replay.texts[missing[0]]
            good = bool(reply) and world.submit(json.loads(reply)) == ""
            world.left -= not reply  # junk costs a call too
            rejected += not good
            other += good and reply != canonical
        assert world.left == 0 or required <= world.tables.keys(), "the end came early"
        verified = len(world.verified())
        found["success"].append(verified == replay.horizon)
        found["progress"].append(verified / replay.horizon)
        found["calls"].append(len(calls))
        found["rejection"].append(rejected > 0)
        found["recovery"].append(verified == replay.horizon if rejected else None)
        found["noncanonical"].append(other)
    return {name: mean(values) for name, values in found.items()}


# -- every task

NAN = math.nan
WRONG = {"agreement": 0, "post4": 0, "legal": 0, "clean_path": 0, "noncanonical": 0, "progress": 0}
RIGHT = {"agreement": 1, "post4": 1, "legal": 1, "clean_path": 1, "noncanonical": 0, "progress": 1}


def by_hand(policy: str, kind: str, horizons: list[int]) -> dict[str, float]:
    """What is certain of a policy whatever the tasks. `horizons` lists their lengths; metrics that a kind
    lacks don't count. Only the supplied recipe has tasks of several horizons."""
    horizon = max(horizons)
    calls = 27 if kind == "matched_error" else 2 * horizon  # the whole budget
    begun = 4 if kind == "matched_error" else 0
    failed = {"success": 0, "calls": calls, "rejection": 1, "recovery": 0, "noncanonical": 0}
    if kind == "choice":
        return {"oracle": {"choice": 1, "both": 1, "tie": 0}, "junk": {"choice": 0, "both": 0, "tie": 1}}[
            policy
        ]
    if kind in ("free_run", "free_run_legal", "matched_error"):
        won = {"success": 1, "progress": 1, "calls": horizon - begun, "rejection": 0, "recovery": NAN}
        return {
            "oracle": won | {"noncanonical": 0},
            "junk": failed | {"progress": begun / horizon},
            "stuck": failed | {"progress": max(begun, 1) / horizon},
        }[policy]
    one = dict.fromkeys(("agreement", "legal", "progress"), len(horizons) / sum(horizons))  # a path's first
    scores = {"oracle": RIGHT, "junk": WRONG, "stuck": WRONG | one}[policy]
    return scores if horizon > 4 else scores | {"post4": NAN}


def certain(policy: str, name: str) -> bool:
    """Whether `by_hand` knows: a stuck model may be right or wrong at a single decision or by likelihood."""
    kind = MEMBERS[name].kind
    return policy in ("oracle", "junk") or (
        policy == "stuck" and (kind in ("free_run", "free_run_legal", "matched_error") or whole_paths(name))
    )


def whole_paths(name: str) -> bool:
    """Whether a task's documents are all decisions of its workflows."""
    member = MEMBERS[name]
    return member.kind in ("oracle", "branching") and not member.view.endswith("-ids")


@pytest.fixture(scope="module")
def every(load: Any, data: Any, controls: Any) -> dict[str, Any]:
    """All tasks with documents, the fast ones apart."""
    for folder in (data, controls):
        for path in folder.glob("*tasks/*.parquet"):
            table = pq.read_table(path, columns=["fingerprint", "definition"]).to_pydict()
            DEFINITIONS.update(zip(table["fingerprint"], table["definition"], strict=True))
    return dict(load(*MEMBERS))


@pytest.fixture(scope="module")
def taskwise(scripts: Any) -> Callable[[Policy], Any]:
    """taskwise(policy): an LM whose policy sees the document too."""

    class Taskwise(scripts.lm):  # type: ignore[misc]
        def generate_until(self, asked: list[Any]) -> list[str]:
            return [self.policy(one.args[0], one.doc) for one in asked]

        def loglikelihood(self, asked: list[Any]) -> list[tuple[float, bool]]:
            return [
                (-1.0 if one.args[1] == self.policy(one.args[0], one.doc) else -2.0, False) for one in asked
            ]

    return Taskwise


Found = dict[str, tuple[dict[str, float], list[Doc], list[dict[str, Any]]]]
"""Task -> its metrics, documents and rollouts."""


def answered(lm: Any, tasks: dict[str, Any]) -> Found:
    found = lm_eval.evaluate(lm, {"tasks": tasks}, bootstrap_iters=0, apply_chat_template=True)
    out = {}
    for name in tasks:
        samples = sorted(found["samples"][name], key=lambda sample: sample["doc_id"])
        metrics = {
            key.removesuffix(",none"): value
            for key, value in found["results"][name].items()
            if key.endswith(",none") and "stderr" not in key
        }
        docs = [sample["doc"] for sample in samples]
        out[name] = metrics, docs, [json.loads(sample["resps"][0][0]) for sample in samples]
    return out


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_numbers_of_every_task(policy: str, every: dict[str, Any], taskwise: Any) -> None:
    found = answered(taskwise(POLICIES[policy]), every)
    assert set(found) == set(MEMBERS)
    for name, (metrics, docs, rollouts) in found.items():
        kind = MEMBERS[name].kind
        turns = [rollout.get("turns") or [rollout["turn"]] for rollout in rollouts]
        replies = [[meant(turn["prompt"], turn["output"]) for turn in some] for some in turns]
        if kind in ("free_run", "free_run_legal", "matched_error"):
            independent = episodes(docs, replies, begun=4 if kind == "matched_error" else 0)
        else:
            independent = (choices if kind == "choice" else decisions)(docs, [one for (one,) in replies])
        for metric, value in metrics.items():
            assert value == pytest.approx(independent[metric], nan_ok=True), (name, metric)
        prompts = [turn["prompt"] for some in turns for turn in some]
        if policy == "oracle" and len(set(prompts)) < len(prompts):
            # The two tasks of a pair look the same where the cell that tells them apart is hidden.
            assert MEMBERS[name].family == "choice", name
        elif certain(policy, name):
            horizons = {doc.get("task", doc["id"]): doc["horizon"] for doc in docs}
            expected = by_hand(policy, kind, list(horizons.values()))
            assert metrics == pytest.approx({m: expected[m] for m in metrics}, nan_ok=True), name


@pytest.mark.slow
def test_chance_is_one_in_what_is_shown(every: dict[str, Any], taskwise: Any) -> None:
    """Each decision with n candidates is right with probability 1/n, independently of the others.

    Tolerance: four standard deviations of the number of right ones, so that one seed in 16,000 fails.
    """
    names = [
        name for name, member in MEMBERS.items() if member.kind in ("oracle", "branching", "probe", "choice")
    ]
    right, expected, variance, pairs = 0.0, 0.0, 0.0, []
    for metrics, docs, rollouts in answered(
        taskwise(POLICIES["chance"]), {n: every[n] for n in names}
    ).values():
        right += sum(rollout["agree"] for rollout in rollouts)
        chances = [1 / len(doc["candidates"]) for doc in docs]
        expected, variance = expected + sum(chances), variance + sum(p * (1 - p) for p in chances)
        pairs += [metrics["both"]] if "both" in metrics else []
    assert variance > 500
    assert abs(right - expected) < 4 * math.sqrt(variance)
    assert 0 <= mean(pairs) < 1


# -- free runs by chance


def exact(horizon: int) -> dict[str, float]:
    """Free runs by chance on a chain: each call is the right one with probability 1/2, or is rejected.

    Sums over all sequences of right and wrong calls, until H right ones or 2H calls.
    """
    ended: dict[tuple[int, int], float] = defaultdict(float)  # (right, wrong) -> probability
    live = {(0, 0): 1.0}
    while live:
        following: dict[tuple[int, int], float] = defaultdict(float)
        for (good, bad), probability in live.items():
            for one in ((good + 1, bad), (good, bad + 1)):
                over = one[0] == horizon or sum(one) == 2 * horizon
                (ended if over else following)[one] += probability / 2
        live = following
    success = sum(p for (good, _), p in ended.items() if good == horizon)
    clean = ended[horizon, 0]
    return {
        "success": success,
        "progress": sum(p * good / horizon for (good, _), p in ended.items()),
        "calls": sum(p * (good + bad) for (good, bad), p in ended.items()),
        "rejection": 1 - clean,
        "recovery": (success - clean) / (1 - clean),
    }


def test_the_sum_is_the_binomial_one() -> None:
    assert exact(4)["success"] == 163 / 256  # at least 4 heads in 8 throws
    assert exact(4)["rejection"] == 15 / 16


def test_free_runs_by_chance(taskwise: Any) -> None:
    """Tolerance: four standard errors of 250 episodes, of which progress varies by at most half of 0..1
    and calls by at most half of 4..8."""
    lm, tasks = taskwise(partial(chance, 7)), [chain.generate(4, seed) for seed in range(62000, 62300)]
    found = [
        json.loads(one) for one in stsr_rollout(lm, requests(tasks, "compact", lm.apply_chat_template), True)
    ]
    rejected = [one["rejections"] > 0 for one in found]
    means = {
        "success": mean([one["success"] for one in found]),
        "progress": mean([one["verified"] / 4 for one in found]),
        "calls": mean([one["calls"] for one in found]),
        "rejection": mean(rejected),
        "recovery": mean([one["success"] for one, some in zip(found, rejected, strict=True) if some]),
    }
    assert sum(rejected) > 250
    for metric, value in exact(4).items():
        spread = {"progress": 0.5, "calls": 2.0}.get(metric) or math.sqrt(value * (1 - value))
        assert means[metric] == pytest.approx(value, abs=4 * spread / math.sqrt(250)), metric
