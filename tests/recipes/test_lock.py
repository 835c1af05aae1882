"""Protects: two processes never work in one folder, and a killed one leaves no lock behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stsr.recipes.lock import BusyError, held

HOLDER = """
import sys, time
from pathlib import Path
from stsr.recipes.lock import held
with held(Path(sys.argv[1]), "training"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_one_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "new/run"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(BusyError, match=rf"^another process is training in {folder}: wait"),
            held(folder, "training"),
        ):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with held(folder, "training"):
        pass


def test_a_folder_is_free_again_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"), held(tmp_path, "training"):
            raise ValueError("mine")


def test_where_nothing_was_done_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"), held(tmp_path / "new/run", "training"):
        raise ValueError("mine")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with held(tmp_path / "there/run", "training"):
        (tmp_path / "there/run/plan.json").touch()
    assert sorted(path.name for path in (tmp_path / "there/run").iterdir()) == [".lock", "plan.json"]


def test_a_held_folder_changes_no_file(tmp_path: Path) -> None:
    (tmp_path / "work").touch()
    with held(tmp_path, "training"):
        before = (tmp_path / ".lock").stat().st_mtime_ns
    with held(tmp_path, "training"):
        assert (tmp_path / ".lock").stat().st_mtime_ns == before
