"""The profile of a column: what is counted in a sample, and what is known of all rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.data.describing.figures import ColumnProfile, Figure, Known
from dray.data.describing.profile import BINS, FEW_VALUES, TOP_VALUES, profile_column


def profiled(
    values: Any, *, kind: pa.DataType | None = None, rows: int | None = None, complete: bool = True, **known: Any
) -> ColumnProfile:
    return profile_column("x", pa.chunked_array([pa.array(values, kind)]), rows, complete, Known(**known))


def shares(profile: ColumnProfile) -> list[tuple[Any, float]]:
    return [(found.value, found.share) for found in profile.values]


def test_a_whole_sample_is_exact_and_a_part_is_a_sample() -> None:
    for complete, basis in ((True, "exact"), (False, "sample")):
        found = profiled([1, 2, None, 2], rows=100, complete=complete)
        assert (found.nulls, found.missing) == (Figure(0.25, basis), Figure(0.25, basis))
        assert (found.low, found.high, found.values_basis) == (Figure(1, basis), Figure(2, basis), basis)
        assert (found.nan, found.infinite, found.seen, found.distinct_seen) == (None, None, 3, 2)
        assert shares(found) == [(2, 0.5), (1, 0.25)]


def test_what_is_known_of_all_rows_goes_before_what_was_seen() -> None:
    found = profiled([1, 2, None], rows=100, complete=False, nulls=10, low=0, high=9, distinct=Figure(7, "exact"))
    assert (found.nulls, found.low, found.high) == (Figure(0.1, "exact"), Figure(0, "exact"), Figure(9, "exact"))
    assert found.distinct == Figure(7, "exact")
    half = profiled([1, 2], rows=100, complete=False, low=0)
    assert (half.low, half.high) == (Figure(1, "sample"), Figure(2, "sample"))
    other_half = profiled([1, 2], rows=100, complete=False, high=9)
    assert (other_half.low, other_half.high) == (Figure(1, "sample"), Figure(2, "sample"))
    assert profiled([1], rows=None, complete=False, nulls=10).nulls == Figure(0.0, "sample")
    assert profiled([], kind=pa.int64()).nulls == Figure(0.0, "exact")


def test_nan_is_missing_too_and_infinity_is_a_value() -> None:
    found = profiled([1.0, math.nan, None, math.inf])
    assert (found.nan, found.nulls, found.infinite) == (Figure(0.25, "exact"),) * 3
    assert found.missing == Figure(0.5, "exact")
    assert (found.seen, found.distinct_seen) == (2, 2)
    weaker = profiled([1.0, math.nan, None, 2.0], rows=100, complete=False, nulls=50)
    assert (weaker.nulls, weaker.missing) == (Figure(0.5, "exact"), Figure(0.75, "sample"))
    both = profiled([1.0, math.nan], rows=100, complete=False, nulls=50, nan=20, infinite=3)
    assert (both.missing, both.infinite) == (Figure(0.7, "exact"), Figure(0.03, "exact"))
    assert profiled([1.0, None], rows=100, complete=False, nulls=50).missing == Figure(0.5, "exact")


def test_few_values_are_shown_and_many_only_of_text() -> None:
    assert len(profiled(list(range(FEW_VALUES))).values) == TOP_VALUES
    assert profiled(list(range(FEW_VALUES + 1))).values == ()
    assert len(profiled([str(value) for value in range(FEW_VALUES + 1)]).values) == TOP_VALUES
    assert profiled([], kind=pa.int64()).values == ()
    known = profiled(["a", "b"], rows=10, complete=False, counts={"a": 1, "c": 9})
    assert (shares(known), known.values_basis) == ([("c", 0.9), ("a", 0.1)], "exact")
    unknown = profiled(["a"], rows=None, complete=False, counts={"a": 3})
    assert shares(unknown) == [("a", 3.0)]
    many = profiled(list(range(FEW_VALUES + 1)), rows=50, complete=False, counts={1: 9})
    assert (many.values, many.values_basis) == ((), "sample")


def test_different_values_are_counted_or_estimated_within_what_can_be() -> None:
    assert profiled([1, 2, 2]).distinct == Figure(2, "exact")
    once = list(range(0, 1000, 10))
    assert profiled(once, rows=9000, complete=False).distinct == Figure(100 + 100 * 99 // 2, "estimate")
    assert profiled(once, rows=2000, complete=False).distinct == Figure(2000, "estimate")
    assert profiled(once, rows=2000, complete=False, nulls=1000).distinct == Figure(1000, "estimate")
    assert profiled(once, rows=9000, complete=False, low=0, high=990).distinct == Figure(991, "estimate")
    assert profiled(once, rows=500, complete=False, low=0, high=990).distinct == Figure(500, "estimate")
    assert profiled(once, rows=None, complete=False, low=0, high=990).distinct == Figure(991, "estimate")
    every = profiled([3, 4, 5], rows=500, complete=False, low=3, high=5)
    assert every.distinct == Figure(3, "exact")
    texts = profiled(["a", "bb", "a"], rows=500, complete=False, low=1, high=2)
    assert texts.distinct is not None and texts.distinct.basis == "estimate"
    assert profiled([[1], [2]]).distinct is None


def test_of_text_the_range_is_that_of_its_length() -> None:
    found = profiled(["", "abc", None])
    assert (found.kind, found.low, found.high) == ("text", Figure(0, "exact"), Figure(3, "exact"))
    assert (profiled(pa.nulls(3, pa.int64())).low, profiled([[1]]).low) == (None, None)


def test_the_histogram_has_bins_between_the_outer_quantiles() -> None:
    found = profiled([*range(1200), 10**9]).histogram
    assert found is not None
    assert len(found.counts) == BINS and sum(found.counts) == 1201
    assert (found.low, found.high) == (12.0, 1188.0)
    assert found.counts[0] == pytest.approx(110, abs=2)
    assert found.counts[1] == pytest.approx(98, abs=2)


def test_the_histogram_of_nearly_one_value_has_the_width_of_the_others() -> None:
    found = profiled([5.0] * 1000 + [7.0]).histogram
    assert found is not None
    assert (found.low, found.high, found.counts[0], found.counts[-1]) == (5.0, 7.0, 1000, 1)
    one = profiled([5.0] * 3).histogram
    assert one is not None
    assert (one.counts, one.low, one.high) == ((3,), 5.0, 5.0)


def test_the_histogram_of_texts_and_flags_is_that_of_the_most_frequent() -> None:
    found = profiled(["a", "b", "a"]).histogram
    assert found is not None and found.counts == (2, 1)
    flags = profiled([True, False, True]).histogram
    assert flags is not None and flags.counts == (2, 1)
    assert profiled([[1]]).histogram is None
    assert profiled(pa.nulls(3, pa.int64())).histogram is None
    assert profiled([math.inf, -math.inf]).histogram is None
    some = profiled(np.array([1.0, 2.0, math.inf])).histogram
    assert some is not None and sum(some.counts) == 2
