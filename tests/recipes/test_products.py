"""What a finished run leaves to publish: an adapter for each checkpoint, whole, proved and audited."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from stsr.generators.declaration import DeclarationError
from stsr.recipes import exposure
from stsr.recipes.sft_recipe import resolve
from tests.recipes.training import RECIPES, Run, read, weights

TEXTS = {"README.md", "adapter_config.json", "run.json", "exposure.json", "exposure.jsonl"}


@pytest.fixture(scope="module")
def finished(run: Run) -> Path:
    """16 rows in 4 updates of 4, kept after updates 1 and 4."""
    return run(max_steps=4, save_at_steps=[1])


def test_a_checkpoint_is_published_as_an_adapter_of_its_own(finished: Path) -> None:
    folders = {1: finished / "steps/step-1", 4: finished / "adapter"}
    for step, folder in folders.items():
        assert {path.name for path in folder.iterdir()} == TEXTS | {"adapter_model.safetensors"}
        assert weights(folder) == weights(finished / f"checkpoints/checkpoint-{step}")
        assert read(folder, "run.json")["step"] == step
        assert read(folder, "exposure.json")["presentations"] == 4 * step
        assert exposure.read(folder / "exposure.jsonl")[-1].step == step
    first, last = (read(folder, "run.json") for folder in folders.values())
    assert first["proof"]["sha256"] != last["proof"]["sha256"]
    assert first["final_loss"] != last["final_loss"]
    assert 'revision="step-1"' in (folders[1] / "README.md").read_text()
    assert 'revision="v1.0.0"' in (folders[4] / "README.md").read_text()
    assert [path.name for path in (finished / "steps").iterdir()] == ["step-1"]


def test_the_proof_states_the_effect_that_peft_shows(finished: Path, base: Path) -> None:
    """Measured with plain PEFT, on the prompt as Qwen3's template renders it with thinking disabled."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    text = (
        "<|im_start|>user\nState:\ns0: available\n\nChoose the recipe that can run now.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    for folder in (finished / "steps/step-1", finished / "adapter"):
        model = AutoModelForCausalLM.from_pretrained(base).eval()
        with torch.no_grad():
            plain = model(ids).logits
            adapted = PeftModel.from_pretrained(model, folder).eval()(input_ids=ids).logits
        effect = float((adapted - plain).abs().max())
        assert read(folder, "run.json")["proof"]["effect"] == pytest.approx(effect, rel=1e-5)
        assert read(folder, "run.json")["base"]["class"] == "Qwen3ForCausalLM"


def test_audits_of_runs_are_a_table(finished: Path, tmp_path: Path) -> None:
    audit = read(finished / "adapter", "exposure.json")
    heading, _, line = exposure.table([finished]).splitlines()
    assert heading.startswith("| run | training rows | presentations | distinct rows | workflows |")
    assert line.startswith(f"| {finished.name} | 16 | 16 | 16 | 4 | {audit['input_tokens']:,} |")
    assert line.endswith(f"| {audit['order_sha256'][:12]} |")
    with pytest.raises(DeclarationError, match="holds no finished training"):
        exposure.table([tmp_path])


@pytest.mark.parametrize(
    ("name", "horizon", "rows", "presentations", "distinct"),
    [
        ("qwen3.8-27b-h4", 4, 800, 800, 800),
        ("qwen3.8-27b-h8", 8, 1600, 800, 800),
        ("qwen3.8-27b", 16, 3200, 6400, 3200),
    ],
)
def test_the_exposure_of_table_12(
    name: str, horizon: int, rows: int, presentations: int, distinct: int
) -> None:
    """Rows, presentations, distinct rows and 200 workflows, from the recipe and the sampler's order alone.

    At H8 the 800 rows of half an epoch reach all 200 workflows under the paper's seed, as it reports.
    """
    recipe = resolve(RECIPES / f"{name}.yaml", view="full")
    ids = [f"chain-h{horizon}/{60000 + i // horizon}#{i % horizon + 1}@full" for i in range(rows)]
    order = exposure.row_order(recipe.own.train_rows, recipe.presentations, recipe.trl["data_seed"])
    size = recipe.rows_per_update
    steps = [
        exposure.Step(at // size + 1, tuple(ids[i] for i in order[at : at + size]), 0, 0)
        for at in range(0, len(order), size)
    ]
    audit = exposure.summarise(steps, {row: row.partition("#")[0] for row in ids}, 0)
    assert len(steps) == 100
    assert (audit["rows"], audit["presentations"]) == (rows, presentations)
    assert (audit["distinct_rows"], audit["workflows"]) == (distinct, 200)
