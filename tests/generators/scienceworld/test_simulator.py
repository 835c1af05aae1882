"""Protects: the simulator as it really is, its faults, and that test paths stay locked away."""

import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from stsr.generators.scienceworld import simulator as module
from stsr.generators.scienceworld.actions import REJECTION
from stsr.generators.scienceworld.catalogue import read_catalogue
from stsr.generators.scienceworld.freeze import build, replay, verify
from stsr.generators.scienceworld.sessions import Pool
from stsr.generators.scienceworld.simulator import (
    GoldSimulator,
    Simulator,
    SimulatorDied,
    SimulatorError,
    TestPathError,
)
from stsr.generators.scienceworld.variations import FAMILIES, Variation, variations

needs_java = pytest.mark.needs_java
BOIL = Variation("boil", 3)

# -- without Java


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.parametrize("kind", [Simulator, GoldSimulator])
def test_without_java_the_message_says_how_to_install_it(no_java, kind):
    with pytest.raises(SimulatorError, match=r"needs Java .* apt-get install -y openjdk-17-jre-headless"):
        kind()


def java_that(says, tmp_path, monkeypatch):
    """A command `java` that runs a line of shell."""
    (tmp_path / "java").write_text(f"#!/bin/sh\n{says}\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    jar = tmp_path / "some.jar"
    jar.write_bytes(b"a jar")
    return jar


def test_a_jvm_that_does_not_start_says_why(tmp_path, monkeypatch):
    pytest.importorskip("py4j")
    jar = java_that("echo 'Unrecognized VM option' >&2; exit 1", tmp_path, monkeypatch)
    with pytest.raises(SimulatorDied, match="did not start: Unrecognized VM option"):
        Simulator(jar, jar_sha256=None)


def test_a_jvm_that_hangs_at_the_start_is_ended(tmp_path, monkeypatch):
    pytest.importorskip("py4j")
    monkeypatch.setattr(module, "START_SECONDS", 0.2)
    jar = java_that("exec sleep 60", tmp_path, monkeypatch)
    with pytest.raises(SimulatorDied, match="did not start: it said nothing"):
        Simulator(jar, jar_sha256=None)


def test_another_jar_is_refused_before_anything_runs(tmp_path, monkeypatch):
    jar = java_that("exit 1", tmp_path, monkeypatch)
    with pytest.raises(SimulatorError, match=r"another simulator .* Install scienceworld==1.2.3"):
        Simulator(jar)


def test_a_missing_jar(tmp_path, monkeypatch):
    java_that("exit 1", tmp_path, monkeypatch)
    with pytest.raises(SimulatorError, match="is not there; reinstall"):
        Simulator(tmp_path / "none.jar")


class Recorder(GoldSimulator):
    """A gold simulator without a JVM, which notes what it would be asked."""

    def __init__(self):
        self.asked = []

    def _ask(self, function, *arguments):
        self.asked.append(function)


@pytest.mark.parametrize("task", variations("test"), ids=lambda task: task.id)
def test_no_way_to_a_test_path(task):
    simulator = Recorder()
    for way in (simulator.load_path, simulator.load):
        with pytest.raises(TestPathError, match="stays unknown"):
            way(task)
    assert simulator.asked == []


def test_an_ordinary_simulator_has_no_paths_and_never_resets():
    simulator = Recorder.__new__(Simulator)
    for function in (
        "getGoldActionSequence",
        "reset",
        "getValidActionObjectCombinations",
        "getGoalProgressStr",
    ):
        with pytest.raises(SimulatorError, match="must not be called here"):
            simulator._ask(function)
    assert not hasattr(Simulator, "load_path")


# -- with Java


@pytest.fixture(scope="module")
def simulator():
    with Simulator() as simulator:
        yield simulator


@needs_java
def test_official_splits(simulator):
    """The blocks in `variations` are the simulator's own."""
    for family in FAMILIES:
        simulator.load(Variation(family, 0))
        found = simulator.official_variations()
        for name, numbers in found.items():
            assert numbers == [task.number for task in variations(name) if task.family == family]


@needs_java
def test_templates(simulator):
    simulator.load(BOIL)
    assert tuple(simulator.templates()) == read_catalogue().origin.templates


@needs_java
@pytest.mark.parametrize(
    "action",
    ["", "   ", "\n", "x" * 10_000, "open " * 2_000, "open cupboard\nlook around", "\u00e9\x00\u2028",
     "open cupboard.", '"look around"', "Action: look around", "99999999999999999999", "quit", "{}"],
)  # fmt: skip
def test_strange_actions_are_rejected_and_change_nothing(simulator, action):
    simulator.load(BOIL)
    before = simulator.see()
    assert simulator.call(action) == (REJECTION, 0)
    assert simulator.see() == before
    assert simulator.calls == 1


@needs_java
def test_calls_are_counted_whatever_the_ticks(simulator):
    """Looking costs no tick and waiting eleven; each is one call."""
    simulator.load(BOIL)
    for action in ("look around", "inventory", "wait", "wait1", "frobnicate"):
        simulator.call(action)
    assert simulator.calls == 5


@needs_java
def test_an_ambiguous_request_shows_a_menu_and_a_number_answers_it(simulator):
    """A menu of the frozen catalogue, met on its reference path."""
    workflow = next(w for w in read_catalogue().usable if any(s.action == "0" for s in w.steps))
    assert replay(simulator, workflow) == ""


@needs_java
def test_a_wrong_focus_fails(simulator):
    simulator.load(BOIL)
    assert simulator.call("focus on axe").score == -100


@needs_java
def test_a_variation_that_does_not_exist(simulator):
    with pytest.raises(ValueError, match="boil has variations 0 to 29"):
        simulator.load(Variation("boil", 30))


@needs_java
def test_two_simulators_take_two_ports(simulator):
    with Simulator() as other:
        assert other.pid != simulator.pid
        other.load(BOIL)
        assert "outside" in other.see().look


@needs_java
def test_a_jar_without_a_simulator(tmp_path):
    (tmp_path / "empty.jar").write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(SimulatorDied, match="holds no working simulator"):
        Simulator(tmp_path / "empty.jar", jar_sha256=None)


@needs_java
def test_options_of_the_environment_do_not_reach_the_jvm(monkeypatch):
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:hashCode=5 -Xmx8m")
    with Simulator() as simulator:
        command = Path(f"/proc/{simulator.pid}/environ").read_bytes()
        assert b"JAVA_TOOL_OPTIONS" not in command


@needs_java
def test_a_killed_jvm_in_mid_episode_gives_the_same_episode():
    workflow = read_catalogue().workflows["scienceworld-chemistry-mix/0"]
    running = []

    def start():
        running.append(Simulator())
        return running[-1]

    with Pool(1, start) as pool:
        session, got = pool.open(workflow.task), []
        for number, step in enumerate(workflow.steps):
            if number in (4, 9):
                os.kill(running[-1].pid, signal.SIGKILL)
            got.append(pool.call(session, step.action)[0])
        assert pool.restarts == 2
    assert got == [(step.feedback, step.score) for step in workflow.steps]
    assert not any(simulator.alive for simulator in running)


@needs_java
def test_a_closed_simulator_calls_nobody(caplog):
    """Its port may be another program's by then."""
    with caplog.at_level(logging.DEBUG, logger="py4j"):
        simulator = Simulator()
        simulator.load(BOIL)
        simulator.close()
        caplog.clear()
        del simulator
        gc.collect()
    assert caplog.messages == []


@needs_java
def test_a_hanging_jvm_is_given_up_in_time():
    with Simulator(call_seconds=20) as simulator:
        simulator.load(BOIL)
        os.kill(simulator.pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(SimulatorDied, match="did not answer to step"):
            simulator.call("look around")
        assert time.monotonic() - began < 60
        assert not simulator.alive


CHILD = """
import os, sys, time
from stsr.generators.scienceworld.simulator import Simulator
simulator = Simulator()
print(simulator.pid, flush=True)
if os.fork() == 0:
    time.sleep(60)
time.sleep(60)
"""


def gone(pid):
    """Whether a process is no more, or a zombie that nobody fetches."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@needs_java
def test_no_jvm_outlives_its_parent():
    """The parent is killed, and a child that it had forked lives on."""
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD)], stdout=subprocess.PIPE, start_new_session=True
    )
    pid = int(parent.stdout.readline())
    assert not gone(pid)
    time.sleep(0.5)  # the fork
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    try:
        deadline = time.monotonic() + 30
        while not gone(pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert gone(pid)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)


@needs_java
def test_memory(simulator):
    """Under 300 MB a JVM."""
    longest = max(read_catalogue().usable, key=lambda workflow: len(workflow.steps))
    assert replay(simulator, longest) == ""
    assert 100 < simulator.peak_memory < 300


SOME = [Variation("boil", 2), Variation("melt", 17), Variation("freeze", 19), Variation("chemistry-mix", 5),
        Variation("grow-plant", 70), Variation("freeze", 1)]  # fmt: skip


@needs_java
@pytest.mark.slow
@pytest.mark.parametrize("order", [None, 5])
def test_paths_made_again_are_those_that_were_frozen(order):
    """In any order: the settings that make this release deterministic."""
    frozen = read_catalogue().workflows
    made = build(order, SOME).workflows
    assert made == {task.id: frozen[task.id] for task in SOME}


@needs_java
@pytest.mark.slow
def test_every_tenth_path_replays():
    assert verify(read_catalogue().usable[::10]) == []
