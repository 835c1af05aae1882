"""Protects: the frozen splits meet every count of appendix F, come from the rule, and plan 696 rollouts."""

from collections import Counter

import pytest

from stsr.generators.scienceworld.catalogue import read_catalogue
from stsr.generators.scienceworld.extension import TRAINING_SEEDS, plan
from stsr.generators.scienceworld.splits import check, choose, read_splits, split_of, workflows_of
from stsr.generators.scienceworld.variations import parse


@pytest.fixture(scope="module")
def splits():
    return read_splits()


def counts(ids, name=None):
    chosen = [w for w in workflows_of(ids) if name in (None, w.bin)]
    return len(chosen), sum(len(w.steps) for w in chosen)


def test_training_and_development(splits):
    assert counts(splits.train) == (39, 1170)
    assert counts(splits.development) == (13, 440)
    assert counts(splits.train, "short") == (11, 218)
    assert counts(splits.development, "short") == (4, 80)
    assert {parse(task).official for task in splits.train} == {"train"}
    assert {parse(task).official for task in splits.development} == {"dev"}


def test_held_out(splits):
    assert counts(splits.test) == (30, 1042)
    assert counts(splits.test, "short") == (10, 208)
    assert counts(splits.test, "medium") == (10, 315)
    assert counts(splits.test, "long") == (10, 519)
    mix = Counter((w.bin, w.family) for w in workflows_of(splits.test))
    assert mix == {
        ("short", "chemistry-mix"): 4, ("short", "freeze"): 2, ("short", "melt"): 4,
        ("medium", "boil"): 3, ("medium", "freeze"): 2, ("medium", "grow-plant"): 3, ("medium", "melt"): 2,
        ("long", "boil"): 2, ("long", "freeze"): 2, ("long", "grow-plant"): 2, ("long", "melt"): 2,
        ("long", "chemistry-mix"): 2,
    }  # fmt: skip


def test_nothing_is_in_two_splits(splits):
    every = [task for ids in splits for task in ids]
    assert len(every) == len(set(every)) == 39 + 13 + 30 + 10 + 58


def test_pilot_and_extension_are_all_official_test_variations(splits):
    assert len(splits.pilot) == 10
    assert len(splits.extension) == 58
    assert {parse(task).official for task in (*splits.pilot, *splits.extension)} == {"test"}
    assert set(Counter(parse(task).family for task in splits.pilot).values()) == {2}


def test_the_rule_gives_what_is_frozen(splits):
    assert choose(read_catalogue()) == splits


def test_why_the_short_sets_lie_within_training_and_development():
    """Five disjoint sets: 97 workflows, 2,950 states. Ten long ones are given 519; the rest cannot fit."""
    lengths = sorted(len(w.steps) for w in read_catalogue().usable)
    short, others = lengths[:31], lengths[31:]
    assert short[-1] == 24
    least = sum(short) + sum(others[: 97 - 10 - 31]) + 519
    assert least > 1170 + 440 + 218 + 80 + 1042


def test_a_moved_workflow_is_seen(splits):
    moved = splits._replace(train=(*splits.train[:-1], splits.test[0]))
    assert "in two of" in check(moved, read_catalogue())
    fewer = splits._replace(test=splits.test[:-1])
    assert "test, " in check(fewer, read_catalogue())


def test_split_of(splits):
    assert split_of(splits.test[0]) == "test"
    assert split_of(splits.extension[0]) == "extension"
    assert split_of("scienceworld-freeze/11") == "rest"


def test_the_extension_is_696_rollouts_and_none_has_been_run(splits):
    """58 tasks x 3 seeds x 4 cells (appendix F)."""
    planned = plan()
    assert len(planned) == len({p.id for p in planned}) == 696
    assert sum(p.status != "planned" for p in planned) == 0
    assert {p.task for p in planned} == set(splits.extension)
    assert {p.seed for p in planned} == set(TRAINING_SEEDS) == {20260910, 20260911, 20260912}
    assert len({(p.train_view, p.test_view) for p in planned}) == 4
    known = {*splits.train, *splits.development, *splits.test, *splits.pilot}
    assert not known & {p.task for p in planned}
