"""Protects: every experiment over tables completes on the tiny base and fills the tables that it declares.

pytest tests/smoke -m slow
"""

import pytest

from tests.smoke.runs import fills_its_tables, names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("name", [name for name in names() if not name.startswith("scienceworld")])
def test_every_experiment_fills_its_tables(place, name):
    assert fills_its_tables(place, name)
