"""Which rows are picked for evaluation or for a sample: by their positions.

Pure, and independent of workers, threads, files read together and batch sizes. `Split` knows by the position alone;
rules that look at values (`held_out.py`, `stratified.py`) are applied once, before loading, and give a `PickedRows`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dray.data.splitmix import splitmix64


def hashed(positions: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.uint64]:
    """Return the hash of each position, another one for each."""
    return splitmix64(positions.astype(np.uint64) + splitmix64(np.array([seed], np.uint64)))


@dataclass(frozen=True, slots=True)
class Split:
    """A share of the rows, picked by hashing positions with the seed."""

    fraction: float
    seed: int

    def picks(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        last = np.uint64(min(int(self.fraction * 2**64), 2**64) - 1)
        picked: npt.NDArray[np.bool_] = hashed(positions, self.seed) <= last
        return picked


@dataclass(frozen=True, slots=True, eq=False)
class PickedRows:
    """Rows that a rule has picked by their values, one bit a row: 1 billion rows are 125 MB."""

    bits: npt.NDArray[np.uint8]

    @staticmethod
    def of(mask: npt.NDArray[np.bool_]) -> PickedRows:
        """Take one boolean for each row of the data, in its order."""
        return PickedRows(np.packbits(mask))

    def picks(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        picked: npt.NDArray[np.bool_] = (self.bits[positions >> 3] >> (7 - (positions & 7)).astype(np.uint8)) & 1 == 1
        return picked
