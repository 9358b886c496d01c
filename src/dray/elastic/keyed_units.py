"""Units of keys: which worker holds which, and bringing those that are missing.

A unit whose holder lives is handed over; for all others every worker reads a share of the rows again, and what belongs
to a unit goes to the worker that shall hold it, by reference. This takes several exchanges that build on each other: a
generator posts one after another, and `take_in` resumes it when the results are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dray.data.shards import assign_evenly
from dray.elastic.group import Raised
from dray.elastic.loader import Why
from dray.elastic.membership import Membership
from dray.events.kinds import ShardLoaded, ShardLoading
from dray.events.telemetry import Telemetry
from dray.learners.attempt import Call, Loads, Returned
from dray.learners.layouts import (
    Adopt,
    Build,
    Complete,
    Export,
    Give,
    Keep,
    KeyedSharding,
    Prepare,
    Read,
    in_order,
)
from dray.learners.learner import InputGone, Lane, Op
from dray.learners.shard import Holdings, Shard

GRACE_S = 2.0
"""Seconds to wait for the report of a lost worker before the input itself counts as lost."""

Units = tuple[int, ...]
Exchanges = Generator[Sequence[int], Mapping[int, Any], None]
"""Yields the calls to wait for; is sent their results."""


@dataclass
class _Bringing:
    """What is being brought."""

    target: Holdings
    exchanges: Exchanges
    waits_for: set[int] = field(default_factory=set)
    results: dict[int, Any] = field(default_factory=dict)
    gone: tuple[InputGone, float] | None = None
    """An input that was lost, and since when."""


class KeyedUnits:
    """Implements `Loader` for the layout `keyed`. `on_gone` is told of an input that no lost worker explains."""

    def __init__(
        self,
        sharding: KeyedSharding,
        membership: Membership,
        telemetry: Telemetry,
        on_gone: Callable[[InputGone], object],
    ) -> None:
        self._sharding = sharding
        self._membership = membership
        self._group = membership.group
        self._telemetry = telemetry
        self._on_gone = on_gone
        share = membership.group.share
        self._preparation = share(sharding.preparation)
        self._reading = tuple(share(value) for value in sharding.reading)
        self._earlier = [share(rows) for rows in sharding.earlier]
        self.weights = tuple(weight.work for weight in sharding.weights)
        divide = neighbours if sharding.neighbours else evenly
        self.shards = divide(self.weights, membership.limits.max_workers)
        self.rows_reloaded = 0
        self._prepared: set[int] = set()
        self._built: dict[int, set[int]] = {}
        """Units of each worker."""
        self._completed: dict[int, set[int]] = {}
        """Those of them that have what other units give for them."""
        self._holds: dict[int, tuple[Shard, ...]] = {}
        self._bringing: _Bringing | None = None
        self._asked: set[int] = set()
        """Workers that what is being brought depends on."""
        self._reports: dict[int, Any] = {}
        self._rows_by_host: dict[str, int] = {}
        self._complete = False

    def held(self, worker: int) -> tuple[Shard, ...]:
        coming = self._bringing.target.get(worker, ()) if self._bringing is not None else ()
        return tuple(dict.fromkeys((*self._holds.get(worker, ()), *coming)))

    def bring(self, target: Holdings, why: Why, *, beside: bool) -> None:
        now = self._bringing
        if now is not None and now.gone is not None and time.monotonic() - now.gone[1] > GRACE_S:
            self._bringing = None
            self._on_gone(now.gone[0])
        # What was begun for an earlier target is finished first: a worker that joins then has it handed over.
        if self._bringing is None and not self.has(target):
            exchanges = self._exchanges(target, why, "beside" if beside else "main")
            self._asked = {*self._prepared, *target}
            self._bringing = _Bringing(target, exchanges)
            self._go_on(self._bringing, first=True)

    def has(self, target: Holdings) -> bool:
        done = self._completed if self._sharding.exchanges else self._built
        return self._bringing is None and all(
            done.get(worker, set()).issuperset(units_of(shards)) for worker, shards in target.items()
        )

    def owns(self, call: int) -> bool:
        return self._bringing is not None and call in self._bringing.waits_for

    def take_in(self, event: Returned | Raised) -> bool:
        now = self._bringing
        if now is None or event.call not in now.waits_for:
            return False
        if isinstance(event, Raised):
            if not isinstance(event.error, InputGone):
                return False
            now.gone = now.gone or (event.error, time.monotonic())
            return True
        now.results[event.call] = event.value
        now.waits_for.remove(event.call)
        if not now.waits_for:
            self._go_on(now)
        return True

    def lose(self, worker: int) -> None:
        if worker in self._asked:
            self._bringing = None  # what it was to make, or to take, is decided anew
        for known in (self._built, self._completed, self._holds):
            known.pop(worker, None)
        self._prepared.discard(worker)

    def keep(self, holdings: Holdings) -> None:
        self._holds = dict(holdings)
        for worker in self._prepared:  # a loss may have left one with more than is known here
            units = units_of(holdings.get(worker, ()))
            self._group.call(worker, Keep(), units)
            for known in (self._built, self._completed):
                known.setdefault(worker, set()).intersection_update(units)

    def rows(self, worker: int, shards: Sequence[Shard]) -> int:  # noqa: ARG002  (they are known beforehand)
        return self._rows_of(units_of(shards))

    def loads(self, holdings: Holdings) -> Loads:  # noqa: ARG002  (by unit, wherever it is)
        self._complete = True
        return Loads([self._reports[unit] for unit in sorted(self._reports)], self._rows_by_host)

    # Exchanges

    def _go_on(self, now: _Bringing, *, first: bool = False) -> None:
        """Post what comes next, until there is something to wait for or all is there."""
        try:
            while not now.waits_for:
                results, now.results = now.results, {}
                now.waits_for = set(next(now.exchanges) if first else now.exchanges.send(results))
                first = False
        except StopIteration:
            self._bringing = None
            for worker, shards in now.target.items():
                self._holds[worker] = tuple(dict.fromkeys((*self._holds.get(worker, ()), *shards)))
        except InputGone as error:  # known to be lost before it was passed on
            now.gone, now.waits_for = (error, time.monotonic()), {-1}

    def _exchanges(self, target: Holdings, why: Why, lane: Lane) -> Exchanges:
        readers = sorted(self._membership.ready.keys() - self._membership.leaving)
        new = sorted({*readers, *target} - self._prepared)
        if new:
            # In the main lane, where a worker without units is idle: if this is given up, what is asked for next in
            # either lane must not overtake it.
            yield [self._call(worker, Prepare(), self._preparation).number for worker in new]
            self._prepared.update(new)
        wanted = {unit: worker for worker, shards in target.items() for unit in units_of(shards)}
        lacking = {unit: worker for unit, worker in wanted.items() if unit not in self._built.get(worker, ())}
        holders = {unit: worker for worker, units in self._built.items() for unit in units}
        yield from self._hand_over(
            {unit: (holders[unit], worker) for unit, worker in lacking.items() if unit in holders}, why, lane
        )
        yield from self._read({unit: worker for unit, worker in lacking.items() if unit not in holders}, why, lane)
        if self._sharding.exchanges:
            yield from self._complete_units(target, wanted, lane)

    def _hand_over(self, moves: Mapping[int, tuple[int, int]], why: Why, lane: Lane) -> Exchanges:
        for giver, taker in sorted(set(moves.values())):
            units = tuple(unit for unit, move in sorted(moves.items()) if move == (giver, taker))
            rows = self._rows_of(units)
            self._telemetry.emit(ShardLoading(taker, rows, why(taker)))
            began = time.perf_counter()
            given = self._call(giver, Export(len(units), lane), units)
            taken = self._call(taker, Adopt(lane), units, *given.kept)
            yield [given.number, taken.number]
            self._built.setdefault(taker, set()).update(units)
            complete = self._completed.get(giver, set()).intersection(units)
            self._completed.setdefault(taker, set()).update(complete)
            self.rows_reloaded += rows
            self._telemetry.emit(ShardLoaded(taker, rows, round(time.perf_counter() - began, 3)))

    def _read(self, wanted: Mapping[int, int], why: Why, lane: Lane) -> Exchanges:
        """Have all rows read, by all workers, and those of the wanted units brought to where they shall be held."""
        if not wanted:
            return
        units, owners = tuple(sorted(wanted)), sorted(set(wanted.values()))
        rows_of = {worker: self._rows_of(unit for unit in units if wanted[unit] == worker) for worker in owners}
        if self._complete:
            for worker in owners:
                self.rows_reloaded += rows_of[worker]
                self._telemetry.emit(ShardLoading(worker, rows_of[worker], why(worker)))
        began = time.perf_counter()
        rows: list[list[Any]] = [[earlier[unit] for earlier in (self._earlier,) if earlier] for unit in units]
        reads = []
        readers = sorted(self._membership.ready.keys() - self._membership.leaving)
        for slices, test in ((self._sharding.train, False), (self._sharding.test, True)):
            for reader, share in zip(readers, in_order(slices, len(readers)), strict=False):
                call, kept = self._call(reader, Read(len(units), lane), share, units, test, *self._reading)
                reads.append(call)
                for place, one in enumerate(kept):
                    rows[place].append(one)
                del kept  # in one process it is the rows themselves: each unit's go when it is built
        builds = {unit: self._call(wanted[unit], Build(lane), unit, *rows.pop(0)).number for unit in units}
        results = yield [*reads, *builds.values()]
        if not self._complete:
            for call in reads:
                read = results[call]
                self._rows_by_host[read.host] = self._rows_by_host.get(read.host, 0) + read.rows
        for unit, worker in wanted.items():
            self._built.setdefault(worker, set()).add(unit)
            self._reports[unit] = results[builds[unit]]
        for worker in owners:
            self._telemetry.emit(ShardLoaded(worker, rows_of[worker], round(time.perf_counter() - began, 3)))

    def _complete_units(self, target: Holdings, wanted: Mapping[int, int], lane: Lane) -> Exchanges:
        lacking = {unit: worker for unit, worker in wanted.items() if unit not in self._completed.get(worker, ())}
        if not lacking:
            return
        units = tuple(sorted(lacking))
        calls, given = [], []
        # Only of what each shall hold: a unit that has moved is still with its former holder.
        for worker in target:
            call, kept = self._call(worker, Give(len(units), lane), units_of(target[worker]), units)
            calls.append(call)
            given.append(kept)
        for place, unit in enumerate(units):
            made = self._call(lacking[unit], Complete(lane), unit, *(kept[place] for kept in given))
            calls.append(made.number)
        yield calls
        for unit, worker in lacking.items():
            self._completed.setdefault(worker, set()).add(unit)

    def _call(self, worker: int, op: Op[..., Any], *inputs: Any) -> Call:
        self._asked.add(worker)
        return self._group.call(worker, op, *inputs)

    def _rows_of(self, units: Iterable[int]) -> int:
        return sum(self._sharding.weights[unit].rows for unit in units)


def evenly(work: Sequence[int], shards: int) -> tuple[Shard, ...]:
    """Return shards of about the same work, one for every worker there may be."""
    assigned = assign_evenly(work, max(1, min(len(work), shards)))
    return tuple(Shard(base, units) for base, units in enumerate(assigned))


def neighbours(work: Sequence[int], shards: int) -> tuple[Shard, ...]:
    """Return shards of neighbouring units, one for every worker there may be."""
    units, count = len(work), max(1, min(len(work), shards))
    edges = [units * number // count for number in range(count + 1)]
    return tuple(Shard(base, tuple(range(edges[base], edges[base + 1]))) for base in range(count))


def units_of(shards: Iterable[Shard]) -> Units:
    return tuple(sorted(unit for shard in shards for unit in shard.units))
