"""The Qwen3 chat template, as TRL ships it: the one that training, cards and the tiny base model use."""

from __future__ import annotations

from importlib.resources import files

QWEN3_TEMPLATE = files("trl").joinpath("chat_templates/qwen3.jinja").read_text(encoding="utf-8")
"""Jinja source. With `enable_thinking=False` the generation prompt ends with an empty think block."""
