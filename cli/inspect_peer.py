"""Answers prompts with inspect_ai's `hf` provider, for `stsr bench`. Run by a Python that has inspect_ai:

    echo '[[{"role": "user", "content": "Hi"}]]' | .venv-inspect/bin/python cli/inspect_peer.py MODEL 16

inspect_ai pins versions that conflict with ours, so `make bench` gives it an environment of its own. This
file imports nothing of stsr. Each line of stdin is a JSON list of chats; they are asked at once, as samples
of inspect_ai's own tasks are, and the line that answers holds replies, seconds, and forward passes so far.
Greedy, thinking off, at most 160 new tokens, float32.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import redirect_stdout
from typing import Any


async def main(folder: str, batch_size: int) -> None:
    """Answers lines until stdin ends."""
    from inspect_ai.model import (  # type: ignore[import-not-found]
        ChatMessageUser,
        GenerateConfig,
        get_model,
    )

    config = GenerateConfig(max_tokens=160, max_connections=batch_size)
    options = {"do_sample": False, "enable_thinking": False, "dtype": "float32", "device": "cpu"}
    model = get_model("hf/local", model_path=folder, config=config, **options)
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    model.api.model.get_input_embeddings().register_forward_hook(count)
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        for line in sys.stdin:
            chats = [[ChatMessageUser(content=message["content"]) for message in c] for c in json.loads(line)]
            began = time.perf_counter()
            replies = await asyncio.gather(*(model.generate(chat) for chat in chats))
            seconds = time.perf_counter() - began
            found = {"replies": [reply.completion for reply in replies], "seconds": seconds, "passes": passes}
            print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
