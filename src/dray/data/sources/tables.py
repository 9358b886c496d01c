"""Tables in memory: of pandas, polars and Arrow. A pickled source includes its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from dray.data.source import PIECE_BYTES, Note, OnReject, Piece, all_kept
from dray.data.sources.columns import chosen, require_distinct
from dray.errors import DataError

BATCH_ROWS = 64 << 10


@dataclass(frozen=True, slots=True)
class TableSource:
    """Rows of a table, with its types."""

    name: str
    table: pa.Table
    format: str = "table"
    notes: tuple[Note, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def rows(self) -> int | None:
        return int(self.table.num_rows)

    @property
    def bytes(self) -> int:
        return int(self.table.nbytes)

    def pieces(self, target_bytes: int = PIECE_BYTES) -> list[Piece]:
        rows = self.table.num_rows
        count = min(rows, max(1, round(self.bytes / max(1, target_bytes))))
        bounds = [rows * i // count for i in range(count + 1)] if count else []
        return [
            Piece(self.name, index, start, stop, (stop - start) * self.bytes // rows)
            for index, (start, stop) in enumerate(pairwise(bounds))
        ]

    def read(
        self, piece: Piece, columns: Sequence[str] | None, _reject: OnReject, /, *, in_place: bool = False
    ) -> Iterator[pa.RecordBatch]:
        part = self.table.select(chosen(columns, self.schema).names).slice(piece.start, piece.stop - piece.start)
        for batch in part.to_batches(max_chunksize=BATCH_ROWS):
            yield all_kept(batch) if in_place else batch


def is_table(value: object) -> bool:
    """Whether `open_table` takes it."""
    if isinstance(value, pa.Table | pa.RecordBatch):
        return True
    return type(value).__module__.partition(".")[0] in ("pandas", "polars") and hasattr(type(value), "columns")


def columns_of_frame(value: object) -> list[str]:
    """Return the columns of a pandas frame, which alone can hold values of several kinds; none of other data."""
    is_pandas = type(value).__module__.partition(".")[0] == "pandas"
    return [str(name) for name in getattr(value, "columns", ())] if is_pandas else []


def open_table(value: Any, *, may_be_empty: bool = False, as_text: Collection[str] = ()) -> TableSource:
    """Return the rows of a pandas or polars frame or an Arrow table as a source.

    `as_text`: the columns that are wanted. One of them with values of several kinds is text; others are left out.
    """
    library = type(value).__module__.partition(".")[0]
    if library == "polars":
        value = value.collect() if hasattr(value, "collect") else value
        table = value.to_arrow()
    elif library == "pandas":
        table = _from_pandas(value, as_text)
    elif isinstance(value, pa.RecordBatch):
        table = pa.Table.from_batches([value])
    else:
        table = value
    require_distinct(table.column_names, "The table", fix="Rename one of them.")
    if library in ("pandas", "polars"):  # their text types: large, or views
        table = table.cast(pa.schema([pa.field(f.name, _usual(f.type)) for f in table.schema]))
    if not table.num_rows and not may_be_empty:
        raise DataError("The table has no rows.", fix="Give a table that holds rows.")
    return TableSource(f"a table of {library}", table.replace_schema_metadata())


def _from_pandas(frame: Any, as_text: Collection[str]) -> pa.Table:
    if frame.columns.nlevels > 1:
        raise DataError(
            f"The columns of the pandas frame have names of several parts, such as {frame.columns[0]}.",
            fix='Join them first: frame.columns = ["_".join(map(str, parts)) for parts in frame.columns].',
        )
    frame = frame.rename(columns=str)
    require_distinct(list(frame.columns), "The table", fix="Rename one of them.")
    columns: dict[str, pa.Array] = {}
    for name in frame.columns:
        try:
            columns[name] = _as_arrow(frame[name])
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            if name in as_text:
                columns[name] = _texts(frame[name])
            if as_text:
                continue
            reason = (str(error).splitlines() or [""])[0]
            too_large = isinstance(error, OverflowError)
            has = "whole numbers beyond 64 bits." if too_large else f"values of several kinds: {reason}"
            raise DataError(
                f'Column "{name}" of the pandas frame has {has}',
                fix=f'Convert it to one kind first, such as frame["{name}"].astype(str).',
            ) from error
    return pa.table(columns)


def _as_arrow(column: Any) -> pa.Array:
    """Return a column of a frame; what Arrow would only store (UUIDs, periods, intervals) as text."""
    if hasattr(column, "sparse"):
        column = column.sparse.to_dense()
    values = pa.array(column, from_pandas=True)
    if isinstance(values.type, pa.BaseExtensionType):
        return _texts(column)
    if pa.types.is_dictionary(values.type) and isinstance(values.type.value_type, pa.BaseExtensionType):
        return pa.array(column.cat.rename_categories(str), from_pandas=True)  # of pandas.cut
    return values


def _texts(values: Any) -> pa.Array:
    texts = [None if gone else str(value) for value, gone in zip(values, values.isna(), strict=True)]
    return pa.array(texts, pa.string())


def _usual(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), _usual(type_.value_type))
    return type_
