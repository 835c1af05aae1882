"""Cards of data sets and base models, written from what was built and never by hand.

Invariant: every number on a card comes from a manifest or a run file, and an unknown placeholder is an error.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from stsr.generators import prompts, rows, views
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
    names = list(dict.fromkeys(name for part in declared["parts"] for name in part["views"]))
    row = rows.parse_row_id(f"{declared['example']}@full")
    task = rows.generate(row.family, row.horizon, row.seed, row.variant)
    example = rows.gold_states(task)[row.stage - 1]
    configs = {config: list(splits) for config, splits in manifest["configs"].items()}
    total = sum(facts["rows"] for facts in manifest["files"].values())
    return render(
        "dataset.md",
        manifest=manifest,
        declared=declared,
        configs=configs,
        sharded=any("-of-" in path for path in manifest["files"]),
        default=next(config for config in configs if config.endswith(f"-{names[0]}")),
        families={part["family"]: rows.find_family(part["family"]).summary for part in declared["parts"]},
        views={name: views.view(name) for name in names},
        example_id=declared["example"],
        example_target=example.reference.text,
        shown=_worked_example({name: views.view(name)(example, example.reference) for name in names}),
        total=total,
        size=_size_category(total),
        citation=CITATION.replace("VERSION", manifest["version"]),
    )


def _worked_example(observations: dict[str, views.Observation]) -> dict[str, list[str]]:
    """View -> lines of the state; where all but one are those of the first view, that one alone."""
    shown = {name: _shown(observation) for name, observation in observations.items()}
    first, *others = shown
    for name in others:
        new = [line for line in shown[name] if line not in shown[first]]
        if (
            len(new) == 1
            and len(shown[first]) > 2
            and [x for x in shown[name] if x not in new] == [x for x in shown[first] if x in shown[name]]
        ):
            shown[name] = [*new, f"(the other lines as under {first})"]
    return shown


def _shown(observation: views.Observation) -> list[str]:
    """Lines of the state as a prompt prints it, long ones cut."""
    if observation.reply != "call":
        return ["Artifacts: " + ", ".join(name for name, _ in observation.artifacts)]
    lines = [f"{name}: {prompts.contents(shown)}" for name, shown in observation.artifacts]
    lines += [f"relevance_hint: {', '.join(observation.hint)}"] if observation.hint else []
    return [line if len(line) <= 200 else f"{line[:150]} ... {line[-20:]}" for line in lines]


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
