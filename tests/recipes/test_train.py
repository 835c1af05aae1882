"""Trainings of a two-layer model on real rows: what is presented, what is learned, how a run resumes.

The model is random and tiny, so nothing here says that training helps; the tests protect bytes, tokens and
row order. Expected tokens and orders are computed here, from the text of Qwen3's template and from torch.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from stsr.hub_cards.adapters import AdapterError
from stsr.hub_cards.pins import PinError
from stsr.recipes import sft_trainer
from stsr.recipes import train as train_module
from stsr.recipes.lock import BusyError, held
from stsr.recipes.sft_data import check_tokens, context_tokens
from stsr.recipes.sft_recipe import TrainError
from tests.recipes.training import ROWS, TINY, Run, write_data


@pytest.fixture(scope="module")
def finished(run: Run) -> Path:
    """A run that nothing interrupted."""
    return run()


@pytest.fixture(scope="module")
def compact(run: Run) -> Path:
    """Its pair: the same seeds under the other view."""
    return run(view="compact")


def weights(out: Path) -> bytes:
    return (out / "adapter/adapter_model.safetensors").read_bytes()


def log(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "adapter/exposure.jsonl").read_text().splitlines()]


def read(out: Path, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((out / "adapter" / name).read_text())
    return value


def expected_order(ids: list[str]) -> list[str]:
    """Two epochs of torch's permutation, seeded with data seed 11 and 12."""
    permutations = [torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed)) for seed in (11, 12)]
    return [ids[i] for permutation in permutations for i in permutation.tolist()]


def rendered(row: dict[str, Any]) -> tuple[str, str]:
    """(context, completion) in Qwen3's format with thinking disabled, written out by hand."""
    user, gold = row["prompt"][0]["content"], row["completion"][0]["content"]
    context = f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    return context, f"{gold}<|im_end|>\n"


# What is presented


def test_rows_come_in_the_order_that_the_data_seed_gives(finished: Path, table: Any) -> None:
    steps = log(finished)
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [len(step["rows"]) for step in steps] == [4] * 8
    ids = [row["id"] for row in table["h4-full"]]
    assert [row for step in steps for row in step["rows"]] == expected_order(ids)


def test_the_row_order_of_a_pair_is_equal(finished: Path, compact: Path) -> None:
    full, other = (
        [row.partition("@") for step in log(out) for row in step["rows"]] for out in (finished, compact)
    )
    assert [row[0] for row in full] == [row[0] for row in other]
    assert ({row[2] for row in full}, {row[2] for row in other}) == ({"full"}, {"compact"})
    a, b = (read(out, "exposure.json")["order_sha256"] for out in (finished, compact))
    assert a == b


def test_exposure_counts_the_tokens_of_the_rendered_text(finished: Path, table: Any, base: Path) -> None:
    """Input is the whole conversation; completion, end of turn and the line break after it carry loss."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows_by_id = {row["id"]: rendered(row) for row in table["h4-full"]}
    size = {
        row_id: [len(tokenizer(part)["input_ids"]) for part in parts] for row_id, parts in rows_by_id.items()
    }
    for step in log(finished):
        assert step["input_tokens"] == sum(sum(size[row]) for row in step["rows"])
        assert step["supervised_tokens"] == sum(size[row][1] for row in step["rows"])
    used = [row["id"] for row in table["h4-full"][:ROWS]]
    summary = read(finished, "exposure.json")
    assert summary["longest_row"] == max(sum(size[row]) for row in used)
    assert summary["input_tokens"] == 2 * sum(sum(size[row]) for row in used)
    assert summary["supervised_tokens"] == 2 * sum(size[row][1] for row in used)
    expected = {"rows": 16, "distinct_rows": 16, "presentations": 32, "workflows": 4}
    assert {key: summary[key] for key in expected} == expected


def test_the_training_context_is_the_evaluation_prompt(table: Any, base: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base)
    for row in [*table["h4-full"], *table["h4-compact"]]:
        assert tokenizer.decode(context_tokens(tokenizer, row["prompt"])) == rendered(row)[0]


def test_token_checks_refuse_another_context_and_a_partial_loss(table: Any, base: Path) -> None:
    tokenizer, row = AutoTokenizer.from_pretrained(base), table["h4-full"][0]
    context, completion = (tokenizer(part)["input_ids"] for part in rendered(row))
    labels = [-100] * len(context) + completion
    check_tokens(row, context + completion, labels, tokenizer)
    think = len(tokenizer("<think>\n\n</think>\n\n")["input_ids"])
    covering = [*labels[: len(context) - think], *context[-think:], *completion]
    for ids, wrong, message in [
        ([context[1], *context[1:], *completion], labels, "not the prompt that an evaluation sends"),
        (context + completion, covering, "not the prompt that an evaluation sends"),
        (context + completion, [*labels[:-2], -100, -100], "does not cover the whole completion"),
        (context + completion[:-2], labels[:-2], "does not cover the whole completion"),
    ]:
        with pytest.raises(TrainError, match=message):
            check_tokens(row, ids, wrong, tokenizer)


# What is learned from


def first_loss(out: Path) -> float:
    """Loss of the first update, before any weight has moved."""
    state = json.loads((out / "checkpoints/checkpoint-8/trainer_state.json").read_text())
    return float(state["log_history"][0]["loss"])


@pytest.fixture(scope="module")
def one_by_four(run: Run) -> Path:
    return run(lora_dropout=0.0, per_device_train_batch_size=1, gradient_accumulation_steps=4)


def test_the_loss_is_the_mean_over_the_tokens_of_an_update(one_by_four: Path, table: Any, base: Path) -> None:
    """Computed here with plain transformers; a mean of the rows' means would differ by 1e-4 and more."""
    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    by_id = {row["id"]: rendered(row) for row in table["h4-full"]}
    losses = []
    for row in log(one_by_four)[0]["rows"]:
        context, completion = (tokenizer(part)["input_ids"] for part in by_id[row])
        with torch.no_grad():
            logits = model(torch.tensor([context + completion])).logits[0, len(context) - 1 : -1]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(completion), reduction="none"))
    assert first_loss(one_by_four) == pytest.approx(torch.cat(losses).mean().item(), abs=1e-5)
    assert abs(torch.cat(losses).mean() - torch.stack([loss.mean() for loss in losses]).mean()) > 1e-4


def test_microbatches_do_not_change_the_update(run: Run, one_by_four: Path) -> None:
    """1 x 4 equals 4 x 1 after 8 updates, to 1e-5 of weights that have moved by 1e-3 and more.

    Without dropout, whose mask depends on a batch's shape.
    """
    other = run(lora_dropout=0.0, per_device_train_batch_size=4, gradient_accumulation_steps=1)
    a, b = (load_file(out / "adapter/adapter_model.safetensors") for out in (one_by_four, other))
    assert a.keys() == b.keys()
    assert max(float((a[key] - b[key]).abs().max()) for key in a) < 1e-5
    assert min(float(value.abs().max()) for key, value in a.items() if "lora_B" in key) > 1e-3


@pytest.mark.slow
def test_two_processes_make_the_same_updates(
    one_by_four: Path, overrides: dict[str, Any], tmp_path: Path
) -> None:
    """1 x 4 on one process equals 1 x 2 on each of two: the same rows a step, weights to 1e-5."""
    changes = {
        **overrides,
        "lora_dropout": 0.0,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4,
    }
    settings = [word for key, value in changes.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node=2",
        "-m",
        "stsr.recipes.train",
    ]
    command += [
        str(TINY),
        "--view=full",
        "--seed=7",
        "--data-seed=11",
        f"--out={tmp_path / 'run'}",
        *settings,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert log(tmp_path / "run") == log(one_by_four)
    assert read(tmp_path / "run", "run.json")["processes"] == 2
    a, b = (load_file(out / "adapter/adapter_model.safetensors") for out in (one_by_four, tmp_path / "run"))
    assert max(float((a[key] - b[key]).abs().max()) for key in a) < 1e-5


def test_a_run_that_learns_nothing_is_refused_and_pairs_start_alike(run: Run, tmp_path: Path) -> None:
    """At rate 0 the adapter keeps its start, which depends on the seed alone, and does nothing."""
    starts = []
    for name, view, seed, data_seed in [("a", "full", 7, 11), ("b", "compact", 7, 12), ("c", "full", 8, 11)]:
        with pytest.raises(AdapterError, match="all 14 lora_B weights are zero"):
            run(
                view=view,
                seed=seed,
                data_seed=data_seed,
                out=tmp_path / name,
                learning_rate=0.0,
                max_steps=4,
                save_at_steps=[],
            )
        assert not (tmp_path / name / "adapter").exists()
        starts.append((tmp_path / name / "checkpoints/checkpoint-4/adapter_model.safetensors").read_bytes())
    assert starts[0] == starts[1] != starts[2]


# How a run resumes

KILLED = """
import json, os, signal, sys
from pathlib import Path
from stsr.recipes import sft_trainer, train
seal = sft_trainer.seal
def die(folder, seconds):
    if folder.name == "checkpoint-7":
        (folder / "optimizer.pt").write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGKILL)
    seal(folder, seconds)
sft_trainer.seal = die
recipe, out, overrides = sys.argv[1:]
train.train(Path(recipe), view="full", seed=7, data_seed=11, out=Path(out), overrides=json.loads(overrides))
"""


@pytest.fixture(scope="module")
def resumed(run: Run, overrides: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of another process, killed while it wrote the checkpoint of step 7, and continued here."""
    out = tmp_path_factory.mktemp("killed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HOME": str(out.with_name("home"))}
    command = [sys.executable, "-c", KILLED, str(TINY), str(out), json.dumps(overrides)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (out / "adapter").exists()
    assert {path.name for path in (out / "checkpoints").iterdir()} >= {"checkpoint-5", "checkpoint-7"}
    return run(out=out)


@pytest.mark.slow
def test_a_killed_run_ends_as_an_uninterrupted_one(finished: Path, resumed: Path) -> None:
    assert weights(resumed) == weights(finished)
    for name in ("exposure.jsonl", "exposure.json", "adapter_config.json"):
        assert (resumed / "adapter" / name).read_bytes() == (finished / "adapter" / name).read_bytes(), name
    a, b = read(resumed, "run.json"), read(finished, "run.json")
    assert a == b


@pytest.mark.filterwarnings("error::FutureWarning")  # nor does it warn of what only a library can change
@pytest.mark.parametrize(("dtype", "stored"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_adapter_keeps_its_type_when_a_run_resumes(run: Run, dtype: str, stored: torch.dtype) -> None:
    """PEFT makes a resumed bfloat16 adapter float32, which would end in other bytes."""
    out = run(adapter_dtype=dtype, max_steps=4, save_at_steps=[2])
    before = weights(out)
    shutil.rmtree(out / "adapter")
    shutil.rmtree(out / "checkpoints/checkpoint-4")
    run(out=out, adapter_dtype=dtype, max_steps=4, save_at_steps=[2])
    assert weights(out) == before
    assert {value.dtype for value in load_file(out / "adapter/adapter_model.safetensors").values()} == {
        stored
    }


def test_a_finished_run_is_left_alone(finished: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("a finished run was trained again")

    files = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    monkeypatch.setattr(train_module, "RecipeTrainer", never)
    run(out=finished)
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == files


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 8}, r"differs in seed \(7 there, 8 here\): use another"),
        ({"data_seed": 12}, r"differs in data_seed \(11 there, 12 here\)"),
        ({"view": "compact"}, r"differs in view \(full there, compact here\), "),
        ({"learning_rate": 1e-3}, r"differs in learning_rate \(0.002 there, 0.001 here\)"),
    ],
)
def test_a_folder_of_another_run_is_refused(
    finished: Path, run: Run, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainError, match=message):
        run(out=finished, **changes)


def test_a_folder_whose_data_or_base_moved_is_refused(
    run: Run, finished: Path, data: Path, base: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    plan = json.loads((finished / "plan.json").read_text())
    (out / "plan.json").write_text(json.dumps({**plan, "base_commit": "0" * 40}))
    with pytest.raises(TrainError, match=r"differs in base_commit \(0{40} there, sha256:"):
        run(out=out)
    (out / "plan.json").write_text(json.dumps({**plan, "data_commit": "sha256:0"}))
    with pytest.raises(TrainError, match="differs in data_commit"):
        run(out=out)


def test_a_folder_with_other_files_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TrainError, match="is not empty and holds no run"):
        run(out=tmp_path)


def test_two_trainings_in_one_folder_are_refused(run: Run, tmp_path: Path) -> None:
    with held(tmp_path, "training"), pytest.raises(BusyError, match="another process is training in"):
        run(out=tmp_path)


# What is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"max_length": 100},
            r"16 of 16 rows exceed max_length 100; the longest, chain-h4/\d+#\d@full, has \d+",
        ),
        ({"train_rows": 32}, "train_rows is 32, but .* h4-full has 20 training rows"),
        ({"view": "recent2"}, "no configuration 'h4-recent2'; there are h4-full, h4-compact"),
        ({"data_revision": "v1.0.0"}, "is a folder and has no revision 'v1.0.0'; leave it out .null"),
        ({"model_revision": "main"}, "is a folder and has no revision 'main'; leave"),
        ({"data": "stsr/nowhere"}, "stsr/nowhere is no folder here; .* give a tag or commit"),
    ],
)
def test_what_cannot_be_trained_as_asked_is_refused(
    run: Run, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((TrainError, PinError), match=message):
        run(out=tmp_path / "run", **changes)
    assert not (tmp_path / "run/checkpoints/checkpoint-2").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chat_template_kwargs": {"enable_thinking": True}}, "chat_template_kwargs are .*think block"),
        ({"id": "chain-h4/60000#1@full"}, "the row id chain-h4/60000#1@full occurs twice"),
    ],
)
def test_rows_that_break_their_promise_are_refused(
    run: Run, table: Any, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    broken = [*table["h4-full"][:3], {**table["h4-full"][3], **change}, *table["h4-full"][4:]]
    folder = write_data(tmp_path / "data", {"h4-full": broken})
    with pytest.raises(TrainError, match=message):
        run(out=tmp_path / "run", data=str(folder))


def test_the_command_prints_one_line_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train", str(TINY), "--view", "full", "--set", "lora_rr=16"])
    with pytest.raises(SystemExit) as error:
        train_module.main()
    assert error.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# What is published


def test_the_publishable_folder_holds_these_files_and_no_pickle(finished: Path) -> None:
    files = {path.name: path.read_bytes() for path in (finished / "adapter").iterdir()}
    texts = {"README.md", "adapter_config.json", "run.json", "exposure.json", "exposure.jsonl"}
    assert files.keys() == texts | {"adapter_model.safetensors"}
    for name in texts:
        files[name].decode("utf-8")
    header = int.from_bytes(files["adapter_model.safetensors"][:8], "little")
    assert json.loads(files["adapter_model.safetensors"][8 : 8 + header])["__metadata__"] == {"format": "pt"}


def test_the_manifest_says_what_was_run(finished: Path, base: Path, data: Path) -> None:
    manifest, config = read(finished, "run.json"), read(finished, "adapter_config.json")
    assert (manifest["seed"], manifest["data_seed"], manifest["view"]) == (7, 11, "full")
    assert (manifest["recipe"]["lora_r"], manifest["recipe"]["max_steps"]) == (16, 8)
    assert manifest["data"]["config"] == "h4-full"
    assert manifest["versions"]["trl"] == "1.16.0" or manifest["versions"]["trl"].startswith("1.16")
    assert (config["base_model_name_or_path"], config["revision"]) == (str(base), None)
    assert config["target_modules"] == sorted(config["target_modules"])
    # 2 layers x 7 matrices x (A, B)
    assert (manifest["proof"]["keys"], manifest["proof"]["missing"], manifest["proof"]["unexpected"]) == (
        28,
        0,
        0,
    )
    assert manifest["proof"]["effect"] > 0
    assert manifest["final_loss"] < first_loss(finished)


def test_peft_loads_it_and_it_acts(finished: Path, base: Path, table: Any) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    ids = torch.tensor([tokenizer(rendered(table["h4-full"][0])[0])["input_ids"]])
    with torch.no_grad():
        plain = model(ids).logits
        adapted = PeftModel.from_pretrained(model, finished / "adapter").eval()(input_ids=ids).logits
    assert not torch.equal(plain, adapted)


def test_checkpoints_are_whole_or_gone(tmp_path: Path) -> None:
    for step in (2, 10, 20, 30):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "weights").write_bytes(b"w")
        if step != 30:
            sft_trainer.seal(folder, 1.0)
    (tmp_path / "checkpoint-20/weights").write_bytes(b"cut")
    assert sft_trainer.last_sealed(tmp_path) == tmp_path / "checkpoint-10"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-2"]
