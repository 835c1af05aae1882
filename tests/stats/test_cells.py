"""Cells from records: the paper's metrics on records built to its printed counts, and each refusal."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stsr.eval_tasks.records import DecisionRecord, EpisodeRecord, Record, RecordError
from stsr.stats.cells import FreeRunCell, OracleCell, check_comparable, group, load
from stsr.stats.outcomes import CellError


def oracle(records: list[Record]) -> OracleCell:
    [cell] = group(records)
    assert isinstance(cell, OracleCell)
    return cell


def free_run(records: list[Record]) -> FreeRunCell:
    [cell] = group(records)
    assert isinstance(cell, FreeRunCell)
    return cell


@pytest.mark.parametrize(
    ("name", "right", "percent", "post4", "clean"),
    [
        ("FF", 317, "99.1", "98.750", 17),
        ("FC", 310, "96.9", "95.833", 12),
        ("CF", 103, "32.2", "18.750", 0),
        ("CC", 320, "100.0", "100.000", 20),
    ],
)
def test_oracle_metrics_of_tables_16_and_20(
    paper_oracle: dict[str, list[Record]], name: str, right: int, percent: str, post4: str, clean: int
) -> None:
    metrics = oracle(paper_oracle[name]).metrics()
    assert (metrics.accuracy.k, metrics.accuracy.n, metrics.accuracy.unit) == (right, 320, "decision")
    assert metrics.accuracy.estimate is not None
    assert f"{100 * metrics.accuracy.estimate:.1f}" == percent
    assert metrics.post4 is not None
    assert metrics.post4.estimate is not None
    assert f"{100 * metrics.post4.estimate:.3f}" == post4
    assert (metrics.clean_path.k, metrics.clean_path.n, metrics.clean_path.unit) == (clean, 20, "task")


@pytest.mark.parametrize(
    ("name", "success", "calls", "progress", "recovered"),
    [
        ("FF", 17, "18.40", "93.750", (0, 3)),
        ("FC", 15, "20.40", "94.063", (3, 8)),
        ("CF", 0, "32.00", "17.188", (0, 20)),
        ("CC", 20, "16.00", "100.000", None),
    ],
)
def test_free_run_metrics_of_tables_16_and_20(
    paper_free_run: dict[str, list[Record]],
    name: str,
    success: int,
    calls: str,
    progress: str,
    recovered: tuple[int, int] | None,
) -> None:
    metrics = free_run(paper_free_run[name]).metrics()
    assert (metrics.success.k, metrics.success.n) == (success, 20)
    assert f"{metrics.calls:.2f}" == calls
    assert f"{100 * metrics.progress + 1e-9:.3f}" == progress
    assert metrics.rejection.k == (recovered[1] if recovered else 0)
    assert (metrics.recovery and (metrics.recovery.k, metrics.recovery.n)) == recovered


def test_reasons_are_counted(paper_free_run: dict[str, list[Record]]) -> None:
    # FC: four episodes lost with 12 verified (20 rejections each), one with 13 (19), and 2 + 3 + 3 recovered.
    assert free_run(paper_free_run["FC"]).reasons == {"missing-input": 99, "output-exists": 8}


def test_stages_are_counted_over_tasks(paper_oracle: dict[str, list[Record]]) -> None:
    stages = oracle(paper_oracle["CF"]).stages()
    # Built: stages 1-2 all right; 3 wrong in 2 tasks; 4 wrong in all; 5-7 right in 15; then none.
    assert [(stage.k, stage.n) for stage in stages] == [
        *[(20, 20), (20, 20), (18, 20), (0, 20), (15, 20), (15, 20), (15, 20)],
        *[(0, 20)] * 9,
    ]


def test_post4_is_undefined_at_h4(records: Any) -> None:
    cell = records.cell("full", horizon=4)
    metrics = oracle(records.decisions(cell, [[True, True, False, True]])).metrics()
    assert metrics.post4 is None
    assert (metrics.accuracy.k, metrics.accuracy.n, metrics.clean_path.k) == (3, 4, 0)


def test_order_of_records_does_not_matter(paper_oracle: dict[str, list[Record]]) -> None:
    forwards, backwards = oracle(paper_oracle["FC"]), oracle(paper_oracle["FC"][::-1])
    assert forwards.tasks == backwards.tasks == tuple(sorted(forwards.tasks))
    assert (forwards.agree == backwards.agree).all()


def test_cells_are_kept_apart_and_sorted(
    records: Any,
    paper_free_run: dict[str, list[Record]],
    paper_oracle: dict[str, list[Record]],
    tmp_path: Path,
) -> None:
    everything = [r for part in (*paper_free_run.values(), *paper_oracle.values()) for r in part]
    cells = load([records.write(tmp_path / "all.jsonl", everything)])
    assert [cell.kind for cell in cells] == ["oracle_prefix"] * 4 + ["free_run"] * 4
    assert [len(cell.tasks) for cell in cells] == [20] * 8


# Refusals


def test_missing_decisions_are_named(paper_oracle: dict[str, list[Record]]) -> None:
    kept = [
        r for r in paper_oracle["FF"] if not r.id.startswith(("chain-h16/62003#7@", "chain-h16/62011#16@"))
    ]
    with pytest.raises(CellError, match=r"missing decisions \(2\): chain-h16/62003#7, chain-h16/62011#16$"):
        group(kept)


def test_many_missing_decisions_are_counted(paper_oracle: dict[str, list[Record]]) -> None:
    with pytest.raises(CellError, match=r"missing decisions \(10\): .* and 5 more"):
        group([r for r in paper_oracle["FF"] if "62004#" not in r.id or r.id < "chain-h16/62004#16"])


def test_duplicates_are_named(
    records: Any,
    paper_oracle: dict[str, list[Record]],
    paper_free_run: dict[str, list[Record]],
    tmp_path: Path,
) -> None:
    decision, episode = paper_oracle["FF"][6], paper_free_run["FF"][2]
    with pytest.raises(CellError, match="other-id: stage 7 of chain-h16/62000 twice in H16 full, adapter"):
        group([*paper_oracle["FF"], replace(decision, id="other-id")])
    with pytest.raises(CellError, match="other-id: chain-h16/62002 twice in H16 full, adapter"):
        group([*paper_free_run["FF"], replace(episode, id="other-id")])
    with pytest.raises(RecordError, match=r"twice\.jsonl:2: chain-h16/62002@full stands twice"):
        load([records.write(tmp_path / "twice.jsonl", [episode, episode])])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage": 17}, "stage 17 is not in 1..16"),
        ({"stage": math.nan}, "stage nan is not in 1..16"),
        ({"agree": None}, "agree is None, not true or false"),
        ({"fingerprint": "other"}, "fingerprint other, but fp0 elsewhere"),
    ],
)
def test_bad_decisions_are_named(
    paper_oracle: dict[str, list[Record]], change: dict[str, Any], message: str
) -> None:
    first, second, *rest = paper_oracle["FF"]
    assert isinstance(second, DecisionRecord)
    with pytest.raises(CellError, match=rf"chain-h16/62000#2@full: {message}"):
        group([first, replace(second, **change), *rest])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verified": math.nan}, "verified is nan, not a whole number in 0..16"),
        ({"verified": 17}, "verified is 17, not a whole number in 0..16"),
        ({"verified": 15}, "success with 15 of 16 operations verified"),
        ({"success": 1}, "success is 1, not true or false"),
        ({"calls": math.nan}, "calls is nan, but its turns hold 16"),
        ({"calls": 15}, "calls is 15, but its turns hold 16"),
        ({"rejections": 1}, "rejections is 1, but its turns hold 0"),
    ],
)
def test_bad_episodes_are_named(
    paper_free_run: dict[str, list[Record]], change: dict[str, Any], message: str
) -> None:
    first, *rest = paper_free_run["FF"]
    assert isinstance(first, EpisodeRecord)
    with pytest.raises(CellError, match=f"chain-h16/62000@full: {message}"):
        group([replace(first, **change), *rest])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("backend", "VLLM"),
        ("dtype", "float32"),
        ("data_revision", "another"),
        ("chat_template", "another"),
        ("model_revision", "another"),
        ("split", "dev"),
    ],
)
def test_mixed_cells_are_refused(paper_oracle: dict[str, list[Record]], field: str, value: str) -> None:
    other = [replace(r, cell=replace(r.cell, **{field: value})) for r in paper_oracle["FC"]]
    cells = group([*paper_oracle["FF"], *other])
    with pytest.raises(CellError, match=rf"not comparable: .* differ in {field}: "):
        check_comparable(cells)


def test_unequal_task_sets_are_named(paper_free_run: dict[str, list[Record]]) -> None:
    cells = group([*paper_free_run["FF"][:19], *paper_free_run["FC"][1:]])
    with pytest.raises(CellError) as error:
        check_comparable(cells)
    adapter = "adapter stsr/qwen3-1.7b-h16-full-s20260910"
    assert str(error.value) == (
        f"free_run: unequal task sets: only in H16 compact, {adapter}: chain-h16/62019; "
        f"only in H16 full, {adapter}: chain-h16/62000"
    )


def test_one_task_with_two_definitions_is_refused(paper_free_run: dict[str, list[Record]]) -> None:
    first, *rest = paper_free_run["FC"]
    cells = group([*paper_free_run["FF"], replace(first, fingerprint="redefined"), *rest])
    with pytest.raises(CellError, match="chain-h16/62000 has fingerprint"):
        check_comparable(cells)
