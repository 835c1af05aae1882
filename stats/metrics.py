"""Metrics of the paper over frames of outcomes: one function a metric, one entry in `METRICS`.

    METRICS["success"].of(frame[frame["view"] == "compact"])

Source: section 3.2, appendices A.6 and C of the paper. Invariant: undefined is None; a proportion carries its
counts; what is counted as if independent says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from stsr.stats import pairs
from stsr.stats.cells import POST_4
from stsr.stats.estimators import FloatArray, recovery, wilson
from stsr.stats.results import GIVEN_MODELS, GIVEN_PROBES, NO_NULL, Proportion

EPISODES = ("free_run", "matched_error")
PAIRED = ("oracle_prefix", "free_run")


class Mean(NamedTuple):
    """A mean, or a count, without an interval."""

    value: float | None
    n: int
    unit: str
    method: str
    conditioning: str = GIVEN_MODELS
    null: str = NO_NULL


Value = Proportion | Mean | None


class Metric(NamedTuple):
    """How a metric is called, computed, shown and paired."""

    title: str
    """Head of its column."""
    kinds: tuple[str, ...]
    """Kinds of outcomes that it is over."""
    of: Callable[[pd.DataFrame], Value]
    """Its value over outcomes of those kinds."""
    show: str
    """"count" (k/n), "percent" or "number"."""
    scores: Callable[[pd.DataFrame], pd.Series] | None = None
    """Whole-number score of each outcome, for paired contrasts; None where there is none."""


def _decisions(right: pd.Series) -> Value:
    return wilson(int(right.sum()), len(right), unit="decision", conditioning=GIVEN_PROBES)


def _oracle(frame: pd.DataFrame) -> Value:
    return _decisions(frame["agree"].astype(bool))


def _post4(frame: pd.DataFrame) -> Value:
    late = frame[frame["stage"] > POST_4]
    return _decisions(late["agree"].astype(bool)) if len(late) else None


def _clean(frame: pd.DataFrame) -> Value:
    by_task = frame["agree"].astype(bool).groupby([frame["cell"], frame["task"]]).all()
    return wilson(int(by_task.sum()), len(by_task))


def _share(column: str) -> Callable[[pd.DataFrame], Value]:
    def share(frame: pd.DataFrame) -> Value:
        return wilson(int(frame[column].astype(bool).sum()), len(frame))

    return share


def _both(frame: pd.DataFrame) -> Value:
    pairs = frame["agree"].astype(bool).groupby([frame["cell"], frame["task_seed"]])
    incomplete = pairs.size()[pairs.size() != 2]
    if len(incomplete):
        raise ValueError(f"pair {incomplete.index[0][1]} has {incomplete.iloc[0]} variants, not 2")
    return wilson(int(pairs.all().sum()), len(pairs), unit="pair")


def _rejection(frame: pd.DataFrame) -> Value:
    return wilson(int((frame["rejections"] > 0).sum()), len(frame))


def _recovery(frame: pd.DataFrame) -> Value:
    rejected = frame[frame["rejections"] > 0]
    return recovery(int(rejected["success"].astype(bool).sum()), len(rejected))


def _increase(frame: pd.DataFrame) -> Value:
    rejected = frame[frame["rejections"] > 0]
    return recovery(int(rejected["increased"].astype(bool).sum()), len(rejected))


def _no_rejection(frame: pd.DataFrame) -> Value:
    calls = int(frame["calls"].sum())
    conditioning = "these models as they are; calls of one episode are counted as if independent"
    return wilson(calls - int(frame["rejections"].sum()), calls, unit="call", conditioning=conditioning)


def _noncanonical(frame: pd.DataFrame) -> Value:
    other = int((frame["legal"].astype(bool) & ~frame["agree"].astype(bool)).sum())
    return Mean(float(other), len(frame), "decision", "count of legal calls that are not the canonical one")


def _mean(column: str, unit: str) -> Callable[[pd.DataFrame], Value]:
    def mean(frame: pd.DataFrame) -> Value:
        values = frame[column].dropna().to_numpy(dtype=np.float64)
        return Mean(float(values.mean()) if values.size else None, int(values.size), unit, "mean")

    return mean


def _clipped(frame: pd.DataFrame) -> Value:
    return _mean("score", "task")(frame.assign(score=frame["score"].astype(float).clip(lower=0)))


def _rho(column: str) -> Callable[[pd.DataFrame], Value]:
    def rho(frame: pd.DataFrame) -> Value:
        found = pairs.rho(frame, column)
        return Mean(found.rho, found.n, pairs.UNIT, found.method, pairs.GIVEN)

    return rho


def _progress(frame: pd.DataFrame) -> Value:
    shares = frame["verified"].to_numpy(dtype=np.float64) / frame["horizon"].to_numpy(dtype=np.float64)
    mean = 100 * float(shares.mean()) if shares.size else None
    return Mean(mean, len(frame), "task", "mean percentage of required operations verified")


def _whole(column: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda frame: frame[column].astype(np.int64)


PROBES = ("oracle_prefix",)
METRICS = {
    "oracle": Metric("oracle", PROBES, _oracle, "percent", _whole("agree")),
    "post4": Metric("post-4 oracle", PROBES, _post4, "percent"),
    "clean": Metric("clean paths", PROBES, _clean, "count", _whole("agree")),
    "noncanonical": Metric("legal, not canonical", PROBES, _noncanonical, "number"),
    "tokens": Metric("prompt tokens", PROBES, _mean("tokens", "decision"), "number"),
    "pivotal": Metric("pivotal choices", ("choice",), _share("agree"), "count", _whole("agree")),
    "both": Metric("both variants", ("choice",), _both, "count"),
    "success": Metric("success", EPISODES, _share("success"), "count", _whole("success")),
    "progress": Metric("progress %", EPISODES, _progress, "number", _whole("verified")),
    "calls": Metric("calls", EPISODES, _mean("calls", "task"), "number"),
    "rejection": Metric("episodes with a rejection", EPISODES, _rejection, "count"),
    "recovery": Metric("recovery", EPISODES, _recovery, "count"),
    "increase": Metric("later score increase", EPISODES, _increase, "count"),
    "no_rejection": Metric("calls not rejected", EPISODES, _no_rejection, "percent"),
    "score": Metric("mean score", EPISODES, _mean("score", "task"), "number"),
    "clipped": Metric("mean score, failures at least 0", EPISODES, _clipped, "number"),
    "high": Metric("success, local ≥ 80%", PAIRED, partial(pairs.success_where, high=True), "count"),
    "low": Metric("success, local < 80%", PAIRED, partial(pairs.success_where, high=False), "count"),
    "rho_success": Metric("rho with success", PAIRED, _rho("success"), "number"),
    "rho_score": Metric("rho with score", PAIRED, _rho("score"), "number"),
    "clean_pairs": Metric("clean paths", PAIRED, pairs.clean, "count"),
    "clean_success": Metric("clean and success", PAIRED, pairs.clean_success, "count"),
}
"""Every metric that a table may name. `clean` pairs as all-or-nothing, see `tables`."""


def unit_scores(metric: str, frame: pd.DataFrame, unit: str) -> tuple[pd.Index, FloatArray, int]:
    """Whole-number score of each unit ("task" or "task_seed"), and the most that a unit can score.

    Raises ValueError for a metric without scores, or units with unequal numbers of outcomes.
    """
    scores = METRICS[metric].scores
    if scores is None:
        raise ValueError(f"{metric} has no score a task and cannot be contrasted")
    grouped = scores(frame).groupby(frame[unit])
    size = grouped.size()
    if size.nunique() != 1 and metric != "clean":
        raise ValueError(f"{unit}s have unequal numbers of outcomes: {size.min()} and {size.max()}")
    if metric == "clean":
        whole = grouped.min().sort_index()
        return whole.index, whole.to_numpy(dtype=np.float64), 1
    total = grouped.sum().sort_index()
    most = int(size.iloc[0]) * (int(frame["horizon"].iloc[0]) if metric == "progress" else 1)
    return total.index, total.to_numpy(dtype=np.float64), most
