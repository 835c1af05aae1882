"""Power and minimum detectable effect of a planned crossover of tasks x training seeds.

    minimum_detectable_effect(Plan(seeds=3, tasks=50, sd_seed=0.33, sd_task=0.2, sd_rest=0.6))

The effect is the interaction as a fraction (1.06 is 106 points). With several seeds the planned test is the
crossed analysis of `hierarchy`; with one seed it is over tasks, given that adapter pair. Approximations: t
with Satterthwaite degrees of freedom at the true variances; roughly normal means.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from stsr.stats.estimators import FloatArray


class Plan(NamedTuple):
    """A planned crossover and the spread to expect, from a pilot (`hierarchy`) or from rates."""

    seeds: int
    tasks: int
    sd_seed: float
    """SD of the interaction over training seeds (paper, Table 3: 0.327 less what tasks add)."""
    sd_task: float
    """SD over tasks of what all seeds share."""
    sd_rest: float
    """SD of the rest, for one seed and task (`independent_sd` from four success rates)."""


class Power(NamedTuple):
    """Answer for a plan. `effect` is a fraction."""

    effect: float
    power: float
    alpha: float
    df: float
    error: float
    """Standard error of the estimate."""
    n: int
    """Tasks."""
    seeds: int
    unit: str
    conditioning: str
    null: str = "the interaction is 0"
    method: str = "two-sided t, noncentral, Satterthwaite degrees of freedom"


def independent_sd(rates: tuple[float, float, float, float]) -> float:
    """SD of one task's interaction if its four outcomes are independent with these success rates.

    >>> independent_sd((0.5, 0.5, 0.5, 0.5))
    1.0
    """
    array = np.asarray(rates, dtype=np.float64)
    if array.shape != (4,) or np.any(~(array >= 0) | ~(array <= 1)):
        raise ValueError(f"rates must be four numbers in 0..1, got {rates}")
    return float(np.sqrt((array * (1 - array)).sum()))


def power(plan: Plan, effect: float, alpha: float = 0.05) -> Power:
    """Chance that the planned test finds `effect`. Raises ValueError for a plan that cannot be tested.

    >>> round(power(Plan(1, 20, 0, 0, 1), 0.66).power, 2)
    0.8
    """
    error, df = _error(plan, alpha)
    cut = stats.t.ppf(1 - alpha / 2, df)
    shift = effect / error
    found = float(stats.nct.sf(cut, df, shift) + stats.nct.cdf(-cut, df, shift))
    one = plan.seeds == 1
    return Power(
        effect, found, alpha, df, error, plan.tasks, plan.seeds,
        unit="task" if one else "training seed and task, crossed",
        conditioning="this adapter pair alone" if one else "seeds and tasks as random draws",
    )  # fmt: skip


def minimum_detectable_effect(plan: Plan, target: float = 0.8, alpha: float = 0.05) -> Power:
    """Smallest effect that the plan finds with probability `target`.

    >>> round(minimum_detectable_effect(Plan(1, 20, 0, 0, 1)).effect, 2)
    0.66
    """
    if not alpha < target < 1:
        raise ValueError(f"target {target} is not between alpha {alpha} and 1")
    error, _ = _error(plan, alpha)
    high = error
    while power(plan, high, alpha).power < target:
        high *= 2
    effect = optimize.brentq(lambda size: power(plan, size, alpha).power - target, 0.0, high)
    return power(plan, float(effect), alpha)


def _error(plan: Plan, alpha: float) -> tuple[float, float]:
    """Standard error of the mean interaction, and its degrees of freedom."""
    spreads = (plan.sd_seed, plan.sd_task, plan.sd_rest)
    if plan.seeds < 1 or plan.tasks < 2 or min(spreads) < 0 or not 0 < alpha < 1:
        raise ValueError(
            f"a plan needs a seed, two tasks, spreads of 0 or more and alpha in 0..1: {plan}, {alpha}"
        )
    seed, task, rest = (spread**2 for spread in spreads)
    if plan.seeds == 1:
        variance = (task + rest) / plan.tasks
        df = float(plan.tasks - 1)
    else:
        squares: FloatArray = np.array(
            [rest + plan.tasks * seed, rest + plan.seeds * task, rest], dtype=np.float64
        )
        free = np.array([plan.seeds - 1, plan.tasks - 1, (plan.seeds - 1) * (plan.tasks - 1)])
        total = float(squares[0] + squares[1] - squares[2])
        variance = total / (plan.seeds * plan.tasks)
        df = float(total**2 / (squares**2 / free).sum()) if total else 1.0
    if variance == 0:
        raise ValueError("no spread at all: every effect would be found")
    return float(np.sqrt(variance)), df
