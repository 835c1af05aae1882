"""The `evaluate` modules load from their folders and give hand-counted numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stsr.stats.report as installed

evaluate = pytest.importorskip("evaluate")
FOLDER = Path(installed.__file__).with_name("evaluate_modules")


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One for all tests: Python finds the package of loaded modules once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluate.config.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        yield


def load(name: str, folder: Path) -> Any:
    return evaluate.load(str(FOLDER / name), cache_dir=str(folder))


def test_action_agreement(tmp_path: Path) -> None:
    metric = load("action_agreement", tmp_path)
    predictions = ['{"a": 1, "b": [2]}', '{"b":[2],"a":1}', '{"a": 2}', "no call"]
    result = metric.compute(predictions=predictions, references=['{"a":1,"b":[2]}'] * 4)
    assert (result["k"], result["n"], result["accuracy"]) == (2, 4, 0.5)
    with pytest.raises(ValueError, match=r"references\[0\] is not JSON"):
        metric.compute(predictions=["1"], references=["?"])


def test_workflow_success(tmp_path: Path) -> None:
    metric = load("workflow_success", tmp_path)
    result = metric.compute(predictions=[1] * 15 + [0] * 5, rejections=[0] * 12 + [1] * 8)
    assert (result["k"], result["n"], result["recovery"]) == (15, 20, 0.375)  # Table 20: 3 of 8
    assert (round(result["low"], 3), round(result["high"], 3)) == (0.531, 0.888)  # Table 18's note
    assert metric.compute(predictions=[1], rejections=[0])["recovery"] is None


def test_paired_comparison(tmp_path: Path) -> None:
    metric = load("paired_comparison", tmp_path)
    result = metric.compute(predictions=[1] * 15 + [0] * 5, references=[1] * 12 + [0] * 3 + [1] * 5)
    assert (round(result["difference"], 9), round(result["p"], 3)) == (-0.1, 0.727)  # Table 18
    assert (round(result["low"], 2), round(result["high"], 2)) == (-0.35, 0.15)
