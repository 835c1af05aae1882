"""Scores of ScienceWorld decisions and episodes, and the aggregates that `metrics` lacks. Pure.

Invariant: as in `metrics`: every key is returned for every document, and what is undefined is None, never 0.
Source: appendix F of the paper.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from stsr.eval_tasks.metrics import Scores, TaskValue
from stsr.generators.scienceworld.catalogue import BINS

LOCAL = ("agreement", *(f"agreement_{name}" for name in BINS), "by_workflow", "clean_path")
FREE_RUN = (
    "success",
    *(f"success_{name}" for name in BINS),
    "score",
    "score_clipped",
    "calls",
    "rejection",
    "later_success",
    "later_increase",
    "no_rejection",
)
"""Names of the metrics."""


def local(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """Scores of one local decision. `results` is its one JSON result (scienceworld.Local.result)."""
    found = json.loads(results[0])
    agree = float(found["agree"])
    values: dict[str, float | None] = {"agreement": agree}
    values |= {f"agreement_{name}": agree if found["bin"] == name else None for name in BINS}
    item = {"task": found["task"], "horizon": found["horizon"], "value": agree}
    whole = dict.fromkeys(("by_workflow", "clean_path", "clean_path_stderr"), item)
    return _with_tasks(found["task"], values) | whole


def free_run(doc: Mapping[str, Any], results: Sequence[str]) -> Scores:
    """Scores of one episode. `results` is its one JSON result (scienceworld.FreeRun.result)."""
    found = json.loads(results[0])
    success = float(found["success"])
    values: dict[str, float | None] = {"success": success}
    values |= {f"success_{name}": success if found["bin"] == name else None for name in BINS}
    values |= {
        "score": float(found["score"]),
        "score_clipped": float(max(found["score"], 0)),
        "calls": float(found["calls"]),
        "rejection": float(found["rejections"] > 0),
        "later_success": _number(found["later_success"]),
        "later_increase": _number(found["later_increase"]),
    }
    return _with_tasks(found["task"], values) | {
        "no_rejection": {"calls": found["calls"], "rejected": found["rejections"]}
    }


def _number(value: bool | None) -> float | None:
    return None if value is None else float(value)


def _with_tasks(task: str, values: Mapping[str, float | None]) -> Scores:
    named = {f"{name}_stderr": {"task": task, "value": value} for name, value in values.items()}
    return {**values, **named}


def by_workflow(items: Sequence[TaskValue]) -> float:
    """Mean over workflows of the share of their decisions that agree; NaN without any.

    >>> by_workflow([{"task": "a", "value": 1.0}, {"task": "a", "value": 0.0}, {"task": "b", "value": 1.0}])
    0.75
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for item in items:
        groups[item["task"]].append(item["value"])
    shares = [sum(values) / len(values) for values in groups.values()]
    return math.fsum(shares) / len(shares) if shares else math.nan


def accepted_share(items: Sequence[Mapping[str, int]]) -> float:
    """Share of all calls whose feedback was not the parser's rejection; NaN without any.

    >>> accepted_share([{"calls": 9, "rejected": 1}, {"calls": 1, "rejected": 1}])
    0.8
    """
    calls = sum(item["calls"] for item in items)
    return 1 - sum(item["rejected"] for item in items) / calls if calls else math.nan
