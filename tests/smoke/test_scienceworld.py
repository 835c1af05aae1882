"""Protects: the experiments of ScienceWorld do so too. They need Java; the frozen extension is never run."""

import pytest

from tests.smoke.runs import fills_its_tables, names

pytestmark = [pytest.mark.slow, pytest.mark.needs_java, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("scienceworld")])
def test_every_experiment_fills_its_tables(place, name):
    assert fills_its_tables(place, name)
