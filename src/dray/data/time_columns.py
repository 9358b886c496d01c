"""A look at some rows of columns that may hold times, to decide once how they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dray.data.parquet import Dataset
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.data.times import Look, recognise

ROWS = 10_000
"""Looked at from the start, the middle and the end on: the same rows however the data is divided into row groups."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Some values of a column."""

    values: pa.ChunkedArray
    positions: tuple[int, ...]
    """Of the first row of each chunk, in all the data."""


def look_at_texts(dataset: Dataset, names: Sequence[str]) -> dict[str, Look]:
    """Return how the texts of these columns are written, those that hold times only."""
    found: dict[str, Look] = {}
    names = list(names)
    taken: dict[str, Seen] = {}
    for start in _starts(dataset.rows):
        for name, seen in rows_from(dataset, names, start).items():
            before = taken.get(name)
            taken[name] = seen if before is None else _joined(before, seen)
        # What holds other text at the start is not looked at further.
        names = [name for name in names if _may_hold_times(taken[name].values)]
        if not names:
            return {}
    for name in names:
        look = recognise(taken[name].values.combine_chunks())
        if look.form or look.problem:
            found[name] = look
    return found


def rows_from(dataset: Dataset, names: Sequence[str], start: int) -> dict[str, Seen]:
    """Return the values of some columns in `ROWS` rows from a row on."""
    chunks: dict[str, list[pa.Array]] = {name: [] for name in names}
    positions = []
    for taken, batch in read_slices(list(_window(dataset.row_groups, start)), names, [], dataset.storage):
        positions.append(taken.position)
        for name in names:
            chunks[name].append(batch.column(batch.schema.get_field_index(name)))
    return {name: Seen(_chunked(chunks[name]), tuple(positions)) for name in names}


def sampled(dataset: Dataset, name: str) -> Seen:
    """Return values of a column, from the start, the middle and the end."""
    parts = [rows_from(dataset, [name], start)[name] for start in _starts(dataset.rows)]
    joined = parts[0]
    for part in parts[1:]:
        joined = _joined(joined, part)
    return joined


def _starts(rows: int) -> list[int]:
    return sorted({0, max(0, rows - ROWS) // 2, max(0, rows - ROWS)})  # they may overlap


def _window(groups: Sequence[Slice], start: int) -> Iterator[Slice]:
    for group in groups:
        first, last = max(start, group.position), min(start + ROWS, group.position + group.rows)
        if first < last:
            begin = group.start + first - group.position
            yield replace(group, start=begin, stop=begin + last - first, position=first)


def _joined(one: Seen, other: Seen) -> Seen:
    values = pa.chunked_array([*one.values.chunks, *other.values.chunks], one.values.type)
    return Seen(values, one.positions + other.positions)


def _chunked(chunks: list[pa.Array]) -> pa.ChunkedArray:
    type_ = chunks[0].type if chunks else pa.string()
    return pa.chunked_array([chunk if chunk.type == type_ else chunk.cast(type_) for chunk in chunks], type_)


def _may_hold_times(values: pa.ChunkedArray) -> bool:
    few = values.combine_chunks()
    look = recognise(few)
    return bool(look.form or look.problem) or values.null_count == len(values)
