"""Tables as files of the kind that their name's ending says, written piece by piece.

| ending                    | is                                                                            |
|---------------------------|-------------------------------------------------------------------------------|
| `.parquet`                | Parquet                                                                       |
| `.csv`, `.tsv`            | a header and a line for each row; missing is the empty cell, "" if it is alone |
| `.json`                   | one array with an object for each row                                         |
| `.jsonl`, `.ndjson`       | an object on each line                                                        |
| one of these and `.gz`    | the same, compressed; Parquet is compressed by itself                         |
| anything else             | a directory of Parquet files                                                  |
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pyarrow.types as pt

from dray.errors import ConfigError

Kind = Literal["parquet", "csv", "tsv", "json", "jsonl"]
_KINDS: dict[str, Kind] = {
    ".parquet": "parquet", ".csv": "csv", ".tsv": "tsv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl",
}  # fmt: skip
_REFUSED = (".xlsx", ".xls", ".txt", ".feather", ".arrow", ".ipc", ".pq", ".parquet.gz", ".zip")
_GZIP = ".gz"

Write = Callable[[pa.Table], None]


def kind_of_file(out: str) -> Kind | None:
    """Return the kind of file that an output is by its name; None for a directory."""
    name = out.rpartition("/")[2].lower()
    if name.endswith(_REFUSED):
        raise ConfigError(
            f"dray writes no files such as {name}.",
            fix="Name it .csv, .json, .jsonl or .parquet (or .csv.gz), or give a name without ending for a directory.",
        )
    name = name.removesuffix(_GZIP)
    return next((kind for ending, kind in _KINDS.items() if name.endswith(ending)), None)


@contextmanager
def table_file(sink: pa.NativeFile, location: str, schema: pa.Schema) -> Iterator[Write]:
    """Give a function that writes tables of a schema to a file, one after the other; Parquet in a row group each."""
    kind = kind_of_file(location)
    if kind in ("parquet", None):
        with pq.ParquetWriter(sink, schema) as writer:
            yield lambda table: writer.write_table(table, row_group_size=max(1, table.num_rows))
        return
    compressed = location.lower().endswith(_GZIP)
    with pa.CompressedOutputStream(sink, "gzip") if compressed else nullcontext(sink) as stream:
        if kind in ("csv", "tsv"):
            plain = _without_dictionaries(schema, location)
            options = pacsv.WriteOptions(delimiter="\t" if kind == "tsv" else ",", quoting_style="needed")
            with pacsv.CSVWriter(stream, plain, write_options=options) as text:

                def write(table: pa.Table) -> None:
                    if len(plain) == 1 and table.column(0).null_count:
                        stream.write(_lines(table.cast(plain).column(0)))
                    else:
                        text.write_table(table.cast(plain))

                yield write
        else:
            objects = _Objects(stream, array=kind == "json")
            yield objects.write
            objects.end()


def _without_dictionaries(schema: pa.Schema, location: str) -> pa.Schema:
    """Return the schema of a text file, which has no place for nested values."""
    fields = [
        field.with_type(field.type.value_type) if pt.is_dictionary(field.type) else field
        for field in schema.remove_metadata()
    ]
    for field in fields:
        if pt.is_nested(field.type):
            raise ConfigError(
                f'The column "{field.name}" ({field.type}) has no place in {location}.',
                fix="Write .json or .parquet, or leave the column out.",
            )
    return pa.schema(fields)


def _lines(column: pa.ChunkedArray) -> bytes:
    """Return the lines of the only column: missing is a pair of quotes, since readers pass over an empty line."""
    texts = column.cast(pa.string())
    if column.type == pa.string():
        texts = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return "".join(f"{text}\n" for text in pc.fill_null(texts, '""').to_pylist()).encode()


class _Objects:
    """Rows as JSON objects, one on each line."""

    def __init__(self, file: pa.NativeFile, *, array: bool) -> None:
        self._file, self._array, self._first = file, array, True

    def write(self, table: pa.Table) -> None:
        columns = {name: _as_plain(column) for name, column in zip(table.column_names, table.columns, strict=True)}
        rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
        lines = [json.dumps(row, ensure_ascii=False, default=str) for row in rows]
        if not lines:
            return
        if not self._array:
            self._file.write(("\n".join(lines) + "\n").encode())
            return
        self._file.write((("[\n" if self._first else ",\n") + ",\n".join(lines)).encode())
        self._first = False

    def end(self) -> None:
        if self._array:
            self._file.write(b"[]\n" if self._first else b"\n]\n")


def _as_plain(column: pa.ChunkedArray) -> list[Any]:
    """Return values as JSON has them: numbers with the digits that tell them apart, NaN and infinite as null."""
    if pt.is_float32(column.type):
        column = column.cast(pa.string()).cast(pa.float64())  # 0.1, not 0.10000000149011612
    values: list[Any] = column.to_pylist()
    if pt.is_floating(column.type):
        return [None if value is None or not math.isfinite(value) else value for value in values]
    return values
