"""SplitMix64 (Steele, Lea, Flood 2014): every input bit moves every output bit, one to one. Pure.

Splits and samples depend on these bits: they must not change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def splitmix64(values: Bits) -> Bits:
    """Return the hash of each value."""
    return finalize(values + GOLDEN)


def finalize(values: Bits) -> Bits:
    """Return the finalizer of each value, which leaves 0 at 0."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
