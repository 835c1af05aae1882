"""Mixtures, recent2, choices and updates of 64: each declared recipe trains, on a random base and few rows.

The data are built from the project's own declaration, cut down to a few training tasks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stsr.generators.build import build
from stsr.generators.dataset import read_declaration
from stsr.hub_cards.cards import dataset_card
from stsr.recipes import exposure
from tests.recipes.training import RECIPES, Run, read

TASKS = {"chain": 4, "choice": 1}
VIEWS = ("full", "compact", "recent2", "random25", "random50", "random75")
MASKED = {
    "h16-mix-full-compact": {"compact": 32},
    "h16-mix-full-random": {"random25": 11, "random50": 11, "random75": 10},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 rows at H16 of chains under each view and of mixtures, and one pair of choices."""
    whole = read_declaration(RECIPES.with_name("datasets") / "table-workflows.yaml")
    parts = [
        replace(
            part,
            views=tuple(view for view in part.views if view in VIEWS),
            splits=tuple(
                replace(split, tasks=TASKS[part.family], horizons=(16,))
                for split in part.splits
                if split.name == "train"
            ),
        )
        for part in whole.parts
        if part.family in TASKS and not part.pivot_only
    ]
    mixtures = [replace(mixture, tasks=4, masked=MASKED[mixture.config]) for mixture in whole.mixtures]
    cut = {"parts": tuple(parts), "mixtures": tuple(mixtures), "tokenizers": ()}
    out = tmp_path_factory.mktemp("built") / "table-workflows"
    build(replace(whole, example="chain-h16/60000#5", **cut), out, dataset_card)
    return out


@pytest.fixture(scope="module")
def declared(run: Run, built: Path) -> Any:
    """Runs a declared recipe for one update; its data configuration stays as declared."""

    def declared(name: str, view: str, **changes: Any) -> Path:
        on_cpu = {"dtype": "float32", "bf16": False, "use_cpu": True, "full_determinism": False}
        small = {"data": str(built), "max_steps": 1, "save_at_steps": [1], "max_length": 4096}
        small |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "train_rows": 8}
        changes = {"evaluate_in": "float32", **on_cpu, **small, **changes}
        return run(recipe=RECIPES / f"{name}.yaml", view=view, **changes) / "adapter"

    return declared


def shown(adapter: Path) -> list[str]:
    """Row ids in the order presented."""
    return [row for step in exposure.read(adapter / "exposure.jsonl") for row in step.rows]


@pytest.mark.slow
def test_mixtures_show_each_row_once_in_the_order_of_the_plain_view(declared: Any) -> None:
    """Appendix E: half of the rows masked, the same ones in both mixtures, in one row order for all runs."""
    every = {"train_rows": 64, "gradient_accumulation_steps": 16}
    names = ("full", "mix-full-compact", "mix-full-random")
    runs = {name: declared("qwen3-1.7b", name, **every) for name in names}
    assert len({read(adapter, "exposure.json")["order_sha256"] for adapter in runs.values()}) == 1
    views = {name: [row.rpartition("@")[2] for row in shown(adapter)] for name, adapter in runs.items()}
    assert Counter(views["mix-full-compact"]) == {"full": 32, "compact": 32}
    assert Counter(views["mix-full-random"]) == {"full": 32, "random25": 11, "random50": 11, "random75": 10}
    masked = [{i for i, view in enumerate(views[name]) if view != "full"} for name in names[1:]]
    assert masked[0] == masked[1]
    assert "Half of the rows under `full`" in (runs["mix-full-compact"] / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "view", "config", "first"),
    [
        ("qwen3-1.7b", "recent2", "h16-recent2", "chain-h16/"),
        ("qwen3-1.7b-choice", "compact", "choice-h16-compact", "choice"),
    ],
)
def test_recent2_and_choices_train(declared: Any, name: str, view: str, config: str, first: str) -> None:
    adapter = declared(name, view)
    run = read(adapter, "run.json")
    assert (run["view"], run["data"]["config"]) == (view, config)
    rows = shown(adapter)
    assert len(rows) == 8
    assert all(row.startswith(first) and row.endswith(f"@{view}") for row in rows)


@pytest.mark.slow
def test_an_update_of_64_rows(declared: Any) -> None:
    """The 27B recipe's own accumulation, four rows at a time."""
    changes = {"load_in_4bit": False, "optim": "adamw_torch", "train_rows": 64}
    adapter = declared("qwen3.8-27b", "full", **changes, gradient_accumulation_steps=16)
    assert len(set(shown(adapter))) == 64
    assert len((adapter / "exposure.jsonl").read_text().splitlines()) == 1
    assert read(adapter, "exposure.json")["workflows"] == 4


@pytest.mark.parametrize("horizon", [4, 8, 16])
@pytest.mark.parametrize("kind", ["oracle", "free_run"])
def test_the_block_mask_is_a_test_view(kind: str, horizon: int) -> None:
    """It is never trained on; evaluation has a task for it at each horizon."""
    harness = RECIPES.parents[1] / "eval_tasks/harness"
    assert (harness / f"stsr_{kind}_h{horizon}_block.yaml").exists()
