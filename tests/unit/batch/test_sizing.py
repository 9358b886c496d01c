"""How many items make a batch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from dray.batch.sizing import GROWTH, LARGEST_OVERHEAD, LONG_S, MOST_BYTES, MOST_ITEMS, Pace, batch_size, queue_depth

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


def test_a_pace_is_that_of_the_last_batches_each_before_counting_an_eighth_less() -> None:
    pace = Pace()
    assert (pace.item_s, pace.item_bytes, pace.task_overhead_s) == (None, 0.0, 0.0)
    pace.saw(10, 2.0, 1000, 0.5)
    assert (pace.item_s, pace.item_bytes, pace.task_overhead_s, pace.largest) == (0.2, 100.0, 0.5, 10)
    pace.saw(4, 4.0, 4000, -1.0)  # clocks of two processes may differ: less than nothing is nothing
    assert pace.items == approx(0.875 * 10 + 4)
    assert pace.item_s == approx((0.875 * 2 + 4) / (0.875 * 10 + 4))
    assert pace.item_bytes == approx((0.875 * 1000 + 4000) / (0.875 * 10 + 4))
    assert pace.task_overhead_s == approx(0.875 * 0.5 / 1.875)
    assert pace.largest == 10


def test_towards_the_end_a_batch_is_half_a_slots_share_but_not_so_small_that_it_costs_much() -> None:
    pace = measured(0.001)
    assert batch_size(pace, 400, 2, OVERHEAD_S) == 100
    assert batch_size(pace, 400, 4, OVERHEAD_S) == 50
    # 50 ms are lost at each: a second of work makes them small, and 400 ms are what a slot has at most.
    assert batch_size(pace, 800, 2, 0.05) == 400
    assert batch_size(pace, 8000, 2, 0.05) == 1000
    assert batch_size(measured(0.01), 60, 2, 0.005) == 15
    assert batch_size(measured(0.01), 20, 2, 0.005) == 10


def test_two_batches_are_queued_unless_items_are_long_or_the_end_is_near() -> None:
    assert queue_depth(measured(LONG_S), None, 2) == 1
    assert queue_depth(measured(0.9 * LONG_S), None, 2) == 2
    # 4 seconds of work are left for 2 slots: up to then those of some length are given out one by one.
    assert queue_depth(measured(0.125), 31, 2) == 1
    assert queue_depth(measured(0.125), 32, 2) == 2
    assert queue_depth(measured(0.125), 32, 3) == 1
    assert queue_depth(measured(LONG_S / 25), 10, 2) == 1
    assert queue_depth(measured(LONG_S / 26), 10, 2) == 2
