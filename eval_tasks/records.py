"""Records: one JSON line for each decision (a probe or a choice) or episode (a free run).

The schema and its documentation are one thing: the dataclasses below. `eval_tasks` writes records and
`stats` reads them; neither keeps a second copy of the schema. No lm-eval, torch or network here.

Invariant: a file holds each `id` at most once per cell, and records of two different cells are never merged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

SCHEMA = "stsr.record/2"
"""What is written. Version 2 added fields, all optional: records of version 1 are read as they are."""
READABLE = ("stsr.record/1", SCHEMA)
"""What is read."""


class RecordError(ValueError):
    """A record that cannot be read, or that contradicts another one. The message names file, line and id."""


@dataclass(frozen=True)
class Cell:
    """What was evaluated, by what, on what. Two records belong together only if their cells are equal."""

    model: str
    """Hub id or path of the base model."""
    model_revision: str
    """Commit of the base model, "sha256:" and a hash for a folder, or "unknown"."""
    adapter: str
    """Hub id or path of the adapter; "" for the base alone."""
    adapter_revision: str
    """Commit of the adapter, or a hash likewise; "" for the base alone."""
    data: str
    """Hub id of the data set."""
    data_revision: str
    """Commit of the data set, or a hash likewise."""
    split: str
    """Split of the data set, for example "test"."""
    family: str
    """Task family, for example "chain"."""
    horizon: int
    """Number of required operations of each task."""
    view: str
    """View of the state that the prompts showed."""
    chat_template: str
    """First 16 hex digits of the SHA-256 of the chat template; "none" for plain text."""
    dtype: str
    """Parameter type of the model, for example "float32"; "unknown" for a server."""
    backend: str
    """lm-eval model class, for example "HFLM"."""
    condition: str = ""
    """What tells cells of one family, horizon and view apart: the variant of a control such as "4x8" or
    "three", "choice" (likelihood), "matched-error", of ScienceWorld "pilot" and a shortened budget such as
    "8 calls"; "" otherwise."""

    @property
    def tasks(self) -> str:
        """What its tasks are called: family and, where they have one, horizon, for example "chain H16"."""
        return f"{self.family} H{self.horizon}" if self.horizon else self.family


@dataclass(frozen=True)
class Turn:
    """One call of the model and what the environment said about it."""

    prompt: str
    """The exact text that the model saw (after the chat template, where the client renders it)."""
    output: str
    """The raw text that it returned."""
    call: dict[str, Any] | None
    """The parsed call, or None when the output holds none."""
    verdict: str
    """"accepted", or the reason of the rejection (see generators.environment.Reason)."""
    error: str
    """The error text that the next prompt shows; "" when accepted."""
    remaining: int
    """Calls left before this one."""
    prompt_tokens: int | None
    """Length of the prompt in tokens; None where the backend has no tokenizer here."""
    output_tokens: int | None
    """Length of the output in tokens, end-of-turn token not counted; None as above."""
    candidates: list[str] | None = None
    """The replies that the prompt offers, in the order shown: calls, or ids under a view with ids."""
    reference: str = ""
    """The right reply among them: the evaluator-selected next action."""
    canonical: bool | None = None
    """Whether the reply is accepted and is the reference; a legal other one is accepted and not canonical."""


@dataclass(frozen=True)
class DecisionRecord:
    """One decision: the gold prefix is restored, the model makes one call or ranks the calls shown."""

    id: str
    """Row id, for example "chain-h4/62000#3@compact"."""
    task: str
    """Task id, for example "chain-h4/62000"."""
    fingerprint: str
    """Fingerprint of the task."""
    stage: int
    """1..H: position of the decision on the gold path."""
    agree: bool
    """The canonical action, and legal; in a choice, that it is the likelier one, a tie being wrong."""
    turn: Turn
    """The call. In a choice `output` is the likeliest candidate, "" if none is likelier than all others."""
    cell: Cell
    """The cell that the decision belongs to."""
    kind: Literal["oracle_prefix", "choice"] = "oracle_prefix"
    """Whether the reply was generated, or chosen by likelihood."""
    progress: bool | None = None
    """Whether the call verified one more required operation, canonical or not."""
    logprobs: list[float] | None = None
    """In a choice, the log-likelihood of each candidate after the prompt. Where lm-eval moves the prompt's
    last line breaks to the candidates, theirs is included, alike for all."""
    schema: str = SCHEMA
    """Version of this schema."""


@dataclass(frozen=True)
class EpisodeRecord:
    """One free run: the model's own calls drive the environment until success or the budget's end."""

    id: str
    """Episode id, for example "chain-h4/62000@compact"."""
    task: str
    """Task id."""
    fingerprint: str
    """Fingerprint of the task."""
    success: bool
    """Every required artifact verified, contents and ancestry."""
    verified: int
    """Number of required operations verified at the end, 0..H."""
    calls: int
    """Attempted calls, rejected ones included, 1..2H."""
    rejections: int
    """Rejected calls."""
    turns: list[Turn]
    """The calls in order."""
    cell: Cell
    """The cell that the episode belongs to."""
    kind: Literal["free_run", "matched_error"] = "free_run"
    """Whether the model played from the start, or from the same state after one injected error."""
    noncanonical: int | None = None
    """Accepted calls that were not the evaluator's next action: another legal order, or a wrong choice."""
    injected: list[str] = field(default_factory=list)
    """Calls that were made for the model before its first one, the rejected one last; they are not counted
    in `calls` and `rejections`."""
    schema: str = SCHEMA
    """Version of this schema."""


Record = DecisionRecord | EpisodeRecord


def to_json(record: Record) -> str:
    """One line of JSON, keys sorted, without the newline."""
    return json.dumps(
        asdict(record), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )


def reason(error: Exception) -> str:
    """Why a line is no record, in words."""
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def from_json(line: str, where: str = "record") -> Record:
    """The inverse of `to_json`. Raises RecordError that names `where` for anything else."""
    try:
        raw = json.loads(line)
        if raw["schema"] not in READABLE:
            raise RecordError(f"{where}: schema {raw['schema']!r}, this version reads {', '.join(READABLE)}")
        raw["cell"] = Cell(**raw["cell"])
        if raw["kind"] in ("oracle_prefix", "choice"):
            return DecisionRecord(**{**raw, "turn": Turn(**raw["turn"])})
        if raw["kind"] in ("free_run", "matched_error"):
            return EpisodeRecord(**{**raw, "turns": [Turn(**turn) for turn in raw["turns"]]})
    except RecordError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{where}: not a record: {reason(error)}") from error
    raise RecordError(f"{where}: unknown kind {raw['kind']!r}")


class Filed(Protocol):
    """What every kind of record has: together, these are unique in a file."""

    @property
    def kind(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def cell(self) -> Cell: ...


R = TypeVar("R", bound=Filed)


def read(paths: Iterable[Path]) -> Iterator[Record]:
    """All records of the files, in order. Raises RecordError for a broken line or an id twice in one cell."""
    return read_lines(paths, from_json)


def read_lines(paths: Iterable[Path], parse: Callable[[str, str], R]) -> Iterator[R]:
    """As `read`, for records that `parse` makes of (line, where)."""
    seen: set[tuple[str, str, Cell]] = set()
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                record = parse(line, f"{path}:{number}")
                key = (record.kind, record.id, record.cell)
                if key in seen:
                    raise RecordError(f"{path}:{number}: {record.id} stands twice in its cell")
                seen.add(key)
                yield record


def differing(a: Cell, b: Cell) -> list[str]:
    """Names of the fields in which two cells differ."""
    return [known.name for known in fields(Cell) if getattr(a, known.name) != getattr(b, known.name)]
