"""Protects: what the declared data sets promise, and that a slip in a declaration is one line."""

from pathlib import Path

import pytest

from stsr.generators.dataset import read_declaration
from stsr.generators.declaration import DeclarationError
from stsr.generators.views import VIEWS

DECLARATIONS = Path(__file__).parents[2] / "recipes/datasets"
CHAIN_SPLITS = {  # protocol, section 4: first seed, number of tasks
    "train": (60000, 200),
    "development": (61000, 20),
    "test": (62000, 20),
    "test_confirmation": (63000, 20),
    "test_untuned": (64000, 20),
    "development_pilot": (91000, 10),
    "test_crossover": (126000, 50),
}
SPLITS = {
    "chain": CHAIN_SPLITS,
    "neutral": {name: CHAIN_SPLITS[name] for name in ("train", "development", "test")},
    "branching": {"train": (66000, 200), "development": (67000, 20), "test": (65000, 20)},
    "choice": {"train": (70000, 100), "development": (71000, 20), "test": (72000, 50)},
}
CONTROLS = {
    "state-load": [(127000, 20)],
    "prefix": [(127000, 20)],
    "interface": [(10000, 20)],
    "distractors": [(10000, 20), (30000, 10), (30000, 10)],
    "factorial": [(40000, 10)],
    "supplied": [(10000, 6)],
    "padding": [(128000, 20)],
}


def seeds(part):
    return {split.name: (split.first_seed, split.tasks) for split in part.splits}


@pytest.mark.parametrize("name", ["table-workflows-1.0.0", "table-workflows"])
def test_splits_have_the_seeds_of_the_protocol(name):
    declaration = read_declaration(DECLARATIONS / f"{name}.yaml")
    for part in declaration.parts:
        assert seeds(part) == SPLITS[part.family]
    assert declaration.parts[0].horizons == (4, 8, 16)


def test_controls_have_the_seeds_of_the_protocol():
    found = {}
    for part in read_declaration(DECLARATIONS / "workflow-controls.yaml").parts:
        found.setdefault(part.family, []).append(seeds(part)["test"])
        assert len(part.splits) == 1
    assert found == CONTROLS


def test_every_view_is_published():
    declared = {
        view
        for name in ("table-workflows", "workflow-controls")
        for part in read_declaration(DECLARATIONS / f"{name}.yaml").parts
        for view in part.views
    }
    assert declared == set(VIEWS)


def test_the_large_data_set_has_ten_million_rows_and_seeds_of_its_own():
    (part,) = read_declaration(DECLARATIONS / "large.yaml").parts
    (split,) = part.splits
    assert split.tasks * 16 * len(part.views) == 10_000_032
    assert split.first_seed > 1_000_000  # beyond every other split


def test_lengths_are_checked_under_the_tokenizers_of_both_models():
    assert read_declaration(DECLARATIONS / "table-workflows.yaml").tokenizers == ("qwen3", "tiny")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("family: chain", "family: tree", "unknown family 'tree'; there are chain"),
        ("      - full\n", "      - fll\n", "unknown view 'fll'; there are full, compact, recent2"),
        ("horizons: [16]", "horizons: [32]", r"chain has horizons \[4, 8, 16\]; not 32"),
        ("      - name: test_untuned", "      - name: test", "h4-full: split test is declared twice"),
        ("        tasks: 50", "        tasks: 0", "split test_crossover: needs at least one task"),
        ("version: 1.1.0", "verison: 1.1.0", "unknown key 'verison'; did you mean 'version'"),
        ("version: 1.1.0", "version: 1.2.0", r"changes: has no entry for version 1\.2\.0"),
        (
            '    variants: "*"',
            '    variants: "x*"',
            r"h\{horizon\}-\{view\}: no variant of chain is like 'x\*'",
        ),
        (
            "tokenizers: [qwen3, tiny]",
            "tokenizers: [gpt2]",
            "unknown tokenizer 'gpt2'; there are qwen3, tiny",
        ),
        ("config: h{horizon}-{view}", "config: h{horizon}", "several views need {view} in the name"),
        ("example: branching-h8", "example: branching-h5/1#9", "is not a row id|stage 9 is not in"),
        ("{compact: 400}", "{compact: 900}", "h16-mix-full-compact: masks more rows than it has"),
        ("{compact: 400}", "{cmpact: 400}", "unknown view 'cmpact'"),
        ("    split: train\n", "    split: trian\n", "h16-mix-full-compact: there is no h16-full with trian"),
    ],
)
def test_a_bad_declaration_is_one_line(tmp_path, old, new, message):
    text = (DECLARATIONS / "table-workflows.yaml").read_text()
    assert old in text
    (tmp_path / "d.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(DeclarationError, match=message) as caught:
        read_declaration(tmp_path / "d.yaml")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "d.yaml"))
