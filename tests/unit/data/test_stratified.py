"""The same share of every class is evaluated on, by positions."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dray.data.split import hashed
from dray.data.stratified import Near, Stratified, wanted_of


def classes_of(labels: pa.Array) -> dict[str, int]:
    return {str(found["values"]): found["counts"] for found in labels.drop_null().value_counts().to_pylist()}


def picked(labels: pa.Array, fraction: float, *, cuts: tuple[int, ...] = (), wide: bool = False) -> set[int]:
    classes = classes_of(labels)
    wanted = wanted_of(classes, fraction)
    rule = Stratified.of("y", classes, wanted, 3, wide=wide)
    ends = [0, *cuts, len(labels)]
    found = [rule.look(labels.slice(start, end - start), start) for start, end in pairwise(ends)]
    last = rule.decided(Near.merge(near for _, near in found), wanted)
    assert last is not None
    sure = np.flatnonzero(np.concatenate([mask for mask, _ in found]))
    assert not set(sure) & set(last)
    return {*map(int, sure), *map(int, last)}


@pytest.mark.parametrize("fraction", [0.003, 0.2, 0.5, 0.95])
def test_each_class_has_its_share_by_the_lowest_hashes(fraction: float) -> None:
    draws = np.random.default_rng(0).choice(5, 20_000, p=[0.9, 0.09, 0.009, 0.0009, 0.0001])
    texts = pa.array([None if row % 50 == 0 else f"c{draw}" for row, draw in enumerate(draws)])
    found = picked(texts, fraction)
    names, hashes = np.array(texts.to_pylist(), object), hashed(np.arange(20_000), 3)
    total = 0
    for name in set(names) - {None}:
        rows = np.flatnonzero(names == name)
        chosen = [row for row in rows if row in found]
        assert abs(len(chosen) - fraction * len(rows)) < 1
        assert chosen == sorted(rows[np.argsort(hashes[rows])][: len(chosen)])
        total += len(chosen)
    assert total == len(found) and abs(total - fraction * 19_600) <= 1  # none without a label


@pytest.mark.parametrize("labels", [pa.array(range(7000)).cast(pa.float64()), pa.array(np.arange(7000) % 11)])
def test_any_division_and_encoding_of_the_rows_gives_the_same(labels: pa.Array) -> None:
    codes = pa.array(np.asarray(labels).astype(int) % 11)
    plain = picked(codes, 0.2)
    assert picked(codes, 0.2, cuts=(1, 777, 778, 5000)) == picked(codes, 0.2, wide=True) == plain
    assert picked(codes.dictionary_encode(), 0.2) == picked(codes.cast(pa.string()), 0.2) == plain


def test_a_bound_that_lies_elsewhere_is_noticed() -> None:
    labels = pa.array(np.zeros(100_000, int))
    rule = Stratified.of("y", {"0": 100_000}, {"0": 50_000}, 3, wide=False)
    _, near = rule.look(labels, 0)
    assert len(near.keys) < 10_000
    assert rule.decided(near, {"0": 50_000}) is not None
    assert rule.decided(near, {"0": 10}) is None and rule.decided(near, {"0": 99_000}) is None


@pytest.mark.parametrize(
    ("classes", "fraction", "wanted"),
    [
        ({"a": 1, "b": 10}, 0.5, {"a": 0, "b": 5}),
        ({"a": 2, "b": 2}, 0.95, {"a": 1, "b": 1}),
        ({"a": 4, "b": 996}, 0.1, {"a": 0, "b": 100}),
        ({"c": 5, "a": 5, "b": 5}, 0.1, {"a": 1, "b": 1, "c": 0}),  # 1.5 rows are two; ties go by name
        ({"a": 1, "b": 1}, 0.9, {"a": 0, "b": 0}),
    ],
)
def test_small_classes_keep_a_row_and_rests_make_up_the_share(
    classes: dict[str, int], fraction: float, wanted: dict[str, int]
) -> None:
    assert wanted_of(classes, fraction) == wanted


def test_a_class_keeps_a_row_for_training_whatever_the_share() -> None:
    assert wanted_of({"a": 1, "b": 10, "c": 100}, 0.999) == {"a": 0, "b": 9, "c": 99}
