"""Dates and times in a filter or a split, as values of the column that they are compared with."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from dray.data.moments import as_moment, is_moment
from dray.errors import ConfigError

NAIVE, ZONED = pa.timestamp("us"), pa.timestamp("ms", "Europe/Paris")


@pytest.mark.parametrize("type_", [pa.date32(), pa.date64()])
def test_a_date_is_a_value_of_a_column_of_dates(type_: pa.DataType) -> None:
    found = as_moment(" 2026-01-31 ", "day", type_)
    assert found.type == type_
    assert found.as_py() == date(2026, 1, 31)


@pytest.mark.parametrize("text", ["2026-01-31 12:30:00", "2026-01-31T00:00:00+02:00", "2026-01-31T00:00:00Z"])
def test_a_column_of_dates_has_neither_times_nor_zones(text: str) -> None:
    with pytest.raises(ConfigError, match=r'has a time of day, but column "day" has dates') as caught:
        as_moment(text, "day", pa.date32())
    assert caught.value.fix == 'Write "2026-01-31".'


def test_a_time_of_a_column_without_a_zone() -> None:
    assert as_moment("2026-01-31 12:30", "at", NAIVE).as_py() == datetime(2026, 1, 31, 12, 30)
    with pytest.raises(ConfigError, match=r'has a time zone, but column "at" has none'):
        as_moment("2026-01-31 12:30+02:00", "at", NAIVE)


def test_a_time_without_a_zone_is_in_utc_where_the_column_has_one() -> None:
    for text in ("2026-01-31 12:30", "2026-01-31 13:30+01:00"):
        found = as_moment(text, "at", ZONED)
        assert found.type == pa.timestamp("us", "Europe/Paris")
        assert found.as_py() == datetime(2026, 1, 31, 12, 30, tzinfo=UTC)


def test_what_is_not_a_time_is_told_with_the_column() -> None:
    with pytest.raises(ConfigError, match=r'"soon" is compared with column "at" \(timestamp\[us\]\)'):
        as_moment("soon", "at", NAIVE)


def test_dates_and_times_are_moments_and_numbers_are_not() -> None:
    assert [is_moment(type_) for type_ in (pa.date32(), NAIVE, ZONED, pa.int64(), pa.string(), pa.time64("us"))] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
