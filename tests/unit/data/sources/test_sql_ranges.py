"""Ranges of a key: their bounds, and how they are written."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from dray.data.sources.sql_ranges import KeyRange, key_value

DAY = datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("low", "high", "bounds"),
    [
        (0, 10, [0, 3, 6, 10]),
        (-5, 5, [-5, -2, 1, 5]),
        (1.0, 2.5, [1.0, 1.5, 2.0, 2.5]),
        (1, 2.5, [1.0, 1.5, 2.0, 2.5]),
        (date(2026, 1, 1), date(2026, 1, 11), [date(2026, 1, day) for day in (1, 4, 7, 11)]),
        (DAY, DAY + timedelta(microseconds=10), [DAY + timedelta(microseconds=us) for us in (0, 3, 6, 10)]),
        (DAY, DAY + timedelta(hours=3), [DAY + timedelta(hours=hour) for hour in range(4)]),
    ],
)
def test_bounds_divide_the_width_evenly(low: Any, high: Any, bounds: list[Any]) -> None:
    key = KeyRange("k", low, high)
    assert [key.bound(index, 3) for index in range(4)] == bounds


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-3, 10),
        (1, 2.5),
        (0.1, 0.3),
        (date(2026, 1, 1), date(2026, 1, 11)),
        (DAY, DAY + timedelta(microseconds=10)),
        (DAY.replace(tzinfo=UTC), DAY.replace(tzinfo=UTC) + timedelta(hours=3)),
    ],
)
def test_bounds_come_back_from_json_as_they_were(low: Any, high: Any) -> None:
    key = KeyRange('"k"', low, high, "TIMESTAMP")
    assert KeyRange.from_json(json.loads(json.dumps(key.to_json()))) == key


@pytest.mark.parametrize(
    ("bounds", "kinds"),
    [([5, "2026-01-01"], ["int", "date"]), ([5, 1], ["int", "int"]), ([5], ["int"]), ([1, 2], ["int", "bytes"])],
)
def test_bounds_that_cannot_be_a_range_are_refused(bounds: list[Any], kinds: list[str]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        KeyRange.from_json({"key": "k", "bounds": bounds, "kinds": kinds, "zoned": "TIMESTAMP"})


@pytest.mark.parametrize(
    ("low", "high", "most"),
    [
        (0, 10, 10),
        (5, 5, 1),
        (0.0, 1.0, 1 << 20),
        (1.0, 1.0, 1),
        (date(2026, 1, 1), date(2026, 1, 11), 10),
        (date(2026, 1, 1), date(2026, 1, 1), 1),
        (DAY, DAY + timedelta(milliseconds=1), 1000),
        (DAY, DAY, 1),
    ],
)
def test_no_more_ranges_than_can_differ(low: Any, high: Any, most: int) -> None:
    assert KeyRange("k", low, high).most_ranges() == most


def test_conditions_meet_at_their_bounds() -> None:
    key = KeyRange('"k"', 0, 8)
    assert [key.condition(index, 2) for index in range(2)] == ['("k" < 4 OR "k" IS NULL)', '("k" >= 4)']
    assert key.condition(1, 4) == '("k" >= 2 AND "k" < 4)'
    assert key.condition(0, 1) == ""


def test_values_are_written_as_standard_sql() -> None:
    key = KeyRange("k", 0, 1)
    assert [key.literal(value) for value in (5, 0.5, date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6))] == [
        "5", "0.5", "DATE '2026-01-02'", "TIMESTAMP '2026-01-02 03:04:05.000006'",
    ]  # fmt: skip
    paris = datetime(2026, 1, 2, 1, tzinfo=timezone(timedelta(hours=1)))
    assert key.literal(paris) == "TIMESTAMP WITH TIME ZONE '2026-01-02 00:00:00+00:00'"
    assert KeyRange("k", 0, 1, "TIMESTAMP").literal(paris) == "TIMESTAMP '2026-01-02 00:00:00+00:00'"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (5, 5), (0.5, 0.5), (Decimal("5.00"), 5), (Decimal("5.5"), 5.5), ("7", 7), ("7.25", 7.25), ("x", None),
        (True, None), (None, None), (b"x", None), (date(2026, 1, 1), date(2026, 1, 1)),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_a_key_is_a_number_a_date_or_a_time(given: object, found: object) -> None:
    assert key_value(given) == found
    assert type(key_value(given)) is type(found)
