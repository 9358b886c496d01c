"""The two ways in which rows become what workers hold, and the messages for them.

- `rows`: a shard is loaded alone, from its own slices (`RowSharding`, `RowSide`).
- `keyed`: a unit is all rows of some keys, which any worker may read: readers sort their slices by unit, and each unit
  is built where it is held (`KeyedSharding`, `KeyedSide`).

`elastic/row_shards.py` and `elastic/keyed_units.py` carry them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dray.data.shards import Slice, Unit, Units
from dray.learners.learner import Lane, Op, WorkerSide
from dray.learners.shard import Shard


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What a shard reports when it is loaded. A learner adds what it needs."""

    rows: int
    """That are trained on."""
    eval_rows: int
    seconds: float
    rows_dropped: int = 0
    """Rows of the shard that are left out of training because they have no label."""
    eval_rows_dropped: int = 0


class RowSide(WorkerSide, Protocol):
    """A worker that holds shards of rows."""

    def load(self, preparation: Any, shard: Shard, train: Units, evaluation: Units) -> ShardReport:
        """Read a shard. May run beside an attempt, in another thread."""

    def drop(self, shards: Sequence[Shard]) -> None:
        """Drop shards that other workers hold."""


@dataclass(frozen=True)
class RowSharding:
    """What is loaded, for the layout `rows`."""

    preparation: Any
    """Sent once to every worker."""
    units: Sequence[Unit]
    evaluation: Sequence[Unit]
    """Evaluated on beside the training rows; empty when rows are held out of those, or none are."""


class Weight(NamedTuple):
    """Of a unit of keys."""

    rows: int
    work: int
    """What the unit counts when units are assigned."""


class ReadRows(NamedTuple):
    """What a worker reports of rows that it read."""

    host: str
    rows: int


class KeyedSide(WorkerSide, Protocol):
    """A worker that holds units of keys. All may run beside an attempt but `keep`, which ends what they began."""

    def prepare(self, preparation: Any) -> None:
        """Take in what all workers know; what the worker held before is dropped."""

    def read(self, slices: Sequence[Slice], units: Sequence[int], test: bool, *reading: Any) -> tuple[Any, ...]:
        """Return `ReadRows`, and for each of the units its rows in these slices."""

    def build(self, unit: int, *rows: Any) -> Any:
        """Make a unit from its rows, given in the order of the data; return what it reports."""

    def give(self, own: Sequence[int], units: Sequence[int]) -> tuple[Any, ...]:
        """Return None, and what the units of `own` have for each of the units (`KeyedSharding.exchanges`)."""

    def complete(self, unit: int, *given: Any) -> None:
        """Complete a unit by what all units gave for it."""

    def export(self, units: Sequence[int]) -> tuple[Any, ...]:
        """Return None, and units as they are, for another worker."""

    def adopt(self, units: Sequence[int], *contents: Any) -> None:
        """Take units as another worker exported them."""

    def keep(self, units: Sequence[int]) -> None:
        """Hold exactly these units from now on: those that were built or adopted join, all others are dropped."""


@dataclass(frozen=True)
class KeyedSharding:
    """What is loaded, for the layout `keyed`."""

    preparation: Any
    """Sent once to every worker."""
    reading: tuple[Any, ...]
    """What reading needs and nothing else does: shared with the workers, kept by none."""
    train: Sequence[Slice]
    test: Sequence[Slice]
    weights: Sequence[Weight]
    """One for each unit."""
    neighbours: bool
    """Shards are neighbouring units; else units of about the same work each."""
    exchanges: bool
    """A unit is complete only with what all other units give for it."""
    earlier: Sequence[Any] = ()
    """For each unit, rows of an earlier run that come first; empty without such a run."""


Sharding = RowSharding | KeyedSharding


@dataclass(frozen=True)
class Load(Op[..., Any]):
    lane: Lane = "main"

    def __call__(self, side: RowSide, *inputs: Any, **_: Any) -> Any:
        return side.load(*inputs)


@dataclass(frozen=True)
class Drop(Op[..., None]):
    def __call__(self, side: RowSide, *inputs: Any, **_: Any) -> None:
        side.drop(*inputs)


@dataclass(frozen=True)
class Prepare(Op[..., None]):
    lane: Lane = "main"

    def __call__(self, side: KeyedSide, *inputs: Any, **_: Any) -> None:
        side.prepare(*inputs)


@dataclass(frozen=True)
class Read(Op[..., Any]):
    keeps: int
    lane: Lane = "main"

    def __call__(self, side: KeyedSide, *inputs: Any, **_: Any) -> Any:
        return side.read(*inputs)


@dataclass(frozen=True)
class Build(Op[..., Any]):
    lane: Lane = "main"

    def __call__(self, side: KeyedSide, *inputs: Any, **_: Any) -> Any:
        return side.build(*inputs)


@dataclass(frozen=True)
class Give(Op[..., Any]):
    keeps: int
    lane: Lane = "main"

    def __call__(self, side: KeyedSide, *inputs: Any, **_: Any) -> Any:
        return side.give(*inputs)


@dataclass(frozen=True)
class Complete(Op[..., None]):
    lane: Lane = "main"

    def __call__(self, side: KeyedSide, *inputs: Any, **_: Any) -> None:
        side.complete(*inputs)


@dataclass(frozen=True)
class Export(Op[..., Any]):
    keeps: int
    lane: Lane = "main"

    def __call__(self, side: KeyedSide, *inputs: Any, **_: Any) -> Any:
        return side.export(*inputs)


@dataclass(frozen=True)
class Adopt(Op[..., None]):
    lane: Lane = "main"

    def __call__(self, side: KeyedSide, *inputs: Any, **_: Any) -> None:
        side.adopt(*inputs)


@dataclass(frozen=True)
class Keep(Op[..., None]):
    def __call__(self, side: KeyedSide, *inputs: Any, **_: Any) -> None:
        side.keep(*inputs)


@dataclass(frozen=True)
class Interrupt(Op[..., None]):
    """Break off an attempt."""

    lane: Lane = "control"

    def __call__(self, side: WorkerSide, *inputs: Any, **_: Any) -> None:
        side.interrupt(*inputs)


def in_order(slices: Sequence[Slice], shares: int) -> list[tuple[Slice, ...]]:
    """Return consecutive slices with about as many rows each; some get none where slices are few."""
    total = sum(piece.rows for piece in slices)
    assigned: list[list[Slice]] = [[] for _ in range(shares)]
    done = 0
    for piece in slices:
        assigned[min(shares - 1, (done + piece.rows // 2) * shares // max(1, total))].append(piece)
        done += piece.rows
    return [tuple(share) for share in assigned]
