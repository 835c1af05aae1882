"""Tracking with trackio: on this machine alone, each update once, and no weight changes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.training import TINY, Run, weights


@pytest.mark.slow
def test_tracking_is_local_and_changes_no_weight(run: Run, overrides: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    changes = {**overrides, "max_steps": 4, "save_at_steps": [4]}
    plain = run(**{key: changes[key] for key in ("max_steps", "save_at_steps")})
    settings = [word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = [sys.executable, "-m", "stsr.recipes.train", str(TINY), "--view=full", "--seed=7"]
    command += ["--data-seed=11", f"--out={tmp_path / 'run'}", *settings, "--set", "report_to=trackio"]
    here = {"TRACKIO_DIR": str(tmp_path / "tracked"), "HF_HOME": str(tmp_path / "home")}
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command,
        env={**os.environ, **here, **nowhere},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert weights(tmp_path / "run/adapter") == weights(plain / "adapter")
    with sqlite3.connect(tmp_path / "tracked/stsr.db") as database:
        rows = database.execute("SELECT run_name, metrics FROM metrics ORDER BY step").fetchall()
    logged = [json.loads(metrics) for _, metrics in rows]
    assert {name for name, _ in rows} == {"stsr/tiny-h4-full"}
    assert [line["train/global_step"] for line in logged if "train/loss" in line] == [1, 2, 3, 4]
