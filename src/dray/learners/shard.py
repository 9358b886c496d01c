"""What a worker loads and holds as one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    """Units that a worker loads and holds as one; in a ring, one member."""

    base: int
    """Number of the shard of the first assignment that the units come from."""
    units: tuple[int, ...]
    """Indices of units, ascending, never empty."""


Holdings = Mapping[int, tuple[Shard, ...]]
"""The shards of each worker."""
