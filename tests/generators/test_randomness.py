"""Protects: streams are uniform, keyed, and share nothing between neighbouring seeds."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stsr.generators.randomness import keyed


def test_the_words_are_sha256_in_counter_mode():
    key = hashlib.sha256(repr(("chain", 7, "table")).encode())
    key.update((0).to_bytes(8, "big"))
    words = [int.from_bytes(key.digest()[i : i + 4], "big") for i in range(0, 32, 4)]
    stream = keyed("chain", 7, "table")
    assert [stream.below(2**32) for _ in range(8)] == words


def test_neighbouring_seeds_share_nothing():
    streams = [keyed("chain", seed, "table") for seed in range(500)]
    words = {stream.below(2**32) for stream in streams for _ in range(8)}
    assert len(words) > 3990  # of 4000; a shifted stream would repeat


@pytest.mark.parametrize("n", [0, -1, 2**32 + 1])
def test_below_refuses_what_it_cannot_draw(n):
    with pytest.raises(ValueError, match="must be in"):
        keyed("x").below(n)


@given(st.integers(1, 2**32), st.integers(0, 100))
def test_below_stays_in_range(n, seed):
    assert 0 <= keyed("range", seed).below(n) < n


def test_below_is_uniform():
    stream = keyed("uniform")
    counts = Counter(stream.below(6) for _ in range(60_000))
    chi_square = sum((counts[face] - 10_000) ** 2 / 10_000 for face in range(6))
    assert chi_square < 20.5  # 0.1% of fair dice exceed this at 5 degrees of freedom


def test_below_rejects_the_tail_that_would_bias_it():
    n = 3 * 2**30  # plain modulo would make the first third twice as likely
    stream = keyed("bias")
    low = sum(stream.below(n) < 2**30 for _ in range(30_000))
    assert 9_600 < low < 10_400


def test_every_order_of_three_is_equally_likely():
    stream = keyed("shuffle")
    counts = Counter(tuple(stream.shuffled("abc")) for _ in range(6_000))
    assert len(counts) == 6
    assert all(870 < count < 1_130 for count in counts.values())
