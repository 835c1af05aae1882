"""`stsr follow`: one datum from its declaration to a table cell, in eight stops.

Stops 1 to 4 are computed here and now; 5 to 8 are read from the results of an experiment, and say so plainly
where it has not run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from stsr.eval_tasks import records
from stsr.generators import rows
from stsr.generators.places import places
from stsr.generators.tasks import to_json
from stsr.generators.views import view


def follow(row_id: str, results: Path) -> None:
    """Prints the eight stops of `row_id`. Raises ValueError, naming alternatives, for a bad id."""
    parts = rows.parse_row_id(row_id)
    task = rows.generate(parts.family, parts.horizon, parts.seed, parts.variant)
    state = rows.gold_states(task)[parts.stage - 1]
    row = next(row for row in rows.decision_rows(task, [parts.view]) if row["stage"] == parts.stage)

    found = places(parts, task.pivot)
    where = "\n".join(
        f"{place.text}: {place.split.purpose} Seeds {place.split.first_seed} and on." for place in found
    )
    here = ", ".join(dict.fromkeys(place.file for place in found))
    _stop(1, "Declared", here or "in no declared split; the task exists all the same", where)
    _stop(2, "Generated", f"task {task.id}, fingerprint {task.fingerprint}", to_json(task))
    shown = view(parts.view)(state, state.reference)
    hidden = [name for name, table in shown.artifacts if table is None]
    _stop(
        3,
        "Shown",
        f"state after {parts.stage - 1} gold calls; contents visible: {', '.join(shown.visible)}"
        + (f"; hidden: {', '.join(hidden)}" if hidden else ""),
        row["prompt"][0]["content"],
    )
    answer = f"candidate {row['target_index'] + 1} is the target, the rest is {row['distractor']}"
    configs = ", ".join(dict.fromkeys(place.config for place in found if place.config))
    config = f"in config {configs}" if configs else "in no published config"
    _stop(4, "Row", f"{row_id} {config}; {answer}", row["completion"][0]["content"])
    _stop(5, "Trained", *_exposures(row_id, results))
    _stop(6, "Adapter", *_adapters(results))
    answers = list(_records(row_id, results))
    _stop(
        7, "Asked", *(_answers(answers) if answers else (_absent(results, "no model was asked this row"), ""))
    )
    _stop(8, "Counted", *_cells(answers, results))


def _stop(number: int, name: str, facts: str, text: str) -> None:
    print(f"{number}. {name}: {facts}")
    if text:
        print("\n".join(f"   | {line}" for line in text.splitlines()))


def _absent(results: Path, what: str) -> str:
    return f"{what} in {results}" if results.exists() else f"{results} does not exist; `stsr run` makes it"


def _exposures(row_id: str, results: Path) -> tuple[str, str]:
    lines = []
    for path in sorted(results.glob("train/*/adapter/exposure.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            step = json.loads(line)
            if row_id in step["rows"]:
                lines.append(f"{path.parts[-3]}: step {step['step']}")
    return (
        "presented in training" if lines else _absent(results, "presented to no training"),
        "\n".join(lines),
    )


def _adapters(results: Path) -> tuple[str, str]:
    lines = []
    for path in sorted(results.glob("train/*/adapter/run.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        lines.append(f"{path.parts[-3]}: {json.dumps(facts.get('proof'), sort_keys=True)}")
    return (
        "proof that each loads and changes the model"
        if lines
        else _absent(results, "no adapter was trained"),
        "\n".join(lines),
    )


def _records(row_id: str, results: Path) -> Iterator[records.DecisionRecord]:
    for record in records.read(sorted(results.glob("records/**/*.jsonl"))):
        if isinstance(record, records.DecisionRecord) and record.id == row_id:
            yield record


def _label(cell: records.Cell) -> str:
    return f"{cell.adapter or f'{cell.model} untuned'}, {cell.view} view"


def _answers(answers: list[records.DecisionRecord]) -> tuple[str, str]:
    lines = [
        f"{_label(a.cell)}: {a.turn.verdict}, {'agrees' if a.agree else 'differs'}: {a.turn.output}"
        for a in answers
    ]
    return f"asked of {len(answers)} models through lm-eval", "\n".join(lines)


def _cells(answers: list[records.DecisionRecord], results: Path) -> tuple[str, str]:
    if not answers:
        return _absent(results, "counted in no cell"), ""
    cells = {answer.cell: [0, 0] for answer in answers}
    for record in records.read(sorted(results.glob("records/**/*.jsonl"))):
        if isinstance(record, records.DecisionRecord) and record.cell in cells:
            cells[record.cell][0] += record.agree
            cells[record.cell][1] += 1
    lines = [f"{_label(cell)}: {k} of {n} decisions agree" for cell, (k, n) in cells.items()]
    return f"one decision of each cell in {results / 'report' / 'report.html'}", "\n".join(lines)
