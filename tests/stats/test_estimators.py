"""Estimators against closed forms, brute force and SciPy's own implementations; edges and error messages."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from stsr.stats import estimators as e

counts = st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
small_integers = st.lists(st.integers(-4, 4), min_size=1, max_size=9)
ALTERNATIVES: list[e.Alternative] = ["two-sided", "greater", "less"]


def mean_difference(drawn: e.FloatArray) -> e.FloatArray:
    return (drawn[..., 1] - drawn[..., 0]).mean(axis=1)


# Wilson


@given(counts)
def test_wilson_is_the_closed_form_and_holds_the_estimate(pair: tuple[int, int]) -> None:
    k, n = pair
    result = e.wilson(k, n)
    z, p = 1.959963984540054, k / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert result.low == pytest.approx(middle - half, abs=1e-9)
    assert result.high == pytest.approx(middle + half, abs=1e-9)
    assert result.low is not None
    assert result.high is not None
    assert 0 <= result.low <= p <= result.high <= 1


@given(counts)
def test_wilson_is_monotone_in_k(pair: tuple[int, int]) -> None:
    k, n = pair
    if k < n:
        less, more = e.wilson(k, n), e.wilson(k + 1, n)
        assert less.low is not None
        assert more.low is not None
        assert less.high is not None
        assert more.high is not None
        assert less.low < more.low
        assert less.high < more.high


def test_wilson_has_width_at_the_edges_and_none_without_data() -> None:
    # Section 0 of the peers' review: 0/50 -> [0, 7.1]%, 50/50 -> [92.9, 100]%, where others print 0.0.
    none, all_ = e.wilson(0, 50), e.wilson(50, 50)
    assert (none.low, none.high) == (0.0, pytest.approx(0.0713, abs=5e-5))
    assert (all_.low, all_.high) == (pytest.approx(0.9287, abs=5e-5), 1.0)
    empty = e.wilson(0, 0)
    assert (empty.estimate, empty.low, empty.high, empty.n) == (None, None, None, 0)


@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (1, 0)])
def test_wilson_refuses_impossible_counts(k: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"k={k} is not between 0 and n={n}"):
        e.wilson(k, n)


def test_recovery_is_undefined_without_rejections() -> None:
    assert e.recovery(0, 0) is None
    some = e.recovery(10, 11)
    assert some is not None
    assert (some.k, some.n, some.unit) == (10, 11, "episode with a rejected call")
    with pytest.raises(ValueError, match="k=1 is not between 0 and n=0"):
        e.recovery(1, 0)


# Sign-flip and McNemar


def brute_force(values: list[float], alternative: e.Alternative) -> float:
    observed = sum(values)
    sums = [
        sum(s * v for s, v in zip(signs, values, strict=True))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    extreme = {
        "two-sided": lambda x: abs(x) >= abs(observed) - 1e-9,
        "greater": lambda x: x >= observed - 1e-9,
        "less": lambda x: x <= observed + 1e-9,
    }[alternative]
    return sum(map(extreme, sums)) / len(sums)


@given(small_integers, st.sampled_from(ALTERNATIVES))
def test_sign_flip_of_integers_equals_brute_force(values: list[int], alternative: e.Alternative) -> None:
    result = e.sign_flip(values, alternative=alternative)
    assert result.p == pytest.approx(brute_force([float(v) for v in values], alternative), abs=1e-12)
    assert 0 < result.p <= 1


@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, -0.1, -0.3, 0.7, -1.1]), min_size=1, max_size=9),
    st.sampled_from(ALTERNATIVES),
)
def test_sign_flip_of_reals_equals_brute_force(values: list[float], alternative: e.Alternative) -> None:
    # 0.1 + 0.2 against 0.3: ties that differ in the last bit must count as ties.
    result = e.sign_flip(values, alternative=alternative)
    assert result.p == pytest.approx(brute_force(values, alternative), abs=1e-12)


@given(small_integers)
def test_sign_flip_is_symmetric(values: list[int]) -> None:
    mirrored = [-value for value in values]
    assert e.sign_flip(values).p == e.sign_flip(mirrored).p
    greater, less = (e.sign_flip(v, alternative=a).p for v, a in ((values, "greater"), (mirrored, "less")))
    assert greater == pytest.approx(less, abs=1e-12)


def test_sign_flip_says_how_it_was_computed() -> None:
    assert e.sign_flip([1, -1, 0, 1]).method == "exact binomial on discordant pairs"
    assert e.sign_flip([0, 0]).p == 1
    assert e.sign_flip([2, -1, 0, 1]).method == "exact sign-flip by convolution"
    assert e.sign_flip([0.25, -1, 0.5]).method == "exact sign-flip by enumeration"
    result = e.sign_flip([2, 0, -1, 3])
    assert (result.statistic, result.n, result.nonzero, result.unit) == (4.0, 4, 3, "task")


def test_sign_flip_beyond_enumeration_needs_a_generator_and_comes_close() -> None:
    values = [0.5 + 0.01 * i for i in range(15)] + [-0.45 - 0.017 * i for i in range(6)]
    with pytest.raises(ValueError, match=r"21 non-zero differences .* pass integer counts, or rng="):
        e.sign_flip(values)
    result = e.sign_flip(values, rng=np.random.default_rng(7), draws=20_000)
    again = e.sign_flip(values, rng=np.random.default_rng(7), draws=20_000)
    assert result.p == again.p
    assert result.method == "Monte Carlo sign-flip, 20000 draws, +1 correction"
    exact = e.sign_flip(np.round(np.array(values) * 1000)).p  # thousandths are whole numbers
    assert result.p == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000) + 1e-4)


def test_p_is_never_zero() -> None:
    assert e.sign_flip([1] * 1200).p > 0
    assert e.mcnemar_exact(1200, 0).p > 0
    hopeless = e.sign_flip(np.linspace(1, 2, 60), rng=np.random.default_rng(1), draws=99)
    assert hopeless.p == pytest.approx(1 / 100)


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_the_binomial_tail(b: int, c: int) -> None:
    n = b + c
    tail = sum(math.comb(n, i) for i in range(min(b, c) + 1)) / 2**n
    assert e.mcnemar_exact(b, c).p == pytest.approx(min(1.0, 2 * tail), rel=1e-9)


def test_bad_differences_are_refused() -> None:
    with pytest.raises(ValueError, match=r"differences\[1\] is nan, not a finite number"):
        e.sign_flip([1, math.nan])
    with pytest.raises(ValueError, match="non-empty list, one value a task"):
        e.sign_flip([])
    with pytest.raises(ValueError, match="negative count"):
        e.mcnemar_exact(-1, 2)


# Bootstrap


def test_bootstrap_is_reproducible_and_depends_on_its_seed() -> None:
    values = np.random.default_rng(3).normal(size=(30, 2))
    first = e.paired_bootstrap(values, mean_difference)
    assert first == e.paired_bootstrap(values, mean_difference)
    assert first != e.paired_bootstrap(values, mean_difference, seed=1)
    assert "20000 draws, seed 20260915" in first.method


@settings(max_examples=20)
@given(st.permutations(range(12)))
def test_bootstrap_ignores_task_order_once_sorted(order: list[int]) -> None:
    values = np.arange(24.0).reshape(12, 2) % 5
    shuffled = {task: values[task] for task in order}
    again = np.array([shuffled[task] for task in sorted(shuffled)])
    assert e.paired_bootstrap(again, mean_difference, draws=500) == e.paired_bootstrap(
        values, mean_difference, draws=500
    )


def test_bootstrap_of_one_proportion_is_the_binomial() -> None:
    # The bootstrap distribution of k/n is Binomial(n, k/n)/n: its quantiles are known without resampling.
    values = np.array([1.0] * 30 + [0.0] * 20)
    result = e.paired_bootstrap(values, lambda drawn: drawn.mean(axis=1))
    low, high = scipy_stats.binom.ppf([0.025, 0.975], 50, 0.6) / 50
    assert (result.low, result.high) == (pytest.approx(low, abs=0.021), pytest.approx(high, abs=0.021))
    assert result.estimate == pytest.approx(0.6)


def test_bca_agrees_with_scipy() -> None:
    values = np.random.default_rng(11).exponential(size=40)
    ours = e.paired_bootstrap(values, lambda drawn: drawn.mean(axis=1), method="BCa")
    theirs = scipy_stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(5)
    ).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.01)
    assert ours.high == pytest.approx(theirs.high, abs=0.01)
    assert ", BCa," in ours.method


@pytest.mark.parametrize("values", [[1.0] * 8, [0.5]])
def test_bca_of_degenerate_data_falls_back_and_says_so(values: list[float]) -> None:
    result = e.paired_bootstrap(values, lambda drawn: drawn.mean(axis=1), draws=100, method="BCa")
    assert result.low == result.high == values[0]
    assert "BCa undefined here" in result.method


def test_bootstrap_result_does_not_depend_on_the_memory_chunk() -> None:
    values = np.random.default_rng(2).normal(size=(101, 7))
    narrow = e.paired_bootstrap(values, lambda drawn: drawn[..., 0].mean(axis=1))
    repeated = np.concatenate([values] * 9, axis=1)  # nine times as wide: other chunks, same first column
    wide = e.paired_bootstrap(repeated, lambda drawn: drawn[..., 0].mean(axis=1))
    assert (narrow.low, narrow.high) == (wide.low, wide.high)


def test_bootstrap_refuses_nan_and_nothing() -> None:
    with pytest.raises(ValueError, match=r"values\[2, 1\] is nan"):
        e.paired_bootstrap([[0, 1], [1, 1], [0, math.nan]], mean_difference)
    with pytest.raises(ValueError, match="at least one task"):
        e.paired_bootstrap(np.empty((0, 2)), mean_difference)


# The rest


def test_difference_of_differences_by_hand_for_rates_and_tasks() -> None:
    assert e.difference_of_differences(0.9, 0.5, 0.1, 0.8) == pytest.approx(1.1)
    per_task = e.difference_of_differences(*(np.array(x, float) for x in ([1, 0], [0, 1], [0, 0], [1, 1])))
    assert per_task.tolist() == [2.0, 0.0]


def test_one_seed_has_no_spread_and_no_seed_no_mean() -> None:
    assert e.seeds_summary([0.5])[:3] == (0.5, None, 1)
    assert e.seeds_summary([])[:3] == (None, None, 0)
    with pytest.raises(ValueError, match=r"values\[0\] is nan"):
        e.seeds_summary([math.nan])


def test_holm_by_hand() -> None:
    # Sorted: .005 x 4 = .02; .01 x 3 = .03; .03 x 2 = .06; .04 x 1 = .04, raised to .06.
    assert e.holm([0.01, 0.04, 0.03, 0.005]).p == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert e.holm([0.9, 0.8]).p == (1.0, 1.0)
    assert e.holm([]).p == ()


@pytest.mark.parametrize(("bad", "index"), [([0.1, 0.0], 1), ([1.5], 0)])
def test_holm_refuses_what_is_no_p_value(bad: list[float], index: int) -> None:
    with pytest.raises(ValueError, match=rf"p\[{index}\] is .*, not in"):
        e.holm(bad)


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_value_and_keeps_the_order(raw: list[float]) -> None:
    adjusted = e.holm(raw).p
    assert all(a >= r * (1 - 1e-12) for a, r in zip(adjusted, raw, strict=True))
    assert [adjusted[i] for i in np.argsort(raw, kind="stable")] == sorted(adjusted)


def test_spearman_by_hand_and_undefined() -> None:
    # Ranks 1 2 3 4 5 against 2 1 4 3 5: sum of squared differences 4, so 1 - 6*4/(5*24) = 0.8.
    assert e.spearman([1, 2, 3, 4, 5], [20, 10, 40, 30, 50]).rho == pytest.approx(0.8)
    assert e.spearman([1, 2, 3], [4, 4, 4]).rho is None
    assert e.spearman([1], [1]).rho is None
    with pytest.raises(ValueError, match="lists of one length"):
        e.spearman([1, 2], [1, 2, 3])


def test_every_result_carries_unit_conditioning_null_n_and_method() -> None:
    results = [
        e.wilson(1, 2),
        e.sign_flip([1, 0]),
        e.paired_bootstrap([1.0, 0.0], lambda drawn: drawn.mean(axis=1), draws=10),
        e.seeds_summary([1, 2]),
        e.holm([0.5]),
        e.spearman([1, 2], [2, 1]),
    ]
    for result in results:
        for name in ("unit", "conditioning", "null", "method"):
            assert getattr(result, name)
        assert isinstance(result.n, int)
