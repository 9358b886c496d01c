"""Shards of rows: which there are, which worker has loaded which, and loading what is missing.

Evaluation rows belong to a unit of training rows for good, so that the worker that holds all units holds all of both.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.data.shards import Unit, Units, assign, assign_evenly, rows_of
from dray.elastic.group import Raised
from dray.elastic.loader import Why
from dray.elastic.membership import Membership
from dray.events.kinds import ShardLoaded, ShardLoading
from dray.events.telemetry import Telemetry
from dray.learners.attempt import Loads, Returned
from dray.learners.layouts import Drop, Load, RowSharding, ShardReport
from dray.learners.shard import Holdings, Shard


class RowShards:
    """Implements `Loader` for the layout `rows`."""

    def __init__(self, sharding: RowSharding, membership: Membership, telemetry: Telemetry) -> None:
        assign(sharding.units, membership.limits.min_workers)  # too few units for the workers: refused
        self._group = membership.group
        self._telemetry = telemetry
        self._units = tuple(sharding.units)
        self._evaluation = tuple(sharding.evaluation)
        self._preparation = membership.group.share(sharding.preparation)
        self.shards, self._evaluation_of = assigned(self._units, self._evaluation, membership.limits.max_workers)
        self.weights = tuple(rows_of((unit,)) for unit in self._units)
        self.rows_reloaded = 0
        self._loaded: dict[int, dict[Shard, ShardReport]] = {}
        self._loading: dict[int, tuple[int, Shard]] = {}
        """Worker and shard by the number of the call."""
        self._complete = False

    def held(self, worker: int) -> tuple[Shard, ...]:
        on_the_way = (shard for other, shard in self._loading.values() if other == worker)
        return tuple(dict.fromkeys((*self._loaded.get(worker, {}), *on_the_way)))

    def bring(self, target: Holdings, why: Why, *, beside: bool) -> None:
        on_the_way = set(self._loading.values())
        for worker, shards in target.items():
            for shard in shards:
                if shard in self._loaded.get(worker, {}) or (worker, shard) in on_the_way:
                    continue
                train, evaluation = self.slices(shard)
                if self._complete:
                    self._telemetry.emit(ShardLoading(worker, rows_of(train), why(worker)))
                op = Load(lane="beside" if beside else "main")
                call = self._group.call(worker, op, self._preparation, shard, train, evaluation)
                self._loading[call.number] = worker, shard

    def has(self, target: Holdings) -> bool:
        return all(shard in self._loaded.get(worker, {}) for worker, shards in target.items() for shard in shards)

    def owns(self, call: int) -> bool:
        return call in self._loading

    def take_in(self, event: Returned | Raised) -> bool:
        if isinstance(event, Raised) or event.call not in self._loading:
            return False
        worker, shard = self._loading.pop(event.call)
        report: ShardReport = event.value
        self._loaded.setdefault(worker, {})[shard] = report
        self._telemetry.emit(ShardLoaded(worker, report.rows, round(report.seconds, 3)))
        if self._complete:
            self.rows_reloaded += sum(self.weights[unit] for unit in shard.units)
        return True

    def lose(self, worker: int) -> None:
        self._loaded.pop(worker, None)
        self._loading = {call: of for call, of in self._loading.items() if of[0] != worker}

    def keep(self, holdings: Holdings) -> None:
        for worker, loaded in self._loaded.items():
            others = tuple(shard for shard in loaded if shard not in holdings.get(worker, ()))
            if others and worker in holdings:
                self._group.call(worker, Drop(), others)
                for shard in others:
                    del loaded[shard]

    def rows(self, worker: int, shards: Sequence[Shard]) -> int:
        return sum(self._loaded[worker][shard].rows for shard in shards)

    def loads(self, holdings: Holdings) -> Loads:
        self._complete = True
        return Loads([self._loaded[worker][shard] for worker, shards in holdings.items() for shard in shards], {})

    def slices(self, shard: Shard) -> tuple[Units, Units]:
        """Return the units of a shard, and its evaluation units in their own order."""
        evaluation = sorted(number for unit in shard.units for number in self._evaluation_of.get(unit, ()))
        return tuple(self._units[unit] for unit in shard.units), tuple(self._evaluation[one] for one in evaluation)


def assigned(
    units: Sequence[Unit], evaluation: Sequence[Unit], shards: int
) -> tuple[tuple[Shard, ...], dict[int, tuple[int, ...]]]:
    """Return the shards of the first assignment, and which evaluation units belong to which unit. Pure."""
    own = assign_evenly([rows_of((unit,)) for unit in units], min(shards, len(units)))
    own_evaluation = assign_evenly([rows_of((unit,)) for unit in evaluation], len(own))
    belong: dict[int, tuple[int, ...]] = {}
    for members, numbers in zip(own, own_evaluation, strict=True):
        for index, number in enumerate(numbers):
            unit = members[index % len(members)]
            belong[unit] = (*belong.get(unit, ()), number)
    return tuple(Shard(base, members) for base, members in enumerate(own)), belong
