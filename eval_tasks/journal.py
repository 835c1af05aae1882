"""The journal of one task: records as they happen, and answers of episodes that are still open. Pure.

    with Journal(Path("out/base/stsr_free_run_h16_full.jsonl"), cells) as journal:
        for result in run(skip=journal.records):     # ids that are done already
            journal.add([result])
        journal.finish()

While a task runs, `NAME.jsonl.partial` takes a line a finished decision or episode, and
`NAME.answers.partial` a line an answer of the model, so that an open episode is replayed up to where it was.
Each batch is written and synced before the next begins. When all is there, `NAME.jsonl` appears whole, in
document order, and the two others go. So a process may be killed at any moment, any number of times: what was
synced is kept, a line that is torn is dropped, and nothing is counted twice, because what has a record is not
run again.

Invariants: one process at a time; every line belongs to the cells that were asked for. A file of any other
cell (data, model, adapter, template, dtype, backend, ...) is a RecordError that names the field.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from stsr.eval_tasks import records
from stsr.eval_tasks.records import Cell, RecordError
from stsr.eval_tasks.samples import record_of, result_of

PARTIAL, ANSWERS = ".jsonl.partial", ".answers.partial"


class Journal:
    """What is known of a task, and where more of it is written."""

    from_json: Callable[[str, str], Any] = staticmethod(records.from_json)
    to_json: Callable[[Any], str] = staticmethod(records.to_json)
    record_of: Callable[[Mapping[str, Any], Cell, str], Any] = staticmethod(record_of)
    result_of: Callable[[Any], dict[str, Any]] = staticmethod(result_of)
    """The kind of records; the journal of another study names its own."""

    def __init__(self, path: Path, cells: Mapping[str, Cell]) -> None:
        """`path` is the finished file, NAME.jsonl; `cells` holds the ids asked for, in document order.

        Reads what is there. Raises RecordError for records of another cell, of ids that are not asked for, or
        a broken line other than a torn last one; and if another process is writing.
        """
        self.path, self.cells = path, cells
        self._partial = path.with_name(path.stem + PARTIAL)
        self._answers = path.with_name(path.stem + ANSWERS)
        self.records: dict[str, Any] = {}
        """Finished decisions and episodes, by id."""
        self.answers: dict[str, str] = {}
        """Answers of the model, by a hash of prompt and settings."""
        self.complete = False
        """Whether the finished file is there and holds all that is asked for."""
        self._files: list[Any] = []
        self._read_all()

    @property
    def begun(self) -> bool:
        """Whether an earlier run left something but not all."""
        return not self.complete and bool(self.records or self.answers)

    # -- reading

    def _read_all(self) -> None:
        self._read(self.path, torn=False)
        self.complete = self.path.exists() and len(self.records) == len(self.cells)
        if self.complete:  # a process that was killed just before its end may have left these
            self._partial.unlink(missing_ok=True)
            self._answers.unlink(missing_ok=True)
            return
        self._read(self._partial, torn=True)
        self._read_answers()

    def _read(self, path: Path, torn: bool) -> None:
        more = []
        for number, line in enumerate(_lines(path, torn), 1):
            record = self.from_json(line, f"{path}:{number}")
            _refuse_other(path, record.cell, self.cells.get(record.id, self._first))
            if record.id not in self.cells:
                more.append(record.id)
            elif self.records.setdefault(record.id, record) != record:
                raise RecordError(f"{path}:{number}: {record.id} was recorded before, with another outcome")
        if more:
            raise RecordError(
                f"{path} holds {len(more)} records that are not asked for, such as {min(more)}; "
                "choose another folder or a larger limit"
            )

    def _read_answers(self) -> None:
        lines = _lines(self._answers, torn=True)
        for number, line in enumerate(lines, 1):
            entry = json.loads(line)
            if number == 1:
                _refuse_other(self._answers, Cell(**entry["cell"]), self._first)
            else:
                self.answers[entry["key"]] = entry["output"]

    @property
    def _first(self) -> Cell:
        return next(iter(self.cells.values()))

    # -- writing

    def __enter__(self) -> Journal:
        """Opens for writing: torn lines are cut off, and other processes kept out."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._files = [_open(path) for path in (self._partial, self._answers)]
        except BlockingIOError as error:
            raise RecordError(f"{self._partial}: another process is writing this task's records") from error
        self._read_all()  # another process may have written since
        if not self._files[1].tell():
            self._append(1, [{"cell": asdict(self._first)}])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def add(self, results: Iterable[Mapping[str, Any]]) -> None:
        """Writes the results of finished rollouts (`episodes`), and syncs. One twice is a RecordError."""
        lines = []
        for result in results:
            record = self.record_of(result, self.cells[result["id"]], str(result["id"]))
            if record.id in self.records:
                raise RecordError(f"{record.id} is recorded already")
            self.records[record.id] = record
            lines.append(self.to_json(record))
        self._write(0, lines)

    def remember(self, answers: Mapping[str, str]) -> None:
        """Writes answers of the model, and syncs."""
        self.answers |= answers
        self._append(1, [{"key": key, "output": output} for key, output in answers.items()])

    def result(self, record_id: str) -> dict[str, Any] | None:
        """The result of a rollout that has a record, or None."""
        record = self.records.get(record_id)
        return None if record is None else self.result_of(record)

    def finish(self) -> None:
        """The whole file appears, in document order. Raises RecordError if a record is missing."""
        if missing := [record_id for record_id in self.cells if record_id not in self.records]:
            raise RecordError(f"{self.path}: {len(missing)} records are missing, such as {missing[0]}")
        whole = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with open(whole, "w", encoding="utf-8") as file:
            file.writelines(f"{self.to_json(self.records[record_id])}\n" for record_id in self.cells)
            file.flush()
            os.fsync(file.fileno())
        os.replace(whole, self.path)
        for path in (self._partial, self._answers):
            path.unlink(missing_ok=True)

    def _append(self, which: int, entries: Iterable[Mapping[str, Any]]) -> None:
        self._write(which, [json.dumps(entry, sort_keys=True, ensure_ascii=False) for entry in entries])

    def _write(self, which: int, lines: list[str]) -> None:
        if lines and not self.complete:
            file = self._files[which]
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())


def _refuse_other(path: Path, found: Cell, wanted: Cell) -> None:
    if differing := records.differing(found, wanted):
        told = ", ".join(
            f"{name} {getattr(found, name)!r}, not {getattr(wanted, name)!r}" for name in differing
        )
        raise RecordError(f"{path} holds another cell: {told}; choose another folder")


def _lines(path: Path, torn: bool) -> list[str]:
    """The lines of a file, none if it isn't there. `torn` drops what stands behind the last newline."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: _whole(data)] if torn else data
    return whole.decode().removesuffix("\n").split("\n") if whole else []


def _whole(data: bytes) -> int:
    """Bytes of `data` up to and with the last newline."""
    return data.rfind(b"\n") + 1


def _open(path: Path) -> Any:
    """The file for appending, locked for this process, without a torn last line."""
    file = open(path, "ab+")  # noqa: SIM115 - the journal closes it
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    file.seek(0)
    file.truncate(_whole(file.read()))
    file.seek(0, os.SEEK_END)
    return file
