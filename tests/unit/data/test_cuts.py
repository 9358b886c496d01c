from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dray.data.cuts import cut_table

Floats = npt.NDArray[np.float32]

columns = hnp.arrays(
    np.float32,
    st.integers(1, 400),
    elements=st.one_of(
        st.floats(width=32, allow_nan=True, allow_infinity=True), st.integers(-20, 20).map(float), st.just(0.0)
    ),
)


def cuts_of(column: Floats, bins: int) -> Floats:
    points: Floats = cut_table([column], [0], bins)[:, 0]
    return points[~np.isnan(points)]


@given(columns, st.integers(2, 64))
def test_cuts_are_sorted_values_of_the_column_and_at_most_bins(column: Floats, bins: int) -> None:
    points = cuts_of(column, bins)
    assert len(points) <= bins
    assert (np.diff(points) > 0).all()
    assert np.isin(points, column).all()
    assert np.isfinite(points).all()


@given(columns, st.integers(2, 64))
def test_cuts_do_not_depend_on_the_order_of_the_rows(column: Floats, bins: int) -> None:
    assert np.array_equal(cuts_of(column, bins), cuts_of(column[::-1].copy(), bins))


@given(columns, st.integers(2, 64))
def test_the_smallest_value_is_a_cut(column: Floats, bins: int) -> None:
    finite = column[np.isfinite(column)]
    if len(finite):
        assert cuts_of(column, bins)[0] == finite.min()


@given(st.sets(st.integers(-1000, 1000), min_size=1, max_size=32), st.data())
def test_few_distinct_values_are_all_kept(values: set[int], data: st.DataObject) -> None:
    repeats = data.draw(st.lists(st.integers(1, 50), min_size=len(values), max_size=len(values)))
    column = np.repeat(np.array(sorted(values), dtype=np.float32), repeats)
    assert cuts_of(column, 32).tolist() == sorted(values)


def test_bins_hold_about_equally_many_rows() -> None:
    column = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    counts, _ = np.histogram(column, np.append(cuts_of(column, 64), np.inf))
    assert len(counts) == 64
    assert counts.max() <= 1.05 * counts.min()


@pytest.mark.parametrize("frequent", [[0.0], [-3.0], [9.0], [0.0, 1.0, 2.0]])
def test_a_column_that_is_mostly_one_value_keeps_its_resolution_elsewhere(frequent: list[float]) -> None:
    random = np.random.default_rng(1)
    rest = random.normal(size=5_000).astype(np.float32)
    column = np.concatenate([np.repeat(np.float32(frequent), 30_000), rest])
    points = cuts_of(column, 64)
    assert np.isin(frequent, points).all()
    borders = np.append(points, np.inf)
    counts, _ = np.histogram(rest, borders)
    assert len(points) >= 60
    assert counts.max() <= 2.5 * len(rest) / len(points)


def test_a_frequent_value_has_a_bin_to_itself() -> None:
    column = np.concatenate([np.zeros(50_000, np.float32), np.linspace(-1, 1, 4_000, dtype=np.float32)])
    points = cuts_of(column, 32)
    after = points[points > 0][0]
    assert after == np.unique(column[column > 0])[0]


def test_many_frequent_values_all_stay_cuts() -> None:
    frequent = np.arange(12, dtype=np.float32)
    between = np.random.default_rng(2).uniform(-1, 12, 200).astype(np.float32)
    points = cuts_of(np.concatenate([np.repeat(frequent, 1000), between]), 16)
    assert len(points) == 16
    assert np.isin(frequent, points).all()
    assert points[0] == between.min()


def test_a_category_is_a_bin_of_its_own_also_beyond_bins() -> None:
    table = cut_table([np.empty(0, np.float32), np.float32([5, 6])], [100, 0], 16)
    assert table[:, 0].tolist() == list(range(100))
    assert table[:2, 1].tolist() == [5, 6]
    assert np.isnan(table[2:, 1]).all()


@pytest.mark.parametrize("column", [np.float32([]), np.float32([np.nan, np.nan]), np.float32([np.inf, -np.inf])])
def test_a_column_without_values_has_no_cut_but_a_row(column: Floats) -> None:
    table = cut_table([column], [0], 16)
    assert table.shape == (1, 1)
    assert np.isnan(table).all()
