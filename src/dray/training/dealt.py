"""What is dealt to the workers of a run: units, and the parts of the first dealing. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dray.data.shards import Unit, Units, assign_evenly, rows_of
from dray.learners.shard import Shard


@dataclass(frozen=True)
class Dealt:
    """The units of a run, and the parts of the first dealing."""

    units: tuple[Unit, ...]
    evals: tuple[Unit, ...]
    parts: tuple[Shard, ...]

    @staticmethod
    def among(units: Sequence[Unit], evals: Sequence[Unit], parts: int) -> Dealt:
        dealt = assign_evenly([rows_of((unit,)) for unit in units], min(parts, len(units)))
        dealt_evals = assign_evenly([rows_of((unit,)) for unit in evals], len(dealt))
        bases = enumerate(zip(dealt, dealt_evals, strict=True))
        return Dealt(tuple(units), tuple(evals), tuple(Shard(base, own, own_eval) for base, (own, own_eval) in bases))

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(rows_of((unit,)) for unit in self.units)

    def shards(self, part: Shard) -> tuple[Units, Units]:
        return tuple(self.units[unit] for unit in part.units), tuple(self.evals[unit] for unit in part.evals)
