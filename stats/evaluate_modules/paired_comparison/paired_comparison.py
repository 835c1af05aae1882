"""Two systems on the same tasks: difference, paired bootstrap interval, exact sign-flip p:

evaluate.load("stats/evaluate_modules/paired_comparison").compute(predictions=[...], references=[...])
"""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
import numpy as np

from stsr.stats.estimators import paired_bootstrap, sign_flip

DESCRIPTION = "Scores of one system less those of another on the same tasks, in the same order."


class PairedComparison(evaluate.Metric):  # type: ignore[misc]  # evaluate is untyped
    """Mean difference (predictions - references), its 95% interval and p; unit: task."""

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        features = datasets.Features({"predictions": number, "references": number})
        return evaluate.MetricInfo(
            description=DESCRIPTION, citation="", inputs_description="scores", features=features
        )

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, Any]:
        difference = np.asarray(predictions, dtype=np.float64) - np.asarray(references, dtype=np.float64)
        interval = paired_bootstrap(difference, lambda drawn: drawn.mean(axis=1))
        test = sign_flip(difference, rng=np.random.default_rng(20260915))
        return {
            "difference": interval.estimate, "low": interval.low, "high": interval.high,
            "n": interval.n, "p": test.p,
            "interval_method": interval.method, "test_method": test.method, "null": test.null,
        }  # fmt: skip
