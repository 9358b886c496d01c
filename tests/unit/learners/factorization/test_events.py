"""What a row means, which rows are refused, and where the last events begin."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.errors import ConfigError, DataError
from dray.hints import in_arguments
from dray.learners.factorization import split, times
from dray.learners.factorization.counts import count_numbers
from dray.learners.factorization.events import (
    NO_TYPE,
    RowRule,
    count_types,
    ratings_of,
    require_columns,
    require_weights,
    weights_of,
    wrong_ratings,
)
from dray.learners.factorization.times import TimeSketch, seconds_of

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=dt.UTC)


def schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema({"user": pa.string(), "item": pa.int32()} | types)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_and_zone_are_seconds(unit: str, zone: str | None) -> None:
    moments = (
        pa.array([MOMENT.replace(tzinfo=None), None]).cast(pa.timestamp(unit, "UTC")).cast(pa.timestamp(unit, zone))
    )
    seconds = seconds_of(moments)
    assert seconds[0] == MOMENT.timestamp() and np.isnan(seconds[1])


def test_dates_and_numbers_are_seconds() -> None:
    assert seconds_of(pa.array([dt.date(1970, 1, 3)])).tolist() == [2 * 86_400]
    assert seconds_of(pa.array([dt.date(1970, 1, 3)]).cast(pa.date64())).tolist() == [2 * 86_400]
    assert seconds_of(pa.array([5, 6], pa.uint32())).tolist() == [5, 6]
    assert seconds_of(pa.array([1.5], pa.float32())).tolist() == [1.5]


def test_ratings_of_any_number_are_floats() -> None:
    for column in (pa.array([3, 0], pa.uint8()), pa.array([3.0, 0.0]), pa.array([3, 0]).cast(pa.decimal128(30, 2))):
        assert ratings_of(column).tolist() == [3, 0] and ratings_of(column).dtype == np.float32
    assert ratings_of(pa.array([True, False])).tolist() == [1, 0]


@pytest.mark.parametrize(
    "values, expected",
    [
        ([1.0, 2.0], {}),
        ([1.0, None], {"no rating": [1]}),
        ([float("nan"), -1.0, float("inf"), 2], {"no rating": [0], "negative rating": [1], "infinite rating": [2]}),
        ([1e39, 1.0], {"infinite rating": [0]}),
        (["4", "n/a", None, " 1.5e3 "], {"text rating": [1], "no rating": [2], "number as text": [0, 3]}),
    ],
)
def test_each_rating_that_cannot_be_used_is_found(values: Sequence[Any], expected: dict[str, list[int]]) -> None:
    wrong = {kind: np.flatnonzero(mask).tolist() for kind, mask in wrong_ratings(pa.array(values)).items()}
    assert {kind: rows for kind, rows in wrong.items() if rows} == expected


def test_an_event_weighs_what_its_type_does() -> None:
    column = pa.array(["view", "buy", None, "view"])
    for events in (column, column.dictionary_encode(), column.cast(pa.large_string())):
        assert weights_of(events, {"view": 1, "buy": -2, NO_TYPE: 0.5}).tolist() == [1, -2, 0.5, 1]
    assert np.isnan(weights_of(column, {"view": 1})).tolist() == [False, True, True, False]
    assert weights_of(pa.array([7, 8]), {"7": 1, "8": 2}).tolist() == [1, 2]


def test_event_types_are_counted_over_columns() -> None:
    counts: dict[str, int] = {}
    for column in (pa.array(["a", "b", None]), pa.array(["b"]).dictionary_encode()):
        count_types(column, "type", counts)
    assert counts == {"a": 1, "b": 2, NO_TYPE: 1}


def test_a_column_of_too_many_types_is_none() -> None:
    with pytest.raises(DataError, match='"what" has more than 1,000 different values'):
        count_types(pa.array([str(number) for number in range(1001)]), "what", {})


def test_types_without_a_weight_are_named_with_their_rows_the_most_frequent_first() -> None:
    with pytest.raises(DataError) as raised:
        require_weights({"view": 9, "Purchase": 1200, "my list": 3}, {"view": 1, "purchase": 5})
    assert '"Purchase" (1,200 rows), "my list" (3 rows)' in raised.value.what
    assert 'Did you mean "purchase"?' in raised.value.what
    assert "such as --event-weight Purchase=1 --event-weight 'my list=1'" in raised.value.fix
    assert 'such as event_weights={"Purchase": 1, "my list": 1}, or event_weights in' in in_arguments(raised.value.fix)
    require_weights({"view": 9}, {"view": 0})


def test_a_column_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(DataError, match=r'no column "raiting" \(--rating\) in the data. Did you mean "rating"'):
        require_columns(schema(rating=pa.float32()), RowRule(user="user", item="item", rating="raiting"))


@pytest.mark.parametrize("kind", [pa.float64(), pa.bool_(), pa.binary(), pa.list_(pa.int64()), pa.timestamp("s")])
def test_ids_are_text_or_whole_numbers(kind: pa.DataType) -> None:
    with pytest.raises(DataError, match=r'The user column "user" is .*, which cannot be an id') as raised:
        require_columns(schema(user=kind), RowRule(user="user", item="item"))
    assert ("int64" in raised.value.fix) == (kind == pa.float64())


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_ids_may_be_any_text_or_whole_number(kind: pa.DataType) -> None:
    require_columns(schema(user=kind), RowRule(user="user", item="item"))


@pytest.mark.parametrize("role, kind", [("rating", pa.date32()), ("event", pa.float32()), ("time", pa.bool_())])
def test_a_column_of_another_meaning_is_refused(role: str, kind: pa.DataType) -> None:
    rule = RowRule(**{"user": "user", "item": "item", role: "x"})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f'The {role} column "x" is '):
        require_columns(schema(x=kind), rule)


def random_times(rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return 1.7e9 + np.random.default_rng(0).exponential(1e7, rows)


def test_few_times_are_split_exactly() -> None:
    found = np.repeat(random_times(500), 3)
    sketch = TimeSketch()
    sketch.add(found)
    exact = np.sort(found)[-len(found) // 5 :][0]  # 300 of 1,500; three happen at once, and stay together
    assert np.array_equal(split.since(found, sketch.moment(0.2)), found >= exact)


def test_the_sketch_of_many_times_is_the_same_however_they_were_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "_MOST_BINS", 1000)
    found = np.append(random_times(20_000), [0.0, -5e8, 4e9])  # lonely ones cost a bin each
    whole = TimeSketch()
    whole.add(found)
    for parts in (2, 7, 300):
        merged = TimeSketch()
        for part in np.array_split(found, parts)[::-1]:
            sketch = TimeSketch()
            for piece in np.array_split(part, 3):
                sketch.add(piece)
            merged.merge(sketch)
        assert merged.width_s == whole.width_s
        assert np.array_equal(merged.bins, whole.bins) and np.array_equal(merged.counts, whole.counts)
        assert np.array_equal(merged.latest, whole.latest)
    assert 0.195 < (found >= whole.moment(0.2)).mean() <= 0.2


@pytest.mark.parametrize("most_bins", [100, 1 << 16])
def test_the_last_time_before_a_split_is_exact_however_wide_the_bins(
    monkeypatch: pytest.MonkeyPatch, most_bins: int
) -> None:
    monkeypatch.setattr(times, "_MOST_BINS", most_bins)
    found = random_times(20_000)
    sketch = TimeSketch()
    for piece in np.array_split(found, 9):
        sketch.add(piece)
    moment = sketch.moment(0.2)
    assert sketch.latest_before(moment) == found[found < moment].max()
    assert sketch.latest_before(float(sketch.bins[0] * sketch.width_s)) is None


def test_a_split_that_would_take_more_than_the_share_is_refused() -> None:
    sketch = TimeSketch()
    sketch.add(np.array([1.0, 2, 2, 2]))
    with pytest.raises(DataError, match="3 of 4 events happened last"):
        sketch.moment(0.5)
    with pytest.raises(ConfigError):
        sketch.moment(1)


@pytest.mark.parametrize("spread", [10, 10**15])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_numbers_are_counted_whether_close_together_or_not(spread: int, kind: type) -> None:
    numbers = np.random.default_rng(0).integers(-spread, spread, 300).astype(kind)
    found, counts = count_numbers(numbers)
    expected = np.unique(numbers, return_counts=True)
    order = np.argsort(found)
    assert np.array_equal(found[order], expected[0]) and np.array_equal(counts[order], expected[1])
    assert found.dtype == kind
