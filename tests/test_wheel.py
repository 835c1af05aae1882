"""Protects: a wheel brings the lm-eval tasks along, and its removal takes all of them away again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import lm_eval
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NOT_SOURCE = (".*", "out", "build", "dist", "*.egg-info", "__pycache__", "tests")
LISTED = "from lm_eval.tasks import TaskManager; print('stsr_oracle_h16' in TaskManager().all_tasks)"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of a fresh environment that has a copy of lm-eval without tasks.

    It sees all else that this environment has but the editable install, which comes by a `.pth` file.
    """
    venv.create(tmp_path / "env", with_pip=False)
    site = tmp_path / "env" / Path(sysconfig.get_path("purelib")).relative_to(sysconfig.get_path("data"))
    harness = Path(lm_eval.__file__).parent

    def tasks(folder: str, names: list[str]) -> list[str]:
        """Those of lm-eval's own are many, and none of them matters here."""
        return [name for name in names if Path(folder) == harness / "tasks" and not name.endswith(".py")]

    shutil.copytree(harness, site / "lm_eval", ignore=tasks)
    (site / "seen.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return tmp_path / "env/bin/python"


def run(*command: str | Path, cwd: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**kept, "HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def installed(python: Path) -> set[str]:
    """Files of the environment, and folders among lm-eval's tasks. pip leaves an empty `stsr` elsewhere."""
    return {
        str(path)
        for path in python.parents[1].rglob("*")
        if "__pycache__" not in path.parts and (path.is_file() or path.parent.name == "tasks")
    }


def test_a_wheel_brings_the_tasks_and_takes_them_away(python: Path, tmp_path: Path) -> None:
    source = shutil.copytree(ROOT, tmp_path / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path))
    run(*pip, "wheel", "--quiet", *options, source, cwd=tmp_path)
    (wheel,) = tmp_path.glob("stsr-*.whl")

    assert run(python, "-c", LISTED, cwd=tmp_path) == "False"
    before = installed(python)
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    assert run(python, "-c", LISTED, cwd=tmp_path) == "True"
    assert "stsr_oracle_h16" in run(python, "-m", "lm_eval", "ls", "tasks", cwd=tmp_path)
    code = run(python, "-c", "import stsr.eval_tasks.task as task; print(task.__file__)", cwd=tmp_path)
    assert Path(code).is_relative_to(python.parents[1])
    assert run(python.with_name("stsr"), "tasks-path", cwd=tmp_path).startswith(str(python.parents[1]))

    run(*pip, "--python", python, "uninstall", "--yes", "stsr", cwd=tmp_path)
    assert installed(python) == before
    assert run(python, "-c", LISTED, cwd=tmp_path) == "False"
