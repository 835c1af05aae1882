"""Scores of single results, and their aggregates with standard errors over tasks. Pure.

`oracle`, `branching`, `probe`, `choice`, `free_run`, `free_run_legal` and `matched_error` are lm-eval
`process_results` functions; the others aggregate. Tasks are the sampling unit, so standard errors are
clustered by task; tasks that share a seed, such as the two of a pair, are one cluster. lm-eval has no such
error bar for custom aggregates; a metric called `X_stderr` right after `X` takes the place of the one it
would print.

Invariant: every key is returned for every document (ranks must agree on keys); a value that is undefined for
a document is None, and an aggregate over nothing is NaN, never 0.
Source: section 3.2 and appendix A.5 of the paper; protocol section 1 for the words.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

Scores = dict[str, Any]
TaskValue = Mapping[str, Any]
"""{"task": id, "value": float or None}; `clean_path` and `both` items also carry "horizon", their number."""

POST4_FROM = 5
"""First stage that counts as post-4."""


def oracle(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """Scores of one oracle-prefix probe. `results` is its one JSON result (episodes.Probe.result)."""
    return _oracle(doc, json.loads(results[0]))


def _oracle(doc: Mapping[str, Any], found: Mapping[str, Any]) -> Scores:
    agree = float(found["agree"])
    values = {
        "agreement": agree,
        "post4": agree if found["stage"] >= POST4_FROM else None,
        "legal": _legal(found),
    }
    path = {"task": found["task"], "horizon": doc["horizon"], "value": agree}
    return _with_tasks(found["task"], values) | {"clean_path": path, "clean_path_stderr": path}


def branching(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """As `oracle`, where several calls can be legal: legal non-canonical ones, and progress, apart."""
    found = json.loads(results[0])
    values = {
        "noncanonical": float(_legal(found) and not found["agree"]),
        "progress": float(found["progress"]),
    }
    return _oracle(doc, found) | _with_tasks(found["task"], values)


def probe(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """Scores of a single decision of a task, without what needs a whole path."""
    found = json.loads(results[0])
    return _with_tasks(found["task"], {"agreement": float(found["agree"]), "legal": _legal(found)})


def choice(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """Scores of a choice by likelihood. `both` aggregates over the two tasks of a pair."""
    found = json.loads(results[0])
    agree = float(found["agree"])
    pair = {"task": _cluster(found["task"]), "horizon": PAIR, "value": agree}
    tied = len(set(found["logprobs"])) < len(found["logprobs"])
    values = {"choice": agree, "tie": float(tied)}
    return _with_tasks(found["task"], values) | {"both": pair, "both_stderr": pair}


PAIR = 2
"""Tasks of a pair."""


def _legal(found: Mapping[str, Any]) -> float:
    return float(found["turn"]["verdict"] == "accepted")


def free_run(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """Scores of one episode. `results` is its one JSON result (episodes.Episode.result)."""
    return _free_run(doc, json.loads(results[0]))


def _free_run(doc: Mapping[str, Any], episode: Mapping[str, Any]) -> Scores:
    success, rejected = float(episode["success"]), episode["rejections"] > 0
    values = {
        "success": success,
        "progress": episode["verified"] / doc["horizon"],
        "calls": float(episode["calls"]),
        "rejection": float(rejected),
        "recovery": success if rejected else None,
    }
    return _with_tasks(episode["task"], values)


def free_run_legal(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """As `free_run`, where several calls can be legal: accepted non-canonical ones, counted apart."""
    episode = json.loads(results[0])
    values = {"noncanonical": float(episode["noncanonical"])}
    return _free_run(doc, episode) | _with_tasks(episode["task"], values)


def matched_error(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """As `free_run`, after the injected error, which is not counted. All episodes have one: no recovery."""
    scores = _free_run(doc, json.loads(results[0]))
    return {name: value for name, value in scores.items() if not name.startswith("recovery")}


def _with_tasks(task: str, values: Mapping[str, float | None]) -> Scores:
    named = {f"{name}_stderr": {"task": _cluster(task), "value": value} for name, value in values.items()}
    return {**values, **named}


def _cluster(task: str) -> str:
    """Tasks that differ in the variant alone share a seed, and most of their content.

    >>> _cluster("choice-h16/72000~negative"), _cluster("chain-h4/62000")
    ('choice-h16/72000', 'chain-h4/62000')
    """
    return task.partition("~")[0]


def mean_defined(values: Sequence[float | None]) -> float:
    """Mean of the values that are defined; NaN if none is.

    >>> mean_defined([1.0, None, 0.0]), mean_defined([None])
    (0.5, nan)
    """
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else math.nan


def clustered_stderr(items: Sequence[TaskValue]) -> float:
    """Standard error of the mean over all defined values, with tasks as clusters; NaN for fewer than two.

    With T tasks, n values and r_t the sum of (value - mean) over task t: sqrt(T/(T-1) * sum of r_t^2) / n.
    With one value a task this is the usual sample standard deviation / sqrt(n). (The linearised variance
    of a ratio of cluster totals; Cochran, Sampling Techniques.)

    >>> clustered_stderr([{"task": "a", "value": 1.0}, {"task": "b", "value": 0.0}])
    0.5
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for item in items:
        if item["value"] is not None:
            groups[item["task"]].append(item["value"])
    if len(groups) < 2:
        return math.nan
    n = sum(map(len, groups.values()))
    mean = math.fsum(map(math.fsum, groups.values())) / n
    # Ranks deliver tasks in different orders; fsum makes the result independent of order.
    squares = math.fsum((math.fsum(values) - mean * len(values)) ** 2 for values in groups.values())
    return math.sqrt(len(groups) / (len(groups) - 1) * squares) / n


def clean_path(items: Sequence[TaskValue]) -> float:
    """Share of tasks with all H probes right, among tasks with all H probes present; NaN if none is."""
    return mean_defined([item["value"] for item in _clean(items)])


def clean_path_stderr(items: Sequence[TaskValue]) -> float:
    """Standard error of `clean_path`."""
    return clustered_stderr([{**item, "task": _cluster(item["task"])} for item in _clean(items)])


def _clean(items: Sequence[TaskValue]) -> list[TaskValue]:
    """One item a complete task (or pair): 1.0 if all of its decisions are right, else 0.0."""
    groups: dict[tuple[str, int], list[float]] = defaultdict(list)
    for item in items:
        groups[item["task"], item["horizon"]].append(item["value"])
    return [
        {"task": task, "value": float(all(values))}
        for (task, horizon), values in groups.items()
        if len(values) == horizon
    ]
