"""Protects: a benchmark of ways that do not agree ends with exit code 1 and says which."""

import sys

import pytest

from stsr.cli import benchmark
from stsr.cli.main import main
from stsr.eval_tasks import bench


def figures(lm, **asked):
    """As measured, except that lm-eval's own backend succeeds once more."""
    more = type(lm).__name__ == "HFLM"
    return bench.Figures("HFLM" if more else "SharedPrefixLM", 4, "compact", 16, 16, 100, 3 + more, 2.0, 1.0)


def test_unequal_outcomes_are_exit_code_1(monkeypatch, capsys):
    monkeypatch.setattr(bench, "benchmark", figures)
    monkeypatch.setattr(benchmark, "bench", lambda *paths: benchmark._free_runs())
    monkeypatch.setattr(sys, "argv", ["stsr", "bench"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "stsr: H4 compact: HFLM gave 4 successes in 100 calls, SharedPrefixLM 3 in 100: must be equal"
    )
