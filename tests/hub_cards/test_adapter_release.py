"""A published adapter with its checkpoints, proved again from what a Hub gives back, or refused.

The run is made by hand with plain PEFT, which also says what effect a proof should find.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import HfApi
from peft import LoraConfig, get_peft_model

from stsr.hub_cards.adapter_card import write_card
from stsr.hub_cards.adapter_release import TOLERANCE, publish_run, verify
from stsr.hub_cards.adapters import PROOF_PROMPT, AdapterError
from stsr.hub_cards.bases import PRECISIONS
from stsr.hub_cards.publish import publish_folder
from stsr.hub_cards.publishable import PublishError, UnpublishableError

WEIGHTS = "adapter_model.safetensors"


@pytest.fixture(scope="module")
def network(small_qwen3: Any) -> Callable[[], Any]:
    return lambda: small_qwen3(tie_word_embeddings=True)


@pytest.fixture
def base(network: Callable[[], Any], tok: Any, tmp_path: Path, hub: Any) -> tuple[str, str]:
    """(Hub id, commit) of a published base model."""
    folder = tmp_path / "base"
    network().save_pretrained(folder)
    tok.save_pretrained(folder)
    (folder / "README.md").write_text("A base model.")
    repo = f"release/base-{tmp_path.name}"
    return repo, publish_folder(folder, repo, "model", tag="v1.0.0", message="Base").commit


def write_adapter(folder: Path, network: Any, tok: Any, seed: int) -> float:
    """A random adapter in `folder`; returns its largest effect on a logit of the proof's prompt."""
    torch.manual_seed(seed)
    model = get_peft_model(network, LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_()
    model.save_pretrained(folder, save_embedding_layers=False)
    ids = tok.apply_chat_template(
        [{"role": "user", "content": PROOF_PROMPT}],
        add_generation_prompt=True,
        enable_thinking=False,
        return_tensors="pt",
        return_dict=True,
    )["input_ids"]
    model.eval()
    with torch.no_grad(), model.disable_adapter():
        plain = model(input_ids=ids).logits
    with torch.no_grad():
        return float((model(input_ids=ids).logits - plain).abs().max())


@pytest.fixture
def out(base: tuple[str, str], network: Callable[[], Any], tok: Any, tmp_path: Path) -> Path:
    """A finished run of two steps."""
    out = tmp_path / "run"
    for step, folder in [(1, out / "steps/step-1"), (2, out / "adapter")]:
        effect = write_adapter(folder, network(), tok, step)
        sha256 = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
        run = {
            "adapter": f"release/adapter-{tmp_path.name}",
            "view": "full",
            "step": step,
            "base": {"source": base[0], "commit": base[1], "class": "Qwen3ForCausalLM"},
            "data": {"source": "stsr/table-workflows", "config": "h4-full", "commit": "d" * 40},
            "chat_template_sha256": hashlib.sha256(tok.chat_template.encode()).hexdigest(),
            "recipe": {"seed": 7, "max_steps": 2, "evaluate_in": "float32"},
            "versions": {"torch": "2.13.0"},
            "final_loss": 0.25,
            "proof": {"keys": 4, "missing": 0, "unexpected": 0, "effect": effect, "sha256": sha256},
        }
        counts = ["rows", "distinct_rows", "presentations", "workflows"]
        counts += ["input_tokens", "supervised_tokens", "longest_row"]
        audit = {**dict.fromkeys(counts, 8 * step), "order_sha256": "f" * 64}
        (folder / "run.json").write_text(json.dumps(run))
        (folder / "exposure.json").write_text(json.dumps(audit))
        write_card(folder, tag="v1.0.0" if step == 2 else "step-1")
    return out


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """`folder` with its run.json edited."""
    run = json.loads((folder / "run.json").read_text())
    edit(run)
    (folder / "run.json").write_text(json.dumps(run))
    return folder


def test_checkpoints_are_revisions_and_each_one_is_proved(out: Path, api: HfApi) -> None:
    first, last = publish_run(out, None, tag="v1.0.0")
    repo = first.repo_id
    assert (first.tag, last.tag) == ("step-1", "v1.0.0")
    assert api.model_info(repo).sha == last.commit
    commits = [commit.commit_id for commit in api.list_repo_commits(repo)]
    assert commits[:2] == [last.commit, first.commit]
    for revision, folder in [("step-1", out / "steps/step-1"), ("v1.0.0", out / "adapter")]:
        done = verify(repo, revision, "cpu")
        stated = json.loads((folder / "run.json").read_text())["proof"]
        assert done.source == (repo, {"step-1": first.commit, "v1.0.0": last.commit}[revision])
        assert done.proof.effect == pytest.approx(stated["effect"], rel=1e-5)
        assert (done.proof.keys, done.proof.sha256) == (4, stated["sha256"])
        assert done.stated == stated["effect"]


@pytest.mark.slow
def test_plain_peft_finds_a_checkpoint_by_its_revision(
    out: Path, base: tuple[str, str], run_client: Callable[..., str]
) -> None:
    repo = publish_run(out, None, tag="v1.0.0")[0].repo_id
    program = f"""
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
def logits(*source, **more):
    base = AutoModelForCausalLM.from_pretrained({base[0]!r})
    with torch.no_grad():
        return PeftModel.from_pretrained(base, *source, **more).eval()(torch.tensor([[3, 5, 8]])).logits
print(torch.equal(logits({repo!r}, revision="step-1"), logits({str(out / "steps/step-1")!r})))
"""
    assert run_client(program).splitlines()[-1] == "True"


def test_publishing_again_changes_nothing_and_what_was_cut_short_goes_on(out: Path, api: HfApi) -> None:
    (step, folder), repo = ("step-1", out / "steps/step-1"), "release/cut-short"
    first = publish_folder(folder, repo, "model", tag=step, message="Adapter, step-1")
    done = publish_run(out, repo, tag="v1.0.0")
    assert done[0] == first._replace(created=False)
    assert done[1].created
    assert [again.created for again in publish_run(out, repo, tag="v1.0.0")] == [False, False]
    assert api.model_info(repo).sha == done[1].commit


def test_a_checkpoint_cannot_go_behind_a_release(out: Path) -> None:
    repo = "release/late-checkpoint"
    publish_folder(out / "adapter", repo, "model", tag="v1.0.0", message="Adapter")
    with pytest.raises(
        AdapterError, match=r"has v1\.0\.0 but no step-1, which goes before it: use a new tag"
    ):
        publish_run(out, repo, tag="v1.0.0")


@pytest.mark.parametrize(("tag", "says"), [("v 1", "is not a tag"), ("step-1", "is the tag of a checkpoint")])
def test_a_bad_tag_is_refused_before_a_checkpoint_is_sent(tag: str, says: str, out: Path, api: HfApi) -> None:
    with pytest.raises(UnpublishableError, match=says):
        publish_run(out, "release/bad-tag", tag=tag)
    assert not api.repo_exists("release/bad-tag")


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="holds no finished run"):
        publish_run(tmp_path, None, tag="v1.0.0")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda run: run["proof"].update(effect=0.5 * run["proof"]["effect"]),
            "moves a logit by .* says",
        ),
        (lambda run: run["proof"].update(sha256="0" * 64), "the weights are not those that run.json names"),
        (lambda run: run["proof"].update(keys=6), "the weights are not those that run.json names"),
        (lambda run: run.update(chat_template_sha256="0" * 64), "the chat template is not the one"),
        (lambda run: run["recipe"].pop("evaluate_in"), "does not say which precision it is evaluated in"),
    ],
)
def test_an_adapter_that_is_not_what_it_states_is_refused(out: Path, edit: Any, message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        verify(str(change(out / "adapter", edit)), None, "cpu")


def test_a_pickle_is_refused_before_anything_is_downloaded(out: Path, api: HfApi) -> None:
    repo = publish_run(out, None, tag="v1.0.0")[0].repo_id
    api.upload_file(path_or_fileobj=b"pickle", path_in_repo="training_args.bin", repo_id=repo)
    with pytest.raises(AdapterError, match=r"holds training_args\.bin, which may run code"):
        verify(repo, "main", "cpu")
    (out / "adapter/optimizer.pt").write_bytes(b"pickle")
    with pytest.raises(PublishError, match=r"optimizer\.pt is a pickle"):
        publish_run(out, "release/pickled", tag="v1.0.0")


def test_a_folder_of_no_run_is_refused(out: Path) -> None:
    (out / "adapter/run.json").unlink()
    with pytest.raises(AdapterError, match=r"has no run\.json: it was not published by this project"):
        verify(str(out / "adapter"), None, "cpu")


def test_every_precision_can_be_verified() -> None:
    assert TOLERANCE.keys() == set(PRECISIONS)
