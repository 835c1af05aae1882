"""The crossover on the paper's original pair, over several seeds, and each refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stsr.eval_tasks.records import Record
from stsr.stats.cells import group
from stsr.stats.crossover import CrossoverSpec, build
from stsr.stats.outcomes import CellError

SEED = 20260910


def spec_of(records: Any, *seeds: int) -> CrossoverSpec:
    pairs = {seed: {view: records.adapter(seed, view) for view in ("full", "compact")} for seed in seeds}
    return CrossoverSpec(horizon=16, views=("full", "compact"), adapters=pairs, base=records.BASE)


def flat(parts: dict[str, list[Record]]) -> list[Record]:
    return [record for part in parts.values() for record in part]


def test_free_run_is_table_16_and_18(records: Any, paper_free_run: dict[str, list[Record]]) -> None:
    crossover = build(spec_of(records, SEED), group(flat(paper_free_run)))["free_run"]
    [seed] = crossover.seeds
    assert {place: cell.headline.k for place, cell in seed.cells.items()} == {
        ("full", "full"): 17,
        ("full", "compact"): 15,
        ("compact", "full"): 0,
        ("compact", "compact"): 20,
    }
    printed = [  # Table 18, in its order
        ("compact→full − full→full", -85, -100, -70, "1.53e-05"),
        ("compact→compact − full→compact", 25, 10, 45, "6.25e-02"),
        ("full→compact − full→full", -10, -35, 15, "7.27e-01"),
        ("compact→compact − compact→full", 100, 100, 100, "1.91e-06"),
        ("difference of differences", 110, 85, 135, "1.53e-05"),
    ]
    for contrast, row in zip((*seed.contrasts, seed.interaction), printed, strict=True):
        effect, low, high = (round(100 * x, 9) for x in contrast.interval[:3])
        assert (contrast.name, effect, low, high, f"{contrast.test.p:.2e}") == row
    assert crossover.interaction.mean == pytest.approx(1.1)
    assert crossover.interaction.sd is None
    assert crossover.untuned == {}


def test_oracle_contrasts_are_fractions_of_decisions_with_tasks_as_unit(
    records: Any, paper_oracle: dict[str, list[Record]]
) -> None:
    crossover = build(spec_of(records, SEED), group(flat(paper_oracle)))["oracle_prefix"]
    interaction = crossover.seeds[0].interaction
    # (320 - 103) - (310 - 317) = 224 of 320 decisions.
    assert interaction.interval.estimate == pytest.approx(224 / 320)
    assert (interaction.interval.n, interaction.interval.unit) == (20, "task")
    assert (interaction.test.statistic, interaction.test.n) == (224.0, 20)
    assert interaction.test.method == "exact sign-flip by convolution"


def test_seeds_are_summarised_and_not_pooled(records: Any) -> None:
    # Table 3's three pairs, 50 tasks each: +142, +98 and +78 points, mean 106, SD 32.7.
    table_3 = {20260927: (35, 46, 0, 50), 20260910: (45, 24, 0, 50), 20260926: (49, 50, 0, 50)}
    made: list[Record] = []
    for seed, row in table_3.items():
        places = [("full", "full"), ("full", "compact"), ("compact", "full"), ("compact", "compact")]
        for (train, test), won in zip(places, row, strict=True):
            outcomes = [records.WON] * won + [records.lost(8)] * (50 - won)
            made += records.episodes(records.cell(test, seed, train), outcomes)
    crossover = build(spec_of(records, *table_3), group(made), draws=50)["free_run"]
    assert [seed.seed for seed in crossover.seeds] == [20260910, 20260926, 20260927]
    effects = [round(100 * seed.interaction.interval.estimate, 9) for seed in crossover.seeds]
    assert effects == [142, 98, 78]
    assert crossover.interaction.mean == pytest.approx(1.06)
    assert crossover.interaction.sd == pytest.approx(0.327, abs=5e-4)
    assert crossover.seeds[0].interaction.interval.n == 50


def test_result_does_not_depend_on_record_order(
    records: Any, paper_free_run: dict[str, list[Record]]
) -> None:
    everything = flat(paper_free_run)
    forwards, backwards = (
        build(spec_of(records, SEED), group(order), draws=200)["free_run"].seeds[0]
        for order in (everything, everything[::-1])
    )
    assert (forwards.contrasts, forwards.interaction) == (backwards.contrasts, backwards.interaction)


def test_any_two_views_and_the_untuned_base(records: Any) -> None:
    made: list[Record] = []
    for train, test, won in [
        ("block", "block", 2),
        ("block", "names", 1),
        ("names", "block", 0),
        ("names", "names", 2),
    ]:
        outcomes = [records.WON] * won + [records.lost(1)] * (2 - won)
        made += records.episodes(records.cell(test, 7, train), outcomes)
    made += records.episodes(records.cell("names"), [records.lost(1)] * 2)
    made += records.episodes(records.cell("recent2"), [records.lost(1)] * 2)  # another view: left alone
    adapters = {7: {"block": records.adapter(7, "block"), "names": records.adapter(7, "names")}}
    spec = CrossoverSpec(16, ("block", "names"), adapters, records.BASE)
    crossover = build(spec, group(made), draws=50)["free_run"]
    # (2/2 - 0/2) - (1/2 - 2/2) = 1.5
    assert crossover.seeds[0].interaction.interval.estimate == 1.5
    assert list(crossover.untuned) == ["names"]


# Refusals


def test_missing_cells_are_named(records: Any, paper_free_run: dict[str, list[Record]]) -> None:
    part = {name: paper_free_run[name] for name in ("FF", "CC")}
    with pytest.raises(CellError) as error:
        build(spec_of(records, SEED), group(flat(part)))
    assert "free_run: missing cells (2): " in str(error.value)
    assert "seed 20260910 trained full tested compact (stsr/qwen3-1.7b-h16-full-s20260910)" in str(
        error.value
    )


def test_no_cell_at_all_says_what_there_is(records: Any, paper_free_run: dict[str, list[Record]]) -> None:
    spec = replace(spec_of(records, SEED), base="someone/else")
    with pytest.raises(CellError, match=r"at H16 under full and compact; found: Qwen/Qwen3-1.7B H16 compact"):
        build(spec, group(flat(paper_free_run)))
    with pytest.raises(CellError, match="found: no cells"):
        build(spec, [])
    with pytest.raises(CellError, match="no cell of an adapter of base"):
        build(spec_of(records, SEED), group(records.episodes(records.cell("full"), [records.WON])))


def test_mixed_backends_are_refused(records: Any, paper_free_run: dict[str, list[Record]]) -> None:
    other = [replace(r, cell=replace(r.cell, backend="VLLM")) for r in paper_free_run["CC"]]
    with pytest.raises(CellError, match=r"differ in backend: '(HFLM|VLLM)' and '(HFLM|VLLM)'"):
        build(spec_of(records, SEED), group(flat({**paper_free_run, "CC": other})))


def test_an_adapter_with_two_revisions_is_refused(
    records: Any, paper_free_run: dict[str, list[Record]]
) -> None:
    other = [replace(r, cell=replace(r.cell, adapter_revision="newer")) for r in paper_free_run["CC"]]
    with pytest.raises(CellError, match="compact-s20260910 has two revisions: "):
        build(spec_of(records, SEED), group(flat({**paper_free_run, "CC": other})))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"views": ("full", "full")}, "two different views"),
        ({"adapters": {}}, "at least one training seed"),
        ({"adapters": {1: {"full": "a"}}}, r"seed 1: adapters for views \['full'\]"),
        ({"adapters": {1: {"full": "a", "compact": "a"}}}, "adapter 'a' must be named exactly once"),
        ({"adapters": {1: {"full": "a", "compact": ""}}}, "adapter '' must be named exactly once"),
    ],
)
def test_a_spec_that_is_no_crossover_is_refused(records: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(spec_of(records, SEED), **change)
