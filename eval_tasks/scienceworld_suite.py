"""The task files of `scienceworld_harness/`, from the declaration of the trajectories.

    python -m stsr.eval_tasks.scienceworld_suite            # rewrites eval_tasks/scienceworld_harness/*

Invariant: the files of that folder are what this module writes, byte for byte.
Source: section 4.7 and appendix F of the paper.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from stsr.eval_tasks.scienceworld_metrics import FREE_RUN, LOCAL
from stsr.eval_tasks.suite import rewrite
from stsr.generators.scienceworld.dataset import Declaration, read_declaration
from stsr.generators.scienceworld.extension import COMPACT, FULL
from stsr.generators.scienceworld.views import VIEWS

HARNESS = Path(__file__).with_name("scienceworld_harness")
VERSION = "1.0"
"""Version of all tasks; it moves with any change of prompts, data, extraction or metrics."""
HEADER = "# By python -m stsr.eval_tasks.scienceworld_suite; change it there.\n"
SAYS = {
    "local": "Every decision of the held-out reference paths, one call each; no simulator",
    "free_run": "The model's own actions drive the simulator, at most 100 of them; needs Java",
    "pilot": "Free runs of ten official test variations; needs Java",
    "extension": "Free runs of 58 official test variations: frozen, and refused without a flag; needs Java",
}
"""What a kind asks."""
CLASSES = {
    "local": "LocalTask",
    "free_run": "FreeRunTask",
    "pilot": "TestTask",
    "extension": "ExtensionTask",
}
LOWER_IS_BETTER = ("calls", "rejection")
OWN_AGGREGATE = {
    "by_workflow": "scienceworld_metrics.by_workflow",
    "no_rejection": "scienceworld_metrics.accepted_share",
    "clean_path": "metrics.clean_path",
}


def declared() -> Declaration:
    """The declaration of the trajectories."""
    folder = Path(str(files("stsr.recipes"))) / "datasets"
    return read_declaration(folder / "scienceworld-trajectories.yaml")


def tasks() -> dict[str, tuple[str, str]]:
    """Name -> (kind, view), for every task."""
    found = {f"stsr_scienceworld_local_{_word(view)}": ("local", view) for view in VIEWS}
    found |= {f"stsr_scienceworld_free_run_{_word(view)}": ("free_run", view) for view in VIEWS}
    for kind in ("pilot", "extension"):
        found |= {f"stsr_scienceworld_{kind}_{_word(view)}": (kind, view) for view in (FULL, COMPACT)}
    return found


def groups() -> dict[str, tuple[str, list[str]]]:
    """Name -> (alias, tasks), for every group. No aggregate: a mean over views answers no question."""
    made = {}
    for kind in ("local", "free_run", "pilot"):
        names = [f"stsr_scienceworld_{kind}_{_word(view)}" for view in (FULL, COMPACT)]
        made[f"stsr_scienceworld_{kind}"] = (f"STSR ScienceWorld, {kind.replace('_', ' ')}", names)
    return made


def listing() -> dict[str, str]:
    """Name -> one line, for every task and group."""
    says = {name: alias for name, (alias, _) in groups().items()}
    return says | {name: _says(kind, view) for name, (kind, view) in tasks().items()}


def _word(name: str) -> str:
    return name.replace("-", "_")


def _says(kind: str, view: str) -> str:
    return f"{SAYS[kind]}. Prompts: {VIEWS[view].keeps.rstrip('.')}."


def _task(name: str, kind: str, view: str) -> str:
    config = {"local": view, "free_run": "workflows"}.get(kind, kind)
    condition = f"  stsr_condition: {kind}\n" if kind in ("pilot", "extension") else ""
    return (
        f"include: _scienceworld_{kind}\ntask: {name}\n"
        f"tag: [stsr_scienceworld_view_{_word(view)}]\ndataset_name: {config}\n"
        f"metadata:\n  version: {VERSION}\n  stsr_view: {view}\n{condition}"
        f'  description: "{_says(kind, view).replace(chr(34), chr(39))}"\n'
    )


def _shared(kind: str) -> str:
    local = kind == "local"
    data = declared()
    scores = "local" if local else "free_run"
    doc = ('"{{prompt[0].content}}"', '"{{completion[0].content}}"') if local else ("id", "id")
    metrics = "".join(map(_metric, LOCAL if local else FREE_RUN))
    return (
        f"# {SAYS[kind]}.\n"
        f"class: !function stsr.eval_tasks.scienceworld_task.{CLASSES[kind]}\n"
        f"dataset_path: {data.repo}\ndataset_kwargs: {{revision: {data.tag}}}\n"
        "test_split: test\noutput_type: generate_until  # the class sends requests of its own type\n"
        f"num_fewshot: 0\ndoc_to_text: {doc[0]}\ndoc_to_target: {doc[1]}\n"
        "generation_kwargs:\n"
        "  until: []                  # the first line that is not blank counts\n"
        "  max_gen_toks: 160\n  do_sample: false\n"
        f"process_results: !function stsr.eval_tasks.scienceworld_metrics.{scores}\n"
        "metric_list:  # X_stderr, clustered by workflow, stands in for the one that lm-eval lacks\n"
        f"{metrics}"
    )


def _metric(name: str) -> str:
    line = "  - {{metric: {}, aggregation: !function stsr.eval_tasks.{}, higher_is_better: {}}}\n"
    up = "false" if name in LOWER_IS_BETTER else "true"
    made = line.format(name, OWN_AGGREGATE.get(name, "metrics.mean_defined"), up)
    if name == "clean_path":
        return made + line.format(f"{name}_stderr", "metrics.clean_path_stderr", "false")
    if name in OWN_AGGREGATE:
        return made
    return made + line.format(f"{name}_stderr", "metrics.clustered_stderr", "false")


def render() -> dict[str, str]:
    """File name -> text."""
    out = {f"_scienceworld_{kind}": _shared(kind) for kind in SAYS}
    out |= {f"{name}.yaml": _task(name, kind, view) for name, (kind, view) in tasks().items()}
    for name, (alias, names) in groups().items():
        members = "".join(f"  - {member}\n" for member in names)
        out[f"{name}.yaml"] = (
            f'group: {name}\ngroup_alias: "{alias}"\ntask:\n{members}metadata: {{version: {VERSION}}}\n'
        )
    return {name: HEADER + text for name, text in out.items()}


def write(folder: Path = HARNESS) -> int:
    """Rewrites the folder; returns the number of files. What is not generated goes."""
    return rewrite(folder, render())


if __name__ == "__main__":
    print(f"{HARNESS} holds {write()} generated files.")
