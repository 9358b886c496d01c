"""Which events test a model: a mask over the rows, True for the test subset.

Pure, and the same answer for the same rows in any order: by a hash of the pair, by time, or the last of each user.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dray.data.splitmix import splitmix64
from dray.errors import ConfigError, DataError

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int32]


def at_random(users: Indices, items: Indices, share: float, seed: int = 0) -> Mask:
    """Put about `share` of the pairs into the test subset. All events of a pair are in the same subset."""
    _require_share(share)
    pairs = (users.astype(np.uint64) << np.uint64(32)) | items.astype(np.uint64)
    with np.errstate(over="ignore"):
        salt = splitmix64(np.array([seed & (2**64 - 1)], np.uint64))
        hashed = splitmix64(pairs ^ salt)
    return hashed < np.uint64(int(share * 2**64))


def since(times: npt.NDArray[Any], moment: Any) -> Mask:
    """Put what happened at `moment` or later into the test subset."""
    _require_times(times)
    moment = np.asarray(moment, times.dtype) if times.dtype.kind == "M" else moment
    mask: Mask = times >= moment
    return mask


def last_of_each_user(users: Indices, times: npt.NDArray[Any], n: int = 1) -> Mask:
    """Put the last `n` events of each user into the test subset, but leave at least one in the train subset.

    Of events at the same time, the one in a later row counts as later.
    """
    if n < 1:
        raise ConfigError(f"The last {n} events of each user cannot be left out.", fix="Leave out at least 1.")
    _require_times(times)
    order = np.lexsort((times, users))  # stable: rows of the same time stay as they are
    counts = np.bincount(users)
    ends = np.cumsum(counts)
    of_row = users[order]
    from_the_end = ends[of_row] - np.arange(len(order))  # 1 for the last
    mask = np.zeros(len(users), np.bool_)
    mask[order] = from_the_end <= np.minimum(n, counts[of_row] - 1)
    return mask


def _require_share(share: float) -> None:
    if not 0 < share < 1:
        raise ConfigError(f"A test subset of {share} of the events is not possible.", fix="Use a share such as 0.2.")


def _require_times(times: npt.NDArray[Any]) -> None:
    missing = np.isnat(times) if times.dtype.kind in "mM" else ~np.isfinite(times)
    if missing.any():
        raise DataError(
            f"{np.count_nonzero(missing):,} of {len(times):,} events have no time.",
            fix="Filter them out, or split at random.",
        )
