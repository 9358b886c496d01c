"""Which rows are picked for evaluation or for a sample: decided by its position alone.

Pure, and independent of workers, threads, files read together and batch sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dray.data.splitmix import splitmix64


@dataclass(frozen=True, slots=True)
class Split:
    """A share of the rows, picked by hashing positions with the seed."""

    fraction: float
    seed: int

    def picks(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        hashed = splitmix64(positions.astype(np.uint64) + splitmix64(np.array([self.seed], np.uint64)))
        last = np.uint64(min(int(self.fraction * 2**64), 2**64) - 1)
        picked: npt.NDArray[np.bool_] = hashed <= last
        return picked
