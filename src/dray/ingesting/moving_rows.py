"""Rows on their way: in which order, to which output file, and packed so that whoever carries them need not know them.

A part's rows of a piece travel as one binary value (an Arrow stream). So no column type, no null and no dictionary can
be in the way of what moves them, which sorts and copies a few such values instead of millions of rows.

Pure: tables in, tables out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dray.errors import ConfigError, nearest

POSITION = "__dray_position"
"""The column that says where a row stood in the source: unique, ascending."""
PART, SOURCE, PAYLOAD = "part", "source", "payload"
PACKED = pa.schema([(PART, pa.int64()), (SOURCE, pa.int64()), (PAYLOAD, pa.large_binary())])
"""What travels: to which part, from where, and the rows."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Order:
    """By which columns rows are sorted. Nulls come last, NaN before them, whatever the direction."""

    columns: tuple[str, ...]
    descending: tuple[bool, ...]

    def keys(self, table: pa.Table) -> pa.Table:
        """Return the columns to sort by, each as a type that Arrow sorts, and the position if it is there."""
        columns = [_sortable(table.column(name)) for name in self.columns]
        names = [str(index) for index in range(len(columns))]
        if POSITION in table.column_names:
            columns, names = [*columns, table.column(POSITION)], [*names, POSITION]
        return pa.table(columns, names=names)

    def indices(self, keys: pa.Table) -> Indices:
        """Return the rows of `keys` in order. Equal rows stay as they stand, or go by position if that is known."""
        by = [(str(i), "descending" if down else "ascending") for i, down in enumerate(self.descending)]
        if POSITION in keys.column_names:
            by.append((POSITION, "ascending"))
        return np.asarray(pc.sort_indices(keys.combine_chunks(), sort_keys=by), dtype=np.int64)


def order_of(sort: Sequence[str], schema: pa.Schema) -> Order:
    """Return the order that columns ("-price" is descending) stand for; refuse what no order is known for."""
    names = []
    for text in sort:
        # A column may itself be called "-price".
        name = text if text in schema.names else text.removeprefix("-")
        require_columns([name], schema, "sort")
        kind = schema.field(name).type
        if not _has_order(kind):
            raise ConfigError(
                f'The rows cannot be sorted by "{name}", which is {kind}.',
                fix="Sort by columns of numbers, text or times.",
            )
        names.append(name)
    return Order(tuple(names), tuple(name != text for name, text in zip(names, sort, strict=True)))


def require_columns(names: Iterable[str], schema: pa.Schema, purpose: str) -> None:
    known = [name for name in schema.names if name != POSITION]
    for name in names:
        if name not in known:
            raise ConfigError(
                f'There is no column "{name}" to {purpose} by.{nearest(name, known)}',
                fix=f"The columns are {', '.join(known)}."[:500],
            )


def splitters(sample: pa.Table, order: Order, parts: int) -> pa.Table:
    """Return the keys at which a new part begins, so that the sample's rows are dealt evenly."""
    at = np.arange(1, parts) * sample.num_rows // parts
    return sample.take(order.indices(sample)[at])


def parts_of(keys: pa.Table, splitters: pa.Table, order: Order) -> npt.NDArray[np.uint32]:
    """Return the part that each row belongs to: how many splitters stand before it or are it."""
    # Sorted among them, so that one rule decides on all kinds of columns. A splitter has a row's own position and so
    # could stand on either side of it: the sort is stable, and it stands first.
    indices = order.indices(pa.concat_tables([splitters, keys]))
    begun = np.cumsum(indices < splitters.num_rows, dtype=np.uint32)
    parts = np.empty(len(indices), dtype=np.uint32)
    parts[indices] = begun
    return parts[splitters.num_rows :]


def pack(table: pa.Table, parts: npt.NDArray[np.unsignedinteger], count: int, source: int) -> pa.Table:
    """Return a row for each of `count` parts, with the table's rows that belong to it, in their order."""
    table = table.take(np.argsort(parts, kind="stable"))
    rows = np.bincount(parts, minlength=count)
    starts = np.cumsum(rows) - rows
    slices = [table.slice(start, length) for start, length in zip(starts.tolist(), rows.tolist(), strict=True)]
    return packed(range(count), [source] * count, slices)


def packed(parts: Iterable[int], sources: Iterable[int], tables: Iterable[pa.Table]) -> pa.Table:
    """Return what travels: a row for each of the tables. All are written into one buffer, which is not copied again."""
    sink = pa.BufferOutputStream()
    offsets = [0]
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        offsets.append(sink.tell())
    buffers = [None, pa.py_buffer(np.array(offsets, dtype=np.int64)), sink.getvalue()]
    payloads = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return pa.table([pa.array(parts, pa.int64()), pa.array(sources, pa.int64()), payloads], schema=PACKED)


def unpack(carried: pa.Table) -> list[tuple[int, pa.Table]]:
    """Return who sent which rows, in the order of the senders."""
    sources = carried.column(SOURCE).to_pylist()
    payloads = carried.column(PAYLOAD)
    return [
        (sources[at], pa.ipc.open_stream(payloads[at].as_buffer()).read_all())
        for at in np.argsort(sources, kind="stable").tolist()
    ]


def join(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the tables as one without seams; their dictionaries may differ."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _has_order(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _has_order(kind.value_type)
    return not (types.is_nested(kind) or types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _sortable(column.cast(kind.value_type))
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    return column
