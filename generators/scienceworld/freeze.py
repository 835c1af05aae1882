"""Makes the frozen catalogue with the simulator, and verifies it. Needs Java.

    python -m stsr.generators.scienceworld.freeze build --out generators/scienceworld/catalogue.jsonl.xz
    python -m stsr.generators.scienceworld.freeze verify [--every 18]

`build` asks for the path of every train and dev variation and replays it to its first score of 100. `verify`
replays frozen paths in JVMs that never made a path, in an order of its own, and compares every look,
inventory, feedback and score. Both share their work between two JVMs, and say how long it took and how much
memory a JVM held.

Invariant: the result does not depend on the order of the variations (`--order SEED` shuffles them), nor on
which JVM meets which.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from stsr.generators.randomness import keyed
from stsr.generators.scienceworld.catalogue import (
    BINS,
    MOST_ACTIONS,
    Catalogue,
    Origin,
    Step,
    Workflow,
    read_catalogue,
    write_catalogue,
)
from stsr.generators.scienceworld.sessions import SIMULATORS
from stsr.generators.scienceworld.simulator import (
    JVM_FLAGS,
    SIMPLIFICATION,
    GoldSimulator,
    Simulator,
    SimulatorError,
    find_java,
    package_version,
)
from stsr.generators.scienceworld.variations import Variation, variations

S = TypeVar("S", bound=Simulator)
T = TypeVar("T")
R = TypeVar("R")


def build(order: int | None = None, chosen: Iterable[Variation] | None = None) -> Catalogue:
    """The catalogue of `chosen` variations, by default all of train and dev.

    `order` is the seed of the order in which they are visited; None takes them as they come.
    """
    todo = list(chosen if chosen is not None else variations("train", "dev"))
    visited = todo if order is None else keyed("scienceworld", "order", order).shuffled(todo)
    made = {workflow.id: workflow for workflow in _shared(GoldSimulator, reference_path, visited, "freeze")}
    with Simulator() as simulator:
        simulator.load(todo[0])
        origin = Origin(
            simulator=package_version(),
            jar_sha256=simulator.jar_sha256,
            java=java_version(),
            jvm_flags=(GoldSimulator.heap, *JVM_FLAGS),
            simplification=SIMPLIFICATION,
            templates=tuple(simulator.templates()),
        )
    return Catalogue(origin, {task.id: made[task.id] for task in todo})


def _shared(start: Callable[[], S], what: Callable[[S, T], R], todo: Sequence[T], label: str) -> list[R]:
    """`what` of each of `todo`, in any order, by several JVMs side by side; each is a thread's own."""
    with tqdm(total=len(todo), unit="path", desc=label) as bar:

        def work(part: Sequence[T]) -> list[R]:
            results = []
            with start() as simulator:
                for one in part:
                    results.append(what(simulator, one))
                    bar.set_postfix_str(f"a JVM holds {simulator.peak_memory} MB at most", refresh=False)
                    bar.update()
            return results

        with ThreadPoolExecutor(SIMULATORS) as threads:
            parts = threads.map(work, [todo[begin::SIMULATORS] for begin in range(SIMULATORS)])
            return [result for part in parts for result in part]


def reference_path(simulator: GoldSimulator, task: Variation) -> Workflow:
    """Makes the path of one variation and replays it."""
    path = simulator.load_path(task)
    description, steps, best, first_hundred = simulator.description(), list[Step](), 0, None
    for number, action in enumerate(path, 1):
        seen, outcome = simulator.see(), simulator.call(action)
        steps.append(Step(seen.look, seen.inventory, action, outcome.feedback, outcome.score))
        best = max(best, outcome.score)
        if outcome.score == 100:
            first_hundred = number
            break
        if outcome.score < 0:
            break
    usable = first_hundred is not None and first_hundred <= MOST_ACTIONS
    return Workflow(
        family=task.family,
        variation=task.number,
        description=description,
        generated=len(path),
        best=best,
        first_hundred=first_hundred,
        steps=tuple(steps) if usable else (),
    )


def verify(workflows: Sequence[Workflow], order: int = 1) -> list[str]:
    """Replays usable workflows; one line for each that differs from what was frozen."""
    visited = keyed("scienceworld", "verify", order).shuffled([w for w in workflows if w.usable])
    found = _shared(Simulator, lambda simulator, w: (w.id, replay(simulator, w)), visited, "verify")
    return sorted(f"{task}: {difference}" for task, difference in found if difference)


def replay(simulator: Simulator, workflow: Workflow) -> str:
    """Replays one path; "" if all is as frozen, else what is not."""
    simulator.load(workflow.task)
    if (told := simulator.description()) != workflow.description:
        return f"the task reads {told!r}"
    for number, step in enumerate(workflow.steps, 1):
        seen, outcome = simulator.see(), simulator.call(step.action)
        if Step(seen.look, seen.inventory, step.action, outcome.feedback, outcome.score) != step:
            return f"action {number} ({step.action}) gives score {outcome.score} and {outcome.feedback!r}"
    return ""


def java_version() -> str:
    """First line of `java -version`."""
    done = subprocess.run([find_java(), "-version"], capture_output=True, text=True, check=False)
    return (done.stderr or done.stdout).partition("\n")[0].strip()


def summary(catalogue: Catalogue) -> str:
    """The counts that the paper gives, and the digest."""
    usable = catalogue.usable
    official = Counter(workflow.task.official for workflow in usable)
    bins = Counter(workflow.bin for workflow in usable)
    return (
        f"train {official['train']} dev {official['dev']} | "
        + " ".join(f"{name} {bins[name]}" for name in BINS)
        + f" | {sum(len(w.steps) for w in usable)} states | digest {catalogue.digest}"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Make or verify the frozen ScienceWorld catalogue.")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("build")
    making.add_argument("--out", type=Path, required=True)
    making.add_argument("--order", type=int, default=None, help="visit variations in the order of this seed")
    checking = commands.add_parser("verify")
    checking.add_argument("--catalogue", type=Path, default=None)
    checking.add_argument("--every", type=int, default=1, help="every N-th workflow alone")
    chosen = parser.parse_args()
    began = time.monotonic()
    if chosen.command == "build":
        catalogue = build(chosen.order)
        write_catalogue(catalogue, chosen.out)
        print(summary(catalogue), end=" | ")
    else:
        catalogue = read_catalogue(chosen.catalogue)
        wrong = verify(catalogue.usable[:: chosen.every])
        if wrong:
            raise SystemExit("\n".join(wrong))
        print(f"{len(catalogue.usable[:: chosen.every])} paths replay as frozen", end=" | ")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except SimulatorError as error:
        raise SystemExit(f"freeze: {error}") from error
