"""`stsr run`: an experiment against a Hub on loopback, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stsr.generators.build import read_declaration
from stsr.generators.declaration import load
from stsr.recipes import experiment as graph


def run(name: str, out: Path, hub_root: Path, hub_port: int, dry_run: bool) -> None:
    """Runs the experiment `name` into `out`; with `dry_run` prints its commands instead."""
    experiment = load(graph.Experiment, graph.find(name))
    if dry_run:
        for step in graph.expand(experiment, out):
            print(f"# {step.say}\n{shlex.join(['stsr', *step.command])}")
        return
    with _hub(hub_root) as endpoint:
        seconds = graph.run(name, out, client_environment(endpoint, out))
    print(f"\nDone in {sum(seconds.values()) / 60:.1f} minutes. The report: {out / 'report' / 'report.html'}")
    print(_next_steps(experiment, hub_root, hub_port))


def client_environment(endpoint: str, out: Path) -> dict[str, str]:
    """Settings that point Hub clients at `endpoint`, with a cache of their own so that names cannot mix."""
    return {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str((out / "hf").absolute()),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }


@contextmanager
def _hub(root: Path) -> Iterator[str]:
    from stsr.hub_cards.loopback.process import running_hub

    with running_hub(root) as hub:
        print(f"A Hub on loopback serves {root} at {hub.endpoint} while this runs.", flush=True)
        yield hub.endpoint


def _next_steps(experiment: graph.Experiment, hub_root: Path, port: int) -> str:
    declared = read_declaration(graph.recipes_folder() / experiment.dataset)
    view, seed = experiment.views[0], experiment.seeds[0]
    adapter = experiment.adapter(view, seed)
    serve = "stsr hub serve" + (
        f" --root {shlex.quote(str(hub_root))}" if hub_root != Path("out/hub") else ""
    )
    return f"""
To bring the Hub back, in a second terminal and in this one (with .venv active: . .venv/bin/activate):

    {serve}
    export HF_ENDPOINT=http://127.0.0.1:{port}

Then try, in Python and in the shell:

    from datasets import load_dataset
    load_dataset("{declared.repo}", "h16-compact")

    lm_eval --model hf --model_args pretrained={experiment.base},peft={adapter},enable_thinking=False \\
      --apply_chat_template --tasks stsr_oracle_h16

    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained("{experiment.base}")
    PeftModel.from_pretrained(base, "{adapter}")
"""
