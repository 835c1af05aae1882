"""What a killed run leaves: nothing synced is lost, nothing is counted twice, no other cell gets in."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from stsr.eval_tasks import records
from stsr.eval_tasks.episodes import Episode
from stsr.eval_tasks.journal import Journal
from stsr.eval_tasks.records import Cell, RecordError
from stsr.generators import chain

CELL = Cell(
    model="me/base",
    model_revision="1" * 40,
    adapter="me/adapter",
    adapter_revision="2" * 40,
    data="stsr/table-workflows",
    data_revision="3" * 40,
    split="test",
    family="chain",
    horizon=4,
    view="full",
    chat_template="4" * 16,
    dtype="float32",
    backend="SharedPrefixLM",
)
SEEDS = range(62000, 62006)
CELLS = {f"chain-h4/{seed}@full": CELL for seed in SEEDS}


def result(seed: int) -> dict[str, Any]:
    """An episode that plays the gold path."""
    episode = Episode(chain.generate(4, seed), "full")
    while not episode.finished:
        episode.take(episode.reference(), prompt="p", prompt_tokens=1, output_tokens=1)
    return episode.result()


def test_what_was_written_is_there_and_the_whole_file_is_in_order(tmp_path: Path) -> None:
    path = tmp_path / "task.jsonl"
    with Journal(path, CELLS) as journal:
        journal.remember({"a": "one"})
        journal.add([result(62003)])
    again = Journal(path, CELLS)
    assert again.begun
    assert list(again.records) == ["chain-h4/62003@full"]
    assert again.answers == {"a": "one"}
    assert again.result("chain-h4/62003@full") == result(62003)
    with again:
        again.add([result(seed) for seed in SEEDS if seed != 62003])
        again.finish()
    assert [record.id for record in records.read([path])] == list(CELLS)
    assert os.listdir(tmp_path) == ["task.jsonl"]
    assert Journal(path, CELLS).complete


def test_a_line_torn_at_any_byte_is_dropped_alone(tmp_path: Path) -> None:
    path = tmp_path / "task.jsonl"
    with Journal(path, CELLS) as journal:
        journal.remember({"ä": "ö"})
        journal.add([result(62000)])
        journal.remember({"b": "two"})
        journal.add([result(62001)])
    for name in ("task.jsonl.partial", "task.answers.partial"):
        whole = (tmp_path / name).read_bytes()
        for cut in random.Random(1).sample(range(len(whole)), min(len(whole), 150)):
            (tmp_path / name).write_bytes(whole[:cut])
            lines = whole[:cut].count(b"\n")
            with Journal(path, CELLS) as journal:
                if name.endswith("jsonl.partial"):
                    assert list(journal.records) == list(CELLS)[:lines]
                    journal.add([result(seed) for seed in SEEDS[lines:]])
                    assert len(Journal(path, CELLS).records) == len(CELLS)
                else:
                    assert len(journal.answers) == max(0, lines - 1)  # the first line is the cell
                    journal.remember({"c": "three"})
                    assert Journal(path, CELLS).answers["c"] == "three"
        (tmp_path / name).write_bytes(whole)


@pytest.mark.parametrize(
    "field",
    ["model_revision", "adapter_revision", "data_revision", "chat_template", "dtype", "backend", "condition"],
)
@pytest.mark.parametrize("stage", ["records", "answers", "finished"])
def test_another_cell_is_refused_by_name(tmp_path: Path, field: str, stage: str) -> None:
    path = tmp_path / "task.jsonl"
    with Journal(path, CELLS) as journal:
        if stage == "records":
            journal.add([result(62000)])
        if stage == "finished":
            journal.add([result(seed) for seed in SEEDS])
            journal.finish()
    if stage == "records":
        (tmp_path / "task.answers.partial").unlink()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    other = {key: replace(cell, **{field: "other"}) for key, cell in CELLS.items()}
    with pytest.raises(RecordError, match=f"another cell: {field} .*, not 'other'"):
        Journal(path, other)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_two_processes_do_not_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "task.jsonl"
    with Journal(path, CELLS), pytest.raises(RecordError, match="another process is writing"):
        Journal(path, CELLS).__enter__()


def test_nothing_is_recorded_twice_or_half(tmp_path: Path) -> None:
    path = tmp_path / "task.jsonl"
    with Journal(path, CELLS) as journal:
        journal.add([result(62000)])
        with pytest.raises(RecordError, match="62000@full is recorded already"):
            journal.add([result(62000)])
        with pytest.raises(RecordError, match="5 records are missing, such as chain-h4/62001@full"):
            journal.finish()
    with (tmp_path / "task.jsonl.partial").open("a") as file:
        changed = {**json.loads(records.to_json(journal.records["chain-h4/62000@full"])), "success": False}
        file.write(json.dumps(changed) + "\n")
    with pytest.raises(RecordError, match="62000@full was recorded before, with another outcome"):
        Journal(path, CELLS)


# -- kills

PROGRAM = """
import json, os, random, signal, sys, threading, time, traceback
from dataclasses import replace
from pathlib import Path
from lm_eval.api.model import LM
from stsr.eval_tasks.bench import requests
from stsr.eval_tasks.journal import Journal
from stsr.eval_tasks.records import Cell
from stsr.eval_tasks.rollout import stsr_rollout
from stsr.generators import chain
from tqdm import tqdm

# tqdm's own lock is shared between forked processes, and would die with one of them.
tqdm.set_lock(threading.RLock())
tqdm.monitor_interval = 0
folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
cell = Cell(**json.loads(sys.argv[4]))
tasks = [chain.generate(4, seed) for seed in range(62000, 62006)]
cells = {f"{task.id}@full": cell for task in tasks}
asked = folder / "asked"

class Slow(LM):
    batch_size = 1
    tokenizer_name = "slow"
    def apply_chat_template(self, messages, add_generation_prompt=True):
        return messages[0]["content"]
    def generate_until(self, requests):
        out = []
        for request in requests:
            time.sleep(0.001)
            with open(asked, "ab", buffering=0) as file:
                file.write(b".")
            # wrong every other time, so that episodes are long and answers depend on the prompt alone
            text = request.args[0]
            recipes = text.split("Recipes:\\n")[1].split("\\n\\n")[0].splitlines()
            right = "Previous error: none" in text
            out.append(recipes[len(text) % 2] if right else recipes[len(text) % 3 // 2])
        return out
    def loglikelihood(self, requests): ...
    loglikelihood_rolling = loglikelihood

def work(path):
    journal = Journal(path, cells)
    if journal.complete:
        return
    with journal:
        lm = Slow()
        asks = requests(tasks, "full", lm.apply_chat_template)
        for request in asks:
            request.journal = journal
        stsr_rollout(lm, asks, disable_tqdm=True)
        journal.finish()

work(folder / "whole" / "task.jsonl")
whole = asked.stat().st_size
asked.unlink()
dice, died = random.Random(seed), 0
path = folder / "killed" / "task.jsonl"
finished = 0
while died < kills:
    child = os.fork()
    if not child:
        try:
            work(path)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    time.sleep(dice.random() * 0.12)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    died += os.WIFSIGNALED(status)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        sys.exit("a run that should continue failed")
    if path.exists():
        assert path.read_bytes() == (folder / "whole" / "task.jsonl").read_bytes()
        finished += 1
        path.unlink()
        for rest in path.parent.iterdir():
            rest.unlink()
work(path)
assert path.read_bytes() == (folder / "whole" / "task.jsonl").read_bytes()
print(json.dumps({"kills": died, "finished": finished + 1, "asked": asked.stat().st_size, "once": whole}))
"""


def killed(tmp_path: Path, kills: int) -> dict[str, int]:
    """Runs the same task again and again, each time killed after some milliseconds, and compares what is left
    with an uninterrupted run, byte for byte."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            PROGRAM,
            str(tmp_path),
            str(kills),
            "7",
            json.dumps(asdict(CELL)),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_kills_at_random_moments_lose_and_double_nothing(tmp_path: Path) -> None:
    told = killed(tmp_path, 60)
    assert told["kills"] == 60
    # A kill costs at most the batches since the last sync: 8 prompts here.
    assert told["asked"] <= told["once"] * told["finished"] + 8 * told["kills"]


@pytest.mark.slow
def test_a_thousand_kills(tmp_path: Path) -> None:
    told = killed(tmp_path, 1000)
    assert told["kills"] == 1000
    assert told["finished"] > 20
    assert told["asked"] <= told["once"] * told["finished"] + 8 * told["kills"]
