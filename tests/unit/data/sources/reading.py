"""What the tests of all sources do: read everything, as a worker would."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dray.data.source import PIECE_BYTES, REJECTED, ExtraField, Reject, Source

LOST = "lost"


def read_all(
    source: Source, columns: Sequence[str] | None = None, target_bytes: int = PIECE_BYTES
) -> tuple[pa.Table, list[Reject]]:
    """Return all rows and rejects, read piece by piece from a pickled copy; check what every source must keep."""
    pieces = source.pieces(target_bytes)
    assert [piece.index for piece in pieces] == list(range(len(pieces)))
    assert pieces == source.pieces(target_bytes)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.schema == source.schema
    told: list[Reject | ExtraField] = []
    schema = source.schema if columns is None else pa.schema([source.schema.field(name) for name in columns])
    batches = [batch for piece in pieces for batch in copy.read(piece, columns, told.append)]
    for batch in batches:
        assert batch.schema.equals(schema), f"{batch.schema} is not {schema}"
        assert batch.num_rows
    return pa.Table.from_batches(batches, schema), [found for found in told if isinstance(found, Reject)]


def rows(source: Source, target_bytes: int = PIECE_BYTES) -> list[dict[str, object]]:
    """Return all rows of a source that rejects none."""
    table, rejects = read_all(source, target_bytes=target_bytes)
    assert not rejects
    found: list[dict[str, object]] = table.to_pylist()
    return found


def read_in_place(source: Source, target_bytes: int, columns: list[str] | None) -> tuple[list[Any], list[Any]]:
    """Return `x` of every row in order, and LOST for a rejected one; and what was told."""
    found: list[Any] = []
    told: list[Any] = []
    for piece in source.pieces(target_bytes):
        for batch in source.read(piece, columns, told.append, in_place=True):
            wanted = columns or source.schema.names
            assert batch.schema == pa.schema([*(source.schema.field(name) for name in wanted), (REJECTED, pa.bool_())])
            for row in batch.to_pylist():
                rejected = row.pop(REJECTED)
                assert not rejected or set(row.values()) == {None}
                found.append(LOST if rejected else row["x"])
    return found, told
