"""Ids and how often each was met."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dray.errors import DataError
from dray.learners.factorization import known
from dray.learners.factorization.known import Found, IdCounts, _one_side, merge


def counted(*pieces: tuple[list[object], list[int]], side: str = "user", where: str = "f") -> IdCounts:
    found = IdCounts(side)
    for ids, counts in pieces:
        found.add(pa.array(ids), np.array(counts, np.int64), where)
    return found


def as_dict(found: IdCounts) -> dict[object, int]:
    ids, counts = found.result()
    return dict(zip(ids.to_pylist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_an_id_is_counted_over_all_pieces_however_they_are_kept(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_PIECES_ROWS", rows)
    found = counted(([3, 1], [2, 1]), ([], []), ([1, 2], [5, 1]), ([3, 3], [1, 1]))
    assert as_dict(found) == as_dict(found) == {1: 6, 2: 1, 3: 4}
    found.add(pa.array([9]), np.array([7]), "g")
    assert as_dict(found) == {1: 6, 2: 1, 3: 4, 9: 7}


def test_no_id_is_none_and_those_given_at_first_count() -> None:
    assert as_dict(IdCounts("user")) == {}
    assert as_dict(IdCounts("user", pa.array([4]), np.array([2]), "f")) == {4: 2}


def test_ids_of_two_kinds_are_told_with_the_first_of_each_and_where() -> None:
    whole, text = ([1, 2], [1, 1]), (["x", "y"], [1, 1])
    expected = "The item ids are text in b and whole numbers in a, such as 'x' and 1: 1 and '1' are different items."
    for first, second in ((("a", whole), ("b", text)), (("b", text), ("a", whole))):
        parts = [counted(piece, side="item", where=where) for where, piece in (first, first, second)]
        with pytest.raises(DataError) as caught:
            _one_side(parts, [])
        assert caught.value.what == expected
        mixed = counted(first[1], side="item", where=first[0])
        with pytest.raises(DataError) as caught:
            mixed.add(pa.array(second[1][0]), np.array(second[1][1]), second[0])
        assert caught.value.what == expected
    with pytest.raises(DataError):
        _one_side([counted(whole)], [counted(text)])


def test_both_parts_have_one_order_and_training_alone_is_counted() -> None:
    train = [counted(([5, 1], [2, 3])), counted(([], [])), counted(([1], [4]))]
    test = [counted(([1, 8, 0], [9, 9, 9]))]
    ids, counts, only_tested = _one_side(train, test)
    assert (ids.to_pylist(), counts.tolist(), only_tested) == ([0, 1, 5, 8], [0, 7, 2, 0], 2)
    ids, counts, only_tested = _one_side([counted(([2], [0]))], [])
    assert (ids.to_pylist(), counts.tolist(), only_tested) == ([2], [0], 0)


def test_event_types_are_told_by_how_frequent_they_are_then_by_name() -> None:
    both = ([1, 2], [1, 1])
    found = [
        Found(counted(both), counted(both, side="item"), rows=2, events=events)
        for events in ({"c": 5, "a": 1}, {"b": 5, "a": 1})
    ]
    assert list(merge(found).events.items()) == [("b", 5), ("c", 5), ("a", 2)]
