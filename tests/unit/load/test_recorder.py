"""Rows on disk: schema, values, and nothing half written."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from draftbench.load import recorder
from draftbench.load.client import TokenScore
from draftbench.load.recorder import CellRows, write_cell
from draftbench.provenance import atomic_write_bytes
from draftbench.records import CHUNK_COLUMNS, REQUEST_COLUMNS, SCORE_COLUMNS, CellRecord, Check
from tests.unit.load.builders import MS, autoregressive_record, speculative_record

ARROW_NAMES = {"float64": "double", "list<int32>": "list<element: int32>"}


def cell_record() -> CellRecord:
    """A cell record with arbitrary values."""
    values: dict[str, Any] = {
        name: 1 if field.annotation is int else 0.0 if field.annotation is float else "x"
        for name, field in CellRecord.model_fields.items()
        if field.is_required()
    }
    values |= {"draft_budget": None, "verify_width": 8, "window_start_ns": None, "window_end_ns": None}
    values |= {"devices": ("cpu",), "neighbours": (), "resolved": {}, "provenance": {}}
    return CellRecord(**values | {"checks": (Check(name="all", passed=True),)})


def rows(**changes: Any) -> CellRows:
    """Two requests, the second AR's with scores."""
    scores = {1: [TokenScore(11, 11, -0.1, 12, -2.5), TokenScore(12, 13, -0.5, 12, -0.75)]}
    requests = [speculative_record(), autoregressive_record(request=1, lane=1)]
    return CellRows(**({"name": "session/cell", "requests": requests, "scores": scores} | changes))


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        ("requests.parquet", REQUEST_COLUMNS),
        ("chunks.parquet", CHUNK_COLUMNS),
        ("scores.parquet", SCORE_COLUMNS),
    ],
)
def test_files_have_the_contract_s_columns_and_types(tmp_path: Path, file: str, columns: dict[str, str]) -> None:
    """Names, order and types are those of draftbench.records, so that analysis never guesses."""
    write_cell(tmp_path, rows(), cell_record())
    schema = pq.read_schema(tmp_path / file)

    assert {field.name: str(field.type) for field in schema} == {
        name: ARROW_NAMES.get(kind, kind) for name, kind in columns.items()
    }


def test_a_request_s_row_holds_what_was_measured(tmp_path: Path) -> None:
    """The derived columns: 4 chunks, first of 1 token at 10 ms, last at 40 ms, not merged."""
    write_cell(tmp_path, rows(), cell_record())
    first, second = pq.read_table(tmp_path / "requests.parquet").to_pylist()

    assert (first["chunks"], first["first_chunk_tokens"], first["merged_chunks"]) == (4, 1, False)
    assert (first["first_token_ns"], first["last_token_ns"]) == (10 * MS, 40 * MS)
    assert (first["cell"], first["verify_steps"], first["accept_histogram"]) == ("session/cell", 3, [1, 1, 1])
    assert first["output_ids"] == [11, 12, 13, 14, 15, 16, 17]
    assert second["verify_steps"] is None
    assert second["accept_histogram"] is None


def test_chunks_and_scores_are_numbered_within_their_request(tmp_path: Path) -> None:
    """Four chunks each, tokens 1, 2, 1, 3 and 1, 1, 1, 1; two scored positions."""
    write_cell(tmp_path, rows(), cell_record())
    chunks = pq.read_table(tmp_path / "chunks.parquet").to_pylist()
    scores = pq.read_table(tmp_path / "scores.parquet").to_pylist()

    assert [(row["request"], row["chunk"], row["new_tokens"]) for row in chunks] == [
        *[(0, number, tokens) for number, tokens in enumerate((1, 2, 1, 3))],
        *[(1, number, 1) for number in range(4)],
    ]
    assert [(row["request"], row["position"], row["token"], row["top1_token"]) for row in scores] == [
        (1, 0, 11, 11),
        (1, 1, 12, 13),
    ]


def test_a_request_without_a_chunk_has_nulls_not_zeros(tmp_path: Path) -> None:
    """Missing is null."""
    failed = speculative_record(chunks=[], completion_tokens=None, output_ids=[], error="gone")
    write_cell(tmp_path, rows(requests=[failed], scores=None), cell_record())
    (row,) = pq.read_table(tmp_path / "requests.parquet").to_pylist()

    assert row["first_token_ns"] is None
    assert row["first_chunk_tokens"] is None
    assert row["error"] == "gone"


def test_only_the_ar_arm_has_scores(tmp_path: Path) -> None:
    """No scoring pass, no file."""
    write_cell(tmp_path, rows(scores=None), cell_record())

    assert not (tmp_path / "scores.parquet").exists()


def test_cell_json_is_written_last_and_readable(tmp_path: Path) -> None:
    """It comes back as the record it was."""
    path = write_cell(tmp_path, rows(), cell_record())

    assert path == tmp_path / "cell.json"
    assert CellRecord.model_validate_json(path.read_bytes()) == cell_record()
    assert json.loads(path.read_text())["schema_version"] == 1


@pytest.mark.parametrize("dies_at", ["requests.parquet", "chunks.parquet", "scores.parquet", "cell.json"])
def test_a_killed_write_leaves_no_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str) -> None:
    """Wherever the writer dies, no cell.json stays, not even one of an earlier measurement, and no half file."""
    write_cell(tmp_path, rows(), cell_record())

    def die(path: Path, content: bytes) -> None:
        if path.name == dies_at:
            raise KeyboardInterrupt
        atomic_write_bytes(path, content)

    monkeypatch.setattr(recorder, "atomic_write_bytes", die)
    with pytest.raises(KeyboardInterrupt):
        write_cell(tmp_path, rows(), cell_record())

    assert not (tmp_path / "cell.json").exists()
    assert not list(tmp_path.glob("*.tmp"))
