"""Which worker needs which block of items at which step of an epoch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Units = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of an epoch on one worker."""

    step: int
    takes: Units
    """Blocks of items that it needs and has not got yet."""
    gives: Units
    """Blocks of items that another worker needs next; at the end all that it has."""


def routes(steps: Sequence[int], holdings: Mapping[int, Units], blocks: int) -> list[dict[int, Turn]]:
    """Return the turns of every step. What a worker needs twice in a row stays with it."""
    needs = [
        {worker: {(unit + step) % blocks for unit in units} for worker, units in holdings.items()} for step in steps
    ]
    none: dict[int, set[int]] = {worker: set() for worker in holdings}
    turns = []
    for step, before, now, after in zip(steps, [none, *needs], needs, [*needs[1:], none], strict=False):
        turns.append(
            {
                worker: Turn(
                    step,
                    tuple(sorted(now[worker] - before[worker])),
                    tuple(sorted(now[worker] - after[worker])),
                )
                for worker in holdings
            }
        )
    return turns
