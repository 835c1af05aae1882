"""The lm-eval task classes behind `harness/*.yaml`.

    lm_eval --model hf --model_args pretrained=X,peft=Y,enable_thinking=False --apply_chat_template \\
        --include_path eval_tasks/harness --tasks stsr_oracle_h16,stsr_free_run_h16 \\
        --metadata '{"stsr_data": "out/table-workflows", "stsr_split": "test_crossover"}'

All kinds are rollouts (see rollout.py): a probe is one of a single call. `--metadata` takes

| key | value | without it |
|---|---|---|
| stsr_data, stsr_revision | the workflows: Hub id or folder, and revision | the YAML's pinned revision |
| stsr_controls, stsr_controls_revision | likewise the controls | likewise |
| stsr_split | split, for all tasks of the run | the YAML's |
| stsr_seeds | only the first N seeds of the split | the YAML's, or all |

A folder has no revision. The other keys of ours are the YAML's own: stsr_source, which of the two data sets;
stsr_tasks, its config of whole tasks; stsr_view, stsr_variant, stsr_condition.

Invariant: a prompt is one user message. System text, few-shot examples and lm-eval's request cache, whose
key knows neither data nor prompts, are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import datasets
from lm_eval.api.task import ConfigurableTask

from stsr.eval_tasks.data import DataError, load_split, tasks_by_id
from stsr.eval_tasks.episodes import ERROR_AFTER, Choice, Episode, Probe, Rollout
from stsr.eval_tasks.journal import Journal
from stsr.eval_tasks.rollout import REQUEST_TYPE, Chat, RolloutRequest, render, text_of
from stsr.eval_tasks.servers import renders_templates
from stsr.generators.environment import State
from stsr.generators.rows import gold_states
from stsr.generators.tasks import Task

log = logging.getLogger("lm_eval.stsr")

OPTIONS = (
    "stsr_data",
    "stsr_revision",
    "stsr_controls",
    "stsr_controls_revision",
    "stsr_split",
    "stsr_seeds",
)
"""Keys of --metadata."""
SOURCES = {
    "workflows": ("stsr_data", "stsr_revision"),
    "controls": ("stsr_controls", "stsr_controls_revision"),
    "scienceworld": ("stsr_scienceworld_data", "stsr_scienceworld_revision"),
}
"""Data set -> keys of --metadata that say where it is."""
OWN = ("stsr_source", "stsr_tasks", "stsr_view", "stsr_variant", "stsr_condition")
"""Keys of ours in a YAML's metadata."""


class Asked(NamedTuple):
    """What one document asks."""

    id: str
    """Id of the record that it gives."""
    family: str
    horizon: int
    view: str


class StsrTask(ConfigurableTask):  # type: ignore[misc]  # lm-eval is untyped
    """What probes and free runs share: data, prompts, requests."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        """`config` is the YAML as a dict. Its `class` key is lm-eval's and unknown to its own TaskConfig."""
        self._chat: Chat | None = None
        self.journal: Journal | None = None
        super().__init__(config={key: value for key, value in (config or {}).items() if key != "class"})
        # Requests go to the model's method of this name, and padding over ranks is counted under it.
        self.OUTPUT_TYPE = REQUEST_TYPE

    # -- data

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        """Loads the split and the tasks. Raises DataError or PinError; see data.load_split."""
        metadata = self.config.metadata or {}
        for key in metadata:
            ours = key.startswith("stsr_") and not key.startswith("stsr_scienceworld_")
            if ours and key not in OPTIONS + OWN:
                raise DataError(f"unknown metadata key {key!r}; there are {', '.join(OPTIONS)}")
        data, revised = SOURCES[metadata.get("stsr_source", "workflows")]
        source = str(metadata.get(data, self.DATASET_PATH))
        pinned = None if Path(source).is_dir() else (dataset_kwargs or {}).get("revision")
        revision = metadata.get(revised, pinned)
        split = str(metadata.get("stsr_split", self.config.test_split))
        load = partial(load_split, source, split=split, revision=None if revision is None else str(revision))
        docs = load(config=self.DATASET_NAME)
        whole = metadata["stsr_tasks"]
        self._tasks = tasks_by_id(docs if whole == self.DATASET_NAME else load(config=whole))
        self._gold: dict[str, list[State]] = {}
        self.dataset = {split: docs.select(self._chosen(docs, metadata))}
        self.config.test_split = split

    @staticmethod
    def _chosen(docs: datasets.Dataset, metadata: Mapping[str, Any]) -> list[int]:
        """Places of the documents of the asked variant and the first seeds."""
        ids, seeds, variant = docs["id"], docs["seed"], metadata.get("stsr_variant")
        first = list(dict.fromkeys(seeds))[: int(metadata.get("stsr_seeds", len(docs)))]
        return [
            at
            for at, (doc, seed) in enumerate(zip(ids, seeds, strict=True))
            if seed in first and (variant is None or doc.endswith(f"~{variant}"))
        ]

    @property
    def condition(self) -> str:
        """See records.Cell."""
        return str(self.config.metadata.get("stsr_condition", ""))

    @property
    def source(self) -> str:
        """Which data set the task reads: "workflows" or "controls"."""
        return str(self.config.metadata.get("stsr_source", "workflows"))

    def fewshot_docs(self) -> None:
        """None: there are no few-shot examples to keep ready."""

    def task_of(self, doc: Mapping[str, Any], task_id: str) -> Task:
        """The whole task of a document. Raises DataError if the `tasks` config lacks it."""
        if task_id not in self._tasks:
            raise DataError(f"{doc['id']}: its task {task_id} is not in the tasks config of the same split")
        return self._tasks[task_id]

    # -- requests

    def begin(self, doc: Mapping[str, Any]) -> Rollout:
        """A fresh rollout of a document."""
        raise NotImplementedError

    def asked(self, doc: Mapping[str, Any]) -> Asked:
        """What a document asks; see Asked."""
        run = self.begin(doc)
        task = run.state.task
        return Asked(run.id, task.family, task.horizon, run.id.rpartition("@")[2])

    journal_of: type[Journal] = Journal
    """The kind of journal that its records go to."""

    def build_all_requests(self, **options: Any) -> None:
        """As lm-eval's. Raises ValueError for options that would change or stale the prompt."""
        if options.get("system_instruction"):
            raise ValueError(f"{self.task_name}: a prompt is one user message; drop --system_instruction")
        if options.get("cache_requests"):
            raise ValueError(f"{self.task_name}: drop --cache_requests, which may serve stale prompts")
        self._chat = options.get("chat_template") if options.get("apply_chat_template") else None
        super().build_all_requests(**options)
        lm = getattr(self._chat, "__self__", None)
        if self._chat and not renders_templates(lm) and not isinstance(self._first_prompt(), str):
            log.warning(
                "%s: the server renders the chat template. Switch thinking off there, for example with "
                """--gen_kwargs '{"chat_template_kwargs": {"enable_thinking": false}}'""",
                self.task_name,
            )

    def _first_prompt(self) -> object:
        return render(self.begin(self.task_docs[0]).messages(), self._chat)

    def fewshot_context(self, doc: Mapping[str, Any], *_: Any, **__: Any) -> str:
        """The first prompt's text, as lm-eval's logs show it."""
        return text_of(render(self.begin(doc).messages(), self._chat))

    def construct_requests(self, doc: Mapping[str, Any], ctx: str, **options: Any) -> RolloutRequest:
        """One request a document."""
        return RolloutRequest(
            request_type=REQUEST_TYPE,
            doc=doc,
            arguments=(ctx, deepcopy(self.config.generation_kwargs)),
            idx=0,
            metadata=options["metadata"],
            begin=partial(self.begin, doc),
            chat=self._chat,
            journal=self.journal,
        )

    def process_results(self, doc: Mapping[str, Any], results: list[str]) -> dict[str, Any]:
        """The YAML's scores; none under --predict_only."""
        if "bypass" in self._metric_fn_list:
            return {"bypass": 0}
        scores: dict[str, Any] = self.config.process_results(doc, results)
        return scores


class OracleTask(StsrTask):
    """Oracle-prefix probes: a document is a decision row."""

    def begin(self, doc: Mapping[str, Any]) -> Probe:
        return Probe(doc, self._states(doc)[doc["stage"] - 1])

    def _states(self, doc: Mapping[str, Any]) -> list[State]:
        """The states of the row's task along its gold path, replayed once a task."""
        if doc["task"] not in self._gold:
            self._gold[doc["task"]] = gold_states(self.task_of(doc, doc["task"]))
        return self._gold[doc["task"]]


class ChoiceTask(OracleTask):
    """Choices by likelihood: a document is the pivotal decision of a task."""

    def begin(self, doc: Mapping[str, Any]) -> Choice:
        return Choice(doc, self._states(doc)[doc["stage"] - 1])


class FreeRunTask(StsrTask):
    """Free runs: a document is a whole task, and the YAML's metadata names the view."""

    def begin(self, doc: Mapping[str, Any]) -> Episode:
        return Episode(self.task_of(doc, doc["id"]), self.config.metadata["stsr_view"])


class MatchedErrorTask(StsrTask):
    """Free runs that begin after four gold actions and one injected error."""

    def begin(self, doc: Mapping[str, Any]) -> Episode:
        task = self.task_of(doc, doc["id"])
        return Episode(task, self.config.metadata["stsr_view"], error_after=ERROR_AFTER)
