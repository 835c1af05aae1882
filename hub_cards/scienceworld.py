"""The card of the ScienceWorld trajectories, written from the manifest of a build."""

from __future__ import annotations

from stsr.generators.scienceworld import views
from stsr.generators.scienceworld.actions import EXTRACTION
from stsr.generators.scienceworld.catalogue import BINS
from stsr.generators.scienceworld.dataset import SPLITS, Manifest
from stsr.generators.scienceworld.prompts import HEAD, render
from stsr.generators.scienceworld.rows import parse_row_id
from stsr.generators.scienceworld.splits import workflows_of
from stsr.generators.scienceworld.states import state_at
from stsr.generators.scienceworld.variations import FAMILIES
from stsr.hub_cards import cards


def trajectories_card(manifest: Manifest) -> str:
    """README.md of the built data set: Hub metadata, summary, data dictionary, splits, use, limits."""
    declared = manifest["declaration"]
    row = parse_row_id(f"{declared['example']}@{declared['views'][0]}")
    (workflow,) = workflows_of([row.task])
    state, target = state_at(workflow, row.stage), workflow.steps[row.stage - 1].action
    chosen = {name: views.view(name) for name in declared["views"]}
    prompts = {name: render(show(state, target))[0]["content"] for name, show in chosen.items()}
    total = sum(facts["rows"] for facts in manifest["files"].values())
    return cards.render(
        "scienceworld.md",
        manifest=manifest,
        declared=declared,
        configs={config: list(splits) for config, splits in manifest["configs"].items()},
        default=declared["views"][0],
        views=chosen,
        example_target=target,
        head=HEAD,
        shown={name: prompt.removeprefix(HEAD).strip().splitlines() for name, prompt in prompts.items()},
        bins=BINS,
        families=FAMILIES,
        counts=_counts(manifest),
        extraction=EXTRACTION,
        total=total,
        size=cards._size_category(total),
        citation=cards.CITATION.replace("VERSION", manifest["version"]),
    )


def _counts(manifest: Manifest) -> dict[str, dict[str, list[int]]]:
    """Split -> bin or "all" -> [workflows, states]."""
    counts: dict[str, dict[str, list[int]]] = {}
    for split in (*SPLITS, "rest"):
        ids = [task for task, facts in manifest["tasks"].items() if facts["split"] == split]
        counts[split] = {}
        for name in (*BINS, "all"):
            lengths = [len(w.steps) for w in workflows_of(ids) if name in ("all", w.bin)]
            counts[split][name] = [len(lengths), sum(lengths)]
    return counts
