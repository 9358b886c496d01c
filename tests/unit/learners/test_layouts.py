from __future__ import annotations

from dray.data.shards import Slice
from dray.learners.layouts import in_order


def test_slices_are_shared_in_their_order_and_about_evenly() -> None:
    slices = [Slice("a", number, 0, rows, 0) for number, rows in enumerate([5, 1, 1, 1, 8, 2, 2, 4])]
    shares = in_order(slices, 3)
    assert [piece for share in shares for piece in share] == slices
    assert max(sum(piece.rows for piece in share) for share in shares) <= 24 / 3 + 8 / 2
    assert [len(share) for share in in_order(slices[:1], 3)].count(0) == 2
