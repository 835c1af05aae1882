"""Small simulations: do the intervals cover, and does the test keep its level, where the truth is known?

Tolerances: about three standard errors of the simulated rate, and the methods' known small-sample error.
"""

from __future__ import annotations

import numpy as np
import pytest

from stsr.stats.estimators import difference_of_differences, paired_bootstrap, sign_flip, wilson

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.9])
def test_wilson_covers(p: float) -> None:
    rng = np.random.default_rng(20260915)
    hits = 0
    for k in rng.binomial(50, p, 2000):
        result = wilson(int(k), 50)
        assert result.low is not None
        assert result.high is not None
        hits += result.low <= p <= result.high
    assert 0.91 <= hits / 2000 <= 0.995


def test_bootstrap_of_the_interaction_covers() -> None:
    """50 tasks with a shared difficulty, so that the four cells are dependent; truth by a large sample."""
    rng = np.random.default_rng(20260915)
    rates = np.array([0.85, 0.6, 0.2, 0.9])

    def sample(n: int) -> np.ndarray:
        shift = rng.normal(0, 0.15, (n, 1))
        return (rng.random((n, 4)) < np.clip(rates + shift, 0, 1)).astype(float)

    def interaction(x: np.ndarray) -> np.ndarray:
        return difference_of_differences(x[..., 0], x[..., 1], x[..., 2], x[..., 3]).mean(axis=-1)

    truth = float(interaction(sample(1_000_000)))
    hits = 0
    for seed in range(500):
        result = paired_bootstrap(sample(50), interaction, draws=1000, seed=seed)
        hits += result.low <= truth <= result.high
    assert 0.90 <= hits / 500 <= 0.98


def test_sign_flip_keeps_its_level() -> None:
    rng = np.random.default_rng(20260915)
    rejected = sum(sign_flip(rng.integers(-3, 4, 20)).p <= 0.05 for _ in range(4000))
    assert rejected / 4000 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 4000)
    assert rejected / 4000 >= 0.03
