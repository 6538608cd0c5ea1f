"""Rows of a cell as Parquet files, whole or not at all; cell.json comes last and means that all is there."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftbench.load.client import TokenScore
from draftbench.load.metrics import first_chunk_tokens, is_merged
from draftbench.provenance import atomic_write_bytes
from draftbench.records import (
    CHUNK_COLUMNS,
    REQUEST_COLUMNS,
    SCORE_COLUMNS,
    CellRecord,
    RequestRecord,
)

REQUESTS_FILE = "requests.parquet"
CHUNKS_FILE = "chunks.parquet"
SCORES_FILE = "scores.parquet"

_ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "list<int32>": pa.list_(pa.int32()),
}


@dataclass(frozen=True)
class CellRows:
    """All rows of a cell; `scores` by request number, None where the arm has no scoring pass."""

    name: str
    requests: Sequence[RequestRecord]
    scores: Mapping[int, Sequence[TokenScore]] | None = None


def write_cell(folder: Path, rows: CellRows, record: CellRecord) -> Path:
    """Write the row files and then cell.json; returns the latter's path.

    A run killed in between leaves no cell.json, hence no cell.
    """
    cell_json = folder / "cell.json"
    cell_json.unlink(missing_ok=True)
    requests = [request_row(rows.name, record) for record in rows.requests]
    _write(folder / REQUESTS_FILE, pa.Table.from_pylist(requests, schema=arrow_schema(REQUEST_COLUMNS)))
    _write(folder / CHUNKS_FILE, pa.table(chunk_columns(rows), schema=arrow_schema(CHUNK_COLUMNS)))
    if rows.scores is not None:
        _write(folder / SCORES_FILE, pa.Table.from_pylist(score_rows(rows), schema=arrow_schema(SCORE_COLUMNS)))
    atomic_write_bytes(cell_json, record.model_dump_json(indent=2).encode())
    return cell_json


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema behind a column table of `draftbench.records`."""
    return pa.schema([pa.field(name, _ARROW_TYPES[kind]) for name, kind in columns.items()])


def request_row(cell: str, record: RequestRecord) -> dict[str, Any]:
    """One row of requests.parquet."""
    chunks = record.chunks
    fields = {name: value for name, value in vars(record).items() if name in REQUEST_COLUMNS}
    return {
        **fields,
        "cell": cell,
        "chunks": len(chunks),
        "first_chunk_tokens": first_chunk_tokens(record),
        "merged_chunks": is_merged(record),
        "first_token_ns": chunks[0].time_ns if chunks else None,
        "last_token_ns": chunks[-1].time_ns if chunks else None,
    }


def chunk_columns(rows: CellRows) -> dict[str, list[Any]]:
    """Columns of chunks.parquet, in order of request and chunk; a cell may have millions of them."""
    chunks = [(record, number) for record in rows.requests for number in range(len(record.chunks))]
    return {
        "cell": [rows.name] * len(chunks),
        "request": [record.request for record, _ in chunks],
        "chunk": [number for _, number in chunks],
        "time_ns": [record.chunks[number].time_ns for record, number in chunks],
        "new_tokens": [record.chunks[number].new_tokens for record, number in chunks],
    }


def score_rows(rows: CellRows) -> list[dict[str, Any]]:
    """Rows of scores.parquet, in order of request and output position."""
    return [
        {"cell": rows.name, "request": request, "position": position, **asdict(score)}
        for request, scores in sorted((rows.scores or {}).items())
        for position, score in enumerate(scores)
    ]


def _write(path: Path, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    atomic_write_bytes(path, buffer.getvalue())
