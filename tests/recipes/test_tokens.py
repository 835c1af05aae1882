"""For every supported base: training renders the tokens that an evaluation sends, or is refused.

TRL makes the training tokens here, and lm-eval's own client the evaluation's. The models are random; the
tokenizers and chat templates are those of the bases.
"""

from __future__ import annotations

import copy
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.models.huggingface import HFLM
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl import SFTConfig

from stsr.generators import chain, choice, rows
from stsr.recipes.sft_data import Row
from stsr.recipes.sft_recipe import TrainError, resolve
from stsr.recipes.sft_trainer import RecipeTrainer
from tests.recipes.training import RECIPES

VIEWS = ["full", "compact"]
SMOLLM2 = pytest.param("smollm2", marks=pytest.mark.slow)  # its tokenizer takes seconds to read


def template(name: str) -> str:
    return files("trl").joinpath(f"chat_templates/{name}.jinja").read_text()


@pytest.fixture(scope="module")
def smollm2(smollm2_file: Path) -> Any:
    return AutoTokenizer.from_pretrained(smollm2_file.parent, gguf_file=smollm2_file.name)


@pytest.fixture(scope="module")
def tiny() -> Any:
    return AutoTokenizer.from_pretrained(Path(__file__).parents[2] / "recipes/bases/tiny")


@pytest.fixture(scope="module")
def qwen3_8(qwen3_tokenizer: Any) -> Any:
    """Qwen3.8's template on Qwen3's vocabulary; its own is larger."""
    tokenizer = copy.deepcopy(qwen3_tokenizer)
    tokenizer.chat_template = template("qwen3_8")
    return tokenizer


@pytest.fixture(scope="module")
def data() -> list[Row]:
    """All decisions of a chain at H4 and H16, and of a choice, under two views."""
    tasks = [*(chain.generate(horizon, 60007) for horizon in (4, 16)), choice.generate(16, 70003, "positive")]
    return [row for task in tasks for row in rows.decision_rows(task, VIEWS)]


def network(tokenizer: Any) -> LlamaForCausalLM:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, tie_word_embeddings=True))


def trainer(tokenizer: Any, data: list[Row], out: Path) -> RecipeTrainer:
    args = SFTConfig(
        output_dir=str(out),
        use_cpu=True,
        bf16=False,
        completion_only_loss=True,
        max_length=4096,
        report_to=[],
    )
    return RecipeTrainer(
        rows=data,
        adapter_dtype=torch.float32,
        save_at=frozenset(),
        name="tokens",
        model=network(tokenizer),
        args=args,
        processing_class=tokenizer,
    )


@pytest.mark.parametrize("name", ["tiny", "qwen3_tokenizer", "qwen3_8", SMOLLM2])
def test_training_and_evaluation_send_the_same_tokens(
    name: str, data: list[Row], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    tokenizer = request.getfixturevalue(name)
    prepared = trainer(tokenizer, data, tmp_path).train_dataset
    lm = HFLM(pretrained=network(tokenizer), tokenizer=tokenizer, enable_thinking=False, max_length=4096)
    for row, ids, labels in zip(data, prepared["input_ids"], prepared["labels"], strict=True):
        context = lm.tok_encode(lm.apply_chat_template(row["prompt"]))
        answer = tokenizer(row["completion"][0]["content"] + "<|im_end|>\n")["input_ids"]
        assert ids == context + answer
        assert labels == [-100] * len(context) + answer


@pytest.mark.parametrize("name", ["qwen3_tokenizer", SMOLLM2])
def test_numbers_are_read_digit_by_digit(name: str, request: pytest.FixtureRequest) -> None:
    """What the released tokenizers do, and what a conversion of their file could lose."""
    pieces = request.getfixturevalue(name).tokenize("[-12, 345]")
    assert [piece for piece in pieces if piece.strip("Ġ[], -")] == ["1", "2", "3", "4", "5"]


PAPER = sorted(path for path in RECIPES.glob("qwen*.yaml") if "scienceworld" not in path.stem)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_no_row_of_a_declared_run_is_too_long(path: Path, qwen3_tokenizer: Any) -> None:
    """All training rows under the longest view, with Qwen3's vocabulary: one row too long stops a run."""
    recipe = resolve(path, view="full")
    family, _, horizon = recipe.own.data_config.removesuffix("-full").rpartition("h")
    if family == "choice-":
        tasks = [choice.generate(16, 70000 + i // 2, choice.FAMILY.variants[i % 2]) for i in range(200)]
    else:
        tasks = [chain.generate(int(horizon), seed) for seed in range(60000, 60200)]
    data = [row for task in tasks for row in rows.decision_rows(task, ["full"])][: recipe.own.train_rows]
    texts = qwen3_tokenizer.apply_chat_template(
        [row["prompt"] + row["completion"] for row in data], tokenize=False, enable_thinking=False
    )
    lengths = [len(ids) for ids in qwen3_tokenizer(texts)["input_ids"]]
    assert len(lengths) == recipe.own.train_rows
    assert max(lengths) <= recipe.trl["max_length"]


def test_a_base_that_renders_a_turn_otherwise_than_its_prompt_is_refused(
    qwen3_tokenizer: Any, data: list[Row], tmp_path: Path
) -> None:
    """DeepSeek's distilled models open a think block in the prompt that no finished turn has."""
    tokenizer = copy.deepcopy(qwen3_tokenizer)
    tokenizer.chat_template = template("deepseek_r1_distill")
    with pytest.raises(TrainError, match=r"chain-h4/60007#1@full: the training context is not the prompt"):
        trainer(tokenizer, data, tmp_path)
