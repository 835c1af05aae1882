"""The declared secondary analysis: an interaction with training seeds and tasks as crossed random effects.

    crossed_interaction(differences)      # differences[seed, task] = (CC - CF) - (FC - FF), as fractions

The primary analysis reports each seed by itself. This one asks about other seeds and other tasks at once,
without counting seed-by-task outcomes as independent. d[s, t] = delta + seed[s] + task[t] + rest[s, t].
Balanced data have a closed form (expected mean squares) that equals REML where all components are positive,
and that stays defined where an optimizer fails: at zero variance, which our cells of 0/50 and 50/50 cause.
Source: Searle, Casella and McCulloch, Variance Components, chapter 4; Satterthwaite (1946) for the degrees of
freedom. Invariant: one seed gives no interval over seeds, and says so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from stsr.stats.estimators import finite

NULL = "the interaction is 0 on average over seeds and tasks"


class Crossed(NamedTuple):
    """An interaction over seeds and tasks. Fractions; what is undefined is None."""

    estimate: float
    low: float | None
    high: float | None
    p: float | None
    df: float | None
    """Satterthwaite degrees of freedom; with few seeds about seeds - 1."""
    sd_seed: float | None
    """Estimated SD of the seeds' effects, 0 where the estimate would be negative."""
    sd_task: float | None
    sd_rest: float | None
    seeds: int
    n: int
    """Tasks."""
    level: float
    method: str
    unit: str = "training seed and task, crossed"
    conditioning: str = "seeds and tasks as random draws; effects additive and roughly normal"
    null: str = NULL


def crossed_interaction(differences: ArrayLike, level: float = 0.95) -> Crossed:
    """Estimate, t interval and variance components from differences [n_seeds, n_tasks], one value a cell.

    Raises ValueError for NaN or another shape. One seed or one task: the estimate alone. All seeds and tasks
    alike: zero variance, and an interval of zero width, which says nothing about the population.

    >>> result = crossed_interaction([[1, 2, 0, 1], [0, 1, 0, 1]])
    >>> result.estimate, result.seeds, result.n
    (0.75, 2, 4)
    """
    values = finite(differences, "differences")
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"differences must be [n_seeds, n_tasks]; got shape {values.shape}")
    seeds, tasks = values.shape
    estimate = float(values.mean())
    if seeds < 2 or tasks < 2:
        method = "mean alone: an interval over seeds and tasks needs two of each"
        return Crossed(estimate, None, None, None, None, None, None, None, seeds, tasks, level, method)
    by_seed, by_task = values.mean(axis=1), values.mean(axis=0)
    rest = values - by_seed[:, None] - by_task[None, :] + estimate
    df = np.array([seeds - 1, tasks - 1, (seeds - 1) * (tasks - 1)], dtype=np.float64)
    squares = np.array(
        [
            tasks * ((by_seed - estimate) ** 2).sum(),
            seeds * ((by_task - estimate) ** 2).sum(),
            (rest**2).sum(),
        ]
    )
    seed_ms, task_ms, rest_ms = squares / df
    variance, freedom, pooled = _variance(seed_ms, task_ms, rest_ms, squares, df)
    components = [max(0.0, (seed_ms - pooled) / tasks), max(0.0, (task_ms - pooled) / seeds), pooled]
    sd_seed, sd_task, sd_rest = (float(np.sqrt(component)) for component in components)
    error = float(np.sqrt(variance / values.size))
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * error
    p = float(2 * stats.t.sf(abs(estimate) / error, freedom)) if error else None
    method = f"crossed random effects (expected mean squares, Satterthwaite t), {level:.0%}"
    return Crossed(
        estimate,
        estimate - half,
        estimate + half,
        p,
        freedom,
        sd_seed,
        sd_task,
        sd_rest,
        seeds,
        tasks,
        level,
        method,
    )


def _variance(
    seed_ms: float, task_ms: float, rest_ms: float, squares: np.ndarray, df: np.ndarray
) -> tuple[float, float, float]:
    """Variance of the mean times the number of cells, its degrees of freedom, and the residual mean square.

    A component whose estimate is negative is 0 and its mean square joins the residual, as in REML.
    """
    seed_in, task_in = seed_ms > rest_ms, task_ms > rest_ms
    joined = np.array([not seed_in, not task_in, True])
    rest = float(squares[joined].sum() / df[joined].sum())
    seed_in, task_in = seed_in and seed_ms > rest, task_in and task_ms > rest
    if seed_in and task_in:
        variance = seed_ms + task_ms - rest
        parts = np.array([seed_ms, task_ms, rest]) ** 2 / df
        return variance, float(variance**2 / parts.sum()), rest
    if seed_in:
        return seed_ms, float(df[0]), rest
    if task_in:
        return task_ms, float(df[1]), rest
    joined[:] = True
    rest = float(squares.sum() / df.sum())
    return rest, float(df.sum()), rest
