"""`stsr run`: an experiment against a Hub on loopback, and what to type next."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from stsr.generators.dataset import read_declaration
from stsr.recipes import experiment as graph
from stsr.recipes.lock import held
from stsr.recipes.scienceworld_study import declares

PORT = 8077
"""Where `stsr hub serve` listens unless told otherwise."""
QUICKSTART_HUB = Path("out/quickstart/hub")
"""What `stsr hub serve` serves unless told otherwise."""


def run_study(path: Path, out: Path, dry_run: bool, run_extension: bool) -> None:
    """Runs an experiment of the ScienceWorld study into `out`, and writes its tables."""
    from stsr.hub_cards.loopback.process import running_hub
    from stsr.recipes import scienceworld_study as scienceworld

    study = scienceworld.read_study(path)
    steps = scienceworld.expand(study, out, run_extension)
    if dry_run:
        for step in steps:
            print(f"# {step.say}\n{shlex.join(['stsr', *step.command])}")
        return
    out.mkdir(parents=True, exist_ok=True)
    with held(out, "running an experiment"), running_hub(out / "hub") as hub:
        graph.run_steps(steps, out, client_environment(hub.endpoint, out / "hf"))
    from stsr.eval_tasks.scienceworld_records import read
    from stsr.stats.scienceworld import Arm, write

    scienceworld.write_arms(study, out / "arms.json")
    arms = [Arm(**arm) for arm in json.loads((out / "arms.json").read_text(encoding="utf-8"))]
    tables = write(read(sorted((out / "records").rglob("*.jsonl"))), arms, out / "report")
    print(f"{out / 'report' / 'scienceworld.md'} holds {len(tables)} tables.")


def run(name: str, out: Path, dry_run: bool, run_extension: bool = False) -> None:
    """Runs the experiment `name` into `out`; with `dry_run` prints its commands instead.

    The Hub's store is `out/hub`, so that two runs never compete for one name and tag. Raises BusyError if
    another process runs into `out`.
    """
    path = graph.find(name)
    if declares(path):
        run_study(path, out, dry_run, run_extension)
        return
    experiment = graph.read_experiment(path)
    if dry_run:
        for step in graph.expand(experiment, out):
            print(f"# {step.say}\n{shlex.join(['stsr', *step.command])}")
        return
    from stsr.hub_cards.loopback.process import running_hub

    with held(out, "running an experiment"), running_hub(out / "hub") as hub:
        print(f"A Hub on loopback serves {out / 'hub'} at {hub.endpoint} while this runs.", flush=True)
        seconds = graph.run(name, out, client_environment(hub.endpoint, out / "hf"))
    print(f"\nDone; the steps took {sum(seconds.values()) / 60:.1f} minutes.")
    print(f"The report: {out / 'report' / 'report.html'}")
    print(_next_steps(experiment, out / "hub"))


def client_environment(endpoint: str, home: Path) -> dict[str, str]:
    """The environment of a command whose Hub is `endpoint` and whose caches are in `home` alone.

    Settings of the user's own Hub, its token among them, are left out. Loopback goes past any proxy.
    """
    ours = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home.absolute()),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }
    theirs = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("HF_", "HUGGING", "TRANSFORMERS_OFFLINE"))
    }
    for key in ("NO_PROXY", "no_proxy"):
        theirs[key] = ",".join(filter(None, [theirs.get(key, ""), "127.0.0.1", "localhost"]))
    return theirs | ours


def _next_steps(experiment: graph.Experiment, hub_root: Path) -> str:
    declared = read_declaration(graph.recipes_folder() / experiment.datasets[-1])
    adapter = experiment.adapter(experiment.views[0], experiment.seeds[0])
    serve = "stsr hub serve" + ("" if hub_root == QUICKSTART_HUB else f" --root {shlex.quote(str(hub_root))}")
    proxied = any(os.environ.get(key) for key in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"))
    past_proxy = "\n    export NO_PROXY=127.0.0.1" if proxied else ""
    return f"""
To bring the Hub back, type the first line in one terminal and the second in another (in each, activate the
environment first: . .venv/bin/activate):

    {serve}
    export HF_ENDPOINT=http://127.0.0.1:{PORT}{past_proxy}

Then try, in the second terminal, in Python and in the shell:

    from datasets import load_dataset
    load_dataset("{declared.repo}", "h16-compact")

    lm_eval --model hf --model_args pretrained={experiment.base},peft={adapter},enable_thinking=False \\
      --apply_chat_template --tasks stsr_oracle_h16

    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained("{experiment.base}")
    PeftModel.from_pretrained(base, "{adapter}")
"""
