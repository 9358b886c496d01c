"""The columns that a reader asks for."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dray.errors import DataError, nearest


def chosen(columns: Sequence[str] | None, schema: pa.Schema) -> pa.Schema:
    """Return the columns to read, all if none are named; refuse one that is not there."""
    for name in columns or ():
        if schema.get_field_index(name) < 0:
            raise DataError(
                f'There is no column "{name}".{nearest(name, schema.names)}',
                fix=f"The columns are {', '.join(schema.names[:20])}{', ...' if len(schema.names) > 20 else ''}.",
            )
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])
