"""Which rows of the data a fit trains on, one bit a row. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dray.errors import DataError

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RowMask:
    """Rows by their position in the data, packed: 1 billion rows are 125 MB."""

    bits: npt.NDArray[np.uint8]
    rows: int
    """Of the data."""

    @staticmethod
    def of(chosen: Any, rows: int) -> RowMask:
        """Take an array of `rows` booleans, in the order of the data."""
        mask = np.asarray(chosen)
        if mask.dtype != np.bool_ or mask.shape != (rows,):
            raise DataError(
                f"rows= is an array of {mask.dtype} of the shape {mask.shape}; the data has {rows:,} rows.",
                fix="Give one boolean for each row of the data, in its order: True for the rows to train on.",
            )
        if not mask.any():
            raise DataError("rows= chooses no row.", fix="Choose some rows to train on.")
        return RowMask(np.packbits(mask), rows)

    def at(self, positions: npt.NDArray[np.int64]) -> Bools:
        """Return whether the rows at these positions are chosen."""
        found: Bools = (self.bits[positions >> 3] >> (7 - (positions & 7)).astype(np.uint8)) & 1 == 1
        return found
