"""Made-up outcomes with the paper's counts: for tests of the tables, and for the benchmark of the report.

    outcomes, arms = for_table(SPECS["table-13"])

A table's outcomes have the counts that the paper prints for it, and no other meaning: which tasks succeed is
arbitrary (the first ones), so contrasts between cells are not the paper's. Invariant: no randomness.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from stsr.eval_tasks import records, scienceworld_records
from stsr.eval_tasks.records import Cell, DecisionRecord, EpisodeRecord, Record, Turn
from stsr.eval_tasks.scienceworld_records import ActionTurn, FreeRunRecord, LocalRecord
from stsr.generators.controls import TOOL_PAIRS
from stsr.stats.frame import NAMES, Arm
from stsr.stats.metrics import METRICS
from stsr.stats.outcomes import Outcome
from stsr.stats.specs import LABELS, SPECS, TableSpec

MODELS = {name: model for model, name in NAMES.items()}
SCIENCE_STATES = {"short": 208, "medium": 315, "long": 519, "test": 1042, "development": 440}
"""Reference states a training seed (appendix F)."""
DISTRACTORS = {"one-distractor": "one", "one": "one", "three": "three"}
"""Condition of a cell -> how many, as variants of tasks spell it."""
COVERED = ("table-9", "section-4.7")
"""Tables over the outcomes of table 29."""
DEFAULT_SEED, CHOICE_SEED = 20260910, 20261001


class Place(NamedTuple):
    """One cell of a table, with the paper's values of its metrics."""

    arm: Arm
    cell: Cell
    condition: str
    values: dict[str, Any]
    """Metric -> k/n, percentage or mean, as printed."""
    third: int | None
    """Which of three training seeds, where the values are over all three."""


def for_table(spec: TableSpec, scale: int = 1) -> tuple[list[Outcome], list[Arm]]:
    """Outcomes with the paper's counts for one table, each cell `scale` times as large, and the arms."""
    found: dict[str, Outcome] = {}
    arms: dict[Arm, None] = {}
    for place in places(spec):
        arms[place.arm] = None
        for row in _outcomes(spec, place, scale):
            found[f"{row.kind} {row.cell} {row.id}"] = row
    return list(found.values()), list(arms)


def protocol(scale: int = 1) -> tuple[list[Outcome], list[Arm]]:
    """Outcomes of every table, each cell once, and the arms.

    Where two tables share a cell, the first one's counts stand.
    """
    found: dict[str, Outcome] = {}
    arms: dict[tuple[str, str, str], Arm] = {}
    claimed: dict[str, str] = {}
    for spec in SPECS.values():
        if spec.id in COVERED or "block" in spec.columns:
            continue
        for place in places(spec):
            key = (place.arm.model, place.arm.adapter, place.arm.adapter_revision)
            known = arms.setdefault(key, place.arm)
            step, final = known.step or place.arm.step, known.final or place.arm.final
            arms[key] = replace(known, step=step, final=final, training="")
            for row in _outcomes(spec, place, scale):
                where = f"{row.kind} {row.cell} {place.condition}"
                if claimed.setdefault(where, spec.id) == spec.id:
                    found[f"{row.kind} {row.cell} {row.id}"] = row
    return list(found.values()), list(arms.values())


def places(spec: TableSpec) -> Iterator[Place]:
    """The cells of a table, one for each line of the paper's values, merged over blocks."""
    merged: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for head, *rows in spec.paper:
        if "contrast" in head:
            continue
        for row in rows:
            entry = dict(zip(head, row, strict=True))
            labels = {name: entry[name] for name in head if name in LABELS}
            values = {name: entry[name] for name in head if name in METRICS}
            known = merged.setdefault(str(sorted(labels.items())), (labels, {}))
            known[1].update(values)
    for labels, values in merged.values():
        for number in range(3 if "seed" in spec.pool or spec.ranges else 1):
            yield _place(spec, labels, values, number)


def _place(spec: TableSpec, labels: dict[str, Any], values: dict[str, Any], number: int) -> Place:
    where = {name: allowed[0] for name, allowed in spec.where.items()}
    regime = labels.get("training", next(iter(spec.named), ""))
    at = {**where, **spec.named.get(regime, {}), **labels}
    condition = str(at.get("condition", ""))
    family = "distractors" if condition in DISTRACTORS else str(at.get("family", "chain"))
    horizon = 0 if family == "scienceworld" else at.get("horizon", _horizon(family))
    trained = at.get("trained", "untuned")
    if family == "scienceworld" and trained == "untuned" and "training" in labels:
        trained = labels["training"]
    first = CHOICE_SEED if family == "choice" else DEFAULT_SEED
    seed = at.get("seed", 0) or (0 if trained == "untuned" else first)
    trained_horizon = at.get("trained_horizon", horizon)
    arm = Arm(
        model=MODELS[at["base"]],
        adapter="" if trained == "untuned" else f"stsr/{at['base']}-{trained}-h{trained_horizon}",
        trained=trained,
        training=labels.get("training", "") if not spec.named else "",
        trained_horizon=None if trained == "untuned" else trained_horizon,
        trained_family=family if family in ("choice", "scienceworld") else "chain",
        seed=seed + number if seed else None,
        step=at.get("step"),
        final="step" not in at,
    )  # fmt: skip
    if arm.adapter:
        arm = replace(arm, adapter=f"{arm.adapter}-s{arm.seed}", adapter_revision=f"step-{arm.step or 100}")
    if spec.ranges:
        ends = {name: str(value).split("–") for name, value in values.items()}
        values = {name: found[0] if number == 0 else found[-1] for name, found in ends.items()}
    by_view = family in ("interface", "padding")
    view = condition if by_view and condition else at.get("view", "full")
    cell = _cell(arm, family, str(at.get("split", "test")), horizon, view)
    if family in ("state-load", "distractors"):
        cell = replace(cell, condition=condition)
    return Place(arm, cell, condition, values, number if "seed" in spec.pool else None)


def _cell(arm: Arm, family: str, split: str, horizon: int, view: str) -> Cell:
    return Cell(
        model=arm.model,
        model_revision="0" * 40,
        adapter=arm.adapter,
        adapter_revision=arm.adapter_revision if arm.adapter else "",
        data="stsr/table-workflows",
        data_revision="1" * 40,
        split=split,
        family=family,
        horizon=horizon,
        view=view,
        chat_template="a55ee1b1660128b7",
        dtype="bfloat16",
        backend="HFLM",
    )


def _horizon(family: str) -> int:
    return {"state-load": 8, "padding": 4, "distractors": 8, "factorial": 2, "supplied": 4}.get(family, 16)


def _outcomes(spec: TableSpec, place: Place, scale: int) -> Iterator[Outcome]:
    values = place.values
    kinds = {kind for name in values for kind in METRICS[name].kinds if kind in spec.kinds}
    if "choice" in kinds:
        yield from _choices(place, scale)
    if "oracle_prefix" in kinds:
        yield from _decisions(place, scale)
    for kind in sorted(kinds & {"free_run", "matched_error"}):
        yield from _episodes(place, kind, scale)


def _choices(place: Place, scale: int) -> Iterator[Outcome]:
    """50 pairs: both variants right in the first ones, one in the next ones, as the two counts demand."""
    right, both = (_count(place.values[name])[0] for name in ("pivotal", "both"))
    for pair in range(50 * scale):
        correct = [pair % 50 < both, pair % 50 < right - both]
        for variant, agree in zip(("negative", "positive"), correct, strict=True):
            task = f"choice-h16/{72000 + pair}~{variant}"
            yield _row(place, "choice", task, 1, agree=agree, legal=True, tokens=900)


def _decisions(place: Place, scale: int) -> Iterator[Outcome]:
    values = place.values
    tasks = list(_tasks(place, scale))
    late_wrong = early_wrong = 0
    total = len(tasks)
    late = sum(stage > 4 for _, stage in tasks)
    if "post4" in values:
        late_wrong = late - round(late * float(values["post4"]) / 100)
    if "oracle" in values:
        early_wrong = total - _third(place, values["oracle"], total) - late_wrong
    by_task: dict[str, list[int]] = {}
    for task, stage in tasks:
        by_task.setdefault(task, []).append(stage)
    names = list(by_task)
    dirty = len(names) if "clean" not in values else len(names) - _right(values["clean"], len(names))
    if "clean" in values and not late_wrong and not early_wrong:
        early_wrong = dirty
    spread = [(stage, task) for task in names[::-1][:dirty] for stage in by_task[task]]
    order = sorted(spread, key=lambda item: -item[0])  # the last stages first, each over all dirty tasks
    wrong: set[tuple[str, int]] = set()
    if "post4" in values:
        wrong = {(task, stage) for stage, task in order[:late_wrong]}
        order = [(stage, task) for stage, task in order if stage <= 4]
    wrong |= {(task, stage) for stage, task in order[:early_wrong]}
    if "clean" in values:
        whole = [task for task in names[::-1][:dirty] if not any((task, s) in wrong for s in by_task[task])]
        wrong |= {(task, 1) for task in whole}
    other = int(values.get("noncanonical") or 0)
    mean = Fraction(str(values.get("tokens") or 700))
    for number, (task, stage) in enumerate(tasks):
        agree = (task, stage) not in wrong
        tokens = int(mean) + (number % 2 if mean.denominator == 2 else 0)
        if "noncanonical" in values:
            agree = number >= other
        yield _row(
            place, "oracle_prefix", task, stage, agree=agree, legal=agree or number < other, tokens=tokens
        )


def _tasks(place: Place, scale: int) -> Iterator[tuple[str, int]]:
    """(task, stage) of every decision that the protocol asks for in this cell."""
    cell, family, condition = place.cell, place.cell.family, place.condition
    ranks = ("first", "second")
    if family == "scienceworld":
        key = condition if condition in SCIENCE_STATES else cell.split
        for stage in range(1, SCIENCE_STATES[key] * scale + 1):
            yield f"scienceworld-h0/0~{condition or 'all'}", stage
    elif family == "distractors":
        number = DISTRACTORS[condition]
        first, seeds = (10000, 20) if "tokens" in place.values else (30000, 10)
        for seed in range(first, first + seeds * scale):
            for a, b in TOOL_PAIRS:
                for rank in ranks:
                    yield f"distractors-h8/{seed}~{a[:3]}-{b[:3]}-{rank}-{number}", 1
    elif family == "factorial":
        for seed in range(40000, 40000 + 10 * scale):
            for a, b in TOOL_PAIRS:
                for rank in ranks:
                    for labels in ("plain", "swapped"):
                        yield f"factorial-h2/{seed}~{a[:3]}-{b[:3]}-{rank}-{labels}", 1
    else:
        variant = f"~{condition}" if family == "state-load" else ""
        first = 10000 if family == "interface" else 62000
        for task in range(_size(place) * scale):
            for stage in range(1, cell.horizon + 1):
                yield f"{family}-h{cell.horizon}/{first + task}{variant}", stage


def _size(place: Place) -> int:
    """Tasks of a cell: from a count over tasks, or as the protocol has it."""
    for name in ("clean", "success"):
        if isinstance(place.values.get(name), str):
            return _count(place.values[name])[1]
    if isinstance(value := place.values.get("oracle"), str):
        return _count(value)[1] // (
            4 if place.cell.family == "prefix" and "block" in value else place.cell.horizon
        )
    if place.arm.step is not None and place.arm.model != MODELS["27B"]:
        return 10
    return {"development_pilot": 10, "test_crossover": 50}.get(place.cell.split, 20)


def _episodes(place: Place, kind: str, scale: int) -> Iterator[Outcome]:
    values, horizon = place.values, place.cell.horizon
    sizes = [_count(v) for n, v in values.items() if n in ("success", "rejection") and isinstance(v, str)]
    n = sizes[0][1] if sizes and "–" not in str(values.get("success")) else 20
    pooled = place.cell.family == "scienceworld"
    n = n // 3 if pooled else n
    seed = place.third or 0
    won = _share(values.get("success", f"0/{n}"), seed, pooled)
    recovered, rejected = _count(values["recovery"]) if values.get("recovery") else (0, 0)
    rejected = _share(values.get("rejection", f"{rejected}/{n}"), seed, pooled)
    recovered = _share(values["recovery"], seed, pooled) if values.get("recovery") else min(won, rejected)
    increased = _share(values["increase"], seed, pooled) if values.get("increase") else 0
    calls = _split(round(float(values.get("calls") or (2 * horizon or 50)) * n), n)
    verified = _split(round(float(values.get("progress") or 0) * n * horizon / 100), n)
    if values.get("no_rejection"):
        share = 1 - float(values["no_rejection"]) / 100
        bad = _split(_split(round(3 * sum(calls) * share), 3)[seed], n)
    else:
        bad = [int(i >= n - rejected) for i in range(n)]
    variant = f"~{place.condition}" if place.condition and place.cell.family != "padding" else ""
    variants = ["~negative", "~positive"] if place.cell.family == "choice" else [variant]
    if "recovery" in values and "success" not in values:
        won = recovered  # the table prints recoveries alone
    winners = {*range(n - rejected, n - rejected + recovered), *range(won - recovered)}
    for number in range(n * scale):
        i = number % n
        first = 72000 if place.cell.family == "choice" else 62000
        seed_of, which = divmod(number, len(variants))
        task = f"{place.cell.family}-h{horizon}/{first + seed_of}{variants[which]}"
        yield _row(
            place, kind, task, 0, success=i in winners,
            verified=horizon if i in winners and not verified[i] else verified[i],
            calls=calls[i], rejections=bad[i], score=_score(values, n)[i],
            increased=bool(bad[i]) and n - rejected <= i < n - rejected + increased,
        )  # fmt: skip


def _score(values: dict[str, Any], n: int) -> list[float | None]:
    return [float(values["score"])] * n if values.get("score") else [None] * n


def _row(place: Place, kind: str, task: str, stage: int, **values: Any) -> Outcome:
    name = f"{task}#{stage}@{place.cell.view}" if stage else f"{task}@{place.cell.view}"
    return Outcome(
        kind=kind, cell=place.cell, id=name, task=task, fingerprint=f"fp-{task}", stage=stage,
        bin=place.condition if place.cell.family == "scienceworld" else "", **values,
    )  # fmt: skip


def _count(text: Any) -> tuple[int, int]:
    """k, n of "k/n"; the high end of a range, of a hundred."""
    k, slash, n = str(text).partition("/")
    return (int(k), int(n)) if slash else (int(str(text).rpartition("–")[2]), 100)


def _right(value: Any, total: int) -> int:
    """Right outcomes of `total` for a count or a percentage."""
    if isinstance(value, str):
        k, n = _count(value)
        return round(k * total / n)
    return round(float(value) * total / 100)


def _third(place: Place, value: Any, total: int) -> int:
    """Right outcomes of one cell; of one third of them where the value is over three seeds."""
    return _right(value, total) if place.third is None else _split(_right(value, 3 * total), 3)[place.third]


def _share(value: Any, seed: int, pooled: bool) -> int:
    k = _count(value)[0]
    return _split(k, 3)[seed] if pooled else k


def _split(total: int, parts: int) -> list[int]:
    """`total` as `parts` whole numbers that differ by at most 1."""
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def as_line(row: Outcome, prompt: str) -> str:
    """A line of a record file that reads back as `row`, with a prompt of the usual length in each turn."""
    if row.cell.family == "scienceworld":
        return scienceworld_records.to_json(_simulated(row, prompt))
    return records.to_json(_record(row, prompt))


def _record(row: Outcome, prompt: str) -> Record:
    call = {
        "tool": "sort_rows",
        "inputs": ["a7"],
        "output": "a8",
        "params": {"column": "x", "order": "ascending"},
    }
    text = str(call).replace("'", '"')

    def turn(verdict: str, remaining: int) -> Turn:
        return Turn(
            prompt,
            text,
            dict(call),
            verdict,
            "" if verdict == "accepted" else verdict,
            remaining,
            row.tokens,
            31,
        )

    if row.stage:
        verdict = "accepted" if row.legal else "missing-input"
        return DecisionRecord(
            row.id, row.task, row.fingerprint, row.stage, bool(row.agree), turn(verdict, 32), row.cell,
            "choice" if row.kind == "choice" else "oracle_prefix",
        )  # fmt: skip
    calls, rejections = row.calls or 0, row.rejections or 0
    turns = [turn("missing-input" if i < rejections else "accepted", 32 - i) for i in range(calls)]
    horizon = row.cell.horizon
    verified = horizon if row.success else min(row.verified or 0, horizon - 1)
    return EpisodeRecord(
        row.id, row.task, row.fingerprint, bool(row.success), verified, calls, rejections, turns, row.cell,
        "matched_error" if row.kind == "matched_error" else "free_run",
    )  # fmt: skip


def _simulated(row: Outcome, prompt: str) -> scienceworld_records.Record:
    def turn(verdict: str) -> ActionTurn:
        action = "open door to kitchen"
        return ActionTurn(prompt, action, None, verdict, "", 100, row.tokens, 5, action=action)

    about = (row.id, row.task, row.fingerprint, "freeze", row.bin)
    if row.stage:
        horizon = SCIENCE_STATES["test"] * 10
        return LocalRecord(
            *about, horizon, row.stage, bool(row.agree), "first line", turn("unsent"), row.cell
        )
    calls, rejections, success = row.calls or 0, row.rejections or 0, bool(row.success)
    score = 100 if success else min(99, int(row.score or 0))
    turns = [turn("rejected" if i < rejections else "accepted") for i in range(calls)]
    return FreeRunRecord(
        *about, 30, success, "success" if success else "budget", calls, score, max(score, 0), rejections,
        success if rejections else None, row.increased if rejections else None,
        "first line", "1.3.0", "0" * 64, turns, row.cell,
    )  # fmt: skip
