"""Values of any type become what a column means, one by one; what is lost is counted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.data.features import Column, Encoder
from dray.data.fitting import as_kind, as_type, may_be_read_as_text

NIGHT, DAY = dt.datetime(1969, 12, 31, 23), dt.datetime(2024, 1, 1, 23)


@pytest.mark.parametrize(
    ("kind", "values", "wanted", "lost"),
    [
        ("number", ["1", " 2.5 ", "+3", "-.5e1", None], [1, 2.5, 3, -5, None], 0),
        ("number", ["n.v.", "1_0", "0x1F", "1,5", "7"], [None, None, None, None, 7], 4),
        ("number", ["NA", "", "null", "N/A", "1"], [None, None, None, None, 1], 0),
        ("number", ["true", "False", "yes"], [1, 0, None], 1),
        ("number", ["inf", "-Infinity", "1e400", "x"], [np.inf, -np.inf, np.inf, None], 1),
        ("number", [DAY], [None], 1),
        ("number", [[1.0], None], [None, None], 1),
        ("boolean", ["yes", "No", "T", "f", "1", "0.0", "?", "NA"], [1, 0, 1, 0, 1, 0, None, None], 1),
        ("boolean", [True, None], [True, None], 0),
        (
            "date",
            ["2024-01-01", "2024-01-01 23:59:59", "2024-02-30", "1.1.2024"],
            [dt.date(2024, 1, 1)] * 2 + [None] * 2,
            2,
        ),
        ("date", [NIGHT, DAY], [NIGHT.date(), DAY.date()], 0),
        ("date", [20240101], [None], 1),
        ("timestamp", [dt.date(2024, 1, 1)], [dt.datetime(2024, 1, 1)], 0),
        ("timestamp", ["2024-01-01T23:00:00+02:00", "2024-01-01 23:00", "x"], [DAY.replace(hour=21), DAY, None], 1),
        ("timestamp", ["2024-01-01 23:00:00 UTC", "2024-01-01 23:00 GMT", "UTC"], [DAY, DAY, None], 1),
        ("timestamp", ["2024-01-01 23:00:00.000000000", "2024-01-01T23:00:00.0000000Z"], [DAY, DAY], 0),
        ("timestamp", [float("nan"), 1.0], [None, None], 1),
        ("seconds", ["10:00:00", "10:30", "25:00:00"], [dt.time(10), dt.time(10, 30), None], 1),
        ("category", [b"a", b"\xff"], [None, None], 2),
        ("category", [7, 8], [7, 8], 0),
    ],
)
def test_a_value_is_read_as_what_the_column_means(kind: str, values: list[Any], wanted: list[Any], lost: int) -> None:
    found, count = as_kind(pa.array(values), kind)
    assert (found.to_pylist(), count) == (wanted, lost)
    from_dictionary, again = (
        as_kind(pa.array(values).dictionary_encode(), kind)
        if kind != "category" and not isinstance(values[0], list)
        else (found, count)
    )
    assert (from_dictionary.to_pylist(), again) == (wanted, lost)


def test_the_day_of_a_timestamp_is_the_day_in_its_zone() -> None:
    midnight = pa.array([dt.datetime(2023, 12, 31, 23), dt.datetime(2024, 1, 1, 22, 59)], pa.timestamp("us"))
    found, lost = as_kind(midnight.cast(pa.timestamp("us", "Europe/Berlin")), "date")
    assert (found.to_pylist(), lost) == ([dt.date(2024, 1, 1)] * 2, 0)


@pytest.mark.parametrize("kind", ["number", "boolean", "date", "timestamp", "seconds", "category"])
def test_a_column_of_nulls_fits_every_kind(kind: str) -> None:
    found, lost = as_kind(pa.nulls(3), kind)
    assert (found.null_count, lost) == (3, 0)


@pytest.mark.parametrize(
    "text", ["16777217", f"{2**54 + 2**30 + 1}", "9007199254740993", "9223372036854775807", "18446744073709551615"]
)
def test_a_whole_number_in_text_is_rounded_once_as_an_integer_is(text: str) -> None:
    number = pa.array([int(text)], pa.uint64() if int(text) >= 2**63 else pa.int64())
    encoder = Encoder([Column("x", "number")], any_type=True)
    both = [encoder.matrix(pa.record_batch({"x": values})) for values in (pa.array([text, "n.v."])[:1], number)]
    both.append(encoder.matrix(pa.record_batch({"x": pa.array([text, "n.v."])}))[:1])
    assert both[0].tobytes() == both[1].tobytes() == both[2].tobytes()


def test_fractions_in_text_are_those_that_training_reads() -> None:
    random = np.random.default_rng(5)
    texts = [repr(float(value)) for value in random.normal(size=500) * 10.0 ** random.integers(-30, 30, 500)]
    encoder = Encoder([Column("x", "number")], any_type=True)
    of_text = encoder.matrix(pa.record_batch({"x": pa.array(texts)}))
    of_doubles = Encoder([Column("x", "number")]).matrix(pa.record_batch({"x": pa.array(map(float, texts))}))
    assert of_text.tobytes() == of_doubles.tobytes()


@pytest.mark.parametrize(
    ("column", "values", "wanted", "unseen"),
    [
        (Column("x", "category", ("7", "X7")), ["7", "7.0", "007", "X7"], [0, 0, None, 1], 1),
        (Column("x", "category", ("7", "X7")), [7, 8], [0, None], 1),
        (Column("x", "category", ("7", "X7")), [7.0, None], [0, None], 0),
        (
            Column("x", "category", ("7", "9007199254740993"), "int64"),
            ["007", "7.0", "9007199254740993", "x"],
            [0, 0, 1, None],
            1,
        ),
        (Column("x", "category", ("true", "false"), "bool"), ["True", "0", None], [0, 1, None], 0),
        (Column("x", "category", ("2024-01-01",), "date32[day]"), ["2024-01-01", "2024-01-01 00:00:00"], [0, 0], 0),
    ],
)
def test_a_category_is_found_by_its_text(column: Column, values: list[Any], wanted: list[Any], unseen: int) -> None:
    encoder = Encoder([column], any_type=True)
    found = encoder.matrix(pa.record_batch({"x": pa.array(values)}))[:, 0]
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))
    assert encoder.unseen["x"] == unseen and not encoder.unreadable


def test_many_values_that_are_no_dates_are_found_quickly() -> None:
    texts = pa.array([f"2024-02-{day:02}" for day in range(1, 32)] * 10_000)
    found, lost = as_kind(texts, "date")
    assert (lost, found.null_count) == (20_000, 20_000)


@pytest.mark.parametrize(
    ("type_", "texts", "wanted", "lost"),
    [
        (pa.int64(), ["1", "007", "x", ""], [1, None, None, None], 2),
        (pa.float64(), ["1.5", "x"], [1.5, None], 1),
        (pa.bool_(), ["true", "0"], [True, False], 0),
        (pa.decimal128(5, 2), ["1.50", "x"], [Decimal("1.50"), None], 1),
        (pa.timestamp("us", "UTC"), ["2024-01-01T23:00:00Z"], [DAY.replace(tzinfo=dt.UTC)], 0),
        (pa.time32("s"), ["10:00:00"], [dt.time(10)], 0),
        (pa.string(), ["007"], ["007"], 0),
    ],
)
def test_text_is_read_as_the_type_that_was_guessed(
    type_: pa.DataType, texts: list[str], wanted: list[Any], lost: int
) -> None:
    assert may_be_read_as_text(type_)
    found, count = as_type(pa.array(texts), type_)
    assert (found.type, found.to_pylist(), count) == (type_, wanted, lost)
