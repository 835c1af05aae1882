"""`stsr report` and `stsr records traces`: hand records to the rooms, with what names their sources."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stsr.eval_tasks import records as recording
from stsr.eval_tasks import scienceworld_records, viewer
from stsr.eval_tasks.replay import find_tasks
from stsr.generators.declaration import DeclarationError, load, read
from stsr.recipes.experiment import Experiment, recipes_folder
from stsr.recipes.names import fill
from stsr.recipes.scienceworld_study import Study, declares, read_study
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

    `tables` are ids of the paper's tables (`stsr.stats.specs.SPECS`) with commas, whose cells must all be there;
    "all" is every table that the records complete a row of, "none" is none. `also` are further experiments,
    whose adapters the tables name too. `data` is a folder with the data set, for tasks that can be had
    nowhere else. Without the tasks there are no episodes.
    """
    wanted = _tables(tables)
    declared = [_experiment(file) for file in (experiment_file, *also)]
    files = record_files(records)
    first = declared[0]
    page, told, shown = _episodes(files, data)
    command = ["stsr", "report", str(experiment_file), "--records", str(records), "--out", str(out)]
    command += [] if tables == "all" else ["--tables", tables]
    command += [word for file in also for word in ("--also", str(file))]
    command += ["--data", str(data)] if data else []
    provenance = {
        "Experiment": "; ".join(experiment.title for experiment in declared),
        "Training recipe": ", ".join(_recipes(declared)),
        "Episodes": told,
        COMMAND: shlex.join(command),
    }
    report = write_report(
        files,
        _crossover(first) if isinstance(first, Experiment) else None,
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
        raise DeclarationError(f"unknown tables {', '.join(unknown)}; there are all, none, {', '.join(SPECS)}")
    return ids


def _experiment(file: Path) -> Experiment | Study:
    """The experiment of a file, of tables or of ScienceWorld."""
    if declares(file):
        return read_study(file)
    experiment = load(Experiment, file)
    if len(experiment.views) != 2:
        raise DeclarationError(f"{file}: a crossover needs two views, not {len(experiment.views)}")
    return experiment


def _crossover(experiment: Experiment) -> CrossoverSpec:
    first, second = experiment.views
    seed = experiment.seeds[0]
    return CrossoverSpec(
        horizon=experiment.horizon,
        views=(first, second),
        adapters={
            seed: {view: experiment.adapter(view, seed) for view in experiment.views}
            for seed in experiment.seeds
        },
        base=experiment.base,
        family=_family(experiment, first, seed),
        split=experiment.split,
    )


def _arms(experiment: Experiment | Study) -> list[Arm]:
    """The base alone, and every adapter with what it was trained on."""
    if isinstance(experiment, Study):
        trained = [
            Arm(
                experiment.base,
                adapter=experiment.adapter(arm, seed),
                trained=arm.training,
                trained_family="scienceworld",
                seed=seed,
            )
            for arm in experiment.arms
            for seed in experiment.seeds
        ]
    else:
        trained = [
            Arm(
                experiment.base,
                adapter=experiment.adapter(view, seed),
                trained=view,
                trained_horizon=experiment.horizon,
                trained_family=_family(experiment, view, seed),
                seed=seed,
            )
            for seed in experiment.seeds
            for view in experiment.views
        ]
    return [Arm(experiment.base), *trained]


def _family(experiment: Experiment, view: str, seed: int) -> str:
    """Family of the training workflows, from the config that the recipe names: h16-full is of chains."""
    config = fill(str(read(recipes_folder() / experiment.recipe).get("data_config")), view, seed)
    return "chain" if config.startswith("h") else config.partition("-h")[0]


def _recipes(declared: Sequence[Experiment | Study]) -> list[str]:
    """The training recipes, in order."""
    found: dict[str, None] = {}
    for one in declared:
        names = [arm.recipe for arm in one.arms] if isinstance(one, Study) else [one.recipe]
        found |= dict.fromkeys(f"recipes/{name}" for name in names)
    return list(found)


def record_files(folder: Path) -> list[Path]:
    """The record files below a folder. Raises DeclarationError if there are none."""
    files = sorted(folder.rglob("*.jsonl"))
    if not files:
        raise DeclarationError(f"{folder} holds no record files (*.jsonl); run the evaluations first")
    return files


def _of_tables(files: Sequence[Path]) -> Iterator[recording.Record]:
    """The records whose tasks can be replayed: all but ScienceWorld's, whose simulator is elsewhere."""
    for file in files:
        with open(file, encoding="utf-8") as lines:
            simulated = f'"{scienceworld_records.SCHEMA}"' in lines.readline()
        if not simulated:
            yield from recording.read([file])


def _episodes(files: list[Path], data: Path | None) -> tuple[str, str, frozenset[tuple[str, str]]]:
    """The page of episodes, a line about it, and the cells on it. The page is "" where tasks can't be had."""
    try:
        tasks = find_tasks(_of_tables(files), data)
    except recording.RecordError:
        raise
    except (ValueError, OSError, ImportError) as error:
        return "", f"not shown, their tasks can't be read: {' '.join(str(error).split())}", frozenset()
    album = viewer.collect(_of_tables(files), tasks, cell_id)
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
