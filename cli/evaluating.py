"""`stsr eval`, `tasks`, `regrade` and `records push`, between the command line and the rooms."""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path


def split_revision(name: str) -> tuple[str, str | None]:
    """ID@REVISION -> (ID, REVISION).

    >>> split_revision("stsr/tiny-base@v1.0.0"), split_revision("stsr/tiny-base")
    (('stsr/tiny-base', 'v1.0.0'), ('stsr/tiny-base', None))
    """
    base, _, revision = name.partition("@")
    return base, revision or None


def evaluate(
    *,
    model: str,
    adapters: list[str],
    untuned: bool,
    tasks: str,
    data: str,
    controls: str,
    trajectories: str,
    split: str | None,
    out: Path,
    batch_size: int,
    limit: int | None,
    workflows: int | None,
    calls: int | None,
    dtype: str,
    device: str,
    resume: bool,
    run_extension: bool,
) -> None:
    """Evaluates the base (`untuned`, or without adapters) and each adapter; prints the files of records."""
    import torch

    from stsr.eval_tasks.evaluate import Adapter
    from stsr.eval_tasks.evaluate import evaluate as run

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    source, revision = split_revision(model)
    asked: list[Adapter | None] = [None] if untuned or not adapters else []
    asked += [Adapter(*split_revision(adapter)) for adapter in adapters]
    for path in run(
        model=source, model_revision=revision, adapters=asked, tasks=tasks.split(","),
        sources={
            "workflows": split_revision(data),
            "controls": split_revision(controls),
            "scienceworld": split_revision(trajectories),
        },
        split=split, out=out, batch_size=batch_size, limit=limit, dtype=dtype, device=device, resume=resume,
        run_extension=run_extension, workflows=workflows, calls=calls,
    ):  # fmt: skip
        print(f"Records: {path}")


def list_tasks(pattern: str) -> None:
    """Prints name and description of every task and group whose name is like `pattern`.

    Raises ValueError that names near ones if there is none.
    """
    from stsr.eval_tasks import scienceworld_suite, suite

    every = suite.listing() | scienceworld_suite.listing()
    said = {name: says for name, says in sorted(every.items()) if fnmatchcase(name, pattern)}
    if not said:
        near = get_close_matches(pattern, every, n=4, cutoff=0.4)
        known = f"near are {', '.join(near)}" if near else "`stsr tasks` alone lists all"
        raise ValueError(f"no task or group is like {pattern!r}; {known}")
    width = max(map(len, said))
    for name, says in said.items():
        print(f"{name:<{width}}  {says}")


def push(folder: Path, repo: str, tag: str | None, public: bool, yes: bool) -> None:
    """Publishes the records in a folder as a data set."""
    from stsr.eval_tasks.sharing import prepare
    from stsr.hub_cards.publish import publish_folder

    with prepare(folder, repo) as ready:
        done = publish_folder(
            ready.folder, repo, "dataset", tag=tag, message=ready.summary, public=public, yes=yes
        )
    news = "Published" if done.created else "Already published:"
    print(f"{news} {ready.summary} as {done.repo_id} at {done.endpoint}, commit {done.commit[:12]}.")


def regrade(folder: Path, out: Path) -> None:
    """Scores the raw outputs in `folder` again, into `out`, and prints what changed."""
    from stsr.eval_tasks.regrade import regrade_folder

    changes = regrade_folder(folder, out)
    for change in changes.changed:
        print(change)
    print(f"{out} holds {changes.total} records, scored again; {len(changes.changed)} changed.")
