"""Protects: the tiny base is pretrained on other questions than the project's, with right answers."""

import json
import re

import pytest

from stsr.generators import prompts
from stsr.generators.dataset import read_declaration
from stsr.generators.rows import generate
from stsr.recipes.curriculum import INSTRUCTIONS, example
from stsr.recipes.experiment import recipes_folder

EXAMPLES = [example(index, "train", index / 600) for index in range(600)]


def sections(prompt):
    """(names in the state, recipes) as a reader finds them in the text of a prompt."""
    state, rest = prompt.split("State:\n")[1].split("\n\nRecipes:\n")
    recipes = [json.loads(line) for line in rest.split("\n\n")[0].splitlines()]
    return [line.split(":")[0] for line in state.splitlines()], recipes


def test_the_projects_instruction_never_occurs():
    for made in EXAMPLES:
        assert "can run now" not in made.prompt
        assert prompts.INSTRUCTION not in made.prompt
        assert INSTRUCTIONS[made.kind] in made.prompt


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_the_answer_is_the_only_recipe_that_the_question_fits(kind):
    found = [made for made in EXAMPLES if made.kind == kind]
    assert len(found) > 30
    for made in found:
        names, recipes = sections(made.prompt)
        answer = json.loads(made.completion)
        if kind == "only":
            assert recipes == [answer]
        elif kind in ("first", "second"):
            assert recipes[kind == "second"] == answer
        else:
            # The words of each instruction, as (input there, output there) of the recipes that fit.
            fits = {
                "output_in": {(True, True), (False, True)},
                "output_not_in": {(True, False), (False, False)},
                "input_in": {(True, True), (True, False)},
                "input_not_in": {(False, True), (False, False)},
                "both_in": {(True, True)},
                "neither_in": {(False, False)},
            }[kind]
            there = [(recipe["inputs"][0] in names, recipe["output"] in names) for recipe in recipes]
            assert [recipe for recipe, where in zip(recipes, there, strict=True) if where in fits] == [answer]


def test_half_of_the_tasks_have_names_that_do_not_count_upward():
    upward = sum(bool(re.search(r"State:\ns0: ", made.prompt)) for made in EXAMPLES)
    assert 240 < upward < 360


def test_states_grow_with_training():
    early = [len(sections(made.prompt)[0]) for made in EXAMPLES[:40]]
    late = [len(sections(made.prompt)[0]) for made in EXAMPLES[-300:]]
    assert max(early) <= 4
    assert max(late) > 8


def test_no_table_of_any_split_occurs():
    declared = read_declaration(recipes_folder() / "datasets/table-workflows.yaml")
    published = {
        generate(part.family, horizon, seed, part.chosen_variants[0]).sources[0][1].text
        for part in declared.parts
        for split in part.splits
        for horizon in split.horizons
        for seed in split.seeds
    }
    made = [example(index, "train", 1.0) for index in range(3000)] + EXAMPLES
    lines = [line for m in made for line in m.prompt.splitlines() if ': {"columns":["id"' in line]
    shown = {line.split(": ", 1)[1] for line in lines}
    assert len(published) > 1300  # 860 chains, 480 graphs, 170 pairs; neutral names share tables
    assert len(shown) > 3000
    assert not shown & published
