"""Cards of data sets and base models, written from what was built and never by hand.

Invariant: every number on a card comes from a manifest or a run file, and an unknown placeholder is an error.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from stsr.generators import rows, views
from stsr.generators.build import Manifest

CITATION = """\
@software{stsr,
  title = {stsr: state representation and long-horizon transfer},
  license = {Apache-2.0},
  version = {VERSION}
}"""


def render(template: str, **values: Any) -> str:
    """The template hub_cards/templates/`template` with `values`. Raises UndefinedError for a missing one."""
    source = files("stsr.hub_cards").joinpath("templates", template).read_text(encoding="utf-8")
    jinja = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return jinja.from_string(source).render(**values)


def dataset_card(manifest: Manifest) -> str:
    """README.md of a built data set: Hub metadata, summary, data dictionary, splits, use, limits."""
    declared = manifest["declaration"]
    task = rows.generate(declared["family"], min(declared["horizons"]), declared["splits"][0]["first_seed"])
    example = rows.gold_states(task)[-1]
    shown = {
        name: [
            (artifact, "available" if table is None else table.text)
            for artifact, table in views.view(name)(example, example.reference).artifacts
        ]
        for name in declared["views"]
    }
    rule = {name: " ".join((views.view(name).__doc__ or "").split()) for name in declared["views"]}
    total = sum(facts["rows"] for splits in manifest["configs"].values() for facts in splits.values())
    return render(
        "dataset.md",
        manifest=manifest,
        declared=declared,
        example_id=f"{task.id}#{example.stage}",
        example_target=example.reference.text,
        shown=shown,
        rule=rule,
        total=total,
        size=_size_category(total),
        citation=CITATION.replace("VERSION", manifest["version"]),
    )


def base_card(facts: dict[str, Any], repo: str, tag: str) -> str:
    """README.md of the tiny base model, from what `stsr pretrain` left in pretrain.json."""
    return render("base_model.md", facts=facts, repo=repo, tag=tag)


def _size_category(count: int) -> str:
    """The Hub's name for a number of rows."""
    for limit, name in (
        (1e3, "n<1K"),
        (1e4, "1K<n<10K"),
        (1e5, "10K<n<100K"),
        (1e6, "100K<n<1M"),
        (1e7, "1M<n<10M"),
    ):
        if count < limit:
            return name
    return "10M<n<100M"
