"""Protects: prompts as long as the paper's under the real Qwen3 tokenizer (tables 14 and 12; within 5%)."""

import statistics

import pytest

from stsr.generators.rows import decision_rows, generate
from stsr.generators.views import VIEWS

PAPER = {  # table 14: mean tokens of the correct-prefix input
    (4, "full"): 440,
    (8, "full"): 546,
    (16, "full"): 752,
    (4, "recent2"): 396,
    (8, "recent2"): 405,
    (16, "recent2"): 430,
}


@pytest.fixture(scope="module")
def lengths(qwen3_tokenizer):
    """(horizon, view) -> prompt lengths, and completion lengths, over the twenty main test tasks."""
    prompts: dict[tuple[int, str], list[int]] = {}
    completions = []
    for horizon in (4, 8, 16):
        for seed in range(62_000, 62_020):
            for row in decision_rows(generate("chain", horizon, seed), list(VIEWS)):
                text = qwen3_tokenizer.apply_chat_template(
                    row["prompt"], tokenize=False, add_generation_prompt=True, **row["chat_template_kwargs"]
                )
                prompts.setdefault((horizon, row["view"]), []).append(len(qwen3_tokenizer(text)["input_ids"]))
                answer = row["completion"][0]["content"] + "<|im_end|>\n"
                completions.append(len(qwen3_tokenizer(answer)["input_ids"]))
    return prompts, completions


@pytest.mark.parametrize("cell", PAPER)
def test_mean_prompt_length_is_within_five_percent_of_the_paper(lengths, cell):
    assert statistics.mean(lengths[0][cell]) == pytest.approx(PAPER[cell], rel=0.05)


def test_completions_have_the_papers_length(lengths):
    # Section A.3: 30-35 supervised tokens a row. Names of two digits cost ours at most one more.
    assert min(lengths[1]) >= 30
    assert max(lengths[1]) <= 36


def test_no_prompt_needs_more_than_the_papers_maximum_length(lengths):
    assert max(max(counts) for counts in lengths[0].values()) + 36 <= 1536
