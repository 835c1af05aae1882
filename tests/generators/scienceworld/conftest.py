"""What test modules take from here, since they cannot import one another."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def fake_simulator():
    """The class FakeSimulator."""
    path = Path(__file__).with_name("fake_simulator.py")
    spec = importlib.util.spec_from_file_location("fake_simulator", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.FakeSimulator
