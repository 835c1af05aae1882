"""`stsr run`: an experiment against a Hub on loopback, and what to type next."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from pathlib import Path

import yaml

from stsr.generators.declaration import DeclarationError
from stsr.recipes import cluster, graph
from stsr.recipes.experiment import Experiment, find, read_experiment, smoked
from stsr.recipes.lock import held

PORT = 8077
"""Where `stsr hub serve` listens unless told otherwise."""
QUICKSTART_HUB = Path("out/quickstart/hub")
"""What `stsr hub serve` serves unless told otherwise."""


def run(
    name: str,
    out: Path | None,
    *,
    base: str = "",
    dry_run: bool = False,
    jobs: int = 0,
    profile: str = "",
    run_extension: bool = False,
) -> None:
    """Runs the experiment `name`, or that of a file, into `out`; with `dry_run` prints its commands instead.

    `out` is out/NAME or out/NAME-BASE by default.

    With a `base`, the experiment's shape on that, as small as its smoke block says. With `jobs` or a
    `profile` Snakemake runs the steps. The Hub's store is `out/hub`, so that two runs never compete for one
    name and tag. Raises BusyError if another process runs into `out`.
    """
    path = find(name)
    experiment, out = read_experiment(path), out or Path("out") / "-".join(filter(None, [path.stem, base]))
    if base:
        experiment = smoked(experiment, base)
    steps = graph.expand(experiment, out, run_extension)
    if jobs or profile:
        cluster.check(profile)
    if dry_run:
        print(graph.plan(steps, graph.times(out)))
        return
    from stsr.hub_cards.loopback.process import running_hub

    if not profile:
        _check_gpus(steps)
    with held(out, "running an experiment"), running_hub(out / "hub") as hub:
        print(f"A Hub on loopback serves {out / 'hub'} at {hub.endpoint} while this runs.", flush=True)
        text = yaml.safe_dump(_plain(asdict(experiment)), sort_keys=False)
        Path(graph.experiment_file(out)).write_text(text, encoding="utf-8")
        environment = client_environment(hub.endpoint, out / "hf")
        if jobs or profile:
            cluster.run(steps, out, environment, jobs=jobs, profile=profile)
        else:
            seconds = graph.run_steps(steps, out, environment)
            print(f"\nDone; the steps took {sum(seconds.values()) / 60:.1f} minutes.")
    print(f"The report: {out / 'report' / 'report.html'}")
    if name == "quickstart":
        print(_next_steps(experiment, out / "hub"))


def _check_gpus(steps: list[graph.Step]) -> None:
    """Raises DeclarationError if a step asks for more GPUs than this machine has."""
    needed = max(step.needs.gpus for step in steps)
    if not needed:
        return
    import torch  # takes seconds, and only such experiments need it

    if needed > (here := torch.cuda.device_count()):
        raise DeclarationError(
            f"a step asks for {needed} GPU and this machine has {here or 'none'}: run it on a cluster with "
            "--profile, print it with --dry-run, or run its shape on a CPU with --base tiny"
        )


def _plain(value: object) -> object:
    """`value` with lists for tuples, as YAML writes them."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


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
        # A bar for each file that is read would bury what a command says and its own bar.
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
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


def _next_steps(experiment: Experiment, hub_root: Path) -> str:
    adapter, base = experiment.trained[0].adapter, experiment.bases[0].repo
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
    load_dataset("stsr/table-workflows", "h16-compact")

    lm_eval --model hf --model_args pretrained={base},peft={adapter},enable_thinking=False \\
      --apply_chat_template --tasks stsr_oracle_h16

    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained("{base}")
    PeftModel.from_pretrained(base, "{adapter}")
"""
