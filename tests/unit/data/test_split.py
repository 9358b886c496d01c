from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.data.split import Split


@pytest.mark.parametrize("fraction", [0.001, 0.05, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_about_the_asked_share_is_picked(fraction: float, seed: int) -> None:
    rows = 100_000
    share = Split(fraction, seed).picks(np.arange(rows, dtype=np.int64)).mean()
    deviation = np.sqrt(fraction * (1 - fraction) / rows)
    assert abs(share - fraction) < 5 * deviation


@given(st.integers(0, 2**31 - 1), st.lists(st.integers(1, 300), min_size=1, max_size=10), st.integers(0, 2**40))
def test_batch_borders_do_not_matter(seed: int, batches: list[int], start: int) -> None:
    split = Split(0.3, seed)
    positions = np.arange(start, start + sum(batches), dtype=np.int64)
    apart = [split.picks(part) for part in np.split(positions, np.cumsum(batches)[:-1])]
    assert np.array_equal(np.concatenate(apart), split.picks(positions))


def test_every_stretch_of_rows_gives_its_share() -> None:
    picked = Split(0.2, 7).picks(np.arange(1_000_000, dtype=np.int64)).reshape(100, -1)
    assert picked.mean(axis=1).min() > 0.18 and picked.mean(axis=1).max() < 0.22


def test_no_period_of_the_positions_is_preferred() -> None:
    picked = Split(0.5, 3).picks(np.arange(400_000, dtype=np.int64))
    for period in (2, 3, 7, 64, 1000):
        shares = [picked[offset::period].mean() for offset in range(min(period, 8))]
        assert all(0.4 < share < 0.6 for share in shares), period


def test_another_seed_picks_other_rows() -> None:
    positions = np.arange(10_000, dtype=np.int64)
    both = Split(0.5, 1).picks(positions) & Split(0.5, 2).picks(positions)
    assert 0.2 < both.mean() < 0.3


def test_a_larger_share_holds_the_rows_of_a_smaller_one() -> None:
    positions = np.arange(10_000, dtype=np.int64)
    small, large = Split(0.1, 5).picks(positions), Split(0.4, 5).picks(positions)
    assert not (small & ~large).any()


def test_the_picked_rows_never_change() -> None:
    """Runs are compared over versions of dray, so the rows set aside must stay the same."""
    assert np.flatnonzero(Split(0.2, 0).picks(np.arange(40, dtype=np.int64))).tolist() == [1, 5, 7, 14, 17, 33, 34]
