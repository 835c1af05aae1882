"""The paper's tables from made-up outcomes with its counts; each refusal. Expected values: the paper's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from stsr.stats.display import tables_of
from stsr.stats.frame import Arm, label
from stsr.stats.numbers import Number
from stsr.stats.outcomes import CellError, Outcome
from stsr.stats.render import html, latex, markdown
from stsr.stats.specs import LABELS, SPECS
from stsr.stats.synthetic import for_table
from stsr.stats.tables import Built, build

CONTRASTS_ALONE = {"table-18", "table-26", "section-b1", "table-17-cue", "table-21-contrasts"}
PAIRS_ALONE = {"section-4.7"}
OURS = {id for id, spec in SPECS.items() if not spec.paper}
COUNTED = sorted(set(SPECS) - OURS - CONTRASTS_ALONE - PAIRS_ALONE - {"table-14-blocks"})


def built(outcomes: list[Outcome], arms: list[Arm], table: str, strict: bool = True) -> Built:
    made = build(SPECS[table], label(outcomes, arms), strict=strict)
    assert made is not None
    return made


@pytest.mark.parametrize("table", COUNTED)
def test_each_table_gives_back_the_papers_values(table: str) -> None:
    outcomes, arms = for_table(SPECS[table])
    numbers = [
        n for n in built(outcomes, arms, table, strict=table != "table-1").numbers if n.metric != "effect"
    ]
    printed = sum(
        len(rows) * (len(head) - _labels(head)) for head, *rows in SPECS[table].paper if "effect" not in head
    )
    assert sum(bool(n.paper) for n in numbers) == printed
    for number in numbers:
        if number.paper:
            assert agrees(number), number


def _labels(head: list[str]) -> int:
    return sum(name in LABELS for name in head)


def agrees(number: Number) -> bool:
    """Counts and ranges are equal; other values differ by at most half of the paper's last decimal."""
    if number.text or number.value is None:
        return (number.text or "–") == number.paper
    if "/" in number.paper:
        return f"{number.k}/{number.n}" == number.paper
    value = 100 * number.value if number.k is not None else number.value
    decimals = len(number.paper.partition(".")[2])
    return abs(value - float(number.paper)) <= 0.5 * 10**-decimals + 1e-9


def test_the_declared_values_are_those_of_the_answer_key() -> None:
    """`paper.yaml` was transcribed from the answer key; each number of the key's tables stands in it."""
    key = yaml.safe_load(Path(__file__).with_name("paper_tables.yaml").read_text(encoding="utf-8"))
    where = {
        "table3_h16_crossover": ["table-3"],
        "table5_15_paired_choice": ["table-15"],
        "table6_mixed_view_pilot": ["table-6"],
        "table8_untuned_27b": ["table-8"],
        "table14_prefix_matched_horizon": ["table-14"],
        "table17_cue_controls": ["table-17"],
        "table19_learning_curve_crossover": ["table-19"],
        "table22_learning_curves": ["table-22"],
        "table26_pilot_contrasts": ["table-26"],
        "table29_scienceworld_natural_horizon": ["table-29"],
    }
    for name, tables in where.items():
        declared = sorted(_numbers([block[1:] for table in tables for block in SPECS[table].paper]))
        missing = [number for number in _numbers(key[name]) if number not in declared]
        assert not missing, name


def _numbers(value: Any) -> list[float]:
    """All numbers in nested data; "k/n" counts as both."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, str):
        return [float(part) for part in value.split("/") if part.isdigit()]
    if isinstance(value, dict):  # wins and losses are counts behind an effect, which stands there itself
        value = [item for name, item in value.items() if name not in ("wins", "losses")]
    return [number for item in value for number in _numbers(item)]


# Contrasts: the joint outcomes that the paper's margins and p values leave (docs/statistics.md).


def rewrite(outcomes: list[Outcome], **wins: list[int]) -> list[Outcome]:
    """Free runs with the given winners by trained+tested view, for example full_compact=[0, 1]."""
    changed = []
    for row in outcomes:
        trained = next((t for t in ("compact", "full") if f"-{t}-" in row.cell.adapter), "untuned")
        won = wins.get(f"{trained}_{row.cell.view}")
        if row.kind == "free_run" and won is not None:
            row = row._replace(success=int(row.task.rpartition("/")[2]) - 62000 in won)
        changed.append(row)
    return changed


def test_table_18_from_its_joint_outcomes() -> None:
    outcomes, arms = for_table(SPECS["table-16"])
    both, full, compact = list(range(12)), list(range(12, 17)), list(range(17, 20))
    outcomes = rewrite(outcomes, full_full=both + full, full_compact=both + compact)
    rows = tables_of(built(outcomes, arms, "table-18"), lambda cell, kind: "")[0].rows
    effects = ["−85.0 (−100.0 to −70.0)", "+25.0 (+10.0 to +45.0)", "−10.0 (−35.0 to +15.0)"]
    effects += ["+100.0 (+100.0 to +100.0)", "+110.0 (+85.0 to +135.0)"]
    ps = ["1.53×10⁻⁵", "0.0625", "0.727", "1.91×10⁻⁶", "1.53×10⁻⁵"]
    assert [row[4:6] for row in rows] == list(zip(effects, ps, strict=True))
    assert [row[6] for row in rows] == [f"{e}, p {p}" for e, p in zip(effects, ps, strict=True)]


def test_table_3_deltas_mean_sd_and_crossed_analysis() -> None:
    table, seeds = tables_of(built(*for_table(SPECS["table-3"]), "table-3"), lambda cell, kind: "")
    assert [row[11].split(" (")[0] for row in table.rows] == ["+142.0", "+98.0", "+78.0"]
    [row] = seeds.rows
    assert row[2:6] == ("3", "+142.0, +98.0, +78.0", "+106.0", "32.7")


def test_table_24_and_table_17_cue_p_values() -> None:
    outcomes, arms = for_table(SPECS["table-24"])
    # 1 to 7 of 20 with 7:1 discordant gives .070; 1 to 3 with 3:1 gives .625: full wins one alone.
    changed = [
        row._replace(success=row.task.endswith("/65019") or row.task.endswith("/62019"))
        if row.kind == "free_run" and row.cell.view == "full" else row
        for row in outcomes
    ]  # fmt: skip
    numbers = [n for n in built(changed, arms, "table-24").numbers if n.metric == "effect"]
    assert [(n.labels["horizon"], f"{n.p:.3f}", n.paper_p) for n in numbers] == [
        (8, "0.070", 0.07),
        (16, "0.625", 0.625),
    ]
    outcomes, arms = for_table(SPECS["table-17"])
    [cue] = [n for n in built(outcomes, arms, "table-17-cue").numbers if n.labels["training"] == "H4 SFT"]
    assert f"{cue.p:.5f}" == "0.00049"  # 12 tasks only under compact + cue, none only under full + cue


def test_holm_over_three_planned_comparisons() -> None:
    outcomes, arms = for_table(SPECS["table-21"])
    numbers = built(outcomes, arms, "table-21-contrasts").numbers
    # The made-up errors lie in the last stages of every seed, so each of the 20 seeds improves: p = 2^-20.
    assert {n.labels["contrast"]: n.p for n in numbers} == {
        "names only − full tables": 2**-20,
        "output-only ids − recipe ids": pytest.approx(2**-20),
    }
    assert [n.p_adjusted for n in numbers] == [pytest.approx(3 * 2**-20)] * 2
    assert [round(100 * n.value, 2) for n in numbers if n.value is not None] == [29.69, 19.06]


def test_blocks_of_four_stages() -> None:
    outcomes, arms = for_table(SPECS["table-14"])
    wrong = {1: 1, 5: 20, 9: 20, 10: 11, 13: 20, 14: 18}  # stage -> wrong tasks: 79, 60, 49, 42 right of 80
    changed = [
        row._replace(agree=int(row.task[-2:]) >= wrong.get(row.stage, 0))
        if row.kind == "oracle_prefix" and row.cell.horizon == 16 and row.cell.view == "full" else row
        for row in outcomes
    ]  # fmt: skip
    numbers = [n for n in built(changed, arms, "table-14-blocks").numbers if n.labels["view"] == "full"]
    assert [f"{n.k}/{n.n}" for n in numbers] == ["79/80", "60/80", "49/80", "42/80"]
    assert [n.paper for n in numbers] == ["79/80", "60/80", "49/80", "42/80"]


# Edges


def test_one_training_seed_has_dashes_for_spread() -> None:
    outcomes, arms = for_table(SPECS["table-3"])
    one = [row for row in outcomes if row.cell.adapter.endswith("s20260910")]
    _, seeds = tables_of(built(one, arms, "table-3"), lambda cell, kind: "")
    assert seeds.rows[0][2:] == ("1", "+142.0", "+142.0", "–", "–", "–")


def test_recovery_without_rejections_is_a_dash() -> None:
    outcomes, arms = for_table(SPECS["table-20"])
    table = tables_of(built(outcomes, arms, "table-20"), lambda cell, kind: "")[0]
    assert table.rows[-1][-2:] == ("–", "–")


# Refusals


def test_missing_cells_are_named_or_left_out() -> None:
    outcomes, arms = for_table(SPECS["table-3"])
    part = [
        r
        for r in outcomes
        if not (r.cell.adapter.endswith("-full-h16-s20260926") and r.cell.view == "compact")
    ]
    with pytest.raises(
        CellError, match=r"table-3: missing cells \(1\): success of 1.7B, horizon 16, seed 20260926, "
    ):
        built(part, arms, "table-3")
    loose = built(part, arms, "table-3", strict=False)
    assert {n.labels["seed"] for n in loose.numbers} == {20260910, 20260927}
    assert "trained full, view compact" in tables_of(loose, lambda cell, kind: "")[0].note
    with pytest.raises(CellError, match=r"table-9: missing cells \(all\): no records"):
        built(outcomes, arms, "table-9")


@pytest.mark.parametrize(
    ("name", "value"), [("backend", "VLLM"), ("dtype", "float32"), ("data_revision", "2")]
)
def test_mixed_versions_in_one_row_are_named(name: str, value: str) -> None:
    outcomes, arms = for_table(SPECS["table-3"])
    mixed = [
        row._replace(cell=replace(row.cell, **{name: value})) if row.cell.view == "compact" else row
        for row in outcomes
    ]
    with pytest.raises(CellError, match=rf"table-3, .*not comparable: .* differ in {name}: "):
        built(mixed, arms, "table-3")


def test_two_cells_for_one_number_are_named() -> None:
    outcomes, arms = for_table(SPECS["table-8"])
    other = [row._replace(cell=replace(row.cell, backend="VLLM")) for row in outcomes]
    with pytest.raises(CellError, match="differ in backend: 'HFLM' and 'VLLM'"):
        built(outcomes + other, arms, "table-8")


def test_unequal_task_sets_are_named() -> None:
    outcomes, arms = for_table(SPECS["table-3"])
    part = [r for r in outcomes if not (r.cell.view == "compact" and r.task.endswith("/62007"))]
    with pytest.raises(
        CellError, match=r"unequal task sets: only in H16 full, .*: 62007; only in H16 compact, .*: –"
    ):
        built(part, arms, "table-3")


def test_duplicates_missing_decisions_and_redefined_tasks_are_named() -> None:
    outcomes, arms = for_table(SPECS["table-16"])
    with pytest.raises(CellError, match=r"oracle_prefix of chain-h16/62000 stage 1 twice in H16 full"):
        label([*outcomes, outcomes[0]._replace(id="again")], arms)
    with pytest.raises(
        CellError, match=r"decisions missing: tasks with fewer than 16: chain-h16/62000 has 15"
    ):
        label(outcomes[1:], arms)
    with pytest.raises(CellError, match=r"chain-h16/62000 of stsr/table-workflows has fingerprints "):
        label([row._replace(fingerprint="new") if i < 16 else row for i, row in enumerate(outcomes)], arms)


def test_arms_must_be_clear() -> None:
    outcomes, arms = for_table(SPECS["table-16"])
    with pytest.raises(CellError, match="2 arms claim it"):
        label(outcomes, [*arms, replace(arms[0], seed=5)])
    with pytest.raises(CellError, match=r"no record is of a named arm; found: Qwen/Qwen3-1.7B H16"):
        label(outcomes, [Arm("someone/else")])


# Markup


def test_markup_escapes_and_links() -> None:
    outcomes, arms = for_table(SPECS["table-20"])
    table = tables_of(
        built(outcomes, arms, "table-20"), lambda cell, kind: f"episodes.html#cell={cell}&kind={kind}"
    )[0]
    page = html(replace(table, rows=(("<b>", *table.rows[0][1:]), *table.rows[1:])))
    assert "&lt;b&gt;" in page
    assert page.count('href="episodes.html#cell=') == 15  # 4 x 4 numbers, one of them undefined
    assert " 17/20 (64.0–94.8) |" in markdown(table)
    tex = latex(table)
    assert r"\begin{tabular}{lllllrrrrrrrr}" in tex
    assert "progress \\%" in tex
    assert "–" not in tex


def test_a_row_of_another_width_is_refused() -> None:
    outcomes, arms = for_table(SPECS["table-20"])
    table = tables_of(built(outcomes, arms, "table-20"), lambda cell, kind: "")[0]
    with pytest.raises(ValueError, match="a row of 1 under 13 heads"):
        replace(table, rows=(("a",),))
