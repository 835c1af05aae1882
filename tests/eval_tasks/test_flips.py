"""Protects: a batch size that changes an answer is named, with the decision or the call that it changes."""

from __future__ import annotations

from typing import Any

import pytest
from lm_eval.models.huggingface import HFLM

from stsr.eval_tasks.flips import asked_of, find_flips


@pytest.fixture
def wavering(scripts: Any) -> Any:
    """Right, except under batch size 16: there its third episode call stammers, and one probe is wrong."""

    class Wavering(scripts.lm):  # type: ignore[misc]
        batch_size_per_gpu = 1

        def generate_until(self, asked: list[Any]) -> list[str]:
            return [self._say(one.doc, one.args[0]) for one in asked]

        def _say(self, doc: dict[str, Any], prompt: str) -> str:
            right = scripts.perfect(prompt)
            if self.batch_size_per_gpu == 16 and "62001" in doc["id"] and scripts.see(prompt).calls_left == 6:
                return f" {right}"
            if self.batch_size_per_gpu == 16 and "62000" in doc["id"] and scripts.see(prompt).calls_left == 7:
                return str(scripts.distracted(prompt))
            return str(right)

    return Wavering(scripts.perfect)


def test_flips_are_named(wavering: Any) -> None:
    asked = asked_of(wavering.apply_chat_template, 4, ["full"], workflows=2)
    assert len(asked) == 2 + 2 * 4 + 4  # episodes, their decisions, the tasks of two pairs
    flips = find_flips(wavering, asked)
    assert [(flip.id, flip.kind, flip.call, flip.scored) for flip in flips] == [
        ("chain-h4/62000@full", "free_run", 2, True),
        ("chain-h4/62001@full", "free_run", 3, False),  # a space before the call is not scored
        ("chain-h4/62000#2@full", "oracle_prefix", 1, True),
        ("chain-h4/62001#3@full", "oracle_prefix", 1, False),
    ]
    assert flips[1].outputs[16] == f" {flips[1].outputs[1]}"
    assert flips[1].outputs[4] == flips[1].outputs[1]
    assert str(flips[0]).startswith("chain-h4/62000@full, free_run, call 2, scores differ. 1: '{")
    assert wavering.batch_size_per_gpu == 1


def test_no_flip_in_a_random_model(network: Any, tok: Any) -> None:
    lm = HFLM(pretrained=network, tokenizer=tok)
    asked = asked_of(lm.apply_chat_template, 4, ["compact"], workflows=1)
    for request in asked:
        request.args[1]["max_gen_toks"] = 8
    assert find_flips(lm, asked) == []
