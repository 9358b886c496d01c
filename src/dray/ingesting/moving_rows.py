"""Sort order of rows, the part that each row belongs to, and rows packed for the exchange.

The rows of a piece for one part travel as one binary value (an Arrow stream). So Ray Data sorts and copies a few such
values instead of millions of rows, and meets no column type, null or dictionary that it cannot handle.

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
"""The column with the position of a row in the source: unique, ascending."""
PART, SOURCE, PAYLOAD = "part", "source", "payload"
PACKED = pa.schema([(PART, pa.int64()), (SOURCE, pa.int64()), (PAYLOAD, pa.large_binary())])
"""What is exchanged: the part it goes to, the piece it comes from, and the rows."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Order:
    """The columns to sort by. Nulls come last, NaN before them, in both directions."""

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
        """Return the rows of `keys` in order. Equal rows keep their order, or go by position if that is known."""
        by = [(str(i), "descending" if down else "ascending") for i, down in enumerate(self.descending)]
        if POSITION in keys.column_names:
            by.append((POSITION, "ascending"))
        return np.asarray(pc.sort_indices(keys.combine_chunks(), sort_keys=by), dtype=np.int64)


def order_of(sort: Sequence[str], schema: pa.Schema) -> Order:
    """Return the order that the columns give ("-price" is descending); refuse types without an order."""
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
    """Return the keys at which a new part begins, so that the sample's rows are divided evenly."""
    at = np.arange(1, parts) * sample.num_rows // parts
    return sample.take(order.indices(sample)[at])


def parts_of(keys: pa.Table, splitters: pa.Table, order: Order) -> npt.NDArray[np.uint32]:
    """Return the part that each row belongs to: the number of splitters that are not greater than it."""
    # Splitters and rows are sorted together, so that one rule serves all types of columns. A splitter equals the row
    # that it was sampled from: the sort is stable, and the splitter comes first.
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
    """Return one packed row for each table. All are written into one buffer, which is not copied again."""
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
    """Return the pieces that rows come from with their rows, in the order of the pieces."""
    sources = carried.column(SOURCE).to_pylist()
    payloads = carried.column(PAYLOAD)
    return [
        (sources[at], pa.ipc.open_stream(payloads[at].as_buffer()).read_all())
        for at in np.argsort(sources, kind="stable").tolist()
    ]


def join(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the tables as one table of single chunks; their dictionaries may differ."""
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
