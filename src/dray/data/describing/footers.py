"""What the footers of Parquet files say about columns: nulls, least and greatest values; and about row groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from dray.data.describing.figures import Known
from dray.data.parquet import Dataset
from dray.data.parquet_footer import footers_of

MOST_CHUNKS = 400_000
"""Up to so many statistics (one per column and row group) are read, in some seconds; none if there are more."""


@dataclass(frozen=True, slots=True)
class Footers:
    """Of all files."""

    columns: dict[str, Known]
    """Without columns whose statistics are missing in any row group."""
    largest_group_bytes: int


def read_footers(dataset: Dataset) -> Footers:
    files = [name for name, _, _ in dataset.contents]
    found = [footer.metadata for footer in footers_of(files, dataset.storage)]
    largest = max(footer.row_group(index).total_byte_size for footer in found for index in range(footer.num_row_groups))
    chunks = sum(footer.num_row_groups * footer.num_columns for footer in found)
    return Footers(known_columns(found, dataset.schema) if chunks <= MOST_CHUNKS else {}, largest)


def known_columns(footers: Sequence[pq.FileMetaData], schema: pa.Schema) -> dict[str, Known]:
    """Return what the statistics of all row groups say together."""
    statistics: dict[str, list[pq.Statistics | None]] = {field.name: [] for field in schema}
    for footer in footers:
        indices = {footer.schema.column(index).path: index for index in range(footer.num_columns)}
        for group in (footer.row_group(index) for index in range(footer.num_row_groups)):
            if group.num_rows:
                for name in statistics:
                    index = indices.get(name)  # a nested column has other paths, and no statistics of its own
                    statistics[name].append(None if index is None else group.column(index).statistics)
    return {field.name: _known(statistics[field.name], field.type) for field in schema}


def _known(statistics: Sequence[pq.Statistics | None], arrow: pa.DataType) -> Known:
    found = [one for one in statistics if one is not None]
    if len(found) < len(statistics) or not all(one.has_null_count for one in found):
        return Known()
    nulls = sum(one.null_count for one in found)
    if not _has_plain_range(arrow) or len({(one.physical_type, str(one.logical_type)) for one in found}) > 1:
        return Known(nulls=nulls)  # as a date in some files and a time in others
    # A row group with nothing but nulls has no range, which does not matter; one that has values does.
    having = [one for one in found if one.has_min_max]
    if not having or any(one.num_values and not one.has_min_max for one in found):
        return Known(nulls=nulls)
    low, high = min(_value(one, "min", arrow) for one in having), max(_value(one, "max", arrow) for one in having)
    return Known(nulls=nulls, low=low, high=high)


def _has_plain_range(arrow: pa.DataType) -> bool:
    """Whether the statistics are plain values. Those of text may be cut off."""
    if pt.is_float16(arrow):
        return False
    number = pt.is_integer(arrow) or pt.is_floating(arrow) or pt.is_decimal(arrow)
    return bool(number or pt.is_boolean(arrow) or pt.is_date(arrow) or pt.is_timestamp(arrow))


def _value(one: pq.Statistics, name: str, arrow: pa.DataType) -> Any:
    if not pt.is_timestamp(arrow):
        return getattr(one, name)
    if "timeUnit=nanoseconds" in str(one.logical_type):  # Python has no nanoseconds; pandas may not be installed
        value = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=getattr(one, f"{name}_raw") // 1000)
    else:
        value = getattr(one, name)
        value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return value.replace(tzinfo=None) if arrow.tz is None else value
