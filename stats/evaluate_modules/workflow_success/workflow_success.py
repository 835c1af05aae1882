"""Success of whole workflows, with recovery after rejected calls and Wilson intervals:

evaluate.load("stats/evaluate_modules/workflow_success").compute(predictions=[1, 0], rejections=[0, 3])
"""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from stsr.stats.estimators import recovery, wilson

DESCRIPTION = "Share of episodes that succeed; of those with a rejected call, the share that still succeeds."


class WorkflowSuccess(evaluate.Metric):  # type: ignore[misc]  # evaluate is untyped
    """k, n, success and recovery (None without a rejection); unit: task, one episode each."""

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("int64")
        features = datasets.Features({"predictions": number, "rejections": number})
        return evaluate.MetricInfo(
            description=DESCRIPTION, citation="", inputs_description="0/1", features=features
        )

    def _compute(self, predictions: list[int], rejections: list[int]) -> dict[str, Any]:
        for name, values, high in (("predictions", predictions, 1), ("rejections", rejections, None)):
            for number, value in enumerate(values):
                if value < 0 or (high is not None and value > high):
                    raise ValueError(f"{name}[{number}] is {value}")
        success = wilson(sum(predictions), len(predictions))
        after = [won for won, bad in zip(predictions, rejections, strict=True) if bad]
        recovered = recovery(sum(after), len(after))
        return {
            "success": success.estimate, "k": success.k, "n": success.n,
            "low": success.low, "high": success.high,
            "recovery": recovered and recovered.estimate, "episodes_with_rejection": len(after),
        }  # fmt: skip
