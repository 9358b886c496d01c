"""Columns that decide the label, by numbers that are known."""

from __future__ import annotations

import numpy as np
import pytest

from dray.data.describing import leaks
from dray.data.describing.leaks import (
    LEAST_IN_CLASS,
    MOST_BINS,
    Label,
    bins_of_codes,
    bins_of_numbers,
    how_far_decided,
    label_of_classes,
    label_of_numbers,
)


@pytest.fixture(autouse=True)
def every_other_row_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves that are known: the even rows, of those with a label, are the first."""

    def halves(usable: leaks.Mask) -> tuple[leaks.Codes, leaks.Mask]:
        rows = np.flatnonzero(usable)
        return rows, np.arange(len(rows)) % 2 == 0

    monkeypatch.setattr(leaks, "_halves", halves)


def classes(*sizes: int) -> leaks.Codes:
    return np.repeat(np.arange(len(sizes)), sizes)


def test_two_classes_are_one_target_and_more_are_one_each() -> None:
    label = label_of_classes(classes(40, 60))
    assert label is not None
    assert [target.tolist() for target in label.targets] == [[1.0] * 40 + [0.0] * 60]
    assert (label.classes, label.measure, label.threshold) == (True, "AUC", 0.98)
    three = label_of_classes(classes(40, 60, 50))
    assert three is not None
    assert [target.sum() for target in three.targets] == [40, 60, 50]


def test_a_class_needs_twenty_rows_in_each_half_and_as_many_that_are_others() -> None:
    assert label_of_classes(classes(2 * LEAST_IN_CLASS, 60)) is not None
    assert label_of_classes(classes(2 * LEAST_IN_CLASS - 1, 60)) is None
    assert label_of_classes(classes(100)) is None
    rare = label_of_classes(classes(60, 60, 10))
    assert rare is not None
    assert [target.sum() for target in rare.targets] == [60, 60]  # both, since a third class is there


def test_rows_without_a_class_are_left_out() -> None:
    codes = np.concatenate([classes(40, 60), [-1] * 7])
    label = label_of_classes(codes)
    assert label is not None
    assert label.rows.tolist() == list(range(100))
    assert len(label.first) == 100


def test_a_number_is_told_by_its_rank_and_equal_ones_share_theirs() -> None:
    values = np.array([*np.arange(200.0), np.nan, np.inf])
    label = label_of_numbers(values)
    assert label is not None
    assert (label.classes, label.measure, label.threshold) == (False, "share of the variance of its ranks", 0.98)
    assert label.rows.tolist() == list(range(200))
    assert label.targets[0] == pytest.approx(np.arange(1, 201) / 200)
    ties = label_of_numbers(np.repeat([5.0, 7.0], 100))
    assert ties is not None
    assert np.unique(ties.targets[0]).tolist() == pytest.approx([50.5 / 200, 150.5 / 200])


def test_a_number_needs_eighty_rows_in_each_half_and_two_values() -> None:
    assert label_of_numbers(np.arange(160.0)) is not None
    assert label_of_numbers(np.arange(159.0)) is None
    assert label_of_numbers(np.ones(400)) is None


def label_for(rows: int) -> Label:
    first = np.arange(rows) % 2 == 0
    return Label(np.arange(rows), first, (np.zeros(rows),), classes=True)


def test_few_numbers_are_bins_themselves_and_missing_is_one() -> None:
    values = np.array([3.0, 3.0, np.nan, 1.0, 1.0, 7.0, 2.0])
    assert bins_of_numbers(values, label_for(7)).tolist() == [4, 4, 0, 2, 2, 4, 3]
    nothing = np.array([np.nan, 1.0, np.nan, np.nan])
    assert bins_of_numbers(nothing, label_for(4)).tolist() == [0, 1, 0, 0]


def test_many_numbers_are_quantiles_of_about_fifty_rows() -> None:
    values = np.arange(40_000.0)
    bins = bins_of_numbers(values, label_for(40_000))
    assert len(np.unique(bins)) == MOST_BINS
    few = bins_of_numbers(np.arange(1200.0), label_for(1200))
    assert np.unique(few, return_counts=True)[1].tolist() == pytest.approx([100] * 12, abs=2)
    least = bins_of_numbers(np.arange(600.0), label_for(600))
    assert len(np.unique(least)) == 8
    exactly = bins_of_numbers(np.repeat(np.arange(float(MOST_BINS)), 2), label_for(2 * MOST_BINS))
    assert len(np.unique(exactly)) == MOST_BINS


def test_codes_are_bins_if_the_first_half_has_them_five_times() -> None:
    codes = np.array([0] * 10 + [1] * 8 + [-1] * 4 + [2] * 10)
    assert bins_of_codes(codes, label_for(len(codes))).tolist() == [2] * 10 + [1] * 8 + [0] * 4 + [4] * 10


def test_what_decides_all_is_one_and_what_decides_nothing_is_a_half() -> None:
    label = label_of_classes(np.arange(200) // 2 % 2)
    assert label is not None
    target = label.targets[0].astype(np.int64)
    assert how_far_decided(target, label) == 1.0
    assert how_far_decided(np.zeros(200, np.int64), label) == 0.5


def test_the_measure_of_classes_is_the_auc_weighted_by_their_size() -> None:
    label = label_of_classes(np.arange(600) // 2 % 3 % 2)
    assert label is not None
    bins = np.arange(600) // 2 % 2
    rates = [label.targets[0][label.first & (bins == bin_)].mean() for bin_ in (0, 1)]
    second = ~label.first
    scores, asked = np.array(rates)[bins[second]], label.targets[0][second] > 0
    wins = sum((scores[asked][:, None] > scores[~asked][None]).ravel())
    draws = sum((scores[asked][:, None] == scores[~asked][None]).ravel())
    assert how_far_decided(bins, label) == pytest.approx((wins + draws / 2) / (asked.sum() * (~asked).sum()))
    three = label_of_classes(np.repeat([0, 1, 2], [60, 120, 180]))
    assert three is not None
    only_last = (three.targets[2] > 0).astype(np.int64)
    alone = [how_far_decided(only_last, Label(three.rows, three.first, (t,), classes=True)) for t in three.targets]
    assert how_far_decided(only_last, three) == pytest.approx(np.average(alone, weights=[60, 120, 180]))
    assert alone[2] == 1.0


def test_the_measure_of_numbers_is_the_share_of_variance_that_the_bins_explain() -> None:
    label = label_of_numbers(np.repeat(np.arange(4.0), 100))
    assert label is not None
    bins = np.repeat(np.arange(4), 100)
    assert how_far_decided(bins, label) == pytest.approx(1.0, abs=0.01)
    halves = np.repeat([0, 1], 200)
    told, asked = label.targets[0][label.first], label.targets[0][~label.first]
    rates = [(told[halves[label.first] == bin_].sum() + told.mean()) / 101 for bin_ in (0, 1)]
    left = ((asked - np.array(rates)[halves[~label.first]]) ** 2).sum() / ((asked - asked.mean()) ** 2).sum()
    assert how_far_decided(halves, label) == pytest.approx(1 - left)
    assert how_far_decided(np.zeros(400, np.int64), label) == pytest.approx(0.0, abs=1e-6)
