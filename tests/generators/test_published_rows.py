"""Protects: every published row and task, as judged by a second implementation (independent.py)."""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from tests.generators import independent
from tests.generators.conftest import Built
from tests.generators.independent import Replay, Tally, World, check_row, run


class Audit(NamedTuple):
    """What the second implementation found in a data set."""

    built: Built
    tasks: dict[str, Replay]
    tally: Tally
    faults: list[str]
    """The first twenty things that are wrong."""

    def of(self, family: str) -> list[Replay]:
        return [replay for replay in self.tasks.values() if replay.family == family]


def audit(built: Built) -> Audit:
    tasks, tally, faults = {}, Tally(), []
    for config, split in built.configs(whole_tasks=True):
        for row in built.rows(config, split):
            tally.rows[config, split] += 1
            replay = tasks[row["id"]] = Replay(row["id"], row["definition"])
            if row["fingerprint"] != replay.fingerprint:
                faults.append(f"{row['id']}: another fingerprint")
    for config, split in built.configs(whole_tasks=False):
        for row in built.rows(config, split):
            tally.rows[config, split] += 1
            try:
                check_row(tasks[row["task"]], row, tally)
            except Exception as error:
                faults.append(f"{config}, {split}, {row['id']}: {error}")
    return Audit(built, tasks, tally, faults[:20])


@pytest.fixture(scope="module")
def workflows(table_workflows: Built) -> Audit:
    return audit(table_workflows)


@pytest.fixture(scope="module")
def controls(workflow_controls: Built) -> Audit:
    return audit(workflow_controls)


def test_the_second_implementation_shares_no_code_with_the_first():
    tree = ast.parse(Path(independent.__file__).read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported <= sys.stdlib_module_names


# -- both data sets


def test_every_row_of_table_workflows_is_right(workflows):
    assert workflows.faults == []
    assert sum(workflows.tally.rows.values()) == 261_440
    assert len(workflows.tasks) == 2_400


def test_every_row_of_workflow_controls_is_right(controls):
    assert controls.faults == []
    assert sum(controls.tally.rows.values()) == 7_226
    assert len(controls.tasks) == 1_698


@pytest.mark.parametrize("which", ["workflows", "controls"])
def test_the_manifest_agrees_with_the_files(which, request):
    found = request.getfixturevalue(which)
    manifest = found.built.manifest
    assert manifest["tasks"].keys() == found.tasks.keys()
    assert all(manifest["tasks"][name]["fingerprint"] == r.fingerprint for name, r in found.tasks.items())
    for config, splits in manifest["configs"].items():
        for split, paths in splits.items():
            assert sum(manifest["files"][p]["rows"] for p in paths) == found.tally.rows[config, split]


def test_no_task_is_in_two_splits_of_any_data_set(workflows, controls):
    """No fingerprint on two sides, and no program on two sides under other names."""
    sides = defaultdict(set)
    for found in (workflows, controls):
        for name, facts in found.built.manifest["tasks"].items():
            side = (found.built.manifest["repo"], facts["split"])
            sides[facts["fingerprint"]].add(side)
            sides[_nameless(found.tasks[name])].add(side)
    assert len(sides) > 2 * 1_698
    test = {key for key, owners in sides.items() if any(split.startswith("test") for _, split in owners)}
    train = {key for key, owners in sides.items() if not all(split.startswith("test") for _, split in owners)}
    assert min(len(test), len(train)) > 2_000
    assert not test & train
    shared = {frozenset(owners) for owners in sides.values() if len(owners) > 1}
    assert shared == set()


def _nameless(replay: Replay) -> str:
    """Tables, tools and parameters in gold order: what is left of a task without its names and candidates."""
    recipes = [replay.definition["recipes"][number] for number in replay.definition["gold"]]
    sources = [[source["columns"], source["rows"]] for source in replay.definition["sources"]]
    return json.dumps([sources, [[recipe["tool"], recipe["params"]] for recipe in recipes]], sort_keys=True)


def test_the_canary_is_in_each_row_of_test_splits_and_in_no_other(table_workflows, workflow_controls):
    for built in (table_workflows, workflow_controls):
        canary = built.manifest["declaration"]["canary"]
        assert canary.startswith("STSR-CANARY-")
        for splits in built.manifest["configs"].values():
            for split, paths in splits.items():
                expected = [canary if split.startswith("test") else ""]
                for path in paths:
                    column = pq.read_table(built.folder / path, columns=["canary"])["canary"]
                    assert column.unique().to_pylist() == expected


# -- chains, neutral names, branching


def test_exactly_one_recipe_of_a_chain_can_run(workflows, controls):
    cycle = ["map_column", "sort_rows", "filter_rows", "select_columns"]
    chains = [*workflows.of("chain"), *workflows.of("neutral")]
    for family in ("state-load", "prefix", "interface", "distractors", "supplied", "padding"):
        chains += controls.of(family)
    for replay in chains:
        assert [r["tool"] for r in replay.definition["recipes"]] == cycle * (replay.horizon // 4)
        for decision in replay.decisions:
            assert list(decision.standings.values()).count("ready") == 1


def test_targets_and_distractors_of_chains_are_balanced(workflows):
    positions, labels = workflows.tally.positions, workflows.tally.labels
    for family in ("chain", "neutral", "branching", "choice"):
        assert positions[family, 0] / (positions[family, 0] + positions[family, 1]) == pytest.approx(
            0.5, abs=0.02
        )
    for family in ("chain", "neutral"):
        assert labels[family, "finished"] / labels[family, "future"] == pytest.approx(1, abs=0.05)
    assert labels["chain", "ready"] == 0
    assert all(labels["branching", kind] > 5_000 for kind in ("finished", "future", "ready"))


def test_a_neutral_task_is_the_chain_of_its_seed_under_other_names(workflows):
    rows = {}
    for family, stem in (("chain", "h{}-full"), ("neutral", "neutral-h{}-full")):
        for horizon in (4, 8, 16):
            for split in ("train", "development", "test"):
                for row in workflows.built.rows(stem.format(horizon), split):
                    rows[family, horizon, row["seed"], row["stage"]] = row
    for replay in workflows.of("neutral"):
        chain = workflows.tasks[replay.id.replace("neutral", "chain")]
        name = {"s0": "s0"}
        for new, old in zip(replay.definition["recipes"], chain.definition["recipes"], strict=True):
            name[old["output"]] = new["output"]
            assert (new["tool"], new["params"]) == (old["tool"], old["params"])
            assert new["inputs"] == [name[source] for source in old["inputs"]]
        outputs = [recipe["output"] for recipe in replay.definition["recipes"]]
        assert outputs != sorted(outputs, key=lambda output: int(output[1:]))
        assert sorted(name.values()) == sorted(name)
        for new, old in zip(replay.decisions, chain.decisions, strict=True):
            assert list(new.lines.values()) == list(old.lines.values())
            one, other = (rows[f, replay.horizon, replay.seed, new.stage] for f in ("neutral", "chain"))
            assert one["target_index"] == other["target_index"]
            assert [replay.texts.index(text) for text in one["candidates"]] == [
                chain.texts.index(text) for text in other["candidates"]
            ]


def test_branching_graphs_are_shallow_and_often_offer_a_choice(workflows):
    for replay in workflows.of("branching"):
        depth = {"s0": 0}
        for recipe in replay.definition["recipes"]:
            depth[recipe["output"]] = 1 + depth[recipe["inputs"][0]]
        assert max(depth.values()) <= 3
        ready = [
            [number for number, text in enumerate(replay.texts) if d.standings[text] == "ready"]
            for d in replay.decisions
        ]
        assert sum(len(numbers) > 1 for numbers in ready) >= replay.horizon / 2
        assert replay.definition["gold"] == [min(numbers) for numbers in ready]  # the canonical ready node


def test_any_order_of_a_branching_graph_succeeds_and_none_is_rejected(workflows):
    for replay in workflows.of("branching"):
        world = World(replay.definition)
        while numbers := world.ready():
            assert world.submit(world.recipes[numbers[-1]]) == ""  # the least canonical
        assert world.verified() == set(world.gold)


# -- choices


def pairs(workflows: Audit) -> list[tuple[Replay, Replay]]:
    found = defaultdict(dict)
    for replay in workflows.of("choice"):
        found[replay.seed][replay.variant] = replay
    return [(pair["negative"], pair["positive"]) for pair in found.values()]


def test_a_pair_differs_in_one_cell_and_in_what_is_right_there(workflows):
    assert len(pairs(workflows)) == 100 + 20 + 50
    for negative, positive in pairs(workflows):
        one, other = negative.definition, positive.definition
        pivot = one["pivot"]
        assert {key for key in one if one[key] != other[key]} == {"gold", "sources"}
        at = [i for i in range(16) if one["sources"][i] != other["sources"][i]]
        assert at == [pivot - 1]
        assert [i for i in range(16) if one["gold"][i] != other["gold"][i]] == at
        cells = [
            (a, b)
            for first, second in zip(
                one["sources"][at[0]]["rows"], other["sources"][at[0]]["rows"], strict=True
            )
            for a, b in zip(first, second, strict=True)
            if a != b
        ]
        assert cells == [(-1, 1)]


def test_the_goal_decides_and_both_calls_read_the_same_table(workflows):
    for replay in workflows.of("choice"):
        for decision, number in zip(replay.decisions, replay.definition["gold"], strict=True):
            target = replay.definition["recipes"][number]
            table = json.loads(decision.lines[decision.inputs[0]])
            negative = any(value < 0 for row in table["rows"] for value in row)
            assert target["tool"] == ("filter_rows" if negative else "sort_rows")
            listed = [json.loads(text) for text in replay.listed(decision.stage)]
            assert {call["tool"] for call in listed} == {"filter_rows", "sort_rows"}
            assert [call["inputs"] for call in listed] == [[f"s{decision.stage - 1}"]] * 2
            assert [call["output"] for call in listed] == [f"a{decision.stage}"] * 2
            results = [run(call, {decision.inputs[0]: table}) for call in listed]
            assert results[0] != results[1]
            if negative:
                kept = results[[call["tool"] for call in listed].index("filter_rows")]
                assert all(value >= 0 for row in kept["rows"] for value in row)


def test_a_wrong_call_runs_moves_on_and_makes_success_impossible(workflows):
    for replay in workflows.of("choice"):
        world = World(replay.definition)
        for decision, number in zip(replay.decisions, replay.definition["gold"], strict=True):
            (wrong,) = [text for text in replay.listed(decision.stage) if text != decision.target]
            other = world.fork()
            assert other.submit(json.loads(wrong)) == ""
            assert other.submit(world.recipes[number]) == "output-exists"  # for good: nothing undoes a call
            assert number not in other.verified()
            following = replay.definition["gold"][decision.stage : decision.stage + 1]
            assert all(other.submit(world.recipes[after]) == "" for after in following)
            assert world.submit(world.recipes[number]) == ""


@pytest.mark.parametrize("view", ["full", "compact"])
def test_a_pair_looks_the_same_but_for_one_line(workflows, view):
    rows = defaultdict(list)
    for row in workflows.built.rows(f"choice-h16-{view}", "test"):
        rows[row["seed"], row["stage"]].append(row)
    for (seed, stage), (one, other) in rows.items():
        pivot = workflows.tasks[f"choice-h16/{seed}~negative"].definition["pivot"]
        assert one["candidates"] == other["candidates"]
        assert (one["target_index"] == other["target_index"]) == (stage != pivot)
        lines = zip(one["prompt"].split("\n"), other["prompt"].split("\n"), strict=True)
        changed = [pair for pair in lines if pair[0] != pair[1]]
        if stage <= pivot:
            assert len(changed) == (view == "full" or stage == pivot)
            assert all(a.replace("-1]", "1]", 1) == b for a, b in changed)


def test_candidates_at_a_pivot_are_equally_long(workflows, qwen3_tokenizer):
    """Under the real tokenizer of Qwen3 and under that of the tiny base."""
    from stsr.generators.tokens import count

    for negative, positive in pairs(workflows):
        for count_tokens in (lambda text: len(qwen3_tokenizer(text)["input_ids"]), count("tiny")):
            listed = [r.listed(negative.definition["pivot"]) for r in (negative, positive)]
            assert len({count_tokens(text) for texts in listed for text in texts}) == 1


# -- views over many decisions


@pytest.mark.parametrize("percent", [25, 50, 75])
def test_random_masks_hide_their_share(workflows, percent):
    view = f"random{percent}"
    assert workflows.tally.artifacts[view] > 50_000
    assert workflows.tally.hidden[view] / workflows.tally.artifacts[view] == pytest.approx(
        percent / 100, abs=0.01
    )


def test_blocks_begin_everywhere(workflows):
    begins = workflows.tally.blocks
    for size in range(2, 17):
        places = [begins[size, begin] for begin in range(size - size // 2 + 1)]
        assert min(places) > 0.6 * sum(places) / len(places)


def test_views_that_are_about_order_change_it(workflows):
    moved = workflows.tally.moved
    assert moved.keys() - {name for name, count in moved.items() if not count} == {
        "full-shuffled",
        "full-target-last",
    }
    assert moved["full-shuffled"] > 17_000
    assert moved["full-target-last"] > 9_000


def test_padding_has_one_length_a_tier(controls):
    assert controls.tally.notes == {f"padded-{tier}": {tier - 440} for tier in (600, 800, 1000, 1200)}


# -- mixtures (appendix E)


def test_both_mixtures_mask_the_same_half_of_the_first_800_rows(workflows):
    built = workflows.built
    compact = list(built.rows("h16-mix-full-compact", "train"))
    random = list(built.rows("h16-mix-full-random", "train"))
    first = [(60_000 + row // 16, row % 16 + 1) for row in range(800)]
    for rows in (compact, random):
        assert [(row["seed"], row["stage"]) for row in rows] == first  # each source row once, in order
    assert Counter(row["view"] for row in compact) == {"full": 400, "compact": 400}
    assert Counter(row["view"] for row in random) == {
        "full": 400,
        "random25": 134,
        "random50": 133,
        "random75": 133,
    }
    plain = [
        {(row["seed"], row["stage"]) for row in rows if row["view"] == "full"} for rows in (compact, random)
    ]
    assert plain[0] == plain[1]
    by_stage = Counter(stage for _, stage in plain[0])
    assert set(by_stage) == set(range(1, 17))
    assert max(by_stage.values()) < 40  # of 50: the assignment follows neither stage nor seed
    source = {
        row["id"]: row
        for view in ("full", "compact", "random25", "random50", "random75")
        for row in built.rows(f"h16-{view}", "train")
    }
    assert all(row == source[row["id"]] for row in (*compact, *random))


# -- controls


def by_seed(rows: Iterable[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[row["seed"]].append(row)
    return found


@pytest.mark.parametrize(
    ("config", "first_seed", "seeds", "rows"),
    [
        *((f"interface-{view}", 10_000, 20, 16) for view in ("full", "names", "recipe-ids", "output-ids")),
        ("interface-one-distractor", 10_000, 20, 24),
        ("distractors-one", 30_000, 10, 24),
        ("distractors-three", 30_000, 10, 24),
        ("factorial", 40_000, 10, 48),
        ("supplied-recipe", 10_000, 6, 28),  # 168 in all
        *((f"padding-{view}", 128_000, 20, 4) for view in ("full", "padded-600", "padded-1200")),
        *((f"state-load-{load}", 127_000, 20, 8) for load in ("none", "4x8", "8x32")),
        *((f"prefix-h{horizon}-full", 127_000, 20, horizon) for horizon in (4, 8, 16)),
    ],
)
def test_each_seed_gives_the_declared_number_of_decisions(controls, config, first_seed, seeds, rows):
    found = by_seed(controls.built.rows(config, "test"))
    assert {seed: len(of) for seed, of in found.items()} == dict.fromkeys(
        range(first_seed, first_seed + seeds), rows
    )


LOADS = ["none", "4x8", "4x16", "4x32", "8x8", "8x16", "8x32"]


def test_loads_differ_in_tables_that_no_recipe_uses(controls):
    for seed in range(127_000, 127_020):
        tasks = [controls.tasks[f"state-load-h8/{seed}~{load}"].definition for load in LOADS]
        for load, task in zip(LOADS, tasks, strict=True):
            extra = task["sources"][1:]
            tables, rows = (0, 0) if load == "none" else map(int, load.split("x"))
            assert [len(source["rows"]) for source in extra] == [rows] * tables
            assert len({json.dumps(source["rows"]) for source in extra}) == tables
            assert task["sources"][0] == tasks[0]["sources"][0]
            assert (task["recipes"], task["gold"]) == (tasks[0]["recipes"], tasks[0]["gold"])
            used = {name for recipe in task["recipes"] for name in recipe["inputs"]}
            assert not used & {source["name"] for source in extra}
        size = {
            load: sum(len(source["rows"]) for source in task["sources"])
            for load, task in zip(LOADS, tasks, strict=True)
        }
        assert size["4x16"] == size["8x8"]
        assert size["4x32"] == size["8x16"]


def test_loads_share_candidates_rank_and_budget(controls):
    rows = [list(controls.built.rows(f"state-load-{load}", "test")) for load in LOADS]
    for same in zip(*rows, strict=True):
        for field in (
            "seed",
            "stage",
            "candidates",
            "target_index",
            "distractor",
            "calls_left",
            "completion",
        ):
            assert len({json.dumps(row[field]) for row in same}) == 1


def test_a_shorter_horizon_is_the_beginning_of_a_longer_one(controls):
    for short, long in pairwise((4, 8, 16)):
        later = {
            (row["seed"], row["stage"]): row for row in controls.built.rows(f"prefix-h{long}-full", "test")
        }
        for row in controls.built.rows(f"prefix-h{short}-full", "test"):
            other = later[row["seed"], row["stage"]]
            for field in ("candidates", "target_index", "distractor", "completion"):
                assert row[field] == other[field]
            assert row["prompt"].split("Calls left:")[0] == other["prompt"].split("Calls left:")[0]
            assert other["calls_left"] - row["calls_left"] == 2 * (long - short)
    for replay in controls.of("prefix"):
        assert (
            replay.definition["recipes"]
            == (controls.tasks[f"prefix-h16/{replay.seed}"].definition["recipes"][: replay.horizon])
        )


@pytest.mark.parametrize("config", ["interface-one-distractor", "distractors-one", "distractors-three"])
def test_distractor_probes_of_a_seed_all_differ(controls, config):
    for rows in by_seed(controls.built.rows(config, "test")).values():
        assert len({(row["stage"], *row["candidates"]) for row in rows}) == 24
        number = 4 if config.endswith("three") else 2
        tools = [[json.loads(text)["tool"] for text in row["candidates"]] for row in rows]
        assert all(len(set(each)) == len(each) == number for each in tools)
        if number == 2:
            places = Counter(
                (each[row["target_index"]], each[1 - row["target_index"]], row["target_index"])
                for each, row in zip(tools, rows, strict=True)
            )
            assert len(places) == 24  # twelve ordered pairs of tools at two ranks
        else:
            ranks = Counter(row["target_index"] for row in rows)
            assert ranks == {0: 4, 1: 8, 2: 8, 3: 4}


def test_three_distractors_are_the_one_and_two_more(controls):
    one, three = (list(controls.built.rows(f"distractors-{n}", "test")) for n in ("one", "three"))
    for few, many in zip(one, three, strict=True):
        assert few["task"].removesuffix("-one") == many["task"].removesuffix("-three")
        assert (few["stage"], few["completion"]) == (many["stage"], many["completion"])
        at = many["candidates"].index(few["candidates"][0])
        assert many["candidates"][at : at + 2] == few["candidates"]
        heads = [row["prompt"].split("\nRecipes:")[0] for row in (few, many)]
        assert heads[0] == heads[1]


def test_the_factorial_is_complete(controls):
    for rows in by_seed(controls.built.rows("factorial", "test")).values():
        cells = set()
        for row in rows:
            calls = [json.loads(text) for text in row["candidates"]]
            target, other = calls[row["target_index"]], calls[1 - row["target_index"]]
            assert {target["output"], other["output"]} == {"result_1", "result_2"}
            assert other["inputs"] == [target["output"]]
            assert target["tool"] != other["tool"]
            cells.add((target["tool"], other["tool"], row["target_index"], target["output"]))
        assert len(cells) == 48
        programs = {_nameless(controls.tasks[row["task"]]) for row in rows}
        assert len(programs) == 12  # rank and labels change neither tables nor parameters


def test_a_supplied_recipe_stands_alone(controls):
    rows = list(controls.built.rows("supplied-recipe", "test"))
    assert all(row["candidates"] == [row["completion"]] for row in rows)
    assert Counter(row["horizon"] for row in rows) == {4: 24, 8: 48, 16: 96}
