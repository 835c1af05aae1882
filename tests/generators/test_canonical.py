"""Protects: one value has one text on every platform, and what has no obvious text is refused."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stsr.generators.canonical import canonical, fingerprint

values = st.recursive(
    st.integers() | st.text() | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def test_text_is_sorted_compact_and_ascii():
    assert canonical({"b": 1, "a": ["é", True], "Z": {}}) == '{"Z":{},"a":["\\u00e9",true],"b":1}'


def test_fingerprint_is_the_head_of_the_sha256_of_the_text():
    assert fingerprint([1, 2]) == hashlib.sha256(b"[1,2]").hexdigest()[:32]


@given(st.dictionaries(st.text(), values, max_size=5))
def test_order_of_insertion_does_not_matter(value):
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": 1.0}, "value.a"),
        ([1, None], r"value\[1\]"),
        ({"a": [{"b": {1, 2}}]}, r"value.a\[0\].b"),
        ({1: "a"}, "not a string"),
        ([b"x"], "bytes"),
    ],
)
def test_what_has_no_canonical_form_is_refused_with_its_place(value, place):
    with pytest.raises(TypeError, match=place):
        canonical(value)
