"""Protects: prompts as long as the paper's under the real Qwen3 tokenizer.

Our wording and tables are sized for the means that the paper prints: tables 13, 14 and 21, appendix C.2, and
the lengths of appendix A.3. "Within 5%" is asserted wherever it holds; the rest says why it does not.
"""

import statistics
from itertools import pairwise

import pytest

from stsr.generators.rows import decision_rows, generate

PAPER = {  # table 14: mean tokens of the correct-prefix input
    (4, "full"): 440,
    (8, "full"): 546,
    (16, "full"): 752,
    (4, "recent2"): 396,
    (8, "recent2"): 405,
    (16, "recent2"): 430,
}
LOADS = {  # table 13
    "none": 542,
    "4x8": 802,
    "4x16": 1018,
    "4x32": 1466,
    "8x8": 1062,
    "8x16": 1494,
    "8x32": 2390,
}
PADDING = {"full": 440, "padded-600": 600, "padded-800": 800, "padded-1000": 1000, "padded-1200": 1200}


@pytest.fixture(scope="module")
def count(qwen3_tokenizer):
    """A function rows -> numbers of tokens that a model reads, chat template included."""

    def rendered(text):
        return qwen3_tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )

    before, after = rendered("CONTENT").split("CONTENT")

    def count(rows):
        texts = [before + row["prompt"] + after for row in rows]
        assert texts[0] == rendered(texts[0].removeprefix(before).removesuffix(after))
        return [len(ids) for ids in qwen3_tokenizer(texts)["input_ids"]]

    return count


@pytest.fixture(scope="module")
def mean(count, workflow_controls):
    """A function config of the control data set -> mean number of tokens."""
    return lambda config: statistics.mean(count(workflow_controls.rows(config, "test")))


@pytest.mark.parametrize("cell", PAPER)
def test_main_test_prompts_are_as_long_as_the_papers(count, table_workflows, cell):
    horizon, view = cell
    lengths = count(table_workflows.rows(f"h{horizon}-{view}", "test"))
    assert statistics.mean(lengths) == pytest.approx(PAPER[cell], rel=0.05)


@pytest.mark.parametrize("cell", PAPER)
def test_prefixes_are_nearly_as_long(mean, cell):
    # Table 14 is about prefixes. A prefix of an H16 chain starts with the taller table that four filters
    # need, so at H4 ours are 6% longer; at H16 3.5% shorter. Those of the main test are within 5%.
    assert mean("prefix-h{}-{}".format(*cell)) == pytest.approx(PAPER[cell], rel=0.065)


@pytest.mark.parametrize("load", LOADS)
def test_loaded_states_are_as_long_as_the_papers(mean, load):
    assert mean(f"state-load-{load}") == pytest.approx(LOADS[load], rel=0.02)


@pytest.mark.parametrize("view", PADDING)
def test_padding_reaches_its_tier(mean, view):
    assert mean(f"padding-{view}") == pytest.approx(PADDING[view], rel=0.05)


def test_one_distractor_is_as_long_as_the_papers(mean):
    assert mean("interface-one-distractor") == pytest.approx(554.5, rel=0.05)


def test_forms_of_the_interface_are_ordered_as_in_the_paper(mean):
    """Table 21 has 607, 374, 205 and 124; ours are 728, 345, 159 and 104, which no 5% holds.

    The paper does not say what its sixteen probes are. From full fields to outputs alone its prompts lose 81
    tokens, which are the fields of three recipes of ours (27 each); we show two everywhere. Its tables take
    233 tokens, those of an H16 chain 383.
    """
    lengths = [mean(f"interface-{view}") for view in ("full", "names", "recipe-ids", "output-ids")]
    assert all(longer > 1.4 * shorter for longer, shorter in pairwise(lengths))
    assert lengths == pytest.approx([728, 345, 159, 104], abs=1)


@pytest.mark.parametrize("config", ["h4", "h8", "h16", "branching-h8", "branching-h16", "choice-h16"])
def test_inert_text_keeps_the_length_of_full(count, table_workflows, config):
    full, filled = (
        count(table_workflows.rows(f"{config}-{view}", "development")) for view in ("full", "compact-filler")
    )
    assert all(abs(a - b) <= 0.02 * a for a, b in zip(full, filled, strict=True))
    assert sum(full) == pytest.approx(sum(filled), rel=0.001)


def test_completions_have_the_papers_length(qwen3_tokenizer):
    # Appendix A.3: 30-35 supervised tokens a row. Names of two digits cost ours at most one more.
    lengths = {
        len(qwen3_tokenizer(row["completion"][0]["content"] + "<|im_end|>\n")["input_ids"])
        for horizon in (4, 8, 16)
        for seed in range(62_000, 62_020)
        for row in decision_rows(generate("chain", horizon, seed), ["full"])
    }
    assert min(lengths) >= 30
    assert max(lengths) <= 36


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ("h16-full-cue", 1536),  # section A.3: the maximum length of the H16 crossover
        ("neutral-h16-full", 1536),
        ("choice-h16-full", 2048),  # section A.9, whose longest row has 1,396 tokens
        ("branching-h16-full", 2048),  # the paper trains on none
    ],
)
def test_no_training_row_is_longer_than_the_papers_maximum(count, table_workflows, config, limit):
    rows = sorted(table_workflows.rows(config, "train"), key=lambda row: len(row["prompt"]))
    assert max(count(rows[-50:])) + 36 <= limit  # the longest texts have the most tokens
