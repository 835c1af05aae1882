"""The driver: pinned revisions, strict adapters, records that equal lm-eval's numbers, and resuming."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lm_eval.models.huggingface import HFLM
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from stsr.eval_tasks import evaluate as driver
from stsr.eval_tasks import records
from stsr.eval_tasks.data import DataError
from stsr.eval_tasks.evaluate import Adapter, EvaluateError, evaluate
from stsr.eval_tasks.records import Cell, DecisionRecord, EpisodeRecord, RecordError
from stsr.eval_tasks.samples import records_from_samples
from stsr.generators.files import folder_sha256
from stsr.hub_cards.adapters import AdapterError
from stsr.hub_cards.pins import PinError

Evaluate = Callable[..., list[Path]]


@pytest.fixture
def ask(model: Path, data: Path, controls: Path, tmp_path: Path) -> Evaluate:
    """evaluate() with everything filled in but what a test is about."""

    def ask(*tasks: str, **given: Any) -> list[Path]:
        request = {
            "model": str(model),
            "model_revision": None,
            "adapters": [None],
            "tasks": list(tasks),
            "sources": {"workflows": (str(data), None), "controls": (str(controls), None)},
            "split": None,
            "out": tmp_path / "out",
            "batch_size": 8,
            "limit": None,
            "dtype": "float32",
            "device": "cpu",
        }
        return evaluate(**{**request, **given})

    return ask


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, scripts: Any) -> Callable[[Any], list[str]]:
    """scripted(policy): from now on the driver's model answers by `policy`; returns the prompts it gets."""

    def scripted(policy: Any) -> list[str]:
        asked: list[str] = []

        def generate(self: Any, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            asked.extend(request.args[0] for request in requests)
            return [policy(request.args[0].split("<|im_end|>")[0]) for request in requests]

        monkeypatch.setattr(HFLM, "generate_until", generate)
        return asked

    return scripted


def adapter(model: Path, folder: Path, size: float) -> Adapter:
    """A LoRA adapter whose B matrices have entries of `size`."""
    network = AutoModelForCausalLM.from_pretrained(model)
    tuned = get_peft_model(
        network, LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    )
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(parameter, size)
    tuned.save_pretrained(folder)
    return Adapter(str(folder), None)


def test_records_are_complete_and_equal_lm_evals_numbers(
    ask: Evaluate, scripted: Any, scripts: Any, model: Path, data: Path, tmp_path: Path
) -> None:
    scripted(scripts.blundering)
    oracle, free = ask("stsr_oracle_h16_full", "stsr_free_run_h16_compact")
    assert (oracle, free) == (
        tmp_path / "out/stsr_oracle_h16_full.jsonl",
        tmp_path / "out/stsr_free_run_h16_compact.jsonl",
    )
    probes, episodes = list(records.read([oracle])), list(records.read([free]))
    assert [probe.id for probe in probes[:2]] == ["chain-h16/62000#1@full", "chain-h16/62000#2@full"]
    assert [episode.id for episode in episodes] == [
        f"chain-h16/{seed}@compact" for seed in range(62000, 62003)
    ]
    cell = probes[0].cell
    assert cell == replace(episodes[0].cell, view="full")
    assert (cell.model, cell.model_revision) == (str(model), f"sha256:{folder_sha256(model)}")
    assert (cell.data, cell.data_revision) == (str(data), f"sha256:{folder_sha256(data)}")
    assert (cell.adapter, cell.adapter_revision, cell.split, cell.horizon) == ("", "", "test", 16)
    assert (cell.dtype, cell.backend, cell.family) == ("float32", "SharedPrefixLM", "chain")

    def mean(values: list[Any]) -> Any:
        return pytest.approx(sum(values) / len(values))

    assert all(isinstance(probe, DecisionRecord) for probe in probes)
    numbers = json.loads(oracle.with_suffix(".results.json").read_text())
    assert numbers["results"]["agreement"] == mean([probe.agree for probe in probes])
    assert numbers["results"]["post4"] == mean([probe.agree for probe in probes if probe.stage >= 5])
    assert numbers["results"]["legal"] == mean([probe.turn.verdict == "accepted" for probe in probes])
    assert (numbers["task_version"], numbers["cell"]["data_revision"]) == (1.1, cell.data_revision)
    assert all(isinstance(episode, EpisodeRecord) for episode in episodes)
    numbers = json.loads(free.with_suffix(".results.json").read_text())
    assert numbers["results"]["success"] == mean([episode.success for episode in episodes])
    assert numbers["results"]["calls"] == mean([episode.calls for episode in episodes])
    assert numbers["results"]["progress"] == mean([episode.verified / 16 for episode in episodes])
    assert [len(episode.turns) for episode in episodes] == [episode.calls for episode in episodes]
    assert all(turn.prompt_tokens and turn.output_tokens for turn in episodes[0].turns)


def test_undefined_numbers_are_null_in_strict_json(ask: Evaluate, scripted: Any, scripts: Any) -> None:
    scripted(scripts.perfect)
    (free,) = ask("stsr_free_run_h4_full")
    text = free.with_suffix(".results.json").read_text()
    results = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["results"]
    assert results["recovery"] is None
    assert results["success"] == 1.0


def test_a_real_random_model_end_to_end(ask: Evaluate, model: Path, tmp_path: Path) -> None:
    base = ask("stsr_oracle_h4_compact", limit=2)
    tuned = ask(
        "stsr_oracle_h4_compact",
        limit=2,
        adapters=[adapter(model, tmp_path / "adapter", 0.5)],
        out=tmp_path / "tuned",
        dtype="auto",
    )
    (before, _), (after, _) = (list(records.read(paths)) for paths in (base, tuned))
    assert records.differing(before.cell, after.cell) == ["adapter", "adapter_revision"]
    assert after.cell.adapter_revision == f"sha256:{folder_sha256(tmp_path / 'adapter')}"
    assert before.turn.prompt == after.turn.prompt
    assert before.turn.output != after.turn.output  # the adapter acts


def test_an_adapter_that_does_nothing_is_refused(ask: Evaluate, model: Path, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="zero"):
        ask("stsr_oracle_h4_full", adapters=[adapter(model, tmp_path / "adapter", 0.0)])
    with pytest.raises(AdapterError, match="does not change the logits"):
        ask("stsr_oracle_h4_full", adapters=[adapter(model, tmp_path / "tiny", 1e-30)])
    assert not (tmp_path / "out").exists()


def test_many_adapters_share_one_base_and_give_what_each_gives_alone(
    ask: Evaluate, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crossover's models in one command: the base, two adapters, and the base again is not touched."""
    one, two = (adapter(model, tmp_path / name, size) for name, size in (("one", 0.5), ("two", -0.3)))
    task = "stsr_oracle_h4_compact"
    alone = {
        name: ask(task, limit=2, adapters=[which], out=tmp_path / f"alone-{name}")[0].read_bytes()
        for name, which in (("untuned", None), ("one", one), ("two", two))
    }
    loads, load = [], driver.load_base
    monkeypatch.setattr(driver, "load_base", lambda *given: loads.append(given) or load(*given))
    paths = ask(task, limit=2, adapters=[one, None, two])
    assert [path.parent.name for path in paths] == ["one", "untuned", "two"]
    assert {path.parent.name: path.read_bytes() for path in paths} == alone
    assert len(set(alone.values())) == 3
    assert len(loads) == 1
    with pytest.raises(EvaluateError, match="2 models are called 'one'"):
        ask(task, adapters=[one, one], out=tmp_path / "more")


def test_kinds_in_one_folder_stay_apart(ask: Evaluate, scripted: Any, scripts: Any) -> None:
    """A matched error and a free run share ids, and a control's variants share family, horizon and view."""
    scripted(scripts.perfect)
    names = ["stsr_crossover_free_run_h16_full", "stsr_matched_error_h16_full"]
    names += ["stsr_oracle_state_load_none", "stsr_oracle_state_load_4x8", "stsr_supplied_recipe"]
    found = {path.stem: list(records.read([path])) for path in ask(*names)}
    assert [record.id for record in found[names[0]]] == [record.id for record in found[names[1]]]
    assert {record.cell.condition for record in found[names[1]]} == {"matched-error"}
    assert {record.cell.condition for record in found[names[3]]} == {"4x8"}
    assert {record.cell.horizon for record in found[names[4]]} == {4, 8, 16}
    assert {record.cell.split for record in found[names[1]]} == {"test_crossover"}
    everything = [record for some in found.values() for record in some]
    assert len({(record.kind, record.id, record.cell) for record in everything}) == len(everything)


# -- resuming


def test_a_finished_task_is_not_run_again(ask: Evaluate, scripted: Any, scripts: Any) -> None:
    asked = scripted(scripts.perfect)
    (first,) = ask("stsr_oracle_h4_full")
    before, calls = first.stat().st_mtime_ns, len(asked)
    paths = ask("stsr_oracle_h4_full", "stsr_oracle_h4_compact")
    assert paths[0].stat().st_mtime_ns == before
    assert calls == 12
    assert len(asked) == 24  # the second task's alone
    ask("stsr_oracle_h4")  # the group: its third view alone
    assert len(asked) == 36


def test_nothing_is_loaded_when_nothing_is_missing(
    ask: Evaluate, scripted: Any, scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(scripts.perfect)
    paths = ask("stsr_oracle_h4_full")
    monkeypatch.setattr(driver, "load_base", lambda *_: pytest.fail("the model was loaded"))
    assert ask("stsr_oracle_h4_full") == paths


def test_a_killed_run_leaves_whole_tasks_and_goes_on(
    ask: Evaluate, scripted: Any, scripts: Any, tmp_path: Path
) -> None:
    def dying(prompt: str) -> str:
        if "a4:" in prompt:
            raise KeyboardInterrupt
        return scripts.perfect(prompt)

    scripted(dying)
    with pytest.raises(KeyboardInterrupt):
        ask("stsr_oracle_h4_full", "stsr_oracle_h8_full")
    assert sorted(path.name for path in (tmp_path / "out").glob("*.json*")) == [
        "stsr_oracle_h4_full.jsonl",
        "stsr_oracle_h4_full.results.json",
        "stsr_oracle_h8_full.jsonl.partial",
    ]
    scripted(scripts.perfect)
    assert [
        len(list(records.read([path]))) for path in ask("stsr_oracle_h4_full", "stsr_oracle_h8_full")
    ] == [
        12,
        24,
    ]


def test_an_interrupted_run_asks_only_what_is_missing_and_ends_alike(
    ask: Evaluate, scripted: Any, scripts: Any, tmp_path: Path
) -> None:
    """Free runs of H8, killed in the sixth round: the answers of the first five are not asked again."""
    whole = scripted(scripts.blundering)
    (path,) = ask("stsr_free_run_h8_full")
    expected, calls = path.read_bytes(), len(whole)

    def dying(prompt: str) -> str:
        if scripts.see(prompt).calls_left == 11:
            raise KeyboardInterrupt
        return scripts.blundering(prompt)

    asked = scripted(dying)
    with pytest.raises(KeyboardInterrupt):
        ask("stsr_free_run_h8_full", out=tmp_path / "again")
    with pytest.raises(
        EvaluateError, match="holds an unfinished stsr_free_run_h8_full: continue it with --res"
    ):
        ask("stsr_free_run_h8_full", out=tmp_path / "again", resume=False)
    before = len(asked)
    more = scripted(scripts.blundering)
    (path,) = ask("stsr_free_run_h8_full", out=tmp_path / "again")
    assert path.read_bytes() == expected
    assert before - 3 + len(more) == calls  # the round of three prompts that was interrupted is asked twice


def test_a_larger_limit_goes_on_and_a_smaller_one_never_overwrites(
    ask: Evaluate, scripted: Any, scripts: Any
) -> None:
    asked = scripted(scripts.perfect)
    (path,) = ask("stsr_oracle_h4_full", limit=2)
    assert len(list(records.read([path]))) == 2
    ask("stsr_oracle_h4_full", limit=5)
    assert len(list(records.read([path]))) == len(asked) == 5
    with pytest.raises(RecordError, match="3 records that are not asked for"):
        ask("stsr_oracle_h4_full", limit=2)


def test_another_cell_is_refused_and_kept(ask: Evaluate, scripted: Any, scripts: Any, data: Path) -> None:
    scripted(scripts.perfect)
    (path,) = ask("stsr_free_run_h16_full")
    before = path.read_bytes()
    with pytest.raises(RecordError, match="another cell: split 'test', not 'test_crossover'; choose another"):
        ask("stsr_free_run_h16_full", split="test_crossover")
    with pytest.raises(RecordError, match="another cell: dtype 'float32', not 'bfloat16'"):
        ask("stsr_free_run_h16_full", dtype="bfloat16")
    assert path.read_bytes() == before


# -- what cannot be asked


def test_unknown_names_are_told_with_those_that_exist(ask: Evaluate) -> None:
    with pytest.raises(EvaluateError, match="no task 'stsr_oracel_h4'; near are stsr_oracle_h4,"):
        ask("stsr_oracel_h4")
    with pytest.raises(DataError, match="no split 'development'; there are train, test"):
        ask("stsr_oracle_h4_full", split="development")
    with pytest.raises(PinError, match="is a folder and has no revision 'v2'"):
        ask("stsr_oracle_h4_full", model_revision="v2")


# -- samples


def cell(**changed: Any) -> Cell:
    plain = Cell("m", "c", "", "", "d", "c", "test", "chain", 4, "full", "none", "unknown", "ScriptedLM")
    return replace(plain, **changed)


def test_samples_of_lm_eval_become_records(scripts: Any, run: Any) -> None:
    found = run(scripts.lm(scripts.blundering), "stsr_oracle_h4_full", "stsr_free_run_h4_full")
    logged = json.loads(json.dumps(found["samples"], default=str))  # as the file of --log_samples holds them
    for name, kind in (("stsr_oracle_h4_full", DecisionRecord), ("stsr_free_run_h4_full", EpisodeRecord)):
        made = records_from_samples(reversed(logged[name]), cell())
        assert all(isinstance(record, kind) for record in made)
        assert made == records_from_samples(found["samples"][name], cell())
        assert [records.from_json(records.to_json(record)) for record in made] == made
        assert [record.id for record in made] == sorted(record.id for record in made)


def test_samples_that_are_not_of_the_cell_are_refused(scripts: Any, run: Any) -> None:
    samples = run(scripts.lm(scripts.perfect), "stsr_oracle_h4_full")["samples"]["stsr_oracle_h4_full"]
    for changed in ({"view": "compact"}, {"horizon": 8}, {"family": "branching"}):
        with pytest.raises(RecordError, match="is not of the cell's"):
            records_from_samples(samples, cell(**changed))
    with pytest.raises(RecordError, match=r"chain-h4/62000#1@full stands twice"):
        records_from_samples([samples[0], {**samples[0], "doc_id": 1}], cell())
    with pytest.raises(RecordError, match="not a result of an stsr task"):
        records_from_samples([{"doc_id": 0, "resps": [["42 apples"]]}], cell())
