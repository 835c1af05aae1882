"""What reads or judges results needs neither torch nor lm-eval."""

from __future__ import annotations

import subprocess
import sys


def test_the_pure_modules_import_nothing_heavy() -> None:
    names = ("records", "samples", "episodes", "metrics", "replay", "viewer", "traces")
    program = (
        f"import sys; import {', '.join(f'stsr.eval_tasks.{name}' for name in names)}; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"torch", "transformers", "lm_eval", "datasets"}.isdisjoint(loaded.stdout.split())
