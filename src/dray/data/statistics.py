"""What the footers of Parquet files say of single columns before anything is read: nulls, and the range of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

MOST_CHUNKS = 400_000
"""Statistics of so many column chunks take about a second; nothing is known of data that has more."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """A column that the footers do not tell everything of is left out."""

    nulls: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of every row group that has rows, in the order of the files."""
    ranges: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Least and greatest value of columns of numbers and booleans, NaN left out; not of columns without any value."""


UNKNOWN = Statistics()


def statistics_of(footers: Sequence[pq.FileMetaData], columns: Sequence[pa.Field]) -> Statistics:
    """Return what all row groups say together of some columns."""
    if sum(footer.num_row_groups for footer in footers) * len(columns) > MOST_CHUNKS:
        return UNKNOWN
    nulls: dict[str, tuple[int, ...]] = {}
    ranges: dict[str, tuple[Any, Any]] = {}
    placed = list(_placed(footers))
    for column in columns:
        if pt.is_nested(column.type):
            continue
        chunks = list(_chunks(placed, column.name))
        if any(chunk is None for chunk in chunks):
            continue
        known = [chunk for chunk in chunks if chunk is not None]
        nulls[column.name] = tuple(chunk.nulls for chunk in known)
        if _is_number(column.type) and (range_ := _range([chunk for chunk in known if chunk.nulls < chunk.rows])):
            ranges[column.name] = range_
    return Statistics(nulls, ranges)


def _placed(footers: Iterable[pq.FileMetaData]) -> Iterator[tuple[pq.FileMetaData, Mapping[str, int]]]:
    """Yield each footer with the places of its columns, which are looked for once in files that are alike."""
    schema: pq.ParquetSchema | None = None
    places: dict[str, int] = {}
    for footer in footers:
        if schema is None or not footer.schema.equals(schema):
            schema = footer.schema
            places = {schema.column(at).path: at for at in range(footer.num_columns)}
        yield footer, places


@dataclass(frozen=True, slots=True)
class _Chunk:
    rows: int
    nulls: int
    statistics: pq.Statistics | None


def _chunks(placed: Sequence[tuple[pq.FileMetaData, Mapping[str, int]]], name: str) -> Iterator[_Chunk | None]:
    """Yield a column's chunks; None for one without a number of nulls. A file without the column has nulls there."""
    for footer, places in placed:
        place = places.get(name)
        for group in (footer.row_group(index) for index in range(footer.num_row_groups)):
            if group.num_rows == 0:
                continue
            if place is None:
                yield _Chunk(group.num_rows, group.num_rows, None)
                continue
            found = group.column(place).statistics
            told = found is not None and found.has_null_count
            yield _Chunk(group.num_rows, found.null_count, found) if told else None


def _is_number(arrow: pa.DataType) -> bool:
    if pt.is_float16(arrow):
        return False
    return bool(pt.is_integer(arrow) or pt.is_floating(arrow) or pt.is_decimal(arrow) or pt.is_boolean(arrow))


def _range(chunks: Sequence[_Chunk]) -> tuple[Any, Any] | None:
    found = [chunk.statistics for chunk in chunks if chunk.statistics is not None and chunk.statistics.has_min_max]
    if not found or len(found) < len(chunks):
        return None
    return min(one.min for one in found), max(one.max for one in found)
