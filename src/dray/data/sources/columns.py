"""The columns that a reader asks for, and names that occur twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from dray.data.conflicts import refuse_conflicts
from dray.errors import DataError, nearest


def require_distinct(names: Sequence[str], where: str, fix: str) -> None:
    """Refuse two columns of the same name."""
    name, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise DataError(f'{where} has two columns "{name}".', fix=fix)


def chosen(columns: Sequence[str] | None, schema: pa.Schema) -> pa.Schema:
    """Return the columns to read, all if none are named; refuse one that is not there."""
    refuse_conflicts(schema, columns or ())
    for name in columns or ():
        if schema.get_field_index(name) < 0:
            raise DataError(
                f'There is no column "{name}".{nearest(name, schema.names)}',
                fix=f"The columns are {', '.join(schema.names[:20])}{', ...' if len(schema.names) > 20 else ''}.",
            )
    return schema if columns is None else pa.schema([schema.field(name) for name in columns])
