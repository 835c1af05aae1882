"""Speed of reasoning-gym's nearest generators, for `stsr bench`. Run by a Python that has reasoning-gym:

    .venv-peers/bin/python cli/peers.py 2000

reasoning-gym pins versions that conflict with ours, so `make bench` gives it an environment of its own. This
file imports nothing of stsr. It prints one JSON object, generator -> items a second on one core.
"""

from __future__ import annotations

import json
import sys
import time

GENERATORS = ("manipulate_matrix", "course_schedule")


def rate(name: str, count: int) -> float:
    """Items a second of one generator with its default settings."""
    import reasoning_gym  # type: ignore[import-not-found]

    items = reasoning_gym.create_dataset(name, size=count, seed=1)
    began = time.perf_counter()
    for index in range(count):
        items[index]
    return count / (time.perf_counter() - began)


if __name__ == "__main__":
    print(json.dumps({name: rate(name, int(sys.argv[1])) for name in GENERATORS}))
