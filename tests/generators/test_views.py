"""Protects: each view shows what section 3.2 of the paper says, and hides nothing else."""

import pytest

from stsr.generators import chain
from stsr.generators.environment import gold_prefix
from stsr.generators.views import VIEWS, view

TASK = chain.generate(4, 62_000)


@pytest.mark.parametrize(
    ("name", "calls", "visible"),
    [
        ("full", 0, ["s0"]),
        ("full", 3, ["s0", "a1", "a2", "a3"]),
        ("compact", 0, ["s0"]),
        ("compact", 3, ["a3"]),
        ("recent2", 0, ["s0"]),
        ("recent2", 1, ["s0", "a1"]),
        ("recent2", 3, ["a2", "a3"]),
    ],
)
def test_what_is_visible(name, calls, visible):
    state = gold_prefix(TASK, calls)
    shown = view(name)(state, state.reference)
    assert shown.visible == visible
    assert [artifact for artifact, _ in shown.artifacts] == ["s0", "a1", "a2", "a3"][: calls + 1]
    assert all(table in (None, state.artifacts[artifact]) for artifact, table in shown.artifacts)


def test_only_compact_consults_the_target():
    state, other = gold_prefix(TASK, 3), TASK.recipes[1]
    assert view("compact")(state, other).visible == ["a1"]
    for name in ("full", "recent2"):
        assert view(name)(state, other) == view(name)(state, state.reference)


def test_an_unknown_view_names_the_alternatives():
    with pytest.raises(ValueError, match=f"unknown view 'fll'; there are {', '.join(VIEWS)}"):
        view("fll")
