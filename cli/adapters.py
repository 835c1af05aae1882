"""`stsr adapters`: adapters as products, from a finished training to a card with results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from stsr.hub_cards.publish import Published

app = typer.Typer(help="Published adapters.")


@app.command()
def publish(
    run: Annotated[
        Path,
        typer.Argument(
            exists=True, file_okay=False, help="Folder of a finished training, as out/tiny-h4-full."
        ),
    ],
    repo: Annotated[str | None, typer.Option(help="Hub id; the recipe's adapter_name by default.")] = None,
    tag: Annotated[str, typer.Option(help="Tag of the adapter after the last step.")] = "v1.0.0",
    public: Annotated[bool, typer.Option(help="Make a new repository public.")] = False,
    yes: Annotated[bool, typer.Option(help="Really publish to a Hub that is not on loopback.")] = False,
) -> None:
    """Publish an adapter with its checkpoints, each a tag: step-20, step-40, ..., and --tag."""
    from stsr.hub_cards.adapter_release import publish_run

    for done in publish_run(run, repo, tag=tag, public=public, yes=yes):
        print(publication(done))


@app.command()
def verify(
    repo: Annotated[str, typer.Argument(help="Adapter, ID or ID@REVISION, or a folder.")],
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
) -> None:
    """Prove a published adapter again: every weight in its place, and the effect that its card states."""
    from stsr.cli import adapter_results

    print(adapter_results.verify(repo, device))


@app.command()
def exposure(
    runs: Annotated[
        list[Path], typer.Argument(exists=True, file_okay=False, help="Folders of finished trainings.")
    ],
) -> None:
    """Print what trainings were shown, as a Markdown table."""
    from stsr.recipes.exposure import table

    print(table(runs))


@app.command()
def card(
    repo: Annotated[str, typer.Argument(help="Hub id of the adapter.")],
    records: Annotated[
        Path, typer.Option(exists=True, file_okay=False, help="Folder with record files, searched in depth.")
    ],
    tag: Annotated[str, typer.Option(help="Tag that the card's example names.")] = "v1.0.0",
    public: Annotated[bool, typer.Option(help="The repository is public.")] = False,
    yes: Annotated[bool, typer.Option(help="Really publish to a Hub that is not on loopback.")] = False,
) -> None:
    """Put an adapter's results on its card: one more commit on main; tags stay."""
    from stsr.cli import adapter_results

    done = adapter_results.card(repo, records, tag, public, yes)
    news = "Results put on the card of" if done.created else "The results are on the card already:"
    print(f"{news} {done.repo_id} at {done.endpoint}, commit {done.commit[:12]}.")


def publication(done: Published) -> str:
    """The line that reports a publication."""
    news = "Published" if done.created else "Already published:"
    tag = f", tag {done.tag}" if done.tag else ""
    return f"{news} {done.repo_id} at {done.endpoint}, commit {done.commit[:12]}{tag}."
