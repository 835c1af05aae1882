"""A small data set as a local folder, a tiny random Qwen3 model, and a scripted LM for the evaluation tests.

Invariant: no test here reaches the network; caches live in temporary folders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import datasets.config
import lm_eval
import pytest
import torch
from huggingface_hub import constants
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from stsr.eval_tasks import suite
from stsr.eval_tasks.suite import HARNESS
from stsr.generators.build import build
from stsr.hub_cards.cards import dataset_card

TASKS = {"train": 2, "test": 3, "test_crossover": 2}
"""Tasks of the splits that the small data sets have."""


@pytest.fixture(scope="module", autouse=True)
def _offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Libraries offline, with caches of their own, and one thread (tiny matrices), for these modules only."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.getbasetemp() / "datasets-cache"
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The declared workflows with few tasks a split, as a folder."""
    return small("workflows", tmp_path_factory.mktemp("data") / "table-workflows")


@pytest.fixture(scope="session")
def controls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The declared controls, likewise."""
    return small("controls", tmp_path_factory.mktemp("data") / "workflow-controls")


def small(source: str, folder: Path) -> Path:
    """The declared data set `source` with the first TASKS seeds of each split that tests use."""
    declared = suite.declarations()[source]
    parts = tuple(
        replace(
            part,
            splits=tuple(
                replace(split, tasks=TASKS[split.name])
                for split in part.splits
                if split.name in TASKS and (split.name != "train" or part.family == "chain")
            ),
        )
        for part in declared.parts
    )
    build(replace(declared, parts=parts, mixtures=(), tokenizers=()), folder, dataset_card)
    return folder


# -- a tiny random model


@pytest.fixture(scope="session")
def network(small_qwen3: Callable[..., Qwen3ForCausalLM]) -> Qwen3ForCausalLM:
    """Two random layers, float32. Large logits make its greedy text varied, not one token."""
    model = small_qwen3(
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False,
    )
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "embed" not in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.fixture(scope="session")
def model(
    network: Qwen3ForCausalLM, tok: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same model and tokenizer as a folder."""
    folder = tmp_path_factory.mktemp("model")
    network.save_pretrained(folder)
    tok.save_pretrained(folder)
    return folder


# -- a scripted LM


class Seen(NamedTuple):
    """What a prompt says."""

    artifacts: list[str]
    recipes: list[str]
    calls_left: int

    @property
    def ready(self) -> list[str]:
        """The recipes that can run: their inputs exist and their output doesn't. Exactly one, in a chain."""
        return [text for text in self.recipes if self._ready(json.loads(text))]

    @property
    def target(self) -> str:
        """The ready recipe with the lowest number, as in a1, a2, ..."""
        return min(self.ready, key=lambda text: int(json.loads(text)["output"][1:]))

    @property
    def distractor(self) -> str:
        """Another one that is shown."""
        return next(text for text in self.recipes if text != self.target)

    def _ready(self, call: dict[str, Any]) -> bool:
        return set(call["inputs"]) <= set(self.artifacts) and call["output"] not in self.artifacts


def see(prompt: str) -> Seen:
    """Reads a prompt as a person would."""
    state, rest = prompt.split("\nState:\n")[1].split("\n\nRecipes:\n")
    recipes, rest = rest.split("\n\nCalls left: ")
    return Seen(
        [line.split(":")[0] for line in state.partition("\n\n")[0].splitlines()],
        recipes.splitlines(),
        int(rest.split("\n")[0]),
    )


Policy = Callable[[str], str]


class ScriptedLM(LM):
    """Answers each prompt by a rule, and counts what it was asked."""

    tokenizer_name = "scripted"

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy, self.batches = policy, []

    def apply_chat_template(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        (message,) = messages
        assert message["role"] == "user"
        return message["content"]

    def generate_until(self, requests: list[Any]) -> list[str]:
        self.batches.append([request.args[0] for request in requests])
        return [self.policy(request.args[0]) for request in requests]

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        """The reply that the policy would give is likelier than all others, which tie."""
        self.batches.append([request.args[0] for request in requests])
        return [
            (-1.0 if reply == self.policy(prompt) else -2.0, False)
            for prompt, reply in (request.args for request in requests)
        ]

    def loglikelihood_rolling(self, requests: list[Any]) -> Any:
        raise NotImplementedError


def perfect(prompt: str) -> str:
    """Always the recipe that can run."""
    return see(prompt).target


def distracted(prompt: str) -> str:
    """Always the other recipe."""
    return see(prompt).distractor


MISTAKES: list[Policy] = [
    lambda prompt: "I would rather not.",
    lambda prompt: see(prompt).target[:-4],
    lambda prompt: see(prompt).target.replace('"output":"', '"output":"z'),
    distracted,
]
"""Every kind of rejected call: no JSON, broken JSON, an unknown recipe, one that cannot run now."""


def blundering(prompt: str) -> str:
    """Two right calls in three; otherwise each kind of mistake in turn."""
    left = see(prompt).calls_left
    return MISTAKES[left // 3 % len(MISTAKES)](prompt) if left % 3 == 0 else perfect(prompt)


class Scripts(NamedTuple):
    """What test modules take from here, since they cannot import a conftest."""

    lm: type[ScriptedLM]
    see: Callable[[str], Seen]
    perfect: Policy
    distracted: Policy
    blundering: Policy


@pytest.fixture(scope="session")
def scripts() -> Scripts:
    return Scripts(ScriptedLM, see, perfect, distracted, blundering)


# -- lm-eval


Load = Callable[..., dict[str, Any]]
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def load(data: Path, controls: Path) -> Load:
    """load(*names, **metadata): lm-eval's tasks by name, on the local folders by default."""

    def load(*names: str, **metadata: str) -> dict[str, Any]:
        manager = TaskManager(
            include_path=str(HARNESS),
            include_defaults=False,
            metadata={"stsr_data": str(data), "stsr_controls": str(controls), **metadata},
        )
        return dict(manager.load(list(names))["tasks"])

    return load


@pytest.fixture(scope="session")
def run(load: Load) -> Run:
    """run(lm, *names, ...): lm-eval's whole result, samples included."""

    def run(lm: Any, *names: str, limit: int | None = None, **metadata: str) -> dict[str, Any]:
        tasks = load(*names, **metadata)
        return dict(
            lm_eval.evaluate(lm, {"tasks": tasks}, limit=limit, bootstrap_iters=0, apply_chat_template=True)
        )

    return run


@pytest.fixture(scope="session")
def results() -> Callable[[dict[str, Any], str], list[dict[str, Any]]]:
    """results(found, name): the rollouts' own results of a task, in document order."""

    def results(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
        return [json.loads(sample["resps"][0][0]) for sample in found["samples"][name]]

    return results
