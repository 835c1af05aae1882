"""Protects: plain lines; mistakes exit with 2 and name the alternatives; no traceback."""

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stsr.cli import main as command_line
from stsr.recipes.lock import held

ROOT = Path(__file__).parents[2]


def stsr(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "stsr.cli.main", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=environment.pop("cwd", ROOT),
        env={**os.environ, **environment},
    )


def test_follow_prints_the_eight_stops(tmp_path):
    done = stsr("follow", "chain-h16/62017#7@compact", "--results", tmp_path / "none")
    assert done.returncode == 0, done.stderr
    stops = [line.split(":")[0] for line in done.stdout.splitlines() if line[:1].isdigit()]
    assert stops == [
        "1. Declared",
        "2. Generated",
        "3. Shown",
        "4. Row",
        "5. Trained",
        "6. Adapter",
        "7. Asked",
        "8. Counted",
    ]
    assert "stsr/table-workflows 1.1.0, h16-compact, test: The main test." in done.stdout
    assert "contents visible: a6; hidden: s0, a1, a2, a3, a4, a5" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["follow", "chain-h16/62017#7@compct"], "unknown view 'compct'; there are full, compact, recent2"),
        (["follow", "chain-h5/62017#1@full"], "the family chain has horizon 4, 8, 16; not 5"),
        (["follow", "62017"], "is not a row id such as"),
        (["run", "quickstrt"], "unknown experiment 'quickstrt'; there are"),
        (["build", "nowhere.yaml", "--out", "x"], "nowhere.yaml: cannot be read"),
        (
            ["publish", ".", "--repo", "a/b", "--type", "spcae"],
            "'spcae' is not one of 'dataset', 'model', 'space'",
        ),
        (["nonsense"], "No such command 'nonsense'; there are build, publish, diff, train"),
        (["hub"], "Missing command; there are serve"),
        (["--colour"], "No such option: --colour"),
        (["tasks", "zzz*"], "no task or group is like 'zzz*'; `stsr tasks` alone lists all"),
        (
            ["adapters", "verify", "recipes", "--device", "banana"],
            "unknown device 'banana'; this machine has",
        ),
        (["records", "psh"], "there are push, traces"),
        (["hub", "serve", "--port", "99999"], "'--port': Input should be less than or equal to 65535"),
        (["build", "recipes/datasets/table-workflows.yaml", "--out", "README.md"], "'README.md' is a file"),
        (["regrade", "nowhere", "--out", "x"], "'nowhere' does not exist"),
        (["adapters", "exposure", "nowhere"], "'nowhere' does not exist"),
        (["tasks", "stsr_oracel_h4"], "no task or group is like 'stsr_oracel_h4'; near are stsr_oracle_h4"),
        (["run", "recipes/sft/nowhere.yaml"], "there are 8b-crossover, branching"),
        (
            ["run", "quickstart", "--dry-run", "--profile", "wrong"],
            "no profile 'wrong'; there are kubernetes",
        ),
        (["run", "quickstart", "--profile", "wrong", "--out", "never"], "no profile 'wrong'; there are"),
        (
            ["train", "recipes/sft/tiny.yaml", "--view", "full", "--seed", "-1"],
            "'--seed': Input should be greater than or equal to 0",
        ),
        (
            ["train", "recipes/sft/tiny.yaml", "--view", "full", "--set", "seed=-1", "--out", "never"],
            "a seed is a whole number from 0",
        ),
        (["train", "recipes/sft/tiny.yaml", "--seed", "1"], "Missing option '--view'"),
        (
            ["eval", "--model", "a/b", "--tasks", "x", "--out", "x", "--limit", "-1"],
            "Invalid value for '--limit'",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, message):
    done = stsr(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (ROOT / "never").exists()


def test_what_to_ask_is_checked_before_anything_is_looked_up():
    eval_ = ["eval", "--model", "stsr/tiny-base@v1.0.0", "--out", "never"]
    for words, message in [
        (["--tasks", "stsr_oracel_h4"], "no task 'stsr_oracel_h4'; near are stsr_oracle_h4"),
        (
            ["--tasks", "stsr_oracle_h4", "--device", "banana"],
            "unknown device 'banana'; this machine has cpu",
        ),
        (["--tasks", "stsr_oracle_h4", "--device", "xpu"], "there is no device 'xpu' here"),
    ]:
        done = stsr(*eval_, *words, HF_ENDPOINT="http://127.0.0.1:9")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert message in done.stderr
    assert not (ROOT / "never").exists()


def test_a_gpu_that_is_not_there_is_missed_before_the_first_step():
    done = stsr("run", "h16-crossover", "--out", "never", CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "a step asks for 1 GPU and this machine has none" in done.stderr
    assert not (ROOT / "never").exists()


def test_a_path_is_an_experiment_too(tmp_path):
    mine = tmp_path / "mine.v2.yaml"
    mine.write_text(Path("recipes/experiments/padding.yaml").read_text())
    done = stsr("run", mine, "--dry-run", "--base", "tiny")
    assert done.returncode == 0, done.stderr
    assert "--out out/mine.v2-tiny/report" in done.stdout


def test_a_refusal_of_the_work_is_exit_code_1(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("x")
    done = stsr("build", "recipes/datasets/table-workflows.yaml", "--out", tmp_path / "mine")
    assert done.returncode == 1
    assert "holds no built data set; choose another folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_runs_in_one_folder_are_refused(tmp_path):
    with held(tmp_path, "running an experiment"):
        done = stsr("run", "quickstart", "--out", tmp_path)
    assert done.returncode == 1
    said = f"stsr: another process is running an experiment in {tmp_path}: wait for its end, or "
    assert done.stderr == f"{said}use another folder\n"


def test_build_leaves_a_card_with_every_config_and_split(tmp_path):
    import yaml

    done = stsr("build", "recipes/datasets/table-workflows-1.0.0.yaml", "--out", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert "12 configs, 26,540 rows" in done.stdout
    card = (tmp_path / "data/README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert len(front["configs"]) == 12
    for config in front["configs"]:
        for file in config["data_files"]:
            assert (tmp_path / "data" / file["path"]).exists()
    assert "{{" not in card
    manifest = json.loads((tmp_path / "data/manifest.json").read_text())
    assert len(manifest["tasks"]) == 860
    assert len({facts["fingerprint"] for facts in manifest["tasks"].values()}) == 860


def test_tasks_path_is_the_folder_of_the_tasks():
    done = stsr("tasks-path")
    assert (Path(done.stdout.strip()) / "stsr_oracle_h16.yaml").exists()


def test_examples():
    assert doctest.testmod(command_line).failed == 0
