"""Agreement of calls with reference calls, compared as JSON, with a Wilson interval:

evaluate.load("stats/evaluate_modules/action_agreement").compute(predictions=[...], references=[...])
"""

from __future__ import annotations

import json
from typing import Any

import datasets
import evaluate

from stsr.stats.estimators import wilson

DESCRIPTION = "Share of predicted calls that equal the reference call, as JSON and not as text."


class ActionAgreement(evaluate.Metric):  # type: ignore[misc]  # evaluate is untyped
    """k, n, accuracy and its Wilson 95% interval; unit: decision."""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        features = datasets.Features({"predictions": text, "references": text})
        return evaluate.MetricInfo(
            description=DESCRIPTION, citation="", inputs_description="JSON", features=features
        )

    def _compute(self, predictions: list[str], references: list[str]) -> dict[str, Any]:
        right = [
            _call(p) == _reference(r, i) for i, (p, r) in enumerate(zip(predictions, references, strict=True))
        ]
        result = wilson(sum(right), len(right), unit="decision")
        return {
            "accuracy": result.estimate,
            "k": result.k,
            "n": result.n,
            "low": result.low,
            "high": result.high,
        }


def _call(text: str) -> object:
    """The JSON value of a text; a value that equals no call if there is none."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return None


def _reference(text: str, number: int) -> object:
    call = _call(text)
    if call is None:
        raise ValueError(f"references[{number}] is not JSON: {text!r}")
    return call
