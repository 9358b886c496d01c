from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.errors import DataError
from dray.learners.row_mask import RowMask


@given(st.lists(st.booleans(), min_size=1, max_size=70).filter(any), st.data())
def test_every_row_is_chosen_or_not_as_it_was_given(chosen: list[bool], data: st.DataObject) -> None:
    mask = RowMask.of(np.array(chosen), len(chosen))
    positions = data.draw(st.lists(st.integers(0, len(chosen) - 1), max_size=20))
    assert mask.at(np.array(positions, np.int64)).tolist() == [chosen[position] for position in positions]


def test_it_takes_a_bit_a_row() -> None:
    mask = RowMask.of(np.ones(80_001, bool), 80_001)
    assert (mask.bits.nbytes, mask.rows) == (10_001, 80_001)


@pytest.mark.parametrize(
    ("chosen", "what"),
    [
        (np.ones(9, bool), r"bool of the shape \(9,\); the data has 10 rows"),
        (np.ones((10, 1), bool), r"shape \(10, 1\)"),
        (np.arange(10), "array of int64"),
        (np.ones(10), "array of float64"),
    ],
)
def test_what_is_not_one_boolean_a_row_is_refused(chosen: Any, what: str) -> None:
    with pytest.raises(DataError, match=what) as caught:
        RowMask.of(chosen, 10)
    assert "one boolean for each row" in caught.value.fix


def test_a_mask_that_chooses_no_row_is_refused() -> None:
    with pytest.raises(DataError, match="chooses no row"):
        RowMask.of(np.zeros(10, bool), 10)
