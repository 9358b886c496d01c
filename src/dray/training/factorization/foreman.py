"""Brings units of users and items to the workers, and keeps the work going when workers come and go.

`policy.py` decides who holds what, `crew.py` knows who is there. What is to be done with the units is somebody else's
(`descent.py`, `alternation.py`): it is begun again, from the last epoch, whenever a worker was lost on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dray.data.shards import Slice, deal_evenly
from dray.learners.factorization.events import RowRule
from dray.learners.factorization.explicit_share import UnitReport
from dray.learners.factorization.known import Ids
from dray.learners.factorization.own_part import PartNotes
from dray.storage import StorageOptions
from dray.telemetry.events import Telemetry
from dray.training.deliberation import Deliberation
from dray.training.factorization.routes import Units
from dray.workers.crew import Crew, refuse_mistakes
from dray.workers.factor_calls import FactorPlan, Place
from dray.workers.group import Done, Happening, InputGone, Kept, Lost, Raised
from dray.workers.policy import Holdings, Part, Situation

GRACE_S = 2.0
"""Whose loss an input went with is told within so many seconds; if nobody's, the input itself is gone."""

T = TypeVar("T")


class Disturbed(Exception):  # noqa: N818  (not a failure: it is begun again)
    """A worker was lost on the way."""


class CopyGone(Exception):  # noqa: N818
    """What the work was to begin from is nowhere any more: a machine went with it."""


@dataclass(frozen=True)
class Rows:
    """What is read: again, when a worker is lost."""

    train: Sequence[Slice]
    test: Sequence[Slice]
    rule: RowRule
    ids: Ids
    storage: StorageOptions
    before: Sequence[Any] = ()
    """For each unit, the pairs of an earlier run to go on from; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Of a unit."""

    rows: int
    """Of its users, in the data."""
    work: int
    """What it counts for when units are dealt."""


class Foreman:
    """One training's units. Made for one `load` and any number of `do`."""

    def __init__(
        self, crew: Crew, telemetry: Telemetry, plan: FactorPlan, rows: Rows, weights: Sequence[Weight]
    ) -> None:
        self._crew = crew
        self._telemetry = telemetry
        self._rows = rows
        self._weights = tuple(weights)
        self._implicit = plan.kind == "implicit"
        share = crew.group.share
        self._plan, self._ids, self._rule = share(plan), share(rows.ids), share(rows.rule)
        self._unit_of_user = share(plan.plan.user_blocks())
        self._before = [share(old) for old in rows.before]
        # Neighbouring blocks of users share blocks of items, which then travel less; parts of ALS need all of them.
        deal = _evenly if self._implicit else _contiguous
        self._parts = deal([weight.work for weight in weights], crew.limits.max_workers)
        self._loaded: dict[int, tuple[Part, ...]] = {}
        self._held: dict[int, set[int]] = {}
        self._held_items: dict[int, set[int]] = {}
        self._deliberation = Deliberation(crew, telemetry, self._situation, self._let_go_of_all)
        self._lost_now = 0
        self._broken_at = (-1, 0)
        self._disturbed_at: float | None = None
        self._rows_told = 0
        self._complete = False
        self._attempt = 0
        self._places: dict[int, int] = {}
        self.losses = 0
        """Workers whose units went: what their numbers stand for may be others now."""
        self.epoch = 0
        """Complete epochs."""
        self.reports: dict[int, tuple[UnitReport, PartNotes]] = {}
        self.rows_by_host: dict[str, int] = {}
        self.recovery_s = 0.0
        self.rows_reloaded = 0

    def load(self) -> list[tuple[UnitReport, PartNotes]]:
        """Have all units made; return what is known of them, in order."""
        self._crew.phase = "load"
        self._settle()
        self._complete = True
        self._recovered()
        return [self.reports[unit] for unit in sorted(self.reports)]

    def do(self, action: Callable[[Mapping[int, Units]], T]) -> T:
        """Have something done by those who hold the units; again, if a worker is lost on the way."""
        while True:
            holdings = self._settle()
            self._recovered()
            self._attempt += 1
            self._places = {}
            try:
                return action(holdings)
            except (Disturbed, CopyGone) as error:
                for worker in self._crew.ready:
                    self._crew.group.tell(worker, "abandon", self._attempt)
                if isinstance(error, CopyGone):
                    raise
                broken_in, times = self._broken_at
                self._broken_at = (self.epoch, times + 1 if broken_in == self.epoch else 1)
                self._crew.changed = True

    def place(self, worker: int) -> Place:
        """Return the place of a worker's next call among those that need each other."""
        number = self._places.get(worker, 0)
        self._places[worker] = number + 1
        return Place(self._attempt, number)

    def call(self, worker: int, method: str, *arguments: Any) -> int:
        try:
            return self._crew.group.call(worker, method, *arguments)
        except InputGone:
            raise CopyGone from None

    def keeping(self, worker: int, keeps: int, method: str, *arguments: Any) -> tuple[int, list[Kept]]:
        try:
            return self._crew.group.call_keeping(worker, keeps, method, *arguments)
        except InputGone:
            raise CopyGone from None

    def ask_for(self, worker: int, keeps: int, method: str, *arguments: Any) -> list[Kept]:
        try:
            return self._crew.group.ask_for(worker, keeps, method, *arguments)
        except InputGone:
            raise CopyGone from None

    def wait(self, calls: Iterable[int]) -> dict[int, Any]:
        """Return the results by the number of the call, or raise `Disturbed`, or `CopyGone`."""
        open_calls, results = set(calls), dict[int, Any]()
        gone_at: float | None = None
        while open_calls:
            lost = False
            for happening in self._crew.step():
                if isinstance(happening, Done) and happening.call in open_calls:
                    open_calls.remove(happening.call)
                    results[happening.call] = happening.value
                elif isinstance(happening, Raised) and isinstance(happening.error, InputGone):
                    if happening.call in open_calls:
                        gone_at = gone_at or time.monotonic()
                else:
                    lost |= self._noticed(happening)
            if lost:
                raise Disturbed
            if gone_at is not None and time.monotonic() - gone_at > GRACE_S:
                raise CopyGone
        return results

    # Who holds what

    def _settle(self) -> dict[int, Units]:
        """Return when all units are where the policy wants them."""
        while True:
            try:
                if self._crew.changed or not self._loaded:
                    self._bring(self._decided())
                return {worker: _units(parts) for worker, parts in sorted(self._loaded.items())}
            except (Disturbed, CopyGone):
                self._crew.changed = True

    def _decided(self) -> Holdings:
        while True:
            if (target := self._deliberation.decide()) is not None:
                return target
            for happening in self._crew.step():
                self._noticed(happening)

    def _let_go_of_all(self) -> None:
        for worker in list(self._held):
            self._drop(worker)
        self._lost_now = 0

    def _situation(self) -> Situation:
        crew = self._crew
        broken_in, times = self._broken_at
        return Situation(
            level=crew.level,
            limits=crew.limits,
            parts=self._parts,
            rows=tuple(weight.work for weight in self._weights),
            loaded={worker: self._loaded.get(worker, ()) for worker in crew.ready},
            leaving=crew.leaving & crew.ready.keys(),
            expected=crew.expected,
            lost_now=self._lost_now,
            failures=crew.failures,
            failures_in_round=times if broken_in == self.epoch else 0,
            waited_s=self._deliberation.waited_s,
        )

    def _noticed(self, happening: Happening) -> bool:
        """Take in what nobody waits for; return whether a worker was lost."""
        if isinstance(happening, Raised) and not isinstance(happening.error, InputGone):
            refuse_mistakes(happening.error)
            happening = self._crew.fail(happening.worker, happening.error)
        if not isinstance(happening, Lost):
            return False
        self._lost_now += 1
        if self._disturbed_at is None:
            self._disturbed_at = time.monotonic()
        held = happening.worker in self._held
        self._drop(happening.worker)
        return held

    def _drop(self, worker: int) -> None:
        self.losses += 1
        for known in (self._loaded, self._held, self._held_items):
            known.pop(worker, None)

    def _recovered(self) -> None:
        self._lost_now = 0
        if self._disturbed_at is None:
            return
        seconds = time.monotonic() - self._disturbed_at
        self._disturbed_at = None
        self.recovery_s += seconds
        self._telemetry.emit(
            "recovered",
            round=self.epoch,
            seconds=round(seconds, 3),
            rows_reloaded=self.rows_reloaded - self._rows_told,
            workers=len(self._crew.ready),
        )
        self._rows_told = self.rows_reloaded

    # Bringing the units

    def _bring(self, target: Holdings) -> None:
        """Have every worker hold its units: handed over by others who live, or read again."""
        for worker in target.keys() - self._held.keys():
            self._held[worker], self._held_items[worker] = set(), set()  # so that its loss is not passed over
            try:
                self.wait([self.call(worker, "prepare", self._plan)])
            except (Disturbed, CopyGone):
                self._drop(worker)
                raise
        lacking = {
            unit: worker for worker, parts in target.items() for unit in _units(parts) if unit not in self._held[worker]
        }
        holders = {unit: worker for worker, units in self._held.items() for unit in units}
        self._hand_over({unit: (holders[unit], worker) for unit, worker in lacking.items() if unit in holders})
        self._read({unit: worker for unit, worker in lacking.items() if unit not in holders})
        if self._implicit:
            self._bring_items(target)
        self._loaded = dict(target)
        self._let_go(target)

    def _hand_over(self, moves: Mapping[int, tuple[int, int]]) -> None:
        for giver, taker in sorted(set(moves.values())):
            units = tuple(unit for unit, move in sorted(moves.items()) if move == (giver, taker))
            call, kept = self.keeping(giver, len(units), "hand_over", units)
            self.wait([call, self.call(taker, "receive", units, *kept)])
            self._held[taker].update(units)
            self._held_items[taker].update(self._held_items[giver].intersection(units))
            rows = self._rows_of(units)
            self._telemetry.emit("joined", worker=taker, host=self._host(taker), rows=rows, round=self.epoch + 1)

    def _read(self, wanted: Mapping[int, int]) -> None:
        """Have all rows read, by everybody, and those of the wanted units brought to who shall hold them."""
        if not wanted:
            return
        units = tuple(sorted(wanted))
        owners = sorted(set(wanted.values()))
        for worker in owners if self._complete else ():
            rows = self._rows_of(unit for unit in units if wanted[unit] == worker)
            self.rows_reloaded += rows
            self._telemetry.emit("reload", worker=worker, rows=rows, why="takes over lost rows")
        began = time.perf_counter()
        dealt: list[list[Any]] = [[old[unit] for old in (self._before,) if old] for unit in units]
        calls = []
        readers = sorted(self._crew.ready.keys() - self._crew.leaving)
        for slices, test in ((self._rows.train, False), (self._rows.test, True)):
            for reader, share in zip(readers, in_order(slices, len(readers)), strict=False):
                call, kept = self.keeping(
                    reader,
                    len(units),
                    "deal",
                    share,
                    self._rule,
                    self._ids,
                    self._unit_of_user,
                    units,
                    self._rows.storage,
                    test,
                )
                calls.append(call)
                for place, one in enumerate(kept):
                    dealt[place].append(one)
                del kept  # in one process it is the rows themselves: each unit's go when it is made
        takes = {}
        for unit in units:
            takes[unit] = self.call(wanted[unit], "take", unit, *dealt.pop(0))
        results = self.wait([*calls, *takes.values()])
        if not self._complete:
            for call in calls:
                report = results[call]
                self.rows_by_host[report.host] = self.rows_by_host.get(report.host, 0) + report.rows
        for unit, worker in wanted.items():
            self._held[worker].add(unit)
            self.reports[unit] = results[takes[unit]]
        for worker in owners:
            rows = self._rows_of(unit for unit in units if wanted[unit] == worker)
            seconds = round(time.perf_counter() - began, 3)
            self._telemetry.emit("worker_loaded", worker=worker, rows=rows, seconds=seconds)

    def _bring_items(self, target: Holdings) -> None:
        lacking = {
            unit: worker
            for worker, parts in target.items()
            for unit in _units(parts)
            if unit not in self._held_items[worker]
        }
        if not lacking:
            return
        units = tuple(sorted(lacking))
        calls, given = [], []
        # Only of what each shall hold: a unit that has moved is still with its former holder.
        for worker in target:
            call, kept = self.keeping(worker, len(units), "give_items", _units(target[worker]), units)
            calls.append(call)
            given.append(kept)
        for place, unit in enumerate(units):
            calls.append(self.call(lacking[unit], "take_items", unit, *(kept[place] for kept in given)))
        self.wait(calls)
        for unit, worker in lacking.items():
            self._held_items[worker].add(unit)

    def _let_go(self, target: Holdings) -> None:
        """Let workers drop what others hold now, and those go who hold nothing and are leaving."""
        calls = []
        for worker, held in list(self._held.items()):
            units = _units(target.get(worker, ()))
            calls.append(self.call(worker, "keep", units))  # a loss may have left it with more than is known here
            self._held[worker] = held & set(units)
            self._held_items[worker] &= set(units)
        self.wait(calls)
        for worker in self._crew.leaving & self._crew.ready.keys():
            if not self._held.get(worker):
                self._crew.dismiss(worker, "others hold its rows now")
                self._drop(worker)

    def _rows_of(self, units: Iterable[int]) -> int:
        return sum(self._weights[unit].rows for unit in units)

    def _host(self, worker: int) -> str:
        member = self._crew.ready.get(worker)
        return member.host if member is not None else ""


def _evenly(work: Sequence[int], parts: int) -> tuple[Part, ...]:
    """Return parts of about the same work, one for every worker there may be."""
    dealt = deal_evenly(work, max(1, min(len(work), parts)))
    return tuple(Part(base, units) for base, units in enumerate(dealt))


def _contiguous(work: Sequence[int], parts: int) -> tuple[Part, ...]:
    """Return parts of neighbouring units, one for every worker there may be."""
    units, count = len(work), max(1, min(len(work), parts))
    edges = [units * number // count for number in range(count + 1)]
    return tuple(Part(base, tuple(range(edges[base], edges[base + 1]))) for base in range(count))


def _units(parts: Iterable[Part]) -> Units:
    return tuple(sorted(unit for part in parts for unit in part.units))


def in_order(slices: Sequence[Slice], shares: int) -> list[tuple[Slice, ...]]:
    """Return consecutive slices with about as many rows each; some get none where slices are few."""
    total = sum(piece.rows for piece in slices)
    dealt: list[list[Slice]] = [[] for _ in range(shares)]
    done = 0
    for piece in slices:
        dealt[min(shares - 1, (done + piece.rows // 2) * shares // max(1, total))].append(piece)
        done += piece.rows
    return [tuple(share) for share in dealt]
