"""Parquet files of rows: their columns, and a writer that holds one row group in memory.

Columns are plain strings, integers, lists and structs, which every reader of parquet and `datasets` decodes
by itself, streaming or not.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stsr.generators.files import file_sha256

ROW_GROUP = 1000
"""Rows a row group: a few hundred kilobytes of prompts, which the Hub's viewer pages through."""

_MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))

DECISION_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("view", pa.string()),
        ("prompt", _MESSAGES),
        ("task", pa.string()),
        ("fingerprint", pa.string()),
        ("family", pa.string()),
        ("horizon", pa.int32()),
        ("seed", pa.int64()),
        ("stage", pa.int32()),
        ("completion", _MESSAGES),
        ("candidates", pa.list_(pa.string())),
        ("target_index", pa.int32()),
        ("distractor", pa.string()),
        ("calls_left", pa.int32()),
        ("chat_template_kwargs", pa.struct([("enable_thinking", pa.bool_())])),
    ]
)
"""Columns of a view config; the card's data dictionary documents each."""

TASK_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("fingerprint", pa.string()),
        ("family", pa.string()),
        ("horizon", pa.int32()),
        ("seed", pa.int64()),
        ("definition", pa.string()),
    ]
)
"""Columns of a tasks config."""

STATISTICS = ["id", "task", "fingerprint", "family", "horizon", "seed", "stage"]
"""Columns that get minimum and maximum a row group. Those of prompts would only fill the file's footer."""

CANARY = pa.field("canary", pa.string())
"""The last column of every config of a data set that declares a canary."""


class Writer:
    """A parquet file that is written a row group at a time; `facts` describe it once it is closed."""

    def __init__(self, path: Path, schema: pa.Schema, canary: str | None) -> None:
        """`canary` is the value of that column in every row; None leaves the column out."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.rows, self.canary = path, 0, canary
        self.schema = schema if canary is None else schema.append(CANARY)
        self.buffer: list[dict[str, Any]] = []
        self.content = hashlib.sha256()
        self.file = pq.ParquetWriter(
            path, self.schema, compression="zstd", write_page_index=True, write_statistics=STATISTICS
        )

    def add(self, row: dict[str, Any]) -> None:
        """Adds one row."""
        if self.canary is not None:
            row = {**row, "canary": self.canary}
        self.buffer.append(row)
        self.content.update(json.dumps(row, sort_keys=True).encode() + b"\n")
        if len(self.buffer) == ROW_GROUP:
            self.flush()

    def flush(self) -> None:
        """Writes what is held in memory as a row group."""
        if self.buffer:
            self.file.write_table(pa.Table.from_pylist(self.buffer, self.schema))
            self.rows += len(self.buffer)
            self.buffer = []

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.flush()
        self.file.close()

    @property
    def facts(self) -> dict[str, Any]:
        """What the manifest says about the file. `rows_sha256` is over the rows, whatever wrote the file."""
        return {
            "rows": self.rows,
            "bytes": self.path.stat().st_size,
            "sha256": file_sha256(self.path),
            "rows_sha256": self.content.hexdigest(),
        }
