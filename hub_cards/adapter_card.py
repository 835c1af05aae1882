"""The card of an adapter: written from its run's files, and written again once it was evaluated.

    write_card(Path("out/tiny-h4-full/adapter"))
    add_results("stsr/tiny-h4-full", results, commit, tag="v1.0.0")

Invariant: every number on a card comes from run.json, exposure.json or records. Results are one more commit
on main that changes the card alone; a tag stays where it is.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCardData, hf_hub_download, snapshot_download

from stsr.hub_cards.cards import render
from stsr.hub_cards.pins import Pin, pin
from stsr.hub_cards.publish import Published, publish_folder
from stsr.hub_cards.training_views import origin_of, view_rule

RUN = "run.json"
"""What the run was, in every folder of an adapter that this project trained."""


class CardError(ValueError):
    """Results that do not belong on the card; the message is one line for a person."""


class Result(NamedTuple):
    """What was measured in one cell: k successes of n, with a Wilson 95% interval."""

    cell: str
    """For example "H4 full, free-run success"."""
    k: int
    n: int
    low: float | None
    """Ends of the interval, as fractions; None when n is 0."""
    high: float | None
    data: Pin
    """The data set and its revision."""
    split: str
    """Split of the data set."""


def write_card(folder: Path, *, tag: str = "v1.0.0", results: Sequence[Result] = ()) -> Path:
    """Writes README.md of a run's `adapter/` folder from its run.json and exposure.json; returns its path.

    `tag` is the revision that the card's example names. `results` become a table and the Hub's own
    `model-index`; without any the card says that it reports none.
    """
    run = json.loads((folder / RUN).read_text(encoding="utf-8"))
    exposure = json.loads((folder / "exposure.json").read_text(encoding="utf-8"))
    base, data = (Pin(run[key]["source"], run[key]["commit"]) for key in ("base", "data"))
    card = render(
        "adapter.md",
        metadata=_metadata(run, base, data, results).to_yaml(),
        run=run,
        base=base,
        rule=view_rule(run["view"], run["data"]["config"]),
        scienceworld=_of_scienceworld(run),
        exposure=exposure,
        tag=tag,
        results=results,
    )
    path = folder / "README.md"
    path.write_text(card, encoding="utf-8")
    return path


def _of_scienceworld(run: dict[str, Any]) -> bool:
    return origin_of(run["data"]["config"]).family == "scienceworld"


def _metadata(run: dict[str, Any], base: Pin, data: Pin, results: Sequence[Result]) -> ModelCardData:
    # the Hub takes ids of repositories here; a folder that was read is no such id
    kind = "scienceworld" if _of_scienceworld(run) else "table-workflows"
    measured = [_eval_result(result) for result in results if result.n and result.data.commit]
    return ModelCardData(
        base_model=base.source if base.commit else None,
        library_name="peft",
        pipeline_tag="text-generation",
        license="apache-2.0",
        datasets=[data.source] if data.commit else None,
        tags=["lora", "sft", "trl", kind, f"view:{run['view']}"],
        model_name=run["adapter"] if measured else None,
        eval_results=measured or None,
    )


def _eval_result(result: Result) -> EvalResult:
    return EvalResult(
        task_type="text-generation",
        dataset_type=result.data.source,
        dataset_name=result.data.source,
        dataset_split=result.split,
        dataset_revision=result.data.commit,
        metric_type="accuracy",
        metric_name=result.cell,
        metric_value=round(result.k / result.n, 4),
        metric_args={"k": result.k, "n": result.n},
    )


def add_results(
    repo: str,
    results: Sequence[Result],
    commit: str,
    *,
    tag: str,
    public: bool = False,
    yes: bool = False,
) -> Published:
    """Puts `results`, measured on the adapter at `commit`, on the card of `repo`: one commit on main.

    `public` and `yes` are as in publish_folder; nothing changes if the card says all that already. Raises
    CardError if main has moved on to another run, PinError for an unknown repository, and PublishError.
    """
    head = pin(repo, None, "model")
    with tempfile.TemporaryDirectory(prefix="stsr-card-") as place:
        folder = Path(snapshot_download(repo, revision=head.commit, local_dir=place))
        measured = Path(hf_hub_download(repo, RUN, revision=commit))
        # it holds the hash of the weights
        if measured.read_bytes() != (folder / RUN).read_bytes():
            raise CardError(f"{repo}: the records are of commit {commit}, and main holds another run by now")
        write_card(folder, tag=tag, results=results)
        message = "Results on the card"
        return publish_folder(folder, repo, "model", tag=None, message=message, public=public, yes=yes)
