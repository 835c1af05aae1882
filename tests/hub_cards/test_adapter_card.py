"""A card says what was run and, later, what was measured: for a reader, and for the Hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import HfApi, ModelCard

from stsr.eval_tasks import records
from stsr.eval_tasks.records import Cell, DecisionRecord, EpisodeRecord, Turn
from stsr.hub_cards.adapter_card import CardError, Result, add_results, write_card
from stsr.hub_cards.pins import Pin
from stsr.hub_cards.publish import Published, publish_folder

DATA = Pin("stsr/table-workflows", "d" * 40)
FREE = Result("H4, full view: free runs", 9, 10, 0.596, 0.982, DATA, "test")


def front(card: Path) -> Any:
    """The YAML between the first two lines of dashes."""
    return yaml.safe_load(card.read_text().split("---\n", 2)[1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a training leaves, as far as the card reads it, and a file for the weights."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    run = {
        "adapter": "stsr/tiny-h4-full-s7",
        "view": "full",
        "step": 40,
        "base": {"source": "stsr/tiny-base", "commit": "b" * 40, "class": "Qwen3ForCausalLM"},
        "data": {"source": "stsr/table-workflows", "config": "h4-full", "commit": "d" * 40},
        "recipe": {
            "learning_rate": 0.002,
            "lora_target_modules": ["q_proj"],
            "seed": 7,
            "max_steps": 200,
            "evaluate_in": "float32",
        },
        "versions": {"torch": "2.13.0"},
        "final_loss": 0.25,
        "proof": {"keys": 70, "missing": 0, "unexpected": 0, "effect": 1.5, "sha256": "e" * 64},
    }
    counts = ["rows", "distinct_rows", "presentations", "workflows"]
    counts += ["input_tokens", "supervised_tokens", "longest_row"]
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "exposure.json").write_text(
        json.dumps({**dict.fromkeys(counts, 800), "order_sha256": "f" * 64})
    )
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


def test_a_card_tells_the_hub_and_the_reader(folder: Path) -> None:
    card = write_card(folder)
    body = card.read_text().split("---\n", 2)[2]
    assert front(card) == {
        "base_model": "stsr/tiny-base",
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "license": "apache-2.0",
        "datasets": ["stsr/table-workflows"],
        "tags": ["lora", "sft", "trl", "table-workflows", "view:full"],
    }
    assert f'base_id, revision = "stsr/tiny-base", "{"b" * 40}"' in body
    assert 'from_pretrained(base_id, revision=revision, dtype="float32")' in body
    assert "after 40 of 200 updates" in body
    assert "`stsr adapters verify stsr/tiny-h4-full-s7@v1.0.0`" in body
    assert 'PeftModel.from_pretrained(base, "stsr/tiny-h4-full-s7", revision="v1.0.0")' in body
    for part in (
        "| `learning_rate` | `0.002` |",
        '| `lora_target_modules` | `["q_proj"]` |',
        "70 weights, 0 missing",
    ):
        assert part in body
    assert "This card reports none" in body


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("bfloat16", "revision=revision, dtype=torch.bfloat16)"),
        ("float16", "revision=revision, dtype=torch.float16)"),
        ("nf4", "quantization_config=nf4"),
    ],
)
def test_a_card_loads_the_base_as_it_is_evaluated(folder: Path, precision: str, expected: str) -> None:
    """The program on the card is Python, and its base is the one of the proof."""
    run = json.loads((folder / "run.json").read_text())
    run["recipe"]["evaluate_in"] = precision
    (folder / "run.json").write_text(json.dumps(run))
    program = write_card(folder).read_text().split("```python\n")[1].split("```")[0]
    compile(program, "card", "exec")
    assert expected in program
    assert ("load_in_4bit=True" in program) == (precision == "nf4")


@pytest.mark.parametrize("config", ["compact-recent2", "short-compact-recent2"])
def test_a_card_of_scienceworld_speaks_of_scienceworld(folder: Path, config: str) -> None:
    run = json.loads((folder / "run.json").read_text())
    run |= {"view": "compact-recent2"}
    run["data"] |= {"source": "stsr/scienceworld-trajectories", "config": config}
    (folder / "run.json").write_text(json.dumps(run))
    text = write_card(folder).read_text()
    assert "A prompt describes a state of ScienceWorld" in text
    assert "table workflows" not in text
    assert {"scienceworld", "view:compact-recent2"} <= set(front(folder / "README.md")["tags"])


def test_a_card_shows_results_as_k_of_n(folder: Path) -> None:
    """9/10 and 0/0: a share of nothing is a dash, and no number for the Hub."""
    nothing = Result("H4, full view: recovery", 0, 0, None, None, DATA, "test")
    card = write_card(folder, results=[FREE, nothing], tag="v2.0.0")
    body = card.read_text()
    assert "| H4, full view: free runs | 9/10 | 90.0 | 59.6 to 98.2 |" in body
    assert "| H4, full view: recovery | 0/0 | - | - |" in body
    assert "Split test of stsr/table-workflows." in body
    assert 'revision="v2.0.0"' in body
    assert "This card reports none" not in body
    (index,) = front(card)["model-index"]
    assert index["name"] == "stsr/tiny-h4-full-s7"
    assert index["results"] == [
        {
            "task": {"type": "text-generation"},
            "dataset": {
                "name": "stsr/table-workflows",
                "type": "stsr/table-workflows",
                "split": "test",
                "revision": "d" * 40,
            },
            "metrics": [
                {
                    "type": "accuracy",
                    "value": 0.9,
                    "name": "H4, full view: free runs",
                    "args": {"k": 9, "n": 10},
                }
            ],
        }
    ]


def test_a_card_names_no_folder_as_a_repository(folder: Path) -> None:
    run = json.loads((folder / "run.json").read_text())
    run["base"] |= {"source": "out/tiny-base", "commit": "sha256:" + "0" * 64}
    run["data"] |= {"source": "out/data", "commit": "sha256:" + "1" * 64}
    (folder / "run.json").write_text(json.dumps(run))
    local = FREE._replace(data=Pin("out/data", "sha256:" + "1" * 64))
    metadata = front(write_card(folder, results=[local]))
    assert not {"base_model", "datasets", "model-index"} & metadata.keys()


# On the Hub


@pytest.fixture
def publish(folder: Path) -> Callable[[str], Published]:
    def publish(repo: str) -> Published:
        write_card(folder)
        return publish_folder(folder, repo, "model", tag="v1.0.0", message="1")

    return publish


def test_results_are_one_more_commit_and_the_tag_stays(
    publish: Callable[[str], Published], folder: Path, api: HfApi
) -> None:
    first = publish("results/tiny")
    done = add_results("results/tiny", [FREE], first.commit, tag="v1.0.0")
    assert done.created
    assert [commit.commit_id for commit in api.list_repo_commits("results/tiny")][:2] == [
        done.commit,
        first.commit,
    ]
    (tag,) = api.list_repo_refs("results/tiny").tags
    assert api.model_info("results/tiny", revision=tag.name).sha == first.commit
    before, after = (
        {file.path: file.blob_id for file in api.list_repo_tree("results/tiny", revision=commit)}
        for commit in (first.commit, done.commit)
    )
    assert {path for path in after if after[path] != before.get(path)} == {"README.md"}
    (result,) = ModelCard.load("results/tiny").data.eval_results
    assert (result.metric_name, result.metric_value) == ("H4, full view: free runs", 0.9)
    tagged = api.hf_hub_download("results/tiny", "README.md", revision="v1.0.0")
    assert ModelCard.load(tagged).data.eval_results is None
    # neither saying it again nor publishing the run again changes anything
    assert add_results("results/tiny", [FREE], first.commit, tag="v1.0.0") == done._replace(created=False)
    assert publish("results/tiny") == first._replace(created=False)
    assert api.model_info("results/tiny").sha == done.commit


def test_results_of_another_run_are_refused(
    publish: Callable[[str], Published], folder: Path, api: HfApi
) -> None:
    first = publish("results/moved")
    (folder / "run.json").write_text((folder / "run.json").read_text().replace("0.25", "0.5"))
    second = publish_folder(folder, "results/moved", "model", tag=None, message="2").commit
    with pytest.raises(CardError, match=f"are of commit {first.commit}, and main holds another run by now"):
        add_results("results/moved", [FREE], first.commit, tag="v1.0.0")
    assert api.model_info("results/moved").sha == second


# From records


def decision(cell: Cell, seed: int, stage: int, agree: bool) -> DecisionRecord:
    task = f"chain-h4/{seed}"
    turn = Turn("prompt", "text", None, "accepted" if agree else "malformed", "", 8, None, None)
    return DecisionRecord(f"{task}#{stage}@full", task, f"f{seed}", stage, agree, turn, cell)


def episode(cell: Cell, seed: int, success: bool) -> EpisodeRecord:
    task = f"chain-h4/{seed}"
    turns = [Turn("prompt", "text", None, "accepted" if success else "malformed", "", 8, None, None)] * 4
    done, rejected = (4, 0) if success else (0, 4)
    return EpisodeRecord(f"{task}@full", task, f"f{seed}", success, done, 4, rejected, turns, cell)


def test_the_command_counts_records(
    publish: Callable[[str], Published], folder: Path, tmp_path: Path, api: HfApi
) -> None:
    """7 of 8 decisions and 1 of 2 episodes; Wilson's intervals computed by hand (z = 1.96)."""
    from stsr.cli.adapter_results import card

    first = publish("results/measured")
    cell = Cell(
        "stsr/tiny-base",
        "b" * 40,
        "results/measured",
        first.commit,
        *DATA,
        "test",
        "chain",
        4,
        "full",
        "t",
        "f",
        "HF",
    )
    lines: list[Any] = [decision(cell, 1, stage, stage != 3) for stage in (1, 2, 3, 4)]
    lines += [decision(cell, 2, stage, True) for stage in (1, 2, 3, 4)]
    lines += [episode(cell, 1, True), episode(cell, 2, False)]
    path = tmp_path / "records/tiny/all.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{records.to_json(line)}\n" for line in lines))
    assert card("results/measured", tmp_path / "records", "v1.0.0", False, False).created
    text = Path(api.hf_hub_download("results/measured", "README.md")).read_text()
    assert "| H4, full view: decisions after a gold prefix | 7/8 | 87.5 | 52.9 to 97.8 |" in text
    assert "| H4, full view: free runs | 1/2 | 50.0 | 9.5 to 90.5 |" in text
    with pytest.raises(CardError, match="holds no records of results/other; there are results/measured"):
        card("results/other", tmp_path / "records", "v1.0.0", False, False)
    other = [
        decision(Cell(**{**vars(cell), "adapter_revision": "a" * 40}), 1, stage, True)
        for stage in (1, 2, 3, 4)
    ]
    path.with_name("more.jsonl").write_text("".join(f"{records.to_json(line)}\n" for line in other))
    # Another revision, such as a checkpoint, counts in no number of this one.
    assert not card("results/measured", tmp_path / "records", "v1.0.0", False, False).created
    path.unlink()
    with pytest.raises(CardError, match=f"at v1.0.0, commit {first.commit}; there are {'a' * 40}"):
        card("results/measured", tmp_path / "records", "v1.0.0", False, False)
