"""Named results of the estimators: every number carries its unit, conditioning, null, n and method.

Nothing to run: these are the types that `stsr.stats.estimators` returns and the report prints.
Invariant: undefined is None, never 0 or NaN. Proportions and differences are fractions; percentage points are
for text only.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Alternative = Literal["two-sided", "greater", "less"]

GIVEN_MODELS = "these models and greedy decoding as they are; only the tasks vary"
GIVEN_PROBES = "these models as they are; decisions of one task are counted as if independent"
GIVEN_SEEDS = "the training seeds that were run; no inference to other seeds"
NO_NULL = "none (an estimate, not a test)"
SIGN_NULL = "each task's difference is as likely to be negative as positive (signs exchangeable)"


class Proportion(NamedTuple):
    """k of n with an interval. `estimate`, `low` and `high` are fractions, None when n is 0."""

    k: int
    n: int
    estimate: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    unit: str
    conditioning: str
    null: str = NO_NULL


class Interval(NamedTuple):
    """An estimate with an interval, in the units of the statistic."""

    estimate: float
    low: float
    high: float
    level: float
    n: int
    method: str
    unit: str
    conditioning: str
    null: str = NO_NULL


class PairedTest(NamedTuple):
    """A test of paired differences. `statistic` is their sum, `nonzero` how many of the n are not 0."""

    p: float
    statistic: float
    n: int
    nonzero: int
    alternative: Alternative
    method: str
    unit: str
    conditioning: str
    null: str = SIGN_NULL


class Summary(NamedTuple):
    """Mean and sample standard deviation (n - 1) over training seeds; sd is None for one seed."""

    mean: float | None
    sd: float | None
    n: int
    method: str = "mean and sample standard deviation"
    unit: str = "training seed"
    conditioning: str = GIVEN_SEEDS
    null: str = NO_NULL


class Adjusted(NamedTuple):
    """p values adjusted for a family of n tests, in the order given."""

    p: tuple[float, ...]
    n: int
    method: str = "Holm step-down"
    unit: str = "test"
    conditioning: str = "the family of tests as given"
    null: str = "every null of the family"


class Association(NamedTuple):
    """Rank correlation; rho is None when one side is constant or n < 2."""

    rho: float | None
    n: int
    method: str = "Spearman rank correlation, average ranks"
    unit: str = "pair"
    conditioning: str = "the pairs as given"
    null: str = NO_NULL
