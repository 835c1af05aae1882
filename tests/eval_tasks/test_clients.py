"""The real command, a completions server, a chat server, and a Hub: what users' processes do."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tenacity
from aiohttp import web
from lm_eval.models import api_models

from stsr.eval_tasks import records
from stsr.eval_tasks.evaluate import HARNESS, evaluate
from stsr.eval_tasks.rollout import PromptTooLongError
from stsr.eval_tasks.samples import read_samples, records_from_samples
from stsr.eval_tasks.servers import ServerError
from stsr.hub_cards.loopback.process import running_hub
from stsr.recipes.experiment import recipes_folder
from tests.eval_tasks.http_server import Answer, Server, chat_lm, completions_lm

NO_THINKING = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def user_env(home: Path, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    return kept | {
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "HF_HUB_DISABLE_XET": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **more,
    }


SAME = [
    *("stsr_oracle_h4_full", "stsr_oracle_h4_compact", "stsr_oracle_h4_recent2", "stsr_free_run_h4_compact"),
    *("stsr_oracle_branching_h8_full", "stsr_choice_h16_compact", "stsr_matched_error_h16_compact"),
    *("stsr_interface_recipe_ids", "stsr_free_run_state_load_none", "stsr_supplied_recipe"),
]
"""One task of every kind, and a whole group; the tiny base is right in about half of them."""


@pytest.mark.slow
def test_the_lm_eval_command_gives_the_numbers_of_our_driver(
    data: Path, controls: Path, tmp_path: Path
) -> None:
    base = recipes_folder() / "bases/tiny"
    command = [sys.executable, "-m", "lm_eval", "--model", "hf", "--device", "cpu", "--batch_size", "4"]
    command += ["--model_args", f"pretrained={base},dtype=float32", "--apply_chat_template", "--limit", "6"]
    command += ["--include_path", str(HARNESS), "--tasks", ",".join(["stsr_oracle_h4", *SAME[3:]])]
    command += ["--metadata", json.dumps({"stsr_data": str(data), "stsr_controls": str(controls)})]
    command += ["--log_samples", "--output_path", str(tmp_path / "out")]
    done = subprocess.run(
        command,
        env=user_env(tmp_path / "home", HF_HUB_OFFLINE="1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = (tmp_path / "out").rglob("results_*.json")
    theirs = json.loads(path.read_text())["results"]
    ours = evaluate(
        model=str(base),
        model_revision=None,
        adapters=[None],
        tasks=SAME,
        sources={"workflows": (str(data), None), "controls": (str(controls), None)},
        split=None,
        out=tmp_path / "ours",
        batch_size=4,
        limit=6,
        dtype="float32",
        device="cpu",
    )
    assert [path.stem for path in ours] == SAME
    between = set()
    for path in ours:
        numbers = json.loads(path.with_suffix(".results.json").read_text())["results"]
        found = {key.removesuffix(",none"): value for key, value in theirs[path.stem].items() if "," in key}
        assert numbers.keys() == {key for key, value in found.items() if isinstance(value, float)}
        for metric, value in numbers.items():
            assert found[metric] == value or (math.isnan(found[metric]) and value is None), (
                path.stem,
                metric,
            )
            between.add(value)
        (samples,) = (tmp_path / "out").rglob(f"samples_{path.stem}_*.jsonl")
        made = list(records.read([path]))
        if path.stem != "stsr_supplied_recipe":  # the one whose records are of several cells
            assert records_from_samples(read_samples(samples), made[0].cell) == made
        turns = [turn for one in made for turn in (one.turns if hasattr(one, "turns") else [one.turn])]
        assert all(turn.prompt.endswith(NO_THINKING) for turn in turns)
    assert len(between - {None, 0.0, 1.0}) > 4  # not all right, nor all wrong


# -- servers


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before lm-eval's retries, in seconds; here they last a hundredth of that."""
    pauses: list[float] = []

    def wait_exponential(**options: float) -> Callable[[Any], float]:
        wait = tenacity.wait_exponential(**options)

        def short(state: Any) -> float:
            pauses.append(wait(state))
            return pauses[-1] / 100

        return short

    monkeypatch.setattr(api_models, "wait_exponential", wait_exponential)
    return pauses


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def serve(answer: Answer, tokenizer: Any = None) -> Server:
        servers.append(Server(answer, tokenizer))
        return servers[-1]

    yield serve
    for server in servers:
        server.stop()


def completions(tok: Any, policy: Callable[[str], str]) -> Answer:
    """Answers token prompts, and checks that each one ends with an empty think block."""

    def answer(payload: dict[str, Any]) -> web.Response:
        prompts = [tok.decode(ids) for ids in payload["prompt"]]
        assert all(prompt.endswith(NO_THINKING) for prompt in prompts)
        assert (payload["max_tokens"], payload["temperature"]) == (160, 0)
        texts = [policy(prompt.split("<|im_end|>")[0]) for prompt in prompts]
        return web.json_response(
            {"choices": [{"index": index, "text": text} for index, text in enumerate(texts)]}
        )

    return answer


def test_a_completions_server_gives_the_scripted_numbers(
    serve: Any, scripts: Any, tok: Any, model: Path, run: Any, results: Any
) -> None:
    names = ("stsr_oracle_h4_full", "stsr_free_run_h8_compact")
    server = serve(completions(tok, scripts.blundering))
    served, direct = (
        run(completions_lm(server.url, model), *names),
        run(scripts.lm(scripts.blundering), *names),
    )
    for name in names:
        assert served["results"][name] == pytest.approx(direct["results"][name], nan_ok=True)
    verdicts = [
        [[turn["verdict"] for turn in episode["turns"]] for episode in results(found, names[1])]
        for found in (served, direct)
    ]
    assert verdicts[0] == verdicts[1]


def test_a_server_that_fails_ends_the_run(serve: Any, tok: Any, model: Path, run: Any) -> None:
    server = serve(lambda payload: web.Response(status=503))
    with pytest.raises(Exception, match="503"):
        run(completions_lm(server.url, model), "stsr_oracle_h4_full")
    with pytest.raises(Exception, match="503"):
        run(completions_lm(server.url, model, num_concurrent=1), "stsr_free_run_h4_full")


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "text"])
def test_a_server_with_too_little_room_gets_no_call(serve: Any, model: Path, run: Any, tokens: bool) -> None:
    server = serve(lambda payload: web.Response(status=500))
    lm = completions_lm(server.url, model, max_length=600, tokenized_requests=tokens)
    with pytest.raises(PromptTooLongError, match="max_length of 599"):
        run(lm, "stsr_free_run_h16_full")
    assert server.payloads == []


def test_a_chat_server_gets_one_user_message(serve: Any, scripts: Any, run: Any, results: Any) -> None:
    def answer(payload: dict[str, Any]) -> web.Response:
        (message,) = payload["messages"]
        assert message["role"] == "user"
        assert payload["chat_template_kwargs"] == {"enable_thinking": False}
        assert "stop" not in payload
        content = scripts.perfect(message["content"])
        return web.json_response({"choices": [{"index": 0, "message": {"content": content}}]})

    server = serve(answer)
    lm = chat_lm(server.url, num_concurrent=4)
    found = run(lm, "stsr_free_run_h4_full")
    assert found["results"]["stsr_free_run_h4_full"]["success,none"] == 1.0
    (turn, *_) = results(found, "stsr_free_run_h4_full")[0]["turns"]
    assert json.loads(turn["prompt"]) == server.payloads[0]["messages"]
    assert (turn["prompt_tokens"], turn["output_tokens"]) == (None, None)


JUNK: list[Any] = [
    {},
    [],
    "busy",
    {"error": {"message": "overloaded"}},
    {"choices": []},
    {"choices": [{"index": 0}]},
    {"choices": [{"index": 0, "text": None}]},
    {"choices": [{"index": 1, "text": "no first one"}]},
]
"""Replies with status 200 that hold no answer."""


@pytest.mark.parametrize("concurrent", [1, 4])
def test_a_server_in_trouble_is_asked_again_and_nothing_is_scored_wrong(
    serve: Any, scripts: Any, tok: Any, model: Path, run: Any, concurrent: int
) -> None:
    """Each kind of trouble once: retried with backoff, and the numbers are the scripted ones."""
    right = completions(tok, scripts.perfect)
    trouble = [
        lambda: web.Response(status=429),
        lambda: web.Response(status=500, text="oops"),
        lambda: web.Response(text="<html>not JSON</html>"),
        *(lambda junk=junk: web.json_response(junk) for junk in JUNK),
    ]
    seen = itertools.count()

    def answer(payload: dict[str, Any]) -> web.Response:
        number = next(seen)
        # every second request fails, each time in another way
        return right(payload) if number % 2 or number // 2 >= len(trouble) else trouble[number // 2]()

    server = serve(answer)
    lm = completions_lm(server.url, model, num_concurrent=concurrent, max_retries=8)
    found = run(lm, "stsr_oracle_h4_full")["results"]["stsr_oracle_h4_full"]
    assert found["agreement,none"] == 1.0
    assert len(server.payloads) == 12 + len(trouble)


def test_a_server_that_drops_and_stalls(serve: Any, scripts: Any, tok: Any, model: Path, run: Any) -> None:
    right, seen = completions(tok, scripts.perfect), itertools.count()

    def answer(payload: dict[str, Any]) -> web.Response | None:
        number = next(seen)
        if number == 1:
            time.sleep(2)  # longer than the client waits
        return right(payload) if number else None  # hangs up

    lm = completions_lm(serve(answer).url, model, num_concurrent=1, max_retries=6, timeout=1)
    found = run(lm, "stsr_oracle_h4_full", limit=3)["results"]["stsr_oracle_h4_full"]
    assert found["agreement,none"] == 1.0


@pytest.mark.parametrize("concurrent", [1, 2])
def test_a_server_of_junk_ends_the_run(serve: Any, tok: Any, model: Path, run: Any, concurrent: int) -> None:
    server = serve(lambda payload: web.json_response(JUNK[4]))
    with pytest.raises(ServerError, match=r"holds no text: \{'choices': \[\]\}"):
        run(
            completions_lm(server.url, model, num_concurrent=concurrent, max_retries=2),
            "stsr_oracle_h4_full",
            limit=1,
        )
    assert len(server.payloads) == 2
    chat = serve(lambda payload: web.json_response({"choices": [{"index": 0, "message": {"content": None}}]}))
    lm = chat_lm(chat.url, num_concurrent=concurrent, max_retries=1)
    with pytest.raises(ServerError, match="holds no text"):
        run(lm, "stsr_oracle_h4_full", limit=1)


def test_retries_wait_longer_each_time(serve: Any, model: Path, run: Any, waits: list[float]) -> None:
    server = serve(lambda payload: web.Response(status=429))
    with pytest.raises(ServerError, match=r"gave no answer in 6 tries: 429.*; nothing was scored\. The same"):
        run(
            completions_lm(server.url, model, num_concurrent=1, max_retries=6), "stsr_oracle_h4_full", limit=1
        )
    assert waits[:5] == [1, 1, 2, 4, 8]  # half a second, doubled, at least one


@pytest.mark.parametrize("concurrent", [1, 2])
@pytest.mark.parametrize("echo", ["none", "cut", "whole"])
def test_log_likelihoods_of_a_prompt_that_is_not_echoed_are_no_tie(
    serve: Any, model: Path, run: Any, results: Any, echo: str, concurrent: int
) -> None:
    def answer(payload: dict[str, Any]) -> web.Response:
        ((*ids,),) = payload["prompt"]
        assert payload["echo"]
        logprobs = [None, *(-1.0 - token / 1000 for token in ids[1:]), -9.0]
        kept = {"none": logprobs[-1:], "cut": logprobs[:-1], "whole": logprobs}[echo]
        found = {"token_logprobs": kept, "top_logprobs": [{"x": 0.0}] * len(kept)}
        return web.json_response({"choices": [{"index": 0, "text": "", "logprobs": found}]})

    lm = completions_lm(serve(answer).url, model, num_concurrent=concurrent, max_retries=2)
    if echo != "whole":
        with pytest.raises(ServerError, match="doesn't echo the prompt with log-likelihoods"):
            run(lm, "stsr_choice_h16_compact", limit=1)
        return
    (choice,) = results(run(lm, "stsr_choice_h16_compact", limit=1), "stsr_choice_h16_compact")
    turn = choice["turn"]
    both = [lm.tok_encode(turn["prompt"] + call) for call in turn["candidates"]]
    shared = len(lm.tok_encode(turn["prompt"].rstrip()))  # lm-eval moves the last space to the candidates
    for tokens, logprob in zip(both, choice["logprobs"], strict=True):
        assert logprob == pytest.approx(sum(-1.0 - token / 1000 for token in tokens[shared:]))


def test_a_server_with_a_tokenizer_of_its_own(
    serve: Any, scripts: Any, tok: Any, model: Path, run: Any
) -> None:
    """As vLLM's with --enable-tokenizer-info-endpoint, which lm-eval finds by itself."""
    server = serve(completions(tok, scripts.perfect), tokenizer=tok)
    lm = completions_lm(server.url, model, tokenizer=None, tokenizer_backend="auto")
    assert run(lm, "stsr_oracle_h4_full", limit=3)["results"]["stsr_oracle_h4_full"]["agreement,none"] == 1.0
    asked = len(server.payloads)
    lm = completions_lm(server.url, model, tokenizer=None, tokenizer_backend="auto", max_length=600)
    with pytest.raises(PromptTooLongError, match="max_length of 599"):
        run(lm, "stsr_free_run_h16_full", limit=1)
    assert len(server.payloads) == asked


def test_a_chat_server_cannot_rank(serve: Any, run: Any) -> None:
    server = serve(lambda payload: web.Response(status=500))
    lm = chat_lm(server.url)
    with pytest.raises(ValueError, match="a chat server gives no log-likelihoods; choose hf, vllm or"):
        run(lm, "stsr_choice_h16_full")
    assert server.payloads == []


# -- a Hub

HUB_PROGRAM = """
import json, sys
from pathlib import Path
from stsr.eval_tasks import records
from stsr.eval_tasks.data import load_split
from stsr.eval_tasks.evaluate import evaluate
from stsr.hub_cards.pins import PinError, pin
from stsr.hub_cards.publish import publish_folder

model, data = map(Path, sys.argv[1:])
(model / "README.md").write_text("A model.")
made = {
    "dataset": publish_folder(data, "stsr/table-workflows", "dataset", tag="v1.1.0", message="1").commit,
    "model": publish_folder(model, "stsr/tiny", "model", tag="v1.0.0", message="1").commit,
}
(path,) = evaluate(
    model="stsr/tiny", model_revision="v1.0.0", adapters=[None],
    tasks=["stsr_oracle_h4_full"], sources={"workflows": ("stsr/table-workflows", "v1.1.0")}, split=None,
    out=Path("out"), batch_size=2, limit=2, dtype="float32", device="cpu",
)
cell = next(records.read([path])).cell
assert (cell.model, cell.model_revision) == ("stsr/tiny", made["model"]), cell
assert (cell.data, cell.data_revision) == ("stsr/table-workflows", made["dataset"]), cell
for ask in (
    lambda: pin("stsr/table-workflows", "v9", "dataset"),
    lambda: load_split("stsr/table-workflows", "h4-full", "test", "v9"),
    lambda: pin("stsr/nothing", None, "model"),
):
    try:
        ask()
    except PinError as error:
        print(error)
"""


@pytest.mark.slow
def test_revisions_of_a_hub_become_commits(model: Path, data: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "model")
    with running_hub(tmp_path / "store") as hub:
        done = subprocess.run(
            [sys.executable, "-c", HUB_PROGRAM, str(copy), str(data)],
            env=user_env(tmp_path / "home", HF_ENDPOINT=hub.endpoint, HF_TOKEN="made-up"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    *twice, nothing = done.stdout.splitlines()[-3:]
    for unknown in twice:
        assert "has no revision v9; tags: v1.1.0; branches: main" in unknown
    assert nothing.startswith(
        "stsr/nothing is no folder here; there is no model stsr/nothing at http://127.0.0.1:"
    )
