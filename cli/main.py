"""The `stsr` command line. Each command is a thin call into one room; `stsr COMMAND --help` documents it.

Invariant: a mistake of the user is one line on standard error and exit code 2; a refusal or a failure of the
work is one line and exit code 1. Neither prints a traceback, unless STSR_TRACEBACK is set.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stsr.cli import adapters, evaluating
from stsr.cli.adapters import publication
from stsr.cli.running import PORT, QUICKSTART_HUB
from stsr.recipes import graph

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="State representation and long-horizon transfer: data sets, adapters, evaluations and reports.",
)
hub_app = typer.Typer(help="The Hub on loopback.")
app.add_typer(hub_app, name="hub")
app.add_typer(adapters.app, name="adapters")
records_app = typer.Typer(help="Records of evaluations.")
app.add_typer(records_app, name="records")

Out = Annotated[Path, typer.Option(file_okay=False, help="Folder for the result.")]
RecordFolder = Annotated[
    Path, typer.Argument(exists=True, file_okay=False, help="Folder with record files, searched in depth.")
]
LAST_SEED = 2**32 - 1
TaskData = Annotated[
    Path | None,
    typer.Option(
        exists=True, file_okay=False, help="Folder with the data set, if its tasks are nowhere else."
    ),
]


@app.command()
def build(
    declaration: Annotated[Path, typer.Argument(help="YAML file, as recipes/datasets/table-workflows.yaml.")],
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder for the result; out/NAME by default.")
    ] = None,
    shards: Annotated[int, typer.Option(min=1, help="Build in this many shards.")] = 1,
    shard: Annotated[
        int | None, typer.Option(min=0, help="Which of them, from 0; without it, all are joined.")
    ] = None,
) -> None:
    """Build a data set from its declaration: parquet configs, card and manifest."""
    from stsr.generators import build as builder
    from stsr.generators.dataset import read_declaration
    from stsr.generators.scienceworld import dataset as scienceworld
    from stsr.hub_cards.cards import dataset_card

    if scienceworld.declares(declaration):
        from stsr.hub_cards.scienceworld import trajectories_card

        trajectories = scienceworld.read_declaration(declaration)
        out = out or Path("out") / trajectories.repo.rpartition("/")[2]
        manifest = scienceworld.build(trajectories, out, trajectories_card)
        rows = sum(facts["rows"] for facts in manifest["files"].values())
        print(f"{out} holds {manifest['repo']} {manifest['version']}: {rows:,} rows.")
        return
    declared = read_declaration(declaration)
    out = out or Path("out") / declared.repo.rpartition("/")[2]
    if shard is not None:
        print(f"{builder.build_shard(declared, out, shard, shards)} holds shard {shard} of {shards}.")
        return
    if shards > 1:
        manifest = builder.join_shards(declared, out, shards, dataset_card)
    else:
        manifest = builder.build(declared, out, dataset_card)
    rows = sum(facts["rows"] for _, facts in builder.files_of(manifest))
    configs = len(manifest["configs"])
    print(f"{out} holds {manifest['repo']} {manifest['version']}: {configs} configs, {rows:,} rows.")


@app.command()
def publish(
    folder: Annotated[Path, typer.Argument(help="Folder to publish, with a README.md.")],
    repo: Annotated[str, typer.Option(help="Hub id, for example stsr/table-workflows.")],
    kind: Annotated[
        Literal["dataset", "model", "space"],
        typer.Option("--type", help="What it is: a space is a report, as stsr report leaves it."),
    ],
    tag: Annotated[str | None, typer.Option(help="Tag to set, for example v1.0.0.")] = None,
    public: Annotated[bool, typer.Option(help="Make a new repository public.")] = False,
    yes: Annotated[bool, typer.Option(help="Really publish to a Hub that is not on loopback.")] = False,
) -> None:
    """Publish a folder: one commit, read back and compared, then tagged. HF_ENDPOINT decides where to."""
    from stsr.hub_cards.publish import publish_folder

    message = f"Publish {tag or 'a version'}"
    done = publish_folder(folder, repo, kind, tag=tag, message=message, public=public, yes=yes)
    print(publication(done))


@app.command()
def diff(
    old: Annotated[str, typer.Argument(help="Revision of the data set, as v1.0.0, or folder of a build.")],
    new: Annotated[str, typer.Argument(help="The same, for the version to compare with.")],
    repo: Annotated[str, typer.Option(help="Data set that the revisions are of.")] = "stsr/table-workflows",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if the data differ.")] = False,
) -> None:
    """Say which rows changed between two versions of a data set, and why."""
    import json

    from stsr.hub_cards.diff import compare, open_version
    from stsr.hub_cards.diff_text import text

    done = compare(open_version(old, repo), open_version(new, repo))
    print(json.dumps(done.as_json(), indent=1) if as_json else text(done))
    if exit_code and not done.same:
        raise typer.Exit(1)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(help="YAML file, as recipes/sft/tiny.yaml.")],
    view: Annotated[str, typer.Option(help="View of the training prompts.")],
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=LAST_SEED, help="Adapter start and dropout; the recipe's by default."),
    ] = None,
    data_seed: Annotated[
        int | None, typer.Option(min=0, max=LAST_SEED, help="Row order; the recipe's, or the seed.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder of the run; out/ADAPTER by default.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a key of the recipe.")
    ] = None,
) -> None:
    """Train an adapter. A run that was interrupted continues; a finished one is left alone."""
    from stsr.recipes import train as trainer

    overrides = trainer.overrides(changes or [])
    trainer.train(recipe, view=view, seed=seed, data_seed=data_seed, out=out, overrides=overrides)


@app.command()
def pretrain(
    recipe: Annotated[Path, typer.Argument(help="YAML file, as recipes/pretraining/tiny-base.yaml.")],
    out: Out,
    repo: Annotated[str, typer.Option(help="Hub id that the card names.")] = "stsr/tiny-base",
    tag: Annotated[str, typer.Option(help="Tag that the card names.")] = "v1.0.0",
) -> None:
    """Pretrain the tiny base model on a CPU."""
    from stsr.generators.declaration import load
    from stsr.hub_cards.cards import base_card
    from stsr.recipes import pretrain as trainer

    facts = trainer.pretrain(load(trainer.Recipe, recipe), out, lambda facts: base_card(facts, repo, tag))
    print(f"The model is in {out}; held-out accuracy {facts['held_out_accuracy']['all']:.1%}.")


@app.command(name="eval")
def evaluate(
    model: Annotated[str, typer.Option(help="Base model, ID or ID@REVISION.")],
    tasks: Annotated[str, typer.Option(help="Names of tasks and groups, separated by commas: stsr tasks.")],
    out: Out,
    data: Annotated[str, typer.Option(help="Workflows, ID@REVISION.")] = "stsr/table-workflows@v1.1.0",
    controls: Annotated[str, typer.Option(help="Controls, ID@REVISION.")] = "stsr/workflow-controls@v1.0.0",
    trajectories: Annotated[
        str, typer.Option(help="ScienceWorld trajectories, ID@REVISION.")
    ] = "stsr/scienceworld-trajectories@v1.0.0",
    adapter: Annotated[
        list[str] | None, typer.Option(help="Adapter, ID or ID@REVISION; may be given several times.")
    ] = None,
    untuned: Annotated[bool, typer.Option(help="Also the base alone, beside adapters.")] = False,
    split: Annotated[
        str | None, typer.Option(help="Split of the data set; each task's own by default.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts a batch.")] = 32,
    limit: Annotated[
        int | None, typer.Option(min=1, help="First N decisions or episodes of each task.")
    ] = None,
    workflows: Annotated[
        int | None, typer.Option(min=1, help="First N workflows of each task, all their decisions.")
    ] = None,
    calls: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="End ScienceWorld's free runs after N calls, for smoke runs."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Parameter type of the model.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes a GPU if there is one.")] = "auto",
    resume: Annotated[bool, typer.Option(help="Continue what was interrupted, or refuse to.")] = True,
    run_frozen_extension: Annotated[
        bool, typer.Option("--run-frozen-extension", help="Let the frozen ScienceWorld extension run.")
    ] = False,
) -> None:
    """Evaluate a model through lm-eval and leave a record of every decision and episode.

    The base is loaded once. With several models (adapters, --untuned), each has a folder of its own in --out.
    """
    evaluating.evaluate(
        model=model, adapters=adapter or [], untuned=untuned, tasks=tasks, data=data, controls=controls,
        trajectories=trajectories, split=split, out=out, batch_size=batch_size, limit=limit,
        workflows=workflows, calls=calls, dtype=dtype, device=device, resume=resume,
        run_extension=run_frozen_extension,
    )  # fmt: skip


@app.command()
def tasks(
    pattern: Annotated[str, typer.Argument(help="As 'stsr_*_h16_compact'.")] = "*",
) -> None:
    """List the lm-eval tasks and groups, each with what it asks."""
    evaluating.list_tasks(pattern)


@app.command()
def regrade(
    folder: RecordFolder,
    out: Out,
) -> None:
    """Score the raw outputs of records again, after a change of parser or verifier."""
    evaluating.regrade(folder, out)


@records_app.command()
def push(
    folder: RecordFolder,
    repo: Annotated[str, typer.Option(help="Hub id of the data set, for example me/stsr-records.")],
    tag: Annotated[str | None, typer.Option(help="Tag to set.")] = None,
    public: Annotated[bool, typer.Option(help="Make a new repository public.")] = False,
    yes: Annotated[bool, typer.Option(help="Really publish to a Hub that is not on loopback.")] = False,
) -> None:
    """Publish records as a data set: one commit, read back and compared, then tagged."""
    evaluating.push(folder, repo, tag, public, yes)


@records_app.command()
def traces(
    folder: RecordFolder,
    out: Out,
    data: TaskData = None,
) -> None:
    """Write free runs as agent traces, a session each, in the format that the Hub's trace viewer reads."""
    from stsr.cli.reporting import traces as export

    print(export(folder, out, data))


@app.command()
def report(
    experiment: Annotated[Path, typer.Argument(help="YAML file of the experiment.")],
    records: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Folder with record files, searched in depth.")
    ],
    out: Out,
    tables: Annotated[
        str, typer.Option(help="Tables of the paper: all that have records, none, or ids with commas.")
    ] = "all",
    also: Annotated[
        list[Path] | None, typer.Option(help="Another experiment's file, with records here; repeatable.")
    ] = None,
    data: TaskData = None,
) -> None:
    """Write an experiment's report from its records: crossover, the paper's tables, figures, episodes."""
    from stsr.cli.reporting import write

    done = write(experiment, records, out, tables=tables, also=also or (), data=data)
    print(f"The report is {done.report}.\nEpisodes: {done.episodes}.")


@app.command()
def run(
    name: Annotated[
        str, typer.Argument(help="Experiment, as recipes/experiments/NAME.yaml, or the path of your own.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder for results; out/NAME, or out/NAME-BASE, by default."),
    ] = None,
    base: Annotated[
        str, typer.Option(help="Run its shape on this base, as small as its smoke block says: tiny.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option(help="Print the commands, counts and an estimate; run none.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=0, help="With Snakemake, up to so many steps at once.")] = 0,
    profile: Annotated[
        str, typer.Option(help="With Snakemake, on a cluster: slurm, kubernetes, or a profile's folder.")
    ] = "",
    run_frozen_extension: Annotated[
        bool, typer.Option("--run-frozen-extension", help="Let the frozen ScienceWorld extension run.")
    ] = False,
) -> None:
    """Run an experiment from data to report. The same command continues it.

    Steps run one after the other against a Hub on loopback, or as a graph with --jobs or --profile.
    """
    from stsr.cli import running

    running.run(
        name,
        out,
        base=base,
        dry_run=dry_run,
        jobs=jobs,
        profile=profile,
        run_extension=run_frozen_extension,
    )


@app.command()
def follow(
    row_id: Annotated[str, typer.Argument(help="For example chain-h16/62017#7@compact.")],
    results: Annotated[Path, typer.Option(help="Folder of an experiment that ran.")] = Path("out/quickstart"),
) -> None:
    """Follow one datum through its eight stops, from the declaration to the table cell."""
    from stsr.cli import following

    following.follow(row_id, results)


@app.command()
def preview(
    row_id: Annotated[str, typer.Argument(help="For example chain-h16/62017#7@compact.")],
    out: Annotated[Path | None, typer.Option(help="HTML file; out/preview/ROW.html by default.")] = None,
    views: Annotated[
        str, typer.Option(help="Other views to show, separated by commas; by default all declared ones.")
    ] = "",
) -> None:
    """Draw one decision: as a page that stands alone, and as text here."""
    from rich.console import Console

    from stsr.hub_cards import preview as previewing

    drawn = previewing.look(row_id, views.split(",") if views else ())
    out = out or Path("out/preview") / previewing.file_name(row_id)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(previewing.page(drawn), encoding="utf-8")
    previewing.show(drawn, Console(width=None if sys.stdout.isatty() else 120))
    print(f"\nThe page is {out}.")


@app.command()
def bench(
    quickstart: Annotated[Path, typer.Option(help="Results whose stage times to print.")] = Path(
        "out/quickstart"
    ),
    peers: Annotated[Path, typer.Option(help="A Python that has reasoning-gym, to compare with.")] = Path(
        ".venv-peers/bin/python"
    ),
) -> None:
    """Print speed and memory of this machine: rows, builds, free runs and the quickstart's stages."""
    from stsr.cli import benchmark

    benchmark.bench(quickstart, peers)


@app.command()
def tasks_path() -> None:
    """Print the folder of the lm-eval tasks, for `lm_eval --include_path`."""
    from importlib.resources import files

    print(files("stsr.eval_tasks").joinpath("harness"))


@hub_app.command()
def serve(
    root: Annotated[Path, typer.Option(help="Folder of the store.")] = QUICKSTART_HUB,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = PORT,
    upstream: Annotated[bool, typer.Option(help="Read what the store lacks from the public Hub.")] = True,
) -> None:
    """Serve the Hub on loopback until interrupted."""
    from stsr.hub_cards.loopback.process import default_upstream
    from stsr.hub_cards.loopback.process import serve as run

    run(root, port, default_upstream() if upstream else None)


_USAGE: Any = typer.BadParameter.__base__
"""What typer raises for a word that it does not understand; it has no public name for it."""


def main() -> None:
    """Entry point."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    # At import it warns of 4-bit CPU kernels that nothing here needs.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        sys.exit(_interrupted())
    except Exception as error:
        # The project's own errors are ValueErrors for what was asked and others for the work itself.
        if isinstance(error, _USAGE):
            sys.exit(_say(_usage(error), 2))
        if os.environ.get("STSR_TRACEBACK"):
            raise
        if isinstance(error, ModuleNotFoundError):
            sys.exit(_say(f"{error}; install what is missing with: pip install 'stsr[all]'", 1))
        line = " ".join(str(error).split()) or type(error).__name__
        sys.exit(_say(line, 2 if isinstance(error, ValueError) else 1))
    sys.exit(_interrupted() if code == 130 else code)


def _usage(error: Any) -> str:
    """What was wrong with the words of a command, on one line; for an unknown command, the known ones."""
    said = " ".join(error.format_message().split())
    known = getattr(error.ctx and error.ctx.command, "commands", None)
    return f"{said.rstrip('.')}; there are {', '.join(known)}" if known and "command" in said else said


def _interrupted() -> int:
    """A step of `stsr run` leaves the message to that."""
    said = "interrupted; the same command continues"
    return 130 if os.environ.get(graph.STEP_OF_RUN) else _say(said, 130)


def _say(line: str, code: int) -> int:
    print(f"stsr: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
