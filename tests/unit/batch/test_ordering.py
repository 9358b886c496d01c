"""Results back in the order of the items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.batch.ordering import Shelf


@given(st.lists(st.integers(1, 5), max_size=20), st.randoms())
def test_whatever_the_order_of_arrival_the_order_of_items_comes_out(counts: list[int], random: object) -> None:
    stretches, first = [], 0
    for count in counts:
        stretches.append((first, count))
        first += count
    random.shuffle(stretches)  # type: ignore[attr-defined]
    shelf: Shelf[int] = Shelf(ordered=True)
    taken: list[int] = []
    for start, count in stretches:
        shelf.put(start, count, start)
        taken += shelf.take()
    assert taken == sorted(start for start, _ in stretches)
    assert not len(shelf)


def test_an_unordered_shelf_gives_at_once() -> None:
    shelf: Shelf[str] = Shelf(ordered=False)
    shelf.put(5, 1, "late")
    assert list(shelf.take()) == ["late"]


def test_what_comes_twice_is_a_mistake_of_ours() -> None:
    shelf: Shelf[str] = Shelf(ordered=True)
    shelf.put(0, 2, "a")
    list(shelf.take())
    with pytest.raises(ValueError, match="came twice"):
        shelf.put(1, 1, "b")
