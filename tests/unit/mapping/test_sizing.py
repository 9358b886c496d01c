"""How many items make a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.mapping.sizing import GROWTH, LARGEST_OVERHEAD, MOST_BYTES, MOST_ITEMS, Pace, batch_size, queue_depth

OVERHEAD_S = 0.0005


def measured(item_s: float, items: int = 1000, item_bytes: int = 10) -> Pace:
    pace = Pace()
    pace.saw(items, items * item_s, items * item_bytes, OVERHEAD_S)
    return pace


def test_the_first_batch_is_one_item() -> None:
    assert batch_size(Pace(), None, 8, OVERHEAD_S) == 1


def test_a_batch_takes_about_a_second() -> None:
    assert 0.9 <= batch_size(measured(0.001), None, 2, OVERHEAD_S) * 0.001 <= 1.1


def test_long_items_go_one_by_one() -> None:
    assert batch_size(measured(30.0, items=1), None, 2, OVERHEAD_S) == 1


def test_a_batch_grows_only_so_fast_from_what_was_measured() -> None:
    assert batch_size(measured(1e-6, items=1), None, 2, OVERHEAD_S) == GROWTH


def test_towards_the_end_batches_shrink_so_that_all_finish_together() -> None:
    assert batch_size(measured(0.2, items=5), 8, 2, OVERHEAD_S) == 2
    assert batch_size(measured(0.2, items=5), 2, 2, OVERHEAD_S) == 1


def test_batches_are_limited_by_bytes_and_by_number() -> None:
    assert batch_size(measured(1e-6, item_bytes=1 << 20, items=10**6), None, 2, OVERHEAD_S) == MOST_BYTES >> 20
    assert batch_size(measured(1e-9, item_bytes=0, items=10**7), None, 2, OVERHEAD_S) == MOST_ITEMS


@given(st.floats(1e-6, 10), st.integers(1, 10**6), st.integers(1, 64))
def test_the_overhead_stays_small_unless_slots_would_go_idle(item_s: float, remaining: int, slots: int) -> None:
    size = batch_size(measured(item_s, items=10**6), remaining, slots, OVERHEAD_S)
    assert 1 <= size <= max(1, remaining)
    small = OVERHEAD_S / (size * item_s) <= LARGEST_OVERHEAD * 1.01
    assert small or size >= min(remaining / slots, MOST_ITEMS, MOST_BYTES / 10) - 1


def test_recent_batches_count_more() -> None:
    pace = measured(0.001)
    for _ in range(30):
        pace.saw(1000, 100.0, 0, 0.0)
    assert pace.item_s is not None
    assert 0.09 < pace.item_s < 0.11


def test_long_and_last_items_are_not_queued_behind_others() -> None:
    assert queue_depth(measured(2.0), 1000, 2) == 1
    assert queue_depth(measured(0.2), 5, 2) == 1
    assert queue_depth(measured(0.2), 1000, 2) == 2
    assert queue_depth(Pace(), None, 2) == 1
