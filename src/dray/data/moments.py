"""Dates and times given as text, as values of a column."""

from __future__ import annotations

from datetime import UTC, datetime, time

import pyarrow as pa
from pyarrow import types as pt

from dray.errors import ConfigError


def is_moment(type_: pa.DataType) -> bool:
    return bool(pt.is_date(type_) or pt.is_timestamp(type_))


def as_moment(text: str, column: str, type_: pa.DataType) -> pa.Scalar:
    """Return a date or a time as a value of the column's type. Text without a zone is read as UTC."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(
            f'"{text}" is compared with column "{column}" ({type_}), but is not a date or time.',
            fix='Write it as "2026-01-31" or "2026-01-31 12:30:00".',
        ) from None
    if pt.is_date(type_):
        if found.time() != time() or found.tzinfo is not None:
            raise ConfigError(
                f'"{text}" has a time of day, but column "{column}" has dates.', fix=f'Write "{found.date()}".'
            )
        return pa.scalar(found.date(), pa.date32()).cast(type_)
    if type_.tz is None and found.tzinfo is not None:
        raise ConfigError(
            f'"{text}" has a time zone, but column "{column}" has none.', fix="Leave the zone out of the text."
        )
    if type_.tz is not None and found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return pa.scalar(found, pa.timestamp("us", type_.tz))
