"""The lm-eval tasks `stsr_scienceworld_*`: local decisions without a simulator, and free runs with one.

    lm_eval --model hf --model_args pretrained=X,peft=Y,enable_thinking=False --apply_chat_template \\
        --tasks stsr_scienceworld_local_full,stsr_scienceworld_free_run_full \\
        --metadata '{"stsr_scienceworld_data": "out/scienceworld-trajectories"}'

| key of --metadata | value | without it |
|---|---|---|
| stsr_scienceworld_data, _revision | the trajectories: Hub id or folder, and revision | the YAML's |
| stsr_scienceworld_split | split, for example development (table 27) | the YAML's |
| stsr_scienceworld_workflows | the first N workflows, short, medium and long ones in turn | all |
| stsr_scienceworld_calls | calls of a free run at most, for smoke runs; enters the records' cell | 100 |
| stsr_scienceworld_simulators | simulators at a time, one JVM each | 2 |
| stsr_scienceworld_run_extension | true: really run the frozen extension | it is refused |

Free runs are requests of a type of their own, `stsr_scienceworld`: importing this adds a method of that name
to lm-eval's `LM` class, which plays all episodes in as many lanes as there are simulators, in lock step. Each
round is one `generate_until`, so every backend serves it.

Invariant: Java is looked for before a model answers anything; simulators end with the run.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import datasets
from lm_eval.api.model import LM

from stsr.eval_tasks import scienceworld_records
from stsr.eval_tasks.data import DataError, load_split
from stsr.eval_tasks.journal import Journal
from stsr.eval_tasks.rollout import Chat, RolloutRequest, render, stsr_rollout
from stsr.eval_tasks.scienceworld import FreeRun, Lane, Local
from stsr.eval_tasks.scienceworld_records import condition_of
from stsr.eval_tasks.task import Asked, StsrTask
from stsr.generators.prompts import Message
from stsr.generators.scienceworld.catalogue import MOST_ACTIONS, Workflow
from stsr.generators.scienceworld.extension import RUN_FLAG
from stsr.generators.scienceworld.prompts import HEAD
from stsr.generators.scienceworld.sessions import SIMULATORS, Pool
from stsr.generators.scienceworld.simulator import find_java, package_jar
from stsr.generators.scienceworld.splits import workflows_of
from stsr.generators.scienceworld.variations import parse

REQUEST_TYPE = "stsr_scienceworld"
OPTIONS = (
    "stsr_scienceworld_data",
    "stsr_scienceworld_revision",
    "stsr_scienceworld_split",
    "stsr_scienceworld_workflows",
    "stsr_scienceworld_calls",
    "stsr_scienceworld_simulators",
    "stsr_scienceworld_run_extension",
)
"""Keys of --metadata."""


class ScienceWorldJournal(Journal):
    """A journal of the records of this study."""

    from_json = staticmethod(scienceworld_records.from_json)
    to_json = staticmethod(scienceworld_records.to_json)
    record_of = staticmethod(scienceworld_records.record_of)


class ScienceWorldTask(StsrTask):
    """What local decisions and free runs share: where the data are."""

    journal_of = ScienceWorldJournal

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        """Loads the split. Raises DataError or PinError; see data.load_split."""
        metadata = self.config.metadata or {}
        for key in metadata:
            if key.startswith("stsr_scienceworld_") and key not in OPTIONS:
                raise DataError(f"unknown metadata key {key!r}; there are {', '.join(OPTIONS)}")
        source = str(metadata.get("stsr_scienceworld_data", self.DATASET_PATH))
        pinned = None if Path(source).is_dir() else (dataset_kwargs or {}).get("revision")
        revision = metadata.get("stsr_scienceworld_revision", pinned)
        split = str(metadata.get("stsr_scienceworld_split", self.config.test_split))
        docs = load_split(source, self.DATASET_NAME, split, None if revision is None else str(revision))
        if "stsr_scienceworld_workflows" in metadata:
            docs = docs.select(first_workflows(docs, int(metadata["stsr_scienceworld_workflows"])))
        self.dataset = {split: docs}
        self.config.test_split = split

    @property
    def source(self) -> str:
        return "scienceworld"


def first_workflows(docs: datasets.Dataset, number: int) -> list[int]:
    """Places of the documents of the first workflows, taken from short, medium and long ones in turn."""
    tasks = docs["task" if "task" in docs.column_names else "id"]
    bins = docs["bin"] if "bin" in docs.column_names else [""] * len(docs)
    by_bin: dict[str, list[str]] = {}
    for task, bin in dict.fromkeys(zip(tasks, bins, strict=True)):
        by_bin.setdefault(bin, []).append(task)
    in_turn = [task for turn in zip_longest(*by_bin.values()) for task in turn if task is not None]
    return [at for at, task in enumerate(tasks) if task in in_turn[:number]]


class LocalTask(ScienceWorldTask):
    """Local decisions: a document is a published row."""

    def begin(self, doc: Mapping[str, Any]) -> Local:
        return Local(doc)

    def asked(self, doc: Mapping[str, Any]) -> Asked:
        return Asked(doc["id"], "scienceworld", 0, doc["view"])


@dataclass(kw_only=True)
class EpisodeRequest(RolloutRequest):
    """A request for one free run, which begins when a simulator is free."""

    play: Callable[[Pool], FreeRun]
    """The episode, on a pool of simulators."""
    simulators: int = SIMULATORS
    """JVMs of the pool."""


class FreeRunTask(ScienceWorldTask):
    """Free runs: a document is a workflow, and the YAML's metadata names the view."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__(config)
        self.OUTPUT_TYPE = REQUEST_TYPE

    @property
    def most_calls(self) -> int:
        """Calls of an episode at most. Raises DataError for a number that is not 1 to 100."""
        asked = self.config.metadata.get("stsr_scienceworld_calls", MOST_ACTIONS)
        if asked not in range(1, MOST_ACTIONS + 1):
            raise DataError(f"a free run of ScienceWorld has 1 to {MOST_ACTIONS} calls, not {asked!r}")
        return int(asked)

    @property
    def condition(self) -> str:
        return condition_of(super().condition, self.most_calls)

    def asked(self, doc: Mapping[str, Any]) -> Asked:
        view = self.config.metadata["stsr_view"]
        return Asked(f"{doc['id']}@{view}", "scienceworld", 0, view)

    def play(self, doc: Mapping[str, Any], pool: Pool) -> FreeRun:
        """A fresh episode of a document. Raises SplitError or ValueError if the catalogue lacks its path."""
        (workflow,) = workflows_of([doc["id"]])
        if workflow.fingerprint != doc["fingerprint"]:
            raise DataError(f"{doc['id']}: published with another fingerprint than the catalogue's")
        return self._free_run(doc, pool, workflow)

    def _free_run(self, doc: Mapping[str, Any], pool: Pool, workflow: Workflow | None) -> FreeRun:
        view = self.config.metadata["stsr_view"]
        return FreeRun(parse(doc["id"]), view, pool, workflow, self.most_calls)

    def _first_prompt(self) -> object:
        return render([Message(role="user", content=HEAD)], self._chat)

    def fewshot_context(self, doc: Mapping[str, Any], *_: Any, **__: Any) -> str:
        """The task's id; prompts come with the simulator, and are in the results."""
        return str(doc["id"])

    def construct_requests(self, doc: Mapping[str, Any], ctx: str, **options: Any) -> EpisodeRequest:
        """One request a document."""
        asked = self.config.metadata.get("stsr_scienceworld_simulators", SIMULATORS)
        return EpisodeRequest(
            request_type=REQUEST_TYPE,
            doc=doc,
            arguments=(ctx, dict(self.config.generation_kwargs)),
            idx=0,
            metadata=options["metadata"],
            begin=_never,
            chat=self._chat,
            journal=self.journal,
            play=partial(self.play, doc),
            simulators=int(asked),
        )


class TestTask(FreeRunTask):
    """Free runs of official test variations, of which only the numbers are known."""

    __test__ = False  # not a test case, whatever its name suggests to pytest

    def play(self, doc: Mapping[str, Any], pool: Pool) -> FreeRun:
        return self._free_run(doc, pool, None)


class ExtensionTask(TestTask):
    """The frozen extension: refused unless it is asked for by name."""

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        """As the others'. Raises DataError without the flag."""
        if (self.config.metadata or {}).get("stsr_scienceworld_run_extension") is not True:
            raise DataError(
                f"{self.config.task}: the extension of 58 official test variations is frozen and was never "
                f"run. To run it: stsr eval {RUN_FLAG}, or lm_eval --metadata "
                """'{"stsr_scienceworld_run_extension": true}'"""
            )
        super().download(dataset_kwargs, **options)


def _never() -> Lane:
    raise AssertionError("an episode begins in a lane")


def stsr_scienceworld(self: Any, requests: Sequence[EpisodeRequest], disable_tqdm: bool = False) -> list[str]:
    """Plays the episodes of `requests` on the LM `self`; one JSON result each.

    An episode whose result is in its request's journal is not played again. Raises SimulatorError without
    Java or for a fault that restarts do not mend, and whatever the backend raises.
    """
    unique = {id(request): request for request in requests}  # ranks are padded with clones of one object
    results: dict[int, dict[str, Any]] = {}
    find_java()
    package_jar()
    with Pool(max(request.simulators for request in requests)) as pool:
        playing: dict[int, int] = {}  # episode -> request
        waiting: deque[Callable[[], FreeRun]] = deque()

        def begin(key: int) -> FreeRun:
            run = unique[key].play(pool)
            playing[id(run)] = key
            return run

        def done(run: FreeRun) -> None:
            key, result = playing.pop(id(run)), run.result()
            results[key] = result
            journal = unique[key].journal
            if journal is not None:
                journal.add([result])

        for key, request in unique.items():
            known = request.journal.result(request.play(pool).id) if request.journal else None
            if known is None:
                waiting.append(partial(begin, key))
            else:
                results[key] = known
        lanes = [_lane(unique, waiting, done) for _ in range(min(pool.size, len(waiting)))]
        if lanes:
            stsr_rollout(self, lanes, disable_tqdm=disable_tqdm)
    return [json.dumps(results[id(request)], ensure_ascii=False) for request in requests]


def _lane(
    unique: Mapping[int, EpisodeRequest],
    waiting: deque[Callable[[], FreeRun]],
    done: Callable[[FreeRun], None],
) -> RolloutRequest:
    """A request whose rollout plays the episodes that wait."""
    first = next(iter(unique.values()))
    chat: Chat | None = first.chat
    return RolloutRequest(
        request_type="stsr_rollout",
        doc=first.doc,
        arguments=first.arguments,
        idx=0,
        metadata=first.metadata,
        begin=partial(Lane, waiting, done),
        chat=chat,
    )


if not hasattr(LM, REQUEST_TYPE):
    setattr(LM, REQUEST_TYPE, stsr_scienceworld)
