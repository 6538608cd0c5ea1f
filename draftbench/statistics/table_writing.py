"""Writes tables as declared: a column that is missing, extra or of another type never reaches a report."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from draftbench.errors import ResultsError
from draftbench.layout import Layout
from draftbench.tables import TABLES

_TYPES: dict[str, Any] = {
    "String": pl.String(),
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "Boolean": pl.Boolean(),
    "List(Int32)": pl.List(pl.Int32()),
}


def declared_schema(name: str) -> dict[str, Any]:
    """Column -> polars type of a declared table."""
    return {column.name: _TYPES[column.type] for column in TABLES[name]}


def table_from_rows(name: str, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """A declared table from dicts; a key that the declaration lacks is an error, an absent one is null."""
    schema = declared_schema(name)
    records = list(rows)
    extra = {key for record in records for key in record} - set(schema)
    assert not extra, f"{name} declares no {sorted(extra)}"
    columns = {column: [record.get(column) for record in records] for column in schema}
    return pl.DataFrame(columns, schema=schema, strict=False)


def check_table(name: str, frame: pl.DataFrame) -> None:
    """ResultsError where names, order or types differ from the declaration."""
    declared, actual = declared_schema(name), dict(frame.schema)
    if list(declared.items()) != list(actual.items()):
        wrong = {column for column in {*declared, *actual} if declared.get(column) != actual.get(column)}
        raise ResultsError(f"table {name}: differs from its declaration in {sorted(wrong) or 'the order of columns'}")


def write_tables(tables: Mapping[str, pl.DataFrame], layout: Layout) -> None:
    """Each table as Parquet with a CSV beside it (lists left out), and the data dictionary of all tables."""
    for name, frame in tables.items():
        check_table(name, frame)
        path = layout.table(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        flat = frame.select(column for column, kind in frame.schema.items() if not isinstance(kind, pl.List))
        _replace(path.with_suffix(".csv"), lambda part, flat=flat: flat.write_csv(part))
        _replace(path, lambda part, frame=frame: frame.write_parquet(part))
    write_data_dictionary(layout)


def write_data_dictionary(layout: Layout) -> None:
    """tables/data-dictionary.json: every column of every table with type, unit and meaning."""
    dictionary = {name: [asdict(column) for column in columns] for name, columns in TABLES.items()}
    path = layout.root / "tables" / "data-dictionary.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, lambda part: Path(part).write_text(json.dumps(dictionary, indent=1) + "\n"))


def read_table(name: str, layout: Layout) -> pl.DataFrame:
    """A table written earlier; ResultsError where it is missing, corrupt or not as declared."""
    path = layout.table(name)
    if not path.exists():
        raise ResultsError(f"{path}: missing; run `snakemake aggregate` first")
    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ResultsError(f"{path}: not readable as Parquet ({error}); delete it and run again") from error
    check_table(name, frame)
    return frame


def _replace(path: Path, write: Any) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    write(part)
    part.replace(path)
