"""The literal `lm_eval --tasks NAME` for each name of the suite, on lm-eval's own dummy model.

    pytest tests/eval_tasks/test_every_name.py

One command a name would take an hour, since lm-eval reads all of its thousands of files every time. So one
command names all tasks, one the group of the fast ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lm_eval.tasks import TaskManager

from stsr.eval_tasks import suite
from stsr.eval_tasks.suite import HARNESS

MEMBERS = suite.members()
GROUPS = suite.groups(MEMBERS)
FAST = suite.fast(MEMBERS, GROUPS)


@pytest.mark.slow
@pytest.mark.parametrize("names", [",".join(MEMBERS), "stsr_fast"], ids=["tasks", "fast"])
def test_every_name_runs(names: str, data: Path, controls: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lm_eval", "--model", "dummy", "--limit", "1", "--tasks", names]
    command += ["--metadata", json.dumps({"stsr_data": str(data), "stsr_controls": str(controls)})]
    command += ["--include_path", str(HARNESS), "--output_path", str(tmp_path / "out")]
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "home"),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(path.read_text())["results"]
    assert set(results) - {"stsr_fast"} == set(FAST if names == "stsr_fast" else MEMBERS)
    for name, numbers in results.items():
        for metric in ("agreement", "success", "choice"):  # "lol" is no call, and chance is no answer
            assert numbers.get(f"{metric},none", 0) in ((0, 1) if metric == "choice" else (0,)), name


def test_every_group_is_its_tasks(data: Path, controls: Path) -> None:
    manager = TaskManager(include_path=str(HARNESS), include_defaults=False)
    assert set(manager.all_groups) == {*GROUPS, "stsr_fast"}
    kinds = {MEMBERS[leaf].kind for leaf in suite.leaves("stsr", GROUPS)}
    assert kinds == {member.kind for member in MEMBERS.values()}  # no kind of question is left out
    probed = {MEMBERS[leaf].family for leaf in suite.leaves("stsr", GROUPS)}
    assert probed == {member.family for member in MEMBERS.values()} - {"neutral"}  # ours, not the paper's
