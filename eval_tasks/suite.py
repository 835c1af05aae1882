"""The suite: every task and group of `harness/`, from the declarations of the data sets.

    python -m stsr.eval_tasks.suite            # rewrites eval_tasks/harness/*.yaml and its shared files

A task is a kind of question (oracle prefix, choice, free run, matched error) over one family, horizon and
view that a data set publishes. A new view in recipes/datasets gives its task files with one run of this.

Invariant: the files of `harness/` are what this module writes, byte for byte; only README.md is by hand.
Source: section 3.3 and appendices A.5, A.8, A.9, C and D of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from stsr.generators.dataset import Declaration, Part, Split, read_declaration
from stsr.generators.views import VIEWS

HARNESS = Path(__file__).with_name("harness")
"""The folder of task files, for `lm_eval --include_path`."""
VERSION = "1.1"
"""Version of all tasks; it moves with any change of prompts, data or metrics. See harness/README.md."""
SOURCES = {"workflows": "table-workflows", "controls": "workflow-controls"}
"""Data set of a task -> its declaration in recipes/datasets."""
MAIN_VIEWS = ("full", "compact", "recent2")
"""Views of the paper's main tables; a group of a family and horizon has these."""
ISOLATING = ("full", "compact", "candidates", "decoy", "compact-filler", "full-target-last", "full-shuffled")
CHOICE_FREE_RUN_PAIRS = 10
"""Appendix A.9: free runs use the first ten test pairs."""
CROSSOVER = "test_crossover"
"""The fifty workflows of the crossover, which the matched error uses too (tables 3, 4 and 7)."""

# -- kinds

CLASSES = {
    "oracle": "OracleTask",
    "branching": "OracleTask",
    "probe": "OracleTask",
    "choice": "ChoiceTask",
    "free_run": "FreeRunTask",
    "free_run_legal": "FreeRunTask",
    "matched_error": "MatchedErrorTask",
}
"""Shared file (and function of `metrics`) -> class of `task`."""
UP, DOWN = "true", "false"
_LEGAL = {"agreement": UP, "legal": UP}
_ORACLE = {"agreement": UP, "post4": UP, "legal": UP, "clean_path": UP}
_AFTER_ERROR = {"success": UP, "progress": UP, "calls": DOWN, "rejection": DOWN}
_FREE_RUN = {**_AFTER_ERROR, "recovery": UP}
METRICS = {
    "oracle": _ORACLE,
    "branching": {**_ORACLE, "noncanonical": DOWN, "progress": UP},
    "probe": _LEGAL,
    "choice": {"choice": UP, "both": UP, "tie": DOWN},
    "free_run": _FREE_RUN,
    "free_run_legal": {**_FREE_RUN, "noncanonical": DOWN},
    "matched_error": _AFTER_ERROR,
}
"""Metric -> whether higher is better."""
COMPLETE = ("clean_path", "both")
"""Metrics that count only what is whole: a path, a pair."""
SAYS = {
    "oracle": "Every decision on the gold path, one call each",
    "branching": "Every decision on the canonical path, one call each; other legal calls are counted apart",
    "probe": "Single decisions, one call each",
    "choice": "The likelier of two calls that can both run, at the stage that the pair is about",
    "free_run": "The model's own calls drive the environment, at most 2H of them",
    "free_run_legal": "As a free run; accepted calls that are not the canonical one are counted apart",
    "matched_error": "Free runs after four gold actions and one injected error, with the calls that are left",
}
"""What a kind asks, for descriptions."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One task."""

    name: str
    """lm-eval name."""
    kind: str
    """Key of CLASSES."""
    source: str
    """Key of SOURCES."""
    config: str
    """Config of the documents."""
    tasks: str
    """Config of the whole tasks, of the same split."""
    view: str
    family: str
    says: str
    """One line: what is asked."""
    seeds_in_split: int
    """Seeds that the split has."""
    split: str = "test"
    condition: str = ""
    """See records.Cell."""
    variant: str = ""
    """Documents of this variant alone; "" for all."""
    seeds: int = 0
    """The first so many seeds alone; 0 for all."""

    def yaml(self, declared: Declaration) -> str:
        """The task file."""
        metadata = {"version": VERSION, "stsr_tasks": self.tasks}
        if self.source != "workflows":
            metadata["stsr_source"] = self.source
        if self.kind in ("free_run", "free_run_legal", "matched_error"):
            metadata["stsr_view"] = self.view
        for key in ("variant", "condition"):
            if value := getattr(self, key):
                metadata[f"stsr_{key}"] = f'"{value}"'
        if self.seeds:
            metadata["stsr_seeds"] = str(self.seeds)
        metadata["description"] = f'"{self.says}"'
        lines = [
            f"include: _{self.kind}",
            f"task: {self.name}",
            f"tag: [{', '.join(self.tags)}]" if self.tags else "",
            f"dataset_path: {declared.repo}" if self.source != "workflows" else "",
            f"dataset_kwargs: {{revision: {declared.tag}}}" if self.source != "workflows" else "",
            f"dataset_name: {self.config}",
            f"test_split: {self.split}" if self.split != "test" else "",
            "metadata:",
            *(f"  {key}: {value}" for key, value in metadata.items()),
        ]
        return "\n".join(filter(None, lines)) + "\n"

    @property
    def tags(self) -> tuple[str, ...]:
        """lm-eval tags: the view's and the family's; none where a task repeats a part of another."""
        if self.name.startswith(("stsr_fast_", "stsr_crossover_")):
            return ()
        return (f"stsr_view_{_word(self.view)}", f"stsr_family_{_word(self.family)}")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Tasks and groups under one name. No aggregate: a mean over views or families answers no question."""

    name: str
    says: str
    members: tuple[str, ...]

    def yaml(self) -> str:
        """The group's file."""
        names = "\n".join(f"  - {name}" for name in self.members)
        return (
            f'group: {self.name}\ngroup_alias: "{self.says}"\ntask:\n{names}\n'
            f"metadata: {{version: {VERSION}}}\n"
        )


def declarations() -> dict[str, Declaration]:
    """The declared data sets, by key of SOURCES."""
    folder = Path(str(files("stsr.recipes"))) / "datasets"
    return {source: read_declaration(folder / f"{name}.yaml") for source, name in SOURCES.items()}


def _word(name: str) -> str:
    return name.replace("-", "_")


def _test(part: Part) -> Split:
    return next(split for split in part.splits if split.name == "test")


# -- tasks


def members() -> dict[str, Member]:
    """Every task by name, in a stable order."""
    declared = declarations()
    found = [
        member
        for source, declaration in declared.items()
        for part in declaration.parts
        for member in _of_part(source, part)
    ]
    crossover = next(
        split for split in declared["workflows"].parts[0].splits if split.name == CROSSOVER
    ).tasks
    found += [
        replace(
            member,
            name=member.name.replace("stsr_", "stsr_crossover_", 1),
            split=CROSSOVER,
            seeds_in_split=crossover,
        )
        for member in found
        if member.family == "chain"
        and member.kind in ("oracle", "free_run")
        and member.config.startswith("h16-")
        and member.view in MAIN_VIEWS
    ]
    return {member.name: member for member in found}


def _of_part(source: str, part: Part) -> Iterator[Member]:
    """The tasks of one part of a data set."""
    split = _test(part)
    for horizon in part.horizons if "{horizon}" in part.config else (0,):
        for variant in part.chosen_variants if "{variant}" in part.config else ("",):
            for view in part.views:
                config = part.config.format(horizon=horizon, variant=variant, view=view)
                whole = part.tasks or part.config.replace("pivotal-{view}", "tasks")
                common = Member(
                    name="",
                    kind="",
                    source=source,
                    config=config,
                    tasks=whole.format(horizon=horizon, variant=variant),
                    view=view,
                    family=part.family,
                    says="",
                    seeds_in_split=split.tasks,
                    variant=variant,
                    condition=variant,
                )
                for member in _of_config(common, horizon, part.pivot_only):
                    yield replace(member, says=_says(member, horizon))


def _of_config(common: Member, horizon: int, pivot_only: bool) -> Iterator[Member]:
    family, word = common.family, _word(common.config)
    oracle = replace(common, name=f"stsr_oracle_{word}", kind="oracle", variant="")
    free = replace(common, name=f"stsr_free_run_{word}", kind="free_run", config=common.tasks)
    if family == "choice" and pivot_only:
        name = f"stsr_choice_h{horizon}_{_word(common.view)}"
        yield replace(oracle, name=name, kind="choice", condition="choice")
    elif family in ("branching", "choice"):
        yield replace(oracle, kind="branching")
        pairs = CHOICE_FREE_RUN_PAIRS if family == "choice" else 0
        yield replace(free, kind="free_run_legal", seeds=pairs)
    elif family in ("chain", "neutral", "state-load", "prefix"):
        yield oracle
        yield free
        if family == "chain" and horizon == 16:
            name = f"stsr_matched_error_h16_{_word(common.view)}"
            yield replace(
                free,
                name=name,
                kind="matched_error",
                condition="matched-error",
                split=CROSSOVER,
                seeds_in_split=50,
            )
    else:
        condition = common.config.removeprefix(family).strip("-") if family == "distractors" else ""
        condition = condition.removeprefix("interface-")
        kind = "probe" if pivot_only else "oracle"
        yield replace(oracle, name=f"stsr_{word}", kind=kind, condition=condition)


def _says(member: Member, horizon: int) -> str:
    """One line for a person."""
    steps = f", {horizon} steps" if horizon else ""
    condition = f", {member.condition}" if member.condition not in ("", "choice", "matched-error") else ""
    shows = VIEWS[member.view].keeps.replace('"', "'").rstrip(".")
    return f"{SAYS[member.kind]}. Family {member.family}{steps}{condition}; prompts: {shows}."


# -- groups


def groups(tasks: dict[str, Member]) -> dict[str, Group]:
    """Every group by name."""
    made: dict[str, Group] = {}

    def group(name: str, says: str, names: Iterable[str]) -> None:
        listed = tuple(names)
        unknown = [member for member in listed if member not in tasks and member not in made]
        assert not unknown, f"{name}: no {unknown}"
        made[name] = Group(name=name, says=says, members=listed)

    for family, horizons in {
        "": (4, 8, 16),
        "neutral_": (4, 8, 16),
        "branching_": (8, 16),
        "choice_": (16,),
    }.items():
        for kind, words in (("oracle", "oracle prefix"), ("free_run", "free run")):
            for h in horizons:
                stem = f"stsr_{kind}_{family}h{h}"
                what = family.rstrip("_") or "chains"
                group(stem, f"STSR {words}, {what} H{h}", [f"{stem}_{view}" for view in MAIN_VIEWS])
    both = ("full", "compact")
    group(
        "stsr_crossover",
        "STSR crossover, chains H16",
        [f"stsr_crossover_{kind}_h16_{view}" for kind in ("oracle", "free_run") for view in MAIN_VIEWS],
    )
    group(
        "stsr_cues",
        "STSR relevance cues, chains H16",
        [f"stsr_{kind}_h16_{view}_cue" for kind in ("oracle", "free_run") for view in both],
    )
    group(
        "stsr_branching",
        "STSR branching graphs",
        [f"stsr_{kind}_branching_h{h}_{v}" for h in (8, 16) for kind in ("oracle", "free_run") for v in both],
    )
    group(
        "stsr_choice",
        "STSR paired choices",
        [f"stsr_{kind}_h16_{view}" for kind in ("choice", "free_run_choice") for view in both],
    )
    group("stsr_matched_error", "STSR matched error", [f"stsr_matched_error_h16_{view}" for view in both])
    for control in ("state_load", "prefix"):
        stems = [n.removeprefix("stsr_oracle_") for n in tasks if n.startswith(f"stsr_oracle_{control}_")]
        for stem in stems:
            pair = [f"stsr_oracle_{stem}", f"stsr_free_run_{stem}"]
            group(f"stsr_{stem}", f"STSR {stem.replace('_', ' ')}", pair)
        group(f"stsr_{control}", f"STSR {control.replace('_', ' ')}", [f"stsr_{stem}" for stem in stems])
    for control in ("interface", "distractors", "padding"):
        group(f"stsr_{control}", f"STSR {control}", [n for n in tasks if n.startswith(f"stsr_{control}_")])
    views = [_word(view) for view in ISOLATING]
    group(
        "stsr_isolating",
        "STSR isolating views, chains H16",
        [f"stsr_{kind}_h16_{view}" for kind in ("oracle", "free_run") for view in views],
    )
    main = [f"stsr_{kind}_h{h}" for kind in ("oracle", "free_run") for h in (4, 8, 16)]
    more = ["crossover", "cues", "branching", "choice", "matched_error", "state_load", "prefix", "interface"]
    more += ["distractors", "factorial", "supplied_recipe", "padding"]
    group("stsr", "STSR, the whole protocol for one model", [*main, *(f"stsr_{name}" for name in more)])
    return made


def leaves(name: str, made: dict[str, Group]) -> list[str]:
    """The tasks behind the name of a task or group."""
    if name not in made:
        return [name]
    return [task for member in made[name].members for task in leaves(member, made)]


def fast(tasks: dict[str, Member], made: dict[str, Group]) -> dict[str, Member]:
    """A tenth of the protocol: each of its tasks, over the first tenth of the seeds."""
    found = {}
    for name in leaves("stsr", made):
        task = tasks[name]
        seeds = math.ceil((task.seeds or task.seeds_in_split) / 10)
        quick = name.replace("stsr_", "stsr_fast_", 1)
        found[quick] = replace(task, name=quick, seeds=seeds, says=f"{task.says} A tenth of the seeds.")
    return found


def fast_group(tasks: dict[str, Member]) -> Group:
    """The group of all fast tasks."""
    names = tuple(name for name in tasks if name.startswith("stsr_fast_"))
    return Group(name="stsr_fast", says="STSR, a tenth of the protocol for one model", members=names)


# -- files


def shared(kind: str) -> str:
    """The file that all tasks of a kind include."""
    metrics = "".join(_metric(name, higher) for name, higher in METRICS[kind].items())
    whole = CLASSES[kind] in ("FreeRunTask", "MatchedErrorTask")
    doc = ("id", "fingerprint") if whole else ('"{{prompt[0].content}}"', '"{{completion[0].content}}"')
    return (
        f"# {SAYS[kind]}.\n"
        "include: _shared\n"
        f"class: !function stsr.eval_tasks.task.{CLASSES[kind]}\n"
        f"doc_to_text: {doc[0]}\n"
        f"doc_to_target: {doc[1]}\n"
        f"process_results: !function stsr.eval_tasks.metrics.{kind}\n"
        "metric_list:  # X_stderr, clustered by task, stands in for the one that lm-eval lacks\n"
        f"{metrics}"
    )


def _metric(name: str, higher: str) -> str:
    mean, error = (
        ("clean_path", "clean_path_stderr") if name in COMPLETE else ("mean_defined", "clustered_stderr")
    )
    line = "  - {{metric: {}, aggregation: !function stsr.eval_tasks.metrics.{}, higher_is_better: {}}}\n"
    return line.format(name, mean, higher) + line.format(f"{name}_stderr", error, DOWN)


def common(declared: Declaration) -> str:
    """The file that all kinds include."""
    return f"""\
# Shared by all tasks. --metadata can change data, revision, split and seeds: see README.md.
dataset_path: {declared.repo}
dataset_kwargs: {{revision: {declared.tag}}}
test_split: test
output_type: generate_until  # the class sends stsr_rollout requests, and renders the prompt of every turn
num_fewshot: 0
generation_kwargs:
  until: []                  # the end-of-turn token alone stops; the first JSON value counts
  max_gen_toks: 160
  do_sample: false
"""


def listing() -> dict[str, str]:
    """Name -> one line, for every task and group, fast ones included."""
    tasks = members()
    made = groups(tasks)
    quick = fast(tasks, made)
    says = {name: group.says for name, group in made.items()}
    says["stsr_fast"] = fast_group(quick).says
    return says | {name: task.says for name, task in (tasks | quick).items()}


def render() -> dict[str, str]:
    """File name -> text, for every generated file of `harness/`."""
    declared, tasks = declarations(), members()
    made = groups(tasks)
    quick = fast(tasks, made)
    made["stsr_fast"] = fast_group(quick)
    out = {"_shared": common(declared["workflows"])}
    out |= {f"_{kind}": shared(kind) for kind in CLASSES}
    out |= {f"{name}.yaml": task.yaml(declared[task.source]) for name, task in (tasks | quick).items()}
    out |= {f"{name}.yaml": group.yaml() for name, group in made.items()}
    return {
        name: f"# By python -m stsr.eval_tasks.suite; change it there.\n{text}" for name, text in out.items()
    }


def write(folder: Path = HARNESS) -> int:
    """Rewrites the folder; returns the number of files. What is not generated, but README.md, goes."""
    return rewrite(folder, render(), keep="README.md")


def rewrite(folder: Path, made: Mapping[str, str], keep: str = "") -> int:
    """Makes the files of `folder` those of `made`, name -> text, and the one called `keep`; counts `made`."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_file() and path.name not in made and path.name != keep:
            path.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(made)


if __name__ == "__main__":
    print(f"{HARNESS} holds {write()} generated files.")
