"""`stsr report` and `stsr records traces`: hand records to the rooms, with what names their sources."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stsr.eval_tasks import any_records, viewer
from stsr.eval_tasks.records import DecisionRecord, EpisodeRecord, RecordError
from stsr.eval_tasks.replay import find_tasks
from stsr.generators.declaration import DeclarationError
from stsr.hub_cards.pins import pin
from stsr.recipes.experiment import Experiment, read_experiment
from stsr.stats.crossover import CrossoverSpec
from stsr.stats.frame import Arm
from stsr.stats.outcomes import cell_id
from stsr.stats.provenance import COMMAND
from stsr.stats.report import Episodes, write_report
from stsr.stats.specs import SPECS

EPISODES = "episodes.html"
"""The page of episodes, beside the report."""


class Written(NamedTuple):
    """What `write` left."""

    report: Path
    episodes: str
    """A line about the page of episodes: where it is, or why there is none."""


def write(
    experiment_file: Path,
    records: Path,
    out: Path,
    *,
    tables: str = "all",
    also: Sequence[Path] = (),
    data: Path | None = None,
) -> Written:
    """Writes the report and the page of episodes. Raises DeclarationError if there are no records.

    `tables` are ids of tables (`stsr.stats.specs.SPECS`) with commas, whose cells must all be there; "all" is
    every table that the records complete a row of, "none" is none. `also` are further experiments, whose
    adapters the tables name too. `data` is a folder with the data set, for tasks that are nowhere else.
    Without the tasks there are no episodes.
    """
    wanted = _tables(tables)
    declared = [read_experiment(file) for file in (experiment_file, *also)]
    files = record_files(records)
    page, told, shown = _episodes(files, data)
    command = ["stsr", "report", str(experiment_file), "--records", str(records), "--out", str(out)]
    command += [] if tables == "all" else ["--tables", tables]
    command += [word for file in also for word in ("--also", str(file))]
    command += ["--data", str(data)] if data else []
    provenance = {
        "experiment": "; ".join(experiment.title for experiment in declared),
        "training recipes": ", ".join(_recipes(declared)) or "none",
        "episodes": told,
        COMMAND: shlex.join(command),
    }
    report = write_report(
        files,
        _crossover(declared[0]),
        provenance,
        out,
        arms=list(dict.fromkeys(arm for experiment in declared for arm in _arms(experiment))),
        tables=wanted,
        episodes=Episodes(EPISODES, shown) if page else None,
    )
    (out / EPISODES).unlink(missing_ok=True)
    if page:
        (out / EPISODES).write_text(page, encoding="utf-8")
    return Written(report, told)


def _tables(asked: str) -> list[str]:
    """Ids of tables from an option. Raises DeclarationError for an unknown one."""
    ids = [] if asked == "none" else asked.split(",")
    unknown = sorted(set(ids) - {"all", *SPECS})
    if unknown:
        known = ", ".join(["all", "none", *SPECS])
        raise DeclarationError(f"unknown tables {', '.join(unknown)}; there are {known}")
    return ids


def _recipes(declared: Sequence[Experiment]) -> list[str]:
    """The training recipes, in order."""
    trained = [one for experiment in declared for one in experiment.trained]
    return list(dict.fromkeys(f"recipes/{one.recipe}" for one in trained))


def _crossover(experiment: Experiment) -> CrossoverSpec | None:
    """The crossover that the experiment declares, if any."""
    if not experiment.crossover:
        return None
    first, second = experiment.crossover
    adapters: dict[int, dict[str, str]] = {}
    for one in experiment.trained:
        adapters.setdefault(one.seed, {})[one.training] = one.adapter
    return CrossoverSpec(
        horizon=experiment.trained[0].horizon or 0,
        views=(first, second),
        adapters=adapters,
        base=experiment.bases[0].repo,
        family=experiment.trained[0].family,
        split=experiment.evaluations[0].split or "test",
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
            trained_family=one.family,
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


def _of_tables(files: Sequence[Path]) -> Iterator[DecisionRecord | EpisodeRecord]:
    """The records whose tasks can be replayed: all but ScienceWorld's, whose simulator is elsewhere."""
    for record in any_records.read(files):
        if isinstance(record, DecisionRecord | EpisodeRecord):
            yield record


def _episodes(files: list[Path], data: Path | None) -> tuple[str, str, frozenset[tuple[str, str]]]:
    """The page of episodes, a line about it, and the cells on it. The page is "" where tasks can't be had."""
    try:
        tasks = find_tasks(_of_tables(files), data)
    except RecordError:
        raise
    except (ValueError, OSError, ImportError) as error:
        return "", f"not shown, their tasks can't be read: {' '.join(str(error).split())}", frozenset()
    album = viewer.collect(any_records.read(files), tasks, cell_id)
    if not album.calls:
        return "", "not shown, no data set holds their tasks", frozenset()
    left_out = (
        f"; {album.missing:,} records are left out, their tasks could not be found" if album.missing else ""
    )
    told = f"{album.calls:,} calls, one at a time, in {EPISODES}{left_out}"
    shown = frozenset((cell["id"], cell["kind"]) for cell in album.data["cells"])
    return viewer.page(album, "report.html"), told, shown


def traces(records: Path, out: Path, data: Path | None) -> str:
    """Exports the episodes among the records as agent traces; returns what was done, as a sentence."""
    from stsr.eval_tasks.traces import export

    files = record_files(records)
    done = export(_of_tables(files), find_tasks(_of_tables(files), data), cell_id, out)
    missing = f" {done.missing:,} are left out: their tasks could not be found." if done.missing else ""
    return f"{out} holds {done.sessions:,} sessions.{missing}"
