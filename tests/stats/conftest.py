"""Synthetic records with counts chosen by hand, so that no expected number needs the code under test.

`records` is the maker: give it outcomes, get records. `paper_free_run` and `paper_oracle` are the original
seed's crossover of the paper's Tables 16 and 20: 20 tasks, H16, four cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from stsr.eval_tasks.records import Cell, DecisionRecord, EpisodeRecord, Record, Turn, to_json

BASE = "Qwen/Qwen3-1.7B"
CELL = Cell(
    model=BASE,
    model_revision="70d244cc86ccca08cf5af4e1e306ecf908b1ad5e",
    adapter="",
    adapter_revision="",
    data="stsr/table-workflows",
    data_revision="0f3c1d9a",
    split="test",
    family="chain",
    horizon=16,
    view="full",
    chat_template="a55ee1b1660128b7",
    dtype="bfloat16",
    backend="HFLM",
)


def adapter(seed: int, train: str) -> str:
    """Id of a synthetic adapter."""
    return f"stsr/qwen3-1.7b-h16-{train}-s{seed}"


def cell(view: str, seed: int | None = None, train: str = "", **changes: object) -> Cell:
    """A cell of the H16 crossover; without a seed, the base alone."""
    trained = {"adapter": adapter(seed, train), "adapter_revision": f"rev-{train}-{seed}"} if seed else {}
    return replace(CELL, view=view, **{**trained, **changes})  # type: ignore[arg-type]


def turn(verdict: str = "accepted") -> Turn:
    """A call with a verdict."""
    error = "" if verdict == "accepted" else f"rejected: {verdict}"
    return Turn("prompt", '{"tool": "sort"}', {"tool": "sort"}, verdict, error, 32, 700, 31)


WON = (True, 16, ())


def lost(verified: int) -> tuple[bool, int, tuple[str, ...]]:
    """An H16 episode that ran out of its 32 calls."""
    return (False, verified, ("missing-input",) * (32 - verified))


def recovered(rejections: int) -> tuple[bool, int, tuple[str, ...]]:
    """An H16 success with some rejected calls."""
    return (True, 16, ("output-exists",) * rejections)


class Maker:
    """Records from outcomes."""

    BASE = BASE
    WON = WON
    adapter = staticmethod(adapter)
    cell = staticmethod(cell)
    lost = staticmethod(lost)
    recovered = staticmethod(recovered)

    def task(self, number: int, horizon: int = 16) -> str:
        return f"chain-h{horizon}/{62000 + number}"

    def decisions(self, where: Cell, right: Sequence[Sequence[bool]]) -> list[Record]:
        """right[task][stage - 1]."""
        made: list[Record] = []
        for number, row in enumerate(right):
            task = self.task(number, where.horizon)
            for stage, agree in enumerate(row, 1):
                verdict = "accepted" if agree else "missing-input"
                made.append(
                    DecisionRecord(
                        id=f"{task}#{stage}@{where.view}",
                        task=task,
                        fingerprint=f"fp{number}",
                        stage=stage,
                        agree=agree,
                        turn=turn(verdict),
                        cell=where,
                    )
                )
        return made

    def episodes(self, where: Cell, outcomes: Sequence[tuple[bool, int, Sequence[str]]]) -> list[Record]:
        """outcomes[task] = (success, verified, rejections by reason); accepted calls = verified."""
        made: list[Record] = []
        for number, (success, verified, rejections) in enumerate(outcomes):
            task = self.task(number, where.horizon)
            turns = [turn(reason) for reason in rejections] + [turn()] * verified
            made.append(
                EpisodeRecord(
                    id=f"{task}@{where.view}",
                    task=task,
                    fingerprint=f"fp{number}",
                    success=success,
                    verified=verified,
                    calls=len(turns),
                    rejections=len(rejections),
                    turns=turns,
                    cell=where,
                )
            )
        return made

    def write(self, path: Path, records: Sequence[Record]) -> Path:
        """A record file."""
        path.write_text("".join(to_json(record) + "\n" for record in records), encoding="utf-8")
        return path


@pytest.fixture(scope="session")
def records() -> Maker:
    return Maker()


@pytest.fixture(scope="session")
def paper_free_run(records: Maker) -> dict[str, list[Record]]:
    """Free runs of Tables 16 and 20. Full-trained wins: tasks 0-11 in both views, 12-16 full, 17-19 compact.

    FF: 17 won in 16 calls, 3 lost in 32 (mean 18.40), progress 93.75% = 300/320.
    FC: 12 clean wins, 3 recoveries in 56 calls, 5 lost (mean 20.40), progress 94.063% = 301/320.
    CF: 20 lost, progress 17.188% = 55/320. CC: 20 won in 16.
    """
    seed = 20260910
    ff = [WON] * 17 + [lost(9), lost(9), lost(10)]
    fc = (
        [WON] * 12
        + [lost(12), lost(12), lost(12), lost(12), lost(13)]
        + [recovered(2), recovered(3), recovered(3)]
    )
    cf = [lost(3)] * 15 + [lost(2)] * 5
    return {
        "FF": records.episodes(cell("full", seed, "full"), ff),
        "FC": records.episodes(cell("compact", seed, "full"), fc),
        "CF": records.episodes(cell("full", seed, "compact"), cf),
        "CC": records.episodes(cell("compact", seed, "compact"), [WON] * 20),
    }


def rows(*wrong: tuple[int, int]) -> list[list[bool]]:
    """20 x 16 decisions, all right but for the (task, stage) pairs."""
    return [[(task, stage) not in wrong for stage in range(1, 17)] for task in range(20)]


@pytest.fixture(scope="session")
def paper_oracle(records: Maker) -> dict[str, list[Record]]:
    """Oracle-prefix decisions of Tables 16 and 20.

    FF: 317/320 right (99.1%), all 3 errors after stage 4 (237/240 = 98.75%), in 3 tasks (17 clean).
    FC: 310/320 (96.9%), 10 errors after stage 4 (230/240 = 95.833%), in 8 tasks (12 clean).
    CF: 103/320 (32.2%), 45/240 after stage 4 (18.75%), so 58/80 before; none clean. CC: all right.
    """
    seed = 20260910
    late_cf = {(task, stage) for task in range(20) for stage in range(5, 17)}
    late_right = {(task, stage) for task in range(15) for stage in (5, 6, 7)}
    early_wrong = {(task, 4) for task in range(20)} | {(task, 3) for task in (0, 1)}
    return {
        "FF": records.decisions(cell("full", seed, "full"), rows((17, 7), (18, 11), (19, 16))),
        "FC": records.decisions(
            cell("compact", seed, "full"),
            rows(*[(task, 12) for task in range(12, 20)], (12, 13), (13, 14)),
        ),
        "CF": records.decisions(cell("full", seed, "compact"), rows(*((late_cf - late_right) | early_wrong))),
        "CC": records.decisions(cell("compact", seed, "compact"), rows()),
    }
