"""Protects: a peer in a process of its own plays the same episodes; when it ends, the error says how to look.

The peer here answers lines as cli/inspect_peer.py does. inspect_ai itself runs in `make bench`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stsr.eval_tasks.bench import requests
from stsr.eval_tasks.peer import InspectLM
from stsr.eval_tasks.rollout import run
from stsr.generators import chain

STAND_IN = """#!{python}
import json, sys
for number, line in enumerate(sys.stdin, 1):
    chats = json.loads(line)
    if number > 3: sys.exit(7)
    assert all(message["role"] == "user" for chat in chats for message in chat)
    print(json.dumps({{"replies": ["no"] * len(chats), "seconds": 0.5, "passes": 10 * number}}), flush=True)
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(STAND_IN.format(python=sys.executable))
    path.chmod(0o755)
    return path


def test_rounds_go_to_the_peer(python: Path) -> None:
    tasks = [chain.generate(4, seed) for seed in (1, 2)]
    with InspectLM(python, "a-model", 16) as lm:
        asked = requests(tasks, "full", lm.apply_chat_template)
        with pytest.raises(RuntimeError, match=r"exit code 7; to see why: .*inspect_peer.py a-model 16$"):
            run(lm, asked, disable_tqdm=True)
        assert (lm.seconds, lm.passes) == (1.5, 30)  # three rounds were answered
