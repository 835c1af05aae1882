"""Protects: an episode is the same whether its simulator lives, dies, or is lent to other episodes."""

import random

import pytest

from stsr.generators.scienceworld.catalogue import read_catalogue
from stsr.generators.scienceworld.sessions import Pool
from stsr.generators.scienceworld.simulator import SimulatorDied, SimulatorError
from stsr.generators.scienceworld.states import Outcome, Seen

TASKS = ["scienceworld-freeze/1", "scienceworld-chemistry-mix/0", "scienceworld-melt/5"]


def workflow(task):
    return read_catalogue().workflows[task]


def actions(task):
    """A third of the calls are rejected."""
    calls = []
    for number, step in enumerate(workflow(task).steps):
        calls += ["frobnicate"] if number % 2 else []
        calls.append(step.action)
    return calls


def alone(fake_simulator, task):
    with Pool(1, fake_simulator) as pool:
        session = pool.open(workflow(task).task)
        return [pool.call(session, action) for action in actions(task)]


def test_a_state_is_described(fake_simulator):
    with Pool(1, fake_simulator) as pool:
        session = pool.open(workflow(TASKS[0]).task)
        first = workflow(TASKS[0]).steps[0]
        assert pool.describe(session) == (workflow(TASKS[0]).description, Seen(first.look, first.inventory))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_lent_simulators_change_nothing(fake_simulator, size):
    """Three episodes take turns on fewer simulators: each goes on where it was."""
    with Pool(size, fake_simulator) as pool:
        sessions = {task: pool.open(workflow(task).task) for task in TASKS}
        got = {task: [] for task in TASKS}
        for at in range(max(len(actions(task)) for task in TASKS)):
            for task in TASKS:
                if at < len(actions(task)):
                    got[task].append(pool.call(sessions[task], actions(task)[at]))
    assert got == {task: alone(fake_simulator, task) for task in TASKS}


def test_a_simulator_of_its_own_is_loaded_once(fake_simulator):
    made = []

    def start():
        made.append(fake_simulator())
        return made[-1]

    with Pool(2, start) as pool:
        for session in [pool.open(workflow(task).task) for task in TASKS[:2]]:
            for action in actions(session.variation.id):
                pool.call(session, action)
    assert [simulator.loads for simulator in made] == [1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_deaths_change_nothing(fake_simulator, seed):
    """Each JVM dies on one call in twenty: in loading, in making calls again, in the call itself."""
    chance = random.Random(seed)
    deaths = iter(lambda: chance.random() < 0.02, None)
    with Pool(1, lambda: fake_simulator(deaths)) as pool:
        session = pool.open(workflow(TASKS[0]).task)
        got = []
        for action in actions(TASKS[0]):
            while True:
                try:
                    got.append(pool.call(session, action))
                    break
                except SimulatorDied:  # three deaths in a row; whoever asks again goes on
                    assert len(session.calls) == len(got)
        assert [call.action for call in session.calls] == actions(TASKS[0])
    assert got == alone(fake_simulator, TASKS[0])


def test_a_call_that_kills_every_simulator_is_given_up_and_not_noted(fake_simulator):
    started = []

    def start():
        started.append(fake_simulator(iter([False, True])))
        return started[-1]

    with Pool(1, start) as pool:
        session = pool.open(workflow(TASKS[0]).task)
        with pytest.raises(SimulatorDied):
            pool.call(session, "look around")
        assert (len(started), pool.restarts, session.calls) == (3, 3, [])


def test_another_answer_the_second_time_is_an_error(fake_simulator):
    with Pool(1, fake_simulator) as pool:
        session = pool.open(workflow(TASKS[0]).task)
        pool.call(session, "frobnicate")
        session.calls[0] = session.calls[0]._replace(outcome=Outcome("Something else.", 0))
        other = pool.open(workflow(TASKS[1]).task)
        pool.call(other, "frobnicate")
        with pytest.raises(SimulatorError, match=r"freeze/1: made again, call 1 \('frobnicate'\)"):
            pool.call(session, "frobnicate")


def test_a_closed_session_frees_its_simulator(fake_simulator):
    made = []

    def start():
        made.append(fake_simulator())
        return made[-1]

    with Pool(2, start) as pool:
        first, second = (pool.open(workflow(task).task) for task in TASKS[:2])
        pool.call(first, "frobnicate")
        pool.call(second, "frobnicate")
        pool.close(first)
        pool.call(pool.open(workflow(TASKS[2]).task), "frobnicate")
        pool.call(second, "frobnicate")
    assert [simulator.loads for simulator in made] == [2, 1]
    assert not any(simulator.alive for simulator in made)


def test_a_pool_needs_a_simulator():
    with pytest.raises(ValueError, match="at least one"):
        Pool(0)
