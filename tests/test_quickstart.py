"""Protects: the quickstart and the three calls that it promises, as a user runs them. It takes minutes."""

import csv
import json
import os
import signal
import subprocess
import sys

import pytest

from stsr.cli.running import client_environment
from stsr.hub_cards.loopback.process import running_hub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which `stsr run quickstart` was killed once and then ran to its end."""
    folder = tmp_path_factory.mktemp("quickstart")
    command = [sys.executable, "-m", "stsr.cli.main", "run", "quickstart"]
    killed = subprocess.Popen(
        command, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with pytest.raises(subprocess.TimeoutExpired):
        killed.wait(60)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "export HF_ENDPOINT=http://127.0.0.1:8077" in done.stdout
    return folder


def cells(place):
    with open(place / "out/quickstart/report/crossover.csv") as lines:
        return {(row["kind"], row["trained_on"], row["tested_on"]): row for row in csv.DictReader(lines)}


def test_each_adapter_learns_its_own_view(place):
    # Chance is 40 of 80; the quickstart promises 95%, which is 76. Seen: full 80, compact 78.
    for view in ("full", "compact"):
        cell = cells(place)["oracle_prefix", view, view]
        assert int(cell["n"]) == 80
        assert int(cell["k"]) >= 76


def test_the_report_holds_both_kinds_of_evaluation(place):
    trained = {key for key in cells(place) if key[1] in ("full", "compact")}
    assert len(trained) == 8
    page = (place / "out/quickstart/report/report.html").read_text()
    assert "<h1" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_pairs_saw_the_same_rows_in_the_same_order(place):
    logs = []
    for view in ("full", "compact"):
        text = (place / f"out/quickstart/train/tiny-h4-{view}/adapter/exposure.jsonl").read_text()
        logs.append([[row.split("@")[0] for row in json.loads(line)["rows"]] for line in text.splitlines()])
    assert logs[0] == logs[1]
    assert sum(map(len, logs[0])) == 800


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("chain-h4/60000#1@full", ["5. Trained: presented in training", "tiny-h4-full: step"]),
        ("chain-h4/62000#1@full", ["7. Asked: asked of 3 models through lm-eval", "of 80 decisions agree"]),
    ],
)
def test_follow_finds_the_datum_again(place, row, said):
    done = subprocess.run(
        [sys.executable, "-m", "stsr.cli.main", "follow", row],
        cwd=place,
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(text in done.stdout for text in said), done.stdout


def test_the_three_calls(place):
    script = """
from datasets import load_dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM
data = load_dataset("stsr/table-workflows", "h16-compact")
assert data["train"].num_rows == 3200, data
base = AutoModelForCausalLM.from_pretrained("stsr/tiny-base")
print(type(PeftModel.from_pretrained(base, "stsr/tiny-h4-full")).__name__)
"""
    with running_hub(place / "out/quickstart/hub") as hub:
        env = client_environment(hub.endpoint, place / "user")
        python = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
        assert python.returncode == 0, python.stderr[-3000:]
        assert python.stdout.strip() == "PeftModelForCausalLM"
        harness = subprocess.run(
            [
                *(sys.executable, "-m", "lm_eval", "--model", "hf", "--apply_chat_template", "--limit", "4"),
                *("--model_args", "pretrained=stsr/tiny-base,peft=stsr/tiny-h4-full,enable_thinking=False"),
                *("--tasks", "stsr_oracle_h16"),
            ],
            env=env,
            capture_output=True,
            text=True,
        )
        assert harness.returncode == 0, harness.stderr[-3000:]
    for view in ("full", "compact", "recent2"):
        assert f"stsr_oracle_h16_{view}" in harness.stdout
