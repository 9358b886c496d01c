"""The columns that a reader asks for."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dray.errors import DataError, nearest


def chosen(columns: Sequence[str] | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns to read, all if none are named; refuse one that is not there."""
    if columns is None:
        return tuple(schema.names)
    for name in columns:
        if schema.get_field_index(name) < 0:
            raise DataError(
                f'There is no column "{name}".{nearest(name, schema.names)}',
                fix=f"The columns are {', '.join(schema.names[:20])}{', ...' if len(schema.names) > 20 else ''}.",
            )
    return tuple(columns)
