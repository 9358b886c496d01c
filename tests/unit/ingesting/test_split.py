"""Which rows are for the test: stable, whatever the batch, the type and the machine."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.data.value_hashes import hash_rows
from dray.errors import ConfigError
from dray.ingesting.recipe import HashSplit, TimeSplit
from dray.ingesting.split import for_test, require_splittable

PINNED = {
    "i": [5167152401845298320, 2832994270323214407, 14624565618077648986],
    "f": [4588424742645943933, 16829748543782210091, 14624565618077648986],
    "s": [5167152401845298320, 8215252598362085465, 14624565618077648986],
    "t": [11320410521233296341, 14624565618077648986, 5599599201814676821],
    "d": [17005404308174315353, 14624565618077648986, 14148100118467617089],
    "l": [16469552553010543154, 8637140755316914086, 14624565618077648986],
    "long": [4394323335960036636, 8595821595477096129, 14624565618077648986],
}
PINNED_ROWS = [3628512241211737640, 16910820088319854980, 13982580133746719214]

VALUES = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.none() | st.floats(), min_size=1),
    st.lists(st.none() | st.text(max_size=20), min_size=1),
    st.lists(st.none() | st.binary(max_size=20), min_size=1),
    st.lists(st.none() | st.booleans(), min_size=1),
    st.lists(st.none() | st.lists(st.integers(0, 9), max_size=3), min_size=1),
    st.lists(st.none() | st.dates(date(1700, 1, 1)), min_size=1),
    st.lists(st.sampled_from(["short", "x" * 5000, ""]), min_size=1),
)


def hashes(values: Any, type_: pa.DataType | None = None, seed: int = 0) -> list[int]:
    array = values if isinstance(values, pa.Array) else pa.array(values, type_)
    return [int(value) for value in hash_rows(pa.record_batch({"v": array}), ["v"], seed)]


@given(VALUES, st.integers(1, 7))
def test_the_hash_of_a_row_depends_on_no_other_row(values: list[Any], step: int) -> None:
    array = pa.array(values)
    together = hashes(array)
    assert [found for start in range(0, len(values), step) for found in hashes(array[start : start + step])] == together
    assert hashes(values[::-1], array.type) == together[::-1]


@given(st.lists(st.none() | st.text(max_size=8), min_size=1))
def test_it_does_not_matter_how_text_is_kept(values: list[str | None]) -> None:
    plain = hashes(pa.array(values, pa.string()))
    assert hashes(pa.array(values, pa.large_string())) == plain
    assert hashes(pa.array(values, pa.string()).dictionary_encode()) == plain


def test_it_does_not_matter_how_numbers_and_times_are_kept() -> None:
    plain = hashes([1, 2, None, 3], pa.int64())
    for type_ in (pa.int8(), pa.uint32(), pa.float32(), pa.float64(), pa.uint64()):
        assert hashes([1, 2, None, 3], type_) == plain
    assert hashes([-0.0]) == hashes([0.0]) == hashes([0])
    moments = [datetime(2026, 1, 1, 12), None]
    assert hashes(moments, pa.timestamp("s")) == hashes(moments, pa.timestamp("ns"))
    assert hashes([date(2026, 1, 1)], pa.date32()) == hashes([date(2026, 1, 1)], pa.date64())


def test_these_hashes_stay_as_they_are_for_ever() -> None:
    batch = pa.record_batch(
        {
            "i": pa.array([0, -7, None]),
            "f": pa.array([0.5, float("nan"), None]),
            "s": pa.array(["", "grüße", None]),
            "t": pa.array([datetime(2026, 1, 1), None, datetime(1969, 12, 31)], pa.timestamp("ms")),
            "d": pa.array([Decimal("1.50"), None, Decimal("0.01")]),
            "l": pa.array([[1, 2], [], None]),
            "long": pa.array(["x" * 5000, "y" * 4096, None]),
        }
    )
    assert {name: [int(h) for h in hash_rows(batch, [name])] for name in batch.schema.names} == PINNED
    assert [int(h) for h in hash_rows(batch, batch.schema.names, seed=1)] == PINNED_ROWS


def test_hashes_are_spread_evenly() -> None:
    batch = pa.record_batch({"i": pa.array(range(100_000)), "s": pa.array([f"user-{i}" for i in range(100_000)])})
    for columns in (["i"], ["s"], ["i", "s"]):
        found = hash_rows(batch, columns)
        assert len(np.unique(found)) == 100_000
        counts = np.bincount((found >> np.uint64(60)).astype(int), minlength=16)
        assert np.all(np.abs(counts - 6250) < 5 * 6250**0.5), columns


def test_rows_alike_in_the_columns_go_together_and_another_seed_chooses_others() -> None:
    batch = pa.record_batch({"user": pa.array([i % 100 for i in range(1000)]), "x": pa.array(range(1000))})
    chosen = for_test(batch, HashSplit(share=0.3, columns=("user",)), ("user", "x")).to_pylist()
    assert all(len({chosen[row] for row in range(user, 1000, 100)}) == 1 for user in range(100))
    assert 15 < sum(chosen[:100]) < 45
    other = for_test(batch, HashSplit(share=0.3, columns=("user",), seed=1), ("user", "x")).to_pylist()
    assert other != chosen


def test_a_share_is_about_kept_and_a_larger_one_holds_the_smaller() -> None:
    batch = pa.record_batch({"x": pa.array(range(20_000))})
    small, large = (np.array(for_test(batch, HashSplit(share=share), ("x",)).to_pylist()) for share in (0.1, 0.2))
    assert abs(small.mean() - 0.1) < 0.01 and abs(large.mean() - 0.2) < 0.01
    assert not np.any(small & ~large)


def test_a_split_by_time_takes_the_moment_itself_for_the_test_and_rows_without_a_time_for_training() -> None:
    batch = pa.record_batch({"day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 3)])})
    split = TimeSplit(column="day", moment="2026-01-02")
    assert for_test(batch, split, ()).to_pylist() == [False, True, False, True]


def test_a_split_by_time_needs_a_time() -> None:
    with pytest.raises(ConfigError, match='column "x" is int64'):
        require_splittable(TimeSplit(column="x", moment="2026-01-02"), pa.schema([("x", pa.int64())]))
    with pytest.raises(ConfigError, match="is not a date or time"):
        require_splittable(TimeSplit(column="x", moment="later"), pa.schema([("x", pa.date32())]))
