"""The profile of one column: arrays in, figures out."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.data.describing.distinct import KEPT_HASHES, Sketch, estimate_distinct, hashes
from dray.data.describing.figures import NOTHING_KNOWN, ColumnProfile, Figure, Known
from dray.data.describing.profile import BINS, profile_column
from dray.data.describing.tally import MOST_COUNTED, Tally

RANDOM = np.random.default_rng(0)


def profile(values: Any, type_: pa.DataType | None = None) -> ColumnProfile:
    """The profile of a column whose rows were all seen."""
    array = values if isinstance(values, pa.Array) else pa.array(values, type_)
    return profile_column("x", array, len(array), True, NOTHING_KNOWN)


def test_uniform_numbers_have_even_bins_and_an_exact_range() -> None:
    found = profile(np.arange(12_000) / 12_000)
    assert (found.low, found.high) == (Figure(0.0, "exact"), Figure(11_999 / 12_000, "exact"))
    assert found.distinct == Figure(12_000, "exact")
    assert found.missing == Figure(0.0, "exact")
    assert found.histogram is not None and len(found.histogram.counts) == BINS
    assert sum(found.histogram.counts) == 12_000
    assert max(found.histogram.counts) < 1.2 * min(found.histogram.counts)
    assert found.values == ()


@pytest.mark.parametrize("type_", [pa.uint64(), pa.decimal128(38, 0), pa.decimal128(38, 18)])
def test_large_numbers_close_to_each_other_have_a_histogram_too(type_: pa.DataType) -> None:
    found = profile([Decimal(2**63 + i) for i in range(5_000)], type_)
    assert found.histogram is not None and sum(found.histogram.counts) == 5_000
    assert found.distinct == Figure(5_000, "exact")


def test_one_huge_value_does_not_empty_the_histogram() -> None:
    found = profile([*np.linspace(0, 1, 999).tolist(), 1e12])
    assert found.histogram is not None
    assert found.histogram.high == pytest.approx(1, abs=0.02)
    assert min(found.histogram.counts) > 0
    assert found.high == Figure(1e12, "exact")


@pytest.mark.parametrize("value", [7, 7.5, "seven", True, date(2024, 1, 1)])
def test_a_constant_has_one_value(value: Any) -> None:
    found = profile([value] * 50)
    assert found.distinct == Figure(1, "exact")
    [top] = found.values
    assert top.share == 1
    assert found.histogram is not None and found.histogram.counts == (50,)


@pytest.mark.parametrize("type_", [pa.null(), pa.float64(), pa.string(), pa.timestamp("us"), pa.list_(pa.int64())])
def test_a_column_without_values_has_nothing_but_missing_ones(type_: pa.DataType) -> None:
    found = profile([None] * 10, type_)
    assert found.missing == Figure(1.0, "exact")
    assert (found.low, found.high, found.histogram, found.values, found.seen) == (None, None, None, (), 0)
    assert found.distinct is None or found.distinct.value == 0


def test_nan_counts_as_missing_and_is_told_apart() -> None:
    found = profile([1.0, math.nan, None, math.inf])
    assert (found.nulls.value, found.nan, found.missing.value) == (0.25, Figure(0.25, "exact"), 0.5)
    assert found.infinite == Figure(0.25, "exact")
    assert (found.low, found.high) == (Figure(1.0, "exact"), Figure("inf", "exact"))
    assert found.distinct == Figure(2, "exact")


@pytest.mark.parametrize(
    ("values", "type_", "kind", "low", "high"),
    [
        ([date(2024, 1, 1), date(2024, 3, 1)], None, "date", "2024-01-01", "2024-03-01"),
        (
            [datetime(2024, 1, 1, 10), datetime(2024, 3, 1)],
            None,
            "timestamp",
            "2024-01-01 10:00:00",
            "2024-03-01 00:00:00",
        ),
        ([1_000, 2_000_000_000], pa.timestamp("ns"), "timestamp", "1970-01-01 00:00:00.000001", "1970-01-01 00:00:02"),
        (
            [0, 3600],
            pa.timestamp("s", tz="Europe/Berlin"),
            "timestamp",
            "1970-01-01 00:00:00+00:00",
            "1970-01-01 01:00:00+00:00",
        ),
        ([time(1, 2), time(3, 4)], None, "seconds", "01:02:00", "03:04:00"),
        ([timedelta(seconds=90), timedelta(hours=1)], None, "seconds", 90.0, 3600.0),
        ([Decimal("1.50"), Decimal("2.25")], None, "number", 1.5, 2.25),
        ([False, True], None, "boolean", False, True),
        ([2**63 + 1, 2**64 - 1], pa.uint64(), "number", 2**63 + 1, 2**64 - 1),
        ([np.float16(1), np.float16(2)], pa.float16(), "number", 1.0, 2.0),
        (["a", "héllo"], None, "text", 1, 5),
    ],
)
def test_every_type_has_its_range(values: Any, type_: pa.DataType | None, kind: str, low: Any, high: Any) -> None:
    found = profile(values, type_)
    assert found.kind == kind
    assert (found.low, found.high) == (Figure(low, "exact"), Figure(high, "exact"))
    assert found.distinct == Figure(2, "exact")
    assert found.histogram is not None and sum(found.histogram.counts) == 2


def test_text_is_shown_by_its_most_frequent_values() -> None:
    found = profile(["b"] * 3 + ["a"] * 6 + [""] + [None] * 10)
    assert [(top.value, top.share) for top in found.values] == [("a", 0.3), ("b", 0.15), ("", 0.05)]
    assert found.histogram is not None and found.histogram.counts == (6, 3, 1)
    assert found.missing.value == 0.5


def test_a_dictionary_is_its_text() -> None:
    found = profile(pa.array(["x", "y", None, "x"]).dictionary_encode())
    assert (found.kind, found.distinct) == ("text", Figure(2, "exact"))
    assert found.values[0].value == "x"


@pytest.mark.parametrize("values", [[[1, 2], None, []], [{"a": 1}, {"a": None}, None]])
def test_nested_columns_have_no_range_and_no_values(values: list[Any]) -> None:
    found = profile(values)
    assert found.kind == "other"
    assert (found.low, found.distinct, found.histogram, found.values) == (None, None, None, ())
    assert found.missing.value == pytest.approx(1 / 3)


def test_bytes_are_counted() -> None:
    found = profile([b"\xff\x00", b"a", b"a"])
    assert (found.kind, found.distinct) == ("other", Figure(2, "exact"))
    assert found.to_json()["values"]["top"]


def test_what_is_known_of_all_rows_goes_before_the_sample() -> None:
    known = Known(nulls=500, low=-5, high=99)
    found = profile_column("x", pa.array([1, 2, 3]), 1000, False, known)
    assert (found.low, found.high) == (Figure(-5, "exact"), Figure(99, "exact"))
    assert found.missing == Figure(0.5, "exact")
    assert found.distinct is not None and found.distinct.basis == "estimate"
    sampled = profile_column("x", pa.array([1, 2, None]), 1000, False, NOTHING_KNOWN)
    assert sampled.missing == Figure(1 / 3, "sample")
    assert sampled.low == Figure(1, "sample")


def test_nan_in_the_sample_makes_the_missing_share_one_of_the_sample() -> None:
    found = profile_column("x", pa.array([1.0, math.nan]), 100, False, Known(nulls=10))
    assert found.nulls == Figure(0.1, "exact")
    assert found.missing == Figure(0.6, "sample")


def test_a_whole_number_has_no_more_values_than_its_range() -> None:
    found = profile_column("x", pa.array(range(100)), 10**9, False, Known(nulls=0, low=0, high=149))
    assert found.distinct == Figure(150, "estimate")
    both = profile_column("x", pa.array([0, 1] * 50), 10**9, False, Known(nulls=0, low=0, high=1))
    assert both.distinct == Figure(2, "exact")


class TestDistinct:
    def test_values_that_all_repeat_are_all_there_are(self) -> None:
        assert estimate_distinct(np.array([5, 3, 2]), 10**9) == 3

    def test_a_sample_without_repetition_knows_no_bound_but_the_rows(self) -> None:
        assert estimate_distinct(np.ones(1000, np.int64), 10**5) == 10**5

    @pytest.mark.parametrize("truth", [500, 5_000, 50_000])
    def test_equally_frequent_values_are_estimated_within_10_percent(self, truth: int) -> None:
        _, counts = np.unique(RANDOM.integers(0, truth, 10_000), return_counts=True)
        assert estimate_distinct(counts, 10**8) == pytest.approx(truth, rel=0.1)


class TestSketch:
    def test_few_values_are_counted_exactly(self) -> None:
        sketch = Sketch()
        for _ in range(3):
            sketch.add(pa.array([f"value {i}" for i in range(10_000)]))
        assert (sketch.distinct, sketch.exact) == (10_000, True)

    @pytest.mark.parametrize("text", [False, True])
    def test_many_values_are_estimated_within_3_percent(self, text: bool) -> None:
        sketch = Sketch()
        for start in range(0, 300_000, 50_000):
            whole = pa.array(np.arange(start, start + 50_000))
            sketch.add(whole.cast(pa.string()) if text else whole)
        assert not sketch.exact and KEPT_HASHES < 300_000
        assert sketch.distinct == pytest.approx(300_000, rel=0.03)

    @pytest.mark.parametrize(
        "values",
        [
            pa.array(["", "a", "aa", "b", "ab", "ba"]),
            pa.array([b"", b"\x00", b"\x00\x00"]),
            pa.array([0.0, 1.0, -1.0, 1e300]),
            pa.array([-1, 0, 1, 2**62]),
            pa.array([2**64 - 1, 0], pa.uint64()),
            pa.array([True, False]),
            pa.array([1, 2], pa.date32()),
            pa.array([1, 2], pa.time32("s")),
            pa.array([1, 2], pa.timestamp("us")),
            pa.array([Decimal("1.5"), Decimal("2.5")]),
            pa.array(["skipped", "x", "yy"]).slice(1),
            pa.array([], pa.string()),
        ],
    )
    def test_different_values_have_different_hashes(self, values: pa.Array) -> None:
        found = hashes(values)
        assert len(found) == len(values) == len(set(found.tolist()))

    def test_the_two_zeros_are_one_value(self) -> None:
        assert len(set(hashes(pa.array([0.0, -0.0])).tolist())) == 1


class TestTally:
    def test_batches_add_up_to_the_figures_of_all(self) -> None:
        tally = Tally("x", pa.float64())
        for batch in ([1.0, None], [math.nan, -3.0], [math.inf, 1.0], [None, None]):
            tally.add(pa.array(batch, pa.float64()))
        known = tally.known()
        assert (known.nulls, known.nan, known.infinite, known.low, known.high) == (3, 1, 1, -3.0, math.inf)
        assert known.distinct == Figure(3, "exact")
        assert known.counts == {1.0: 2, -3.0: 1, math.inf: 1}

    def test_many_values_are_not_counted_one_by_one(self) -> None:
        tally = Tally("x", pa.int64())
        tally.add(pa.array(range(MOST_COUNTED)))
        tally.add(pa.array(range(MOST_COUNTED, MOST_COUNTED + 10)))
        assert tally.known().counts is None
        assert tally.known().distinct == Figure(MOST_COUNTED + 10, "exact")

    @pytest.mark.parametrize(
        "type_", [pa.null(), pa.list_(pa.int64()), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
    )
    def test_every_type_can_be_tallied(self, type_: pa.DataType) -> None:
        tally = Tally("x", type_)
        tally.add(pa.nulls(3, type_))
        assert tally.known().nulls == 3
