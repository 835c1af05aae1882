"""`stsr report` and `stsr records traces`: hand records to the rooms, with what names their sources."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stsr.eval_tasks import records as recording
from stsr.eval_tasks import viewer
from stsr.eval_tasks.replay import find_tasks
from stsr.generators.declaration import DeclarationError
from stsr.hub_cards.pins import pin
from stsr.recipes.experiment import Experiment, read_experiment
from stsr.stats.crossover import CrossoverSpec
from stsr.stats.frame import Arm
from stsr.stats.outcomes import cell_id
from stsr.stats.provenance import COMMAND
from stsr.stats.report import write_report

EPISODES = "episodes.html"
"""The page of episodes, beside the report."""


class Written(NamedTuple):
    """What `write` left."""

    report: Path
    episodes: str
    """A line about the page of episodes: where it is, or why there is none."""


def write(
    experiment_file: Path, records: Path, out: Path, tables: Sequence[str] = (), data: Path | None = None
) -> Written:
    """Writes the report and the page of episodes. Raises DeclarationError if there are no records.

    `tables` are ids of the paper's tables to fill (`stsr.stats.specs.SPECS`), or "all"; `data` is a folder
    with the data set, for tasks that can be had nowhere else. Without the tasks there are no episodes.
    """
    experiment = read_experiment(experiment_file)
    files = record_files(records)
    command = ["stsr", "report", str(experiment_file), "--records", str(records), "--out", str(out)]
    page, told = _episodes(files, data)
    provenance = {
        "Experiment": experiment.title,
        "Training recipes": ", ".join(dict.fromkeys(f"recipes/{one.recipe}" for one in experiment.trained))
        or "none",
        "Episodes": told,
        COMMAND: shlex.join([*command, *(("--data", str(data)) if data else ())]),
    }
    report = write_report(
        files,
        _crossover(experiment),
        provenance,
        out,
        arms=_arms(experiment),
        tables=tables or experiment.tables,
        episodes=EPISODES if page else "",
    )
    (out / EPISODES).unlink(missing_ok=True)
    if page:
        (out / EPISODES).write_text(page, encoding="utf-8")
    return Written(report, told)


def _crossover(experiment: Experiment) -> CrossoverSpec | None:
    """The crossover that the experiment declares, if any."""
    if not experiment.crossover:
        return None
    first, second = experiment.crossover
    adapters: dict[int, dict[str, str]] = {}
    for one in experiment.trained:
        adapters.setdefault(one.seed, {})[one.training] = one.adapter
    horizon = experiment.trained[0].horizon or 0
    return CrossoverSpec(
        horizon=horizon, views=(first, second), adapters=adapters, base=experiment.bases[0].repo
    )


def _arms(experiment: Experiment) -> list[Arm]:
    """The base models alone, and every adapter with what it was trained on, each checkpoint by its commit."""
    asked = any(evaluation.checkpoints for evaluation in experiment.evaluations)
    arms = [Arm(base.repo) for base in experiment.bases]
    for one in experiment.trained:
        arm = Arm(
            one.base.repo,
            adapter=one.adapter,
            trained=one.training,
            trained_horizon=one.horizon,
            seed=one.seed,
            step=one.steps[-1],
        )
        if not asked:
            arms.append(arm)
            continue
        arms.append(replace(arm, adapter_revision=_commit(one.adapter, experiment.adapter_tag)))
        for tag, step in one.tags.items():
            commit = _commit(one.adapter, tag)
            arms.append(replace(arm, adapter_revision=commit, step=step, final=False))
    return arms


def _commit(adapter: str, tag: str) -> str:
    return pin(adapter, tag, "model").revision


def record_files(folder: Path) -> list[Path]:
    """The record files below a folder. Raises DeclarationError if there are none."""
    files = sorted(folder.rglob("*.jsonl"))
    if not files:
        raise DeclarationError(f"{folder} holds no record files (*.jsonl); run the evaluations first")
    return files


def _episodes(files: list[Path], data: Path | None) -> tuple[str, str]:
    """The page of episodes, and a line about it. The page is "" where the tasks can't be had."""
    try:
        tasks = find_tasks(recording.read(files), data)
    except recording.RecordError:
        raise
    except (ValueError, OSError, ImportError) as error:
        return "", f"not shown, their tasks can't be read: {' '.join(str(error).split())}"
    album = viewer.collect(recording.read(files), tasks, cell_id)
    if not album.calls:
        return "", "not shown, no data set holds their tasks"
    left_out = (
        f"; {album.missing:,} records are left out, their tasks could not be found" if album.missing else ""
    )
    told = f"{album.calls:,} calls, one at a time, in {EPISODES}{left_out}"
    return viewer.page(album, "report.html"), told


def traces(records: Path, out: Path, data: Path | None) -> str:
    """Exports the episodes among the records as agent traces; returns what was done, as a sentence."""
    from stsr.eval_tasks.traces import export

    files = record_files(records)
    done = export(recording.read(files), find_tasks(recording.read(files), data), cell_id, out)
    missing = f" {done.missing:,} are left out: their tasks could not be found." if done.missing else ""
    return f"{out} holds {done.sessions:,} sessions.{missing}"
