"""Which rows are picked for evaluation or for a sample: decided by a row's position alone.

Pure, and independent of workers, threads, files read together and batch sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Split:
    """A share of the rows, picked by hashing positions with the seed."""

    fraction: float
    seed: int

    def picks(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        hashed = _mix(positions.astype(np.uint64) + _mix(np.array([self.seed], np.uint64)))
        last = np.uint64(min(int(self.fraction * 2**64), 2**64) - 1)
        picked: npt.NDArray[np.bool_] = hashed <= last
        return picked


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit moves every output bit."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
