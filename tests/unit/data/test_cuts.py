from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dray.data.cuts import LARGEST, borders_of, bounded, cut_points, cut_table, with_borders

Floats = npt.NDArray[np.float32]

columns = hnp.arrays(
    np.float32,
    st.integers(1, 400),
    elements=st.one_of(
        st.floats(width=32, allow_nan=True, allow_infinity=True), st.integers(-20, 20).map(float), st.just(0.0)
    ),
)


def cuts_of(column: Floats, bins: int) -> Floats:
    return cut_points(column, bins)


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
    table = cut_table([np.empty(0, np.float32), np.float32([5, 6])], [100, None])
    assert table[:, 0].tolist() == list(range(100))
    assert table[:3, 1].tolist() == [-LARGEST / 2, 6, LARGEST / 2]
    assert np.isnan(table[3:, 1]).all()


@pytest.mark.parametrize("column", [np.float32([]), np.float32([np.nan, np.nan]), np.float32([np.inf, -np.inf])])
def test_a_column_without_values_has_bounds_only(column: Floats) -> None:
    table = cut_table([cut_points(column, 16)], [None])
    assert table[:, 0].tolist() == [-LARGEST / 2, LARGEST / 2]


def in_xgboost(points: Floats, bins: int) -> Floats:
    """The borders that XGBoost makes of cut points."""
    matrix = xgboost.QuantileDMatrix(points.reshape(-1, 1), max_bin=bins)
    borders: Floats = matrix.get_quantile_cut()[1]
    return borders


@given(columns, st.integers(2, 64))
def test_borders_are_those_of_xgboost_and_hold_every_finite_number(column: Floats, bins: int) -> None:
    points = bounded(cut_points(column[np.abs(column) < LARGEST], bins))
    borders = borders_of(points, bins)
    assert sorted(borders) == sorted(in_xgboost(points, bins))
    assert borders.min() <= -LARGEST and borders.max() >= LARGEST
    assert len(points) <= bins + 1


@pytest.mark.parametrize("count", [1, 2, 255, 256])
def test_bounds_take_no_bin_away(count: int) -> None:
    values = np.arange(count, dtype=np.float32)
    borders = in_xgboost(bounded(values), 256)
    assert len(borders) <= 257  # one of them below the lowest bin: 256 bins, a byte each
    assert np.isin(values[1:], borders).all()


def test_bounds_are_set_once() -> None:
    points = bounded(np.float32([1, 2, 3]))
    assert points.tolist() == [-LARGEST / 2, 2, 3, LARGEST / 2]
    assert bounded(points).tolist() == points.tolist()


def test_numbers_near_the_limits_of_float32_keep_their_cuts() -> None:
    points = np.float32([-3e38, -2e38, 0, 2e38, 3e38])
    assert np.isin(points[1:], in_xgboost(bounded(points), 16)).all()


def test_points_that_have_all_borders_stay() -> None:
    points = bounded(np.arange(16, dtype=np.float32))
    borders = in_xgboost(points, 16)
    kept, bins = with_borders([points], [borders], 16)
    assert (kept[0].tolist(), bins) == (points.tolist(), 16)


@given(columns, columns, st.integers(2, 64))
def test_whatever_trees_split_at_becomes_a_border(column: Floats, split_at: Floats, bins: int) -> None:
    needed = np.unique(split_at[np.abs(split_at) < LARGEST / 2])
    old = cut_points(column[np.abs(column) < LARGEST / 4], bins)  # as tables were written before: without bounds
    points, more_bins = with_borders([old], [needed], bins)
    assert np.isin(needed, in_xgboost(points[0], more_bins)).all()
    assert np.isin(borders_of(bounded(old), bins), in_xgboost(points[0], more_bins)).all()
