"""The paper's printed numbers, copied by hand with their table numbers, from the counts that it prints.

`docs/statistics.md` lists them beside ours, and what cannot be recomputed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from stsr.stats.estimators import (
    difference_of_differences,
    holm,
    mcnemar_exact,
    paired_bootstrap,
    recovery,
    seeds_summary,
    sign_flip,
    wilson,
)

TABLE_3 = [  # seed, FF, FC, CF, CC of 50, interaction in points
    (20260910, 45, 24, 0, 50, 142),
    (20260926, 49, 50, 0, 50, 98),
    (20260927, 35, 46, 0, 50, 78),
]


@pytest.mark.parametrize(("seed", "ff", "fc", "cf", "cc", "points"), TABLE_3)
def test_table_3_interactions(seed: int, ff: int, fc: int, cf: int, cc: int, points: int) -> None:
    delta = difference_of_differences(ff / 50, fc / 50, cf / 50, cc / 50)
    assert round(100 * delta, 9) == points


def test_table_3_mean_and_sample_sd() -> None:
    summary = seeds_summary([row[-1] for row in TABLE_3])
    assert summary.mean == 106
    assert summary.sd is not None
    assert f"{summary.sd:.1f}" == "32.7"


def test_table_4_interaction_of_the_8b_pair() -> None:
    # FF 50, FC 50, CF 0, CC 49 of 50; equation 3 gives 98 points.
    assert difference_of_differences(50 / 50, 50 / 50, 0 / 50, 49 / 50) == pytest.approx(0.98)


# Table 18. Margins (Table 16): FF 17, FC 15, CF 0, CC 20 of 20. The p of full training settles the rest.


def test_table_16_and_18_determine_the_joint_outcomes() -> None:
    """Of the four splits with these margins, only 5 against 3 discordant tasks gives the printed .727."""
    printed = []
    for only_compact in range(4):  # at most the 3 tasks that FF failed
        only_full = only_compact + 2
        n = only_full + only_compact
        p = min(1.0, 2 * sum(math.comb(n, i) for i in range(only_compact + 1)) / 2**n)
        if f"{p:.3f}" == "0.727":
            printed.append((only_full, only_compact))
    assert printed == [(5, 3)]


FF = np.array([1.0] * 12 + [1] * 5 + [0] * 3)
FC = np.array([1.0] * 12 + [0] * 5 + [1] * 3)
CF, CC = np.zeros(20), np.ones(20)
TABLE_18 = [
    ("compact minus full training, full test", CF - FF, -85, (-100, -70), "1.53e-05"),
    ("compact minus full training, compact test", CC - FC, 25, (10, 45), "6.25e-02"),
    ("compact minus full test, full training", FC - FF, -10, (-35, 15), "7.27e-01"),
    ("compact minus full test, compact training", CC - CF, 100, (100, 100), "1.91e-06"),
    ("difference of differences", (CC - CF) - (FC - FF), 110, (85, 135), "1.53e-05"),
]


@pytest.mark.parametrize(("name", "per_task", "effect", "interval", "p"), TABLE_18)
def test_table_18(name: str, per_task: np.ndarray, effect: int, interval: tuple[int, int], p: str) -> None:
    result = paired_bootstrap(per_task, lambda drawn: drawn.mean(axis=1))
    assert round(100 * result.estimate, 9) == effect
    # The statistic moves in steps of 5 points; at the paper's seed the printed ends come out exactly.
    assert (100 * result.low, 100 * result.high) == (pytest.approx(interval[0]), pytest.approx(interval[1]))
    assert f"{sign_flip(per_task).p:.2e}" == p


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("name", "per_task", "effect", "interval", "p"), TABLE_18)
def test_table_18_intervals_do_not_hang_on_the_seed(
    name: str, per_task: np.ndarray, effect: int, interval: tuple[int, int], p: str, seed: int
) -> None:
    result = paired_bootstrap(per_task, lambda drawn: drawn.mean(axis=1), seed=seed)
    assert abs(100 * result.low - interval[0]) <= 5 + 1e-9
    assert abs(100 * result.high - interval[1]) <= 5 + 1e-9


@pytest.mark.parametrize(
    ("k", "low", "high"),
    [(0, "0.0", "16.1"), (15, "53.1", "88.8"), (17, "64.0", "94.8"), (20, "83.9", "100.0")],
)
def test_table_18_wilson_intervals(k: int, low: str, high: str) -> None:
    result = wilson(k, 20)
    assert result.low is not None
    assert result.high is not None
    assert (f"{100 * result.low:.1f}", f"{100 * result.high:.1f}") == (low, high)


def test_table_20_recovery() -> None:
    full_full, full_compact, compact_full = recovery(0, 3), recovery(3, 8), recovery(0, 20)
    assert full_full is not None
    assert full_compact is not None
    assert compact_full is not None
    assert [r.estimate for r in (full_full, full_compact, compact_full)] == [0.0, 0.375, 0.0]
    assert recovery(0, 0) is None  # CC: printed as a dash


# Table 21: per-seed scores are not printed. The adjusted values pin output-only to 2^-20 (all 20 seeds
# positive) times 3, and are consistent with 2^-18 (18 seeds positive, two tied) times 2 for names-only.


def test_table_21_holm_values_follow_from_consistent_seed_outcomes() -> None:
    output_only = sign_flip([4, 3, 2, 3] * 5, alternative="greater").p
    names_only = sign_flip([6, 5, 4] * 6 + [0, 0], alternative="greater").p
    assert (output_only, names_only) == (2**-20, 2**-18)
    adjusted = holm([names_only, output_only, 0.5]).p
    assert f"{adjusted[0]:.2e}" == "7.63e-06"
    assert f"{adjusted[1]:.2e}" == "2.86e-06"


def test_matched_distractor_p() -> None:
    # Section C.1: ten seeds, one-sided p = .00098 = 2^-10: every seed positive (66 probes in all).
    p = sign_flip([7] * 6 + [6] * 4, alternative="greater").p
    assert f"{p:.5f}" == "0.00098"


EXACT_P = [
    # (table, only first, only second, printed p); discordant counts printed, or the only ones that give p.
    ("26 full only, full view", 1, 3, "0.625"),
    ("26 full only, compact view", 3, 2, "1.000"),
    ("26 full only, block view", 1, 3, "0.625"),
    ("26 full/compact, full view", 6, 1, "0.125"),
    ("26 full/compact, compact view", 0, 3, "0.250"),
    ("26 full/compact, block view", 4, 0, "0.125"),
    ("17 matched cue, H4-trained", 12, 0, "0.000"),
    ("24 branching H8, 1 to 7 of 20", 7, 1, "0.070"),
    ("24 branching H16, 1 to 3 of 20", 3, 1, "0.625"),
    ("8 27B H16 completion, 16 to 20", 4, 0, "0.125"),
    ("8 27B H8 completion, 19 to 20", 1, 0, "1.000"),
    ("C.2 padding at 1,200 tokens", 0, 3, "0.250"),
]


@pytest.mark.parametrize(("table", "first", "second", "printed"), EXACT_P)
def test_exact_paired_p_values(table: str, first: int, second: int, printed: str) -> None:
    assert f"{mcnemar_exact(first, second).p:.3f}" == printed


def test_small_exact_p_values_to_printed_precision() -> None:
    assert f"{mcnemar_exact(12, 0).p:.5f}" == "0.00049"  # Table 17, matched cue
    assert f"{mcnemar_exact(18, 0).p:.2e}" == "7.63e-06"  # section B.1, clean paths at H16, 0 to 18 of 20
    assert f"{mcnemar_exact(11, 1).p:.5f}" == "0.00635"  # section B.1, clean paths at H8, 9 to 19 of 20
