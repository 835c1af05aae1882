"""Estimators: arrays in, named results out. NumPy and SciPy only.

Run the examples: `python -m doctest -v stats/estimators.py`

Invariants: the task is the sampling unit unless the caller says otherwise; undefined is None, never 0 or NaN;
a p value is never 0; NaN input is an error that names the index; the only randomness is a generator or a seed
that the caller passes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from stsr.stats.results import (
    GIVEN_MODELS,
    Adjusted,
    Alternative,
    Association,
    Interval,
    PairedTest,
    Proportion,
    Summary,
)

FloatArray = NDArray[np.float64]
Rates = TypeVar("Rates", float, FloatArray)

BOOTSTRAP_DRAWS = 20_000
BOOTSTRAP_SEED = 20260915
ENUMERATION_LIMIT = 20
"""Non-zero differences up to which all 2^n sign patterns are enumerated."""
CONVOLUTION_LIMIT = 100_000
"""Largest sum of absolute integer differences for which the exact distribution is built."""
SMALLEST_P = math.ulp(0.0)
"""A probability below the smallest float is reported as that float, not as 0."""


def finite(values: ArrayLike, name: str) -> FloatArray:
    """`values` as float64. Raises ValueError that names the index of the first NaN or infinity.

    >>> finite([1, 0], "success")
    array([1., 0.])
    """
    array = np.asarray(values, dtype=np.float64)
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        index = tuple(int(i) for i in bad[0])
        raise ValueError(f"{name}{list(index)} is {array[index]}, not a finite number")
    return array


def wilson(
    k: int, n: int, level: float = 0.95, *, unit: str = "task", conditioning: str = GIVEN_MODELS
) -> Proportion:
    """Wilson score interval of k successes in n. Unlike mean +- stderr it has width at 0/n and n/n.

    Paper: Table 18's note. Raises ValueError unless 0 <= k <= n. n = 0 gives None bounds.

    >>> result = wilson(0, 20)
    >>> result.low, round(result.high, 3)
    (0.0, 0.161)
    """
    if not 0 <= k <= n:
        raise ValueError(f"k={k} is not between 0 and n={n}")
    method = f"Wilson score, {level:.0%}"
    if n == 0:
        return Proportion(0, 0, None, None, None, level, method, unit, conditioning)
    bounds = stats.binomtest(int(k), int(n)).proportion_ci(level, method="wilson")
    # The score interval touches 0 and 1 there exactly; rounding must not leave 0.9999999999999999.
    low = 0.0 if k == 0 else float(bounds.low)
    high = 1.0 if k == n else float(bounds.high)
    return Proportion(int(k), int(n), k / n, low, high, level, method, unit, conditioning)


def recovery(successes_with_rejection: int, episodes_with_rejection: int) -> Proportion | None:
    """Successes among the episodes with at least one rejected call; None (not 0, not 1) when there are none.

    Paper: section 3.2, Table 20.

    >>> recovery(3, 8).estimate
    0.375
    >>> recovery(0, 0) is None
    True
    """
    if episodes_with_rejection == 0 == successes_with_rejection:
        return None
    return wilson(successes_with_rejection, episodes_with_rejection, unit="episode with a rejected call")


def mcnemar_exact(
    only_first: int, only_second: int, *, n: int | None = None, alternative: Alternative = "two-sided"
) -> PairedTest:
    """Exact binomial test on discordant pairs; equals the sign-flip test for binary outcomes.

    `n` counts all pairs and is the number of discordant ones if not given. Paper: Table 26.

    >>> round(mcnemar_exact(6, 1, n=10).p, 3)
    0.125
    """
    if only_first < 0 or only_second < 0:
        raise ValueError(f"negative count of discordant pairs: {only_first}, {only_second}")
    discordant = only_first + only_second
    p = 1.0
    if discordant:
        p = float(stats.binomtest(only_first, discordant, 0.5, alternative=alternative).pvalue)
    return PairedTest(
        p=min(1.0, max(p, SMALLEST_P)),
        statistic=float(only_first - only_second),
        n=discordant if n is None else n,
        nonzero=discordant,
        alternative=alternative,
        method="exact binomial on discordant pairs",
        unit="task",
        conditioning=GIVEN_MODELS,
    )


def sign_flip(
    differences: ArrayLike,
    *,
    alternative: Alternative = "two-sided",
    rng: np.random.Generator | None = None,
    draws: int = 100_000,
    unit: str = "task",
    conditioning: str = GIVEN_MODELS,
) -> PairedTest:
    """Sign-flip test of paired differences [n_tasks]: how often are random signs as extreme as the data?

    Exact wherever feasible, and `method` says how: binomial if all non-zero differences have one size (binary
    outcomes), convolution for integers (pass counts, not fractions), enumeration up to ENUMERATION_LIMIT
    real values. Beyond that Monte Carlo with +1 correction, which needs `rng`. Paper: section B, Table 18.
    Raises ValueError for no tasks, NaN, or a missing `rng`.

    >>> test = sign_flip([1] * 5 + [0] * 15)
    >>> test.p, test.n, test.method
    (0.0625, 20, 'exact binomial on discordant pairs')
    >>> sign_flip([2, 1, -1, 3]).p
    0.375
    """
    values = finite(differences, "differences")
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"differences must be a non-empty list, one value a task; got shape {values.shape}")
    nonzero = values[values != 0]
    sizes, observed = np.sort(np.abs(nonzero)), float(values.sum())
    if nonzero.size == 0 or np.all(sizes == sizes[0]):
        binary = mcnemar_exact(
            int((nonzero > 0).sum()), int((nonzero < 0).sum()), n=values.size, alternative=alternative
        )
        return binary._replace(statistic=observed, unit=unit, conditioning=conditioning)
    if np.all(sizes == np.round(sizes)) and sizes.sum() <= CONVOLUTION_LIMIT:
        p, method = _tail(*_convolve(sizes), observed, alternative), "exact sign-flip by convolution"
    elif nonzero.size <= ENUMERATION_LIMIT:
        sums = _all_sums(sizes)
        p = _tail(sums, np.full(sums.size, 1.0 / sums.size), observed, alternative)
        method = "exact sign-flip by enumeration"
    elif rng is None:
        raise ValueError(
            f"{nonzero.size} non-zero differences that are not integers are too many to enumerate: "
            "pass integer counts, or rng=numpy.random.default_rng(seed) for Monte Carlo"
        )
    else:
        sums = _random_sums(sizes, draws, rng)
        hits = _tail(sums, np.ones(draws), observed, alternative)
        p, method = (1 + hits) / (1 + draws), f"Monte Carlo sign-flip, {draws} draws, +1 correction"
    p = min(1.0, max(p, SMALLEST_P))
    return PairedTest(p, observed, values.size, nonzero.size, alternative, method, unit, conditioning)


def _convolve(sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Support and probabilities of the sum of `sizes` (positive integers) under random signs."""
    mass = np.ones(1)
    for size in sizes.astype(int):
        wider = np.zeros(mass.size + 2 * size)
        wider[: mass.size] += 0.5 * mass
        wider[2 * size :] += 0.5 * mass
        mass = wider
    total = sizes.sum()
    return np.arange(-total, total + 1), mass


def _all_sums(sizes: FloatArray) -> FloatArray:
    """The 2^n sums of `sizes` over all sign patterns."""
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums + size, sums - size])
    return sums


def _random_sums(sizes: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
    """[draws] sums of `sizes` under random signs. Bounded memory, as in `paired_bootstrap`."""
    block = max(1, min(draws, 8_000_000 // sizes.size))
    counts = [min(block, draws - start) for start in range(0, draws, block)]
    return np.concatenate([(rng.integers(0, 2, (n, sizes.size)) * 2 - 1) @ sizes for n in counts])


def _tail(support: FloatArray, mass: FloatArray, observed: float, alternative: Alternative) -> float:
    """Total mass of sums at least as extreme as `observed`."""
    # Sums of reals that are equal on paper differ in the last bits; a tie must count as extreme.
    slack = 1e-12 * float(np.abs(support).max())
    if alternative == "two-sided":
        extreme = np.abs(support) >= abs(observed) - slack
    elif alternative == "greater":
        extreme = support >= observed - slack
    else:
        extreme = support <= observed + slack
    return float(mass[extreme].sum())


def paired_bootstrap(
    values: ArrayLike,
    statistic: Callable[[FloatArray], FloatArray],
    *,
    draws: int = BOOTSTRAP_DRAWS,
    seed: int = BOOTSTRAP_SEED,
    level: float = 0.95,
    method: Literal["percentile", "BCa"] = "percentile",
    unit: str = "task",
    conditioning: str = GIVEN_MODELS,
) -> Interval:
    """Bootstrap interval that resamples whole tasks, so that all cells of a task stay together.

    `values` [n_tasks, ...]; `statistic` maps [draws, n_tasks, ...] to [draws]. Sort the rows by task id:
    their order decides which task a draw picks. All-equal data give a zero-width interval, which does not
    mean zero uncertainty. BCa falls back to percentile where it is undefined, and `method` says so.
    Paper: section B (20,000 draws, seed 20260915). Raises ValueError for no tasks or NaN.

    >>> outcomes = [[1, 1]] * 12 + [[1, 0]] * 5 + [[0, 1]] * 3
    >>> result = paired_bootstrap(outcomes, lambda x: (x[..., 1] - x[..., 0]).mean(axis=1))
    >>> round(result.estimate, 2), round(result.low, 2), round(result.high, 2)
    (-0.1, -0.35, 0.15)
    """
    array = finite(values, "values")
    if array.ndim == 0 or array.shape[0] == 0:
        raise ValueError(f"values must hold at least one task; got shape {array.shape}")
    n = array.shape[0]
    rng = np.random.default_rng(seed)
    estimate = float(statistic(array[None])[0])
    # Bounded memory: about 8 million numbers at a time; the stream of indices doesn't depend on the chunk.
    chunk = max(1, min(draws, 8_000_000 // array.size))
    replicates = np.concatenate(
        [
            statistic(array[rng.integers(0, n, (min(chunk, draws - start), n))])
            for start in range(0, draws, chunk)
        ]
    )
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    name = "percentile"
    if method == "BCa":
        adjusted = _bca_tails(array, statistic, replicates, estimate, tails)
        tails, name = (tails, "percentile (BCa undefined here)") if adjusted is None else (adjusted, "BCa")
    low, high = np.quantile(replicates, tails)
    label = f"paired task bootstrap, {name}, {level:.0%}, {draws} draws, seed {seed}"
    return Interval(estimate, float(low), float(high), level, n, label, unit, conditioning)


def _bca_tails(
    array: FloatArray,
    statistic: Callable[[FloatArray], FloatArray],
    replicates: FloatArray,
    estimate: float,
    tails: FloatArray,
) -> FloatArray | None:
    """Bias-corrected, accelerated tail probabilities (Efron 1987), or None for degenerate data."""
    n = array.shape[0]
    below = ((replicates < estimate).mean() + (replicates <= estimate).mean()) / 2
    if n < 2 or not 0 < below < 1:
        return None
    leave_one_out = np.array([[j for j in range(n) if j != i] for i in range(n)])
    jackknife = statistic(array[leave_one_out])
    spread = jackknife.mean() - jackknife
    if not np.any(spread):
        return None
    acceleration = (spread**3).sum() / (6 * (spread**2).sum() ** 1.5)
    bias = stats.norm.ppf(below)
    shifted = bias + stats.norm.ppf(tails)
    return cast(FloatArray, stats.norm.cdf(bias + shifted / (1 - acceleration * shifted)))


def difference_of_differences(ff: Rates, fc: Rates, cf: Rates, cc: Rates) -> Rates:
    """(S_CC - S_CF) - (S_FC - S_FF): what testing on C adds after training on C, less what it adds after F.

    First letter: training view; second: test view. Rates, or arrays [n_tasks]. Range -2..2. Positive when
    testing on C adds more after training on C. Paper: equation 3, Tables 3 and 18.

    >>> round(difference_of_differences(45 / 50, 24 / 50, 0 / 50, 50 / 50), 2)
    1.42
    """
    return (cc - cf) - (fc - ff)


def seeds_summary(values: ArrayLike) -> Summary:
    """Mean and sample SD over training seeds. Paper: Table 3 (never pooled as independent tasks).

    >>> result = seeds_summary([142, 98, 78])
    >>> round(result.mean), round(result.sd, 1)
    (106, 32.7)
    """
    array = finite(values, "values")
    mean = float(array.mean()) if array.size else None
    sd = float(array.std(ddof=1)) if array.size > 1 else None
    return Summary(mean, sd, array.size)


def holm(p: Sequence[float]) -> Adjusted:
    """Holm step-down adjusted p values, in the order given. Paper: section C (registered contrasts).

    >>> holm([0.01, 0.04, 0.03]).p
    (0.03, 0.06, 0.06)
    """
    raw = finite(p, "p")
    if np.any((raw <= 0) | (raw > 1)):
        index = int(np.argmax((raw <= 0) | (raw > 1)))
        raise ValueError(f"p[{index}] is {raw[index]}, not in (0, 1]")
    order = np.argsort(raw, kind="stable")
    scaled = raw[order] * np.arange(raw.size, 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return Adjusted(tuple(float(value) for value in adjusted), raw.size)


def spearman(x: ArrayLike, y: ArrayLike) -> Association:
    """Spearman's rho, descriptive (no p value: repeated workflows are not independent). Paper: section F.

    >>> round(spearman([1, 2, 3, 4], [10, 20, 40, 30]).rho, 3)
    0.8
    """
    first, second = finite(x, "x"), finite(y, "y")
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(f"x and y must be lists of one length; got shapes {first.shape} and {second.shape}")
    if first.size < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return Association(None, first.size)
    return Association(float(stats.spearmanr(first, second).statistic), first.size)
