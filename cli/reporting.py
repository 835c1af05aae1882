"""`stsr report`: hands the records of an experiment to `stats`, with what it needs to name its sources."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from stsr.generators.declaration import DeclarationError, load
from stsr.recipes.experiment import Experiment
from stsr.stats.crossover import CrossoverSpec
from stsr.stats.provenance import COMMAND
from stsr.stats.report import write_report


def write(
    experiment_file: Path, records: Path, out: Path, tables: Sequence[str] = (), episodes: str = ""
) -> Path:
    """Writes the report and returns its page. Raises DeclarationError if there are no records.

    `tables` are ids of the paper's tables to fill (`stsr.stats.specs.SPECS`), or "all"; `episodes` is the
    address of an episode viewer, relative to the page.
    """
    experiment = load(Experiment, experiment_file)
    if len(experiment.views) != 2:
        raise DeclarationError(f"{experiment_file}: a crossover needs two views, not {len(experiment.views)}")
    files = sorted(records.rglob("*.jsonl"))
    if not files:
        raise DeclarationError(f"{records} holds no record files (*.jsonl); run the evaluations first")
    first, second = experiment.views
    spec = CrossoverSpec(
        horizon=experiment.horizon,
        views=(first, second),
        adapters={
            seed: {view: experiment.adapter(view, seed) for view in experiment.views}
            for seed in experiment.seeds
        },
        base=experiment.base,
    )
    command = ["stsr", "report", str(experiment_file), "--records", str(records), "--out", str(out)]
    provenance = {
        "Experiment": experiment.title,
        "Training recipe": f"recipes/{experiment.recipe}",
        COMMAND: shlex.join(command),
    }
    return write_report(files, spec, provenance, out, tables=tables, episodes=episodes)
