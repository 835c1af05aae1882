"""The crossed analysis and the planning of crossovers, against statsmodels and by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.stats.power import TTestPower

from stsr.stats.hierarchy import crossed_interaction
from stsr.stats.power import Plan, independent_sd, minimum_detectable_effect, power


def test_crossed_analysis_is_reml_of_statsmodels() -> None:
    rng = np.random.default_rng(3)
    seeds, tasks = 6, 15
    values = (
        1
        + rng.normal(0, 0.5, (seeds, 1))
        + rng.normal(0, 0.4, (1, tasks))
        + rng.normal(0, 0.6, (seeds, tasks))
    )
    ours = crossed_interaction(values)
    frame = pd.DataFrame(
        {"d": values.ravel(), "s": np.repeat(np.arange(seeds), tasks), "t": np.tile(np.arange(tasks), seeds)}
    )
    parts = {"s": "0 + C(s)", "t": "0 + C(t)"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = MixedLM.from_formula("d ~ 1", frame, groups=np.ones(len(frame)), vc_formula=parts).fit(
            reml=True
        )
    assert ours.estimate == pytest.approx(fit.params["Intercept"], abs=1e-6)
    assert ours.sd_seed == pytest.approx(math.sqrt(fit.vcomp[0]), rel=0.01)
    assert ours.sd_task == pytest.approx(math.sqrt(fit.vcomp[1]), rel=0.01)
    assert ours.sd_rest == pytest.approx(math.sqrt(fit.scale), rel=0.01)


def test_crossed_analysis_by_hand() -> None:
    # Two seeds, two tasks: seed means 1.5 and 0.5, task means 0.5 and 1.5, no rest. Mean squares: seeds
    # 2 * (.25 + .25) = 1, tasks 1, rest 0. Variance of the mean (1 + 1 - 0) / 4 = .5; df 4 / (1 + 1) = 2.
    result = crossed_interaction([[1, 2], [0, 1]])
    assert (result.estimate, result.df) == (1.0, 2.0)
    half = 4.302652729911275 * math.sqrt(0.5)
    assert (result.low, result.high) == (pytest.approx(1 - half), pytest.approx(1 + half))
    assert result.sd_rest == 0


def test_one_seed_has_an_estimate_and_nothing_else() -> None:
    result = crossed_interaction([[1, 0, 2]])
    assert result.estimate == 1
    assert (result.low, result.high, result.p, result.sd_seed) == (None, None, None, None)


def test_no_spread_at_all() -> None:
    result = crossed_interaction(np.ones((3, 5)))
    assert (result.low, result.high, result.p) == (1.0, 1.0, None)


@pytest.mark.parametrize("bad", [[[1, math.nan]], [1, 2], [[]]])
def test_crossed_analysis_refuses(bad: object) -> None:
    with pytest.raises(ValueError, match=r"is nan|n_seeds, n_tasks"):
        crossed_interaction(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("effect", [0.2, 0.5, 0.9])
def test_power_of_one_seed_is_the_paired_t_test_of_statsmodels(effect: float) -> None:
    ours = power(Plan(1, 50, 0, 0.6, 0.8), effect).power
    assert ours == pytest.approx(TTestPower().power(effect, 50, 0.05), abs=1e-6)  # sd of one task: 1


def test_power_at_no_effect_is_alpha_and_the_mde_has_its_target() -> None:
    plan = Plan(3, 50, 0.3, 0.2, 0.6)
    assert power(plan, 0.0).power == pytest.approx(0.05)
    found = minimum_detectable_effect(plan, 0.9)
    assert power(plan, found.effect).power == pytest.approx(0.9)
    assert minimum_detectable_effect(plan._replace(seeds=6)).effect < found.effect


def test_independent_sd_by_hand() -> None:
    assert independent_sd((0.9, 0.5, 0.0, 1.0)) == pytest.approx(math.sqrt(0.09 + 0.25))


def test_plans_that_cannot_be_tested_are_refused() -> None:
    with pytest.raises(ValueError, match="a plan needs"):
        power(Plan(0, 50, 0, 0, 1), 1)
    with pytest.raises(ValueError, match="no spread at all"):
        power(Plan(1, 50, 0, 0, 0), 1)
    with pytest.raises(ValueError, match=r"target 0\.01"):
        minimum_detectable_effect(Plan(1, 50, 0, 0, 1), 0.01)
    with pytest.raises(ValueError, match=r"four numbers in 0\.\.1"):
        independent_sd((0.5, 0.5, 0.5, 1.5))
