"""Metrics on transcripts written by hand, with values worked out by hand."""

from __future__ import annotations

import doctest
import json
import math
from typing import Any

import pytest

from stsr.eval_tasks import metrics


def probe(task: str, stage: int, agree: bool, verdict: str, horizon: int) -> dict[str, Any]:
    result = {"task": task, "stage": stage, "agree": agree, "turn": {"verdict": verdict}}
    return metrics.oracle({"horizon": horizon}, [json.dumps(result)])


def episode(task: str, success: bool, verified: int, calls: int, rejections: int) -> dict[str, Any]:
    result = {
        "task": task,
        "success": success,
        "verified": verified,
        "calls": calls,
        "rejections": rejections,
    }
    return metrics.free_run({"horizon": 4}, [json.dumps(result)])


def column(scores: list[dict[str, Any]], name: str) -> list[Any]:
    return [score[name] for score in scores]


def test_oracle_by_hand() -> None:
    # Task a: right at 1..6. Task b: right but at 2 (illegal) and 6 (legal, another recipe). Horizon 6.
    scores = [probe("a", stage, True, "accepted", 6) for stage in range(1, 7)]
    scores += [
        probe("b", stage, stage not in (2, 6), "missing-input" if stage == 2 else "accepted", 6)
        for stage in range(1, 7)
    ]
    assert metrics.mean_defined(column(scores, "agreement")) == pytest.approx(10 / 12)
    assert metrics.mean_defined(column(scores, "post4")) == 3 / 4  # stages 5 and 6: a both, b the first
    assert metrics.mean_defined(column(scores, "legal")) == pytest.approx(11 / 12)
    assert metrics.clean_path(column(scores, "clean_path")) == 1 / 2
    # Residual sums 6 - 5 = 1 and 4 - 5 = -1; two clusters, 12 values: sqrt(2/1 * 2) / 12.
    assert metrics.clustered_stderr(column(scores, "agreement_stderr")) == pytest.approx(2 / 12)
    assert metrics.clean_path_stderr(column(scores, "clean_path_stderr")) == pytest.approx(0.5)


def test_post4_is_undefined_at_horizon_4() -> None:
    scores = [probe("a", stage, True, "accepted", 4) for stage in range(1, 5)]
    assert column(scores, "post4") == [None] * 4
    assert math.isnan(metrics.mean_defined(column(scores, "post4")))
    assert math.isnan(metrics.clustered_stderr(column(scores, "post4_stderr")))


def test_clean_path_counts_complete_tasks_only() -> None:
    scores = [probe("a", stage, True, "accepted", 4) for stage in range(1, 5)]
    half = [probe("b", stage, True, "accepted", 4) for stage in (1, 2)]
    assert metrics.clean_path(column(scores + half, "clean_path")) == 1.0  # b, cut by a limit, is not counted
    assert math.isnan(metrics.clean_path(column(half, "clean_path")))
    broken = [*scores[:3], probe("a", 4, False, "accepted", 4)]
    assert metrics.clean_path(column(broken, "clean_path")) == 0.0


def test_free_run_by_hand() -> None:
    scores = [
        episode("a", True, 4, 4, 0),
        episode("b", True, 4, 6, 2),
        episode("c", False, 1, 8, 7),
        episode("d", False, 3, 8, 5),
    ]
    means = {name: metrics.mean_defined(column(scores, name)) for name in scores[0] if "stderr" not in name}
    assert means == {
        "success": 0.5,
        "progress": 0.75,  # (4 + 4 + 1 + 3) / 16
        "calls": 6.5,
        "rejection": 0.75,
        "recovery": pytest.approx(1 / 3),  # b of b, c, d
    }
    # Success 1 1 0 0: sample variance 1/3, so sqrt(1/12).
    assert metrics.clustered_stderr(column(scores, "success_stderr")) == pytest.approx(math.sqrt(1 / 12))
    # Recovery 1 0 0 over three episodes: sample variance 1/3, so sqrt(1/9).
    assert metrics.clustered_stderr(column(scores, "recovery_stderr")) == pytest.approx(1 / 3)


def test_recovery_is_undefined_without_a_rejection() -> None:
    scores = [episode("a", True, 4, 4, 0), episode("b", True, 4, 4, 0)]
    assert column(scores, "recovery") == [None, None]
    assert math.isnan(metrics.mean_defined(column(scores, "recovery")))


def test_an_error_bar_needs_two_tasks_and_does_not_depend_on_their_order() -> None:
    one = [{"task": "a", "value": value} for value in (0.0, 1.0, 1.0)]
    assert math.isnan(metrics.clustered_stderr(one))
    many = [{"task": f"t{index}", "value": 0.1 * index} for index in range(30)]
    assert metrics.clustered_stderr(many) == metrics.clustered_stderr(many[::-1])


def test_every_key_is_always_there() -> None:
    """Ranks that disagree on keys make lm-eval drop a metric or fail."""
    first, last = probe("a", 1, True, "accepted", 16), probe("a", 16, False, "malformed", 16)
    assert first.keys() == last.keys()
    assert episode("a", True, 4, 4, 0).keys() == episode("b", False, 0, 8, 8).keys()


def test_examples_in_the_docstrings() -> None:
    assert doctest.testmod(metrics).failed == 0
