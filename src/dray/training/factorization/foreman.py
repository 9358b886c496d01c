"""Brings units of users and items to the workers, and keeps the work going when workers come and go.

`policy.py` decides which worker holds what, `membership.py` knows the workers. What is done with the units is the
business of `descent.py` and `alternation.py`: it begins again, from the last epoch, whenever a worker was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from dray.data.shards import Slice
from dray.elastic.group import Call, GroupEvent, Lost, Raised, Returned
from dray.elastic.membership import Membership, refuse_mistakes
from dray.elastic.policy import RESUME, Situation
from dray.events.telemetry import Telemetry
from dray.learners.factorization.calls import FactorPlan, Place
from dray.learners.factorization.events import RowRule
from dray.learners.factorization.explicit_share import UnitReport
from dray.learners.factorization.known import Ids
from dray.learners.factorization.own_part import PartNotes
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do, InputGone, Op, PeerCut
from dray.learners.shard import Holdings, Shard
from dray.storage import StorageOptions
from dray.training.deliberation import Deliberation
from dray.training.factorization.dealing import contiguous, evenly, in_order, units_of
from dray.training.factorization.routes import Units
from dray.training.stopped import RunStopped

CUT_LIMIT_S = 30.0
"""Workers that cannot reach each other for so long, over several tries of the same epoch, end the run."""
GRACE_S = 2.0
"""Seconds to wait for the report of a lost worker before the input itself counts as lost."""

P = ParamSpec("P")
T = TypeVar("T")


class Disturbed(Exception):  # noqa: N818  (not a failure: it is begun again)
    """A worker was lost on the way."""


class Stuck(Disturbed):
    """An input was given up, though no worker was lost. It is counted already."""


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
        self, membership: Membership, telemetry: Telemetry, plan: FactorPlan, rows: Rows, weights: Sequence[Weight]
    ) -> None:
        self._membership = membership
        self._telemetry = telemetry
        self._rows = rows
        self._weights = tuple(weights)
        self._implicit = plan.kind == "implicit"
        share = membership.group.share
        self._plan, self._ids, self._rule = share(plan), share(rows.ids), share(rows.rule)
        self._unit_of_user = share(plan.plan.user_blocks())
        self._before = [share(old) for old in rows.before]
        # Neighbouring blocks of users share blocks of items, which then travel less; parts of ALS need all of them.
        deal = evenly if self._implicit else contiguous
        self._parts = deal([weight.work for weight in weights], membership.limits.max_workers)
        self._loaded: dict[int, tuple[Shard, ...]] = {}
        self._held: dict[int, set[int]] = {}
        self._held_items: dict[int, set[int]] = {}
        self._deliberation = Deliberation(membership, telemetry, self._situation, self._let_go_of_all)
        self._lost_now = 0
        self._broken_at = (-1, 0)
        """The furthest epoch that was interrupted, and how often since the training last got further."""
        self._disturbed_at: float | None = None
        self._cut_at: tuple[int, float] | None = None
        """The epoch in which workers did not reach each other, and since when."""
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
        self._membership.phase = "load"
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
                for worker in self._membership.ready:
                    self._membership.group.tell(worker, Do(FactorWorker.abandon), self._attempt)
                if isinstance(error, CopyGone):
                    raise
                if not isinstance(error, Stuck):
                    self._interrupted()

    def place(self, worker: int) -> Place:
        """Return the place of a worker's next call among those that need each other."""
        number = self._places.get(worker, 0)
        self._places[worker] = number + 1
        return Place(self._attempt, number)

    def call(self, worker: int, op: Op[P, T], *inputs: P.args, **named: P.kwargs) -> int:
        return self.keeping(worker, op, *inputs, **named).number

    def keeping(self, worker: int, op: Op[P, T], *inputs: P.args, **named: P.kwargs) -> Call:
        try:
            return self._membership.group.call(worker, op, *inputs, **named)
        except InputGone:
            raise CopyGone from None

    def post(self, worker: int, op: Op[P, T], *inputs: P.args, **named: P.kwargs) -> list[Any]:
        try:
            return self._membership.group.post(worker, op, *inputs, **named)
        except InputGone:
            raise CopyGone from None

    def wait(self, calls: Iterable[int]) -> dict[int, Any]:
        """Return the results by the number of the call, or raise `Disturbed`, or `CopyGone`."""
        open_calls, results = set(calls), dict[int, Any]()
        gone: InputGone | None = None
        gone_at = 0.0
        while open_calls:
            lost = False
            for event in self._membership.step():
                if isinstance(event, Returned) and event.call in open_calls:
                    open_calls.remove(event.call)
                    results[event.call] = event.value
                elif isinstance(event, Raised) and isinstance(event.error, InputGone):
                    if event.call in open_calls:
                        gone_at = gone_at or time.monotonic()
                        if gone is None or isinstance(event.error, PeerCut):
                            gone = event.error
                else:
                    lost |= self._noticed(event)
            if lost:
                raise Disturbed
            if gone is not None and time.monotonic() - gone_at > GRACE_S:
                stuck = self.give_up(gone)
                raise stuck if isinstance(gone, PeerCut) else CopyGone
        return results

    def give_up(self, gone: InputGone) -> Stuck:
        """Count an input that nobody's loss explains: whatever needs it is begun again, but not for ever."""
        self._interrupted()
        self._membership.last_loss = gone.what
        if isinstance(gone, PeerCut):
            self._stop_if_cut_for_long(gone)
        self._telemetry.emit("warning", message=f"Begun again from the last epoch: {gone.what}", fix=gone.fix)
        return Stuck()

    def _stop_if_cut_for_long(self, gone: PeerCut) -> None:
        now = time.monotonic()
        if self._cut_at is None or self._cut_at[0] != self.epoch:
            self._cut_at = self.epoch, now
        elif now - self._cut_at[1] >= CUT_LIMIT_S:
            raise RunStopped(gone.what, fix=f"{gone.fix} {RESUME}")

    def _interrupted(self) -> None:
        furthest, times = self._broken_at
        self._broken_at = (furthest, times + 1) if self.epoch <= furthest else (self.epoch, 1)
        self._membership.changed = True

    # Who holds what

    def _settle(self) -> dict[int, Units]:
        """Return when all units are where the policy wants them."""
        while True:
            try:
                if self._membership.changed or not self._loaded:
                    self._bring(self._decided())
                return {worker: units_of(parts) for worker, parts in sorted(self._loaded.items())}
            except (Disturbed, CopyGone):
                self._membership.changed = True

    def _decided(self) -> Holdings:
        while True:
            if (target := self._deliberation.decide()) is not None:
                return target
            for event in self._membership.step():
                self._noticed(event)

    def _let_go_of_all(self) -> None:
        for worker in list(self._held):
            self._drop(worker)
        self._lost_now = 0

    def _situation(self) -> Situation:
        membership = self._membership
        furthest, times = self._broken_at
        return Situation(
            level=membership.level,
            limits=membership.limits,
            parts=self._parts,
            rows=tuple(weight.work for weight in self._weights),
            loaded={worker: self._loaded.get(worker, ()) for worker in membership.ready},
            leaving=membership.leaving & membership.ready.keys(),
            expected=membership.expected,
            lost_now=self._lost_now,
            failures=membership.failures,
            failures_in_round=times if self.epoch <= furthest else 0,
            waited_s=self._deliberation.waited_s,
        )

    def _noticed(self, event: GroupEvent) -> bool:
        """Take in what nobody waits for; return whether a worker was lost."""
        if isinstance(event, Raised) and not isinstance(event.error, InputGone):
            refuse_mistakes(event.error)
            event = self._membership.fail(event.worker, event.error)
        if not isinstance(event, Lost):
            return False
        self._lost_now += 1
        if self._disturbed_at is None:
            self._disturbed_at = time.monotonic()
        held = event.worker in self._held
        self._drop(event.worker)
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
            workers=len(self._membership.ready),
        )
        self._rows_told = self.rows_reloaded

    # Bringing the units

    def _bring(self, target: Holdings) -> None:
        """Have every worker hold its units: handed over by others who live, or read again."""
        for worker in target.keys() - self._held.keys():
            self._held[worker], self._held_items[worker] = set(), set()  # so that its loss is not passed over
            try:
                self.wait([self.call(worker, Do(FactorWorker.prepare), self._plan)])
            except (Disturbed, CopyGone):
                self._drop(worker)
                raise
        lacking = {
            unit: worker
            for worker, parts in target.items()
            for unit in units_of(parts)
            if unit not in self._held[worker]
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
            call, kept = self.keeping(giver, Do(FactorWorker.hand_over, len(units)), units)
            self.wait([call, self.call(taker, Do(FactorWorker.receive), units, *kept)])
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
        readers = sorted(self._membership.ready.keys() - self._membership.leaving)
        for slices, test in ((self._rows.train, False), (self._rows.test, True)):
            for reader, share in zip(readers, in_order(slices, len(readers)), strict=False):
                call, kept = self.keeping(
                    reader,
                    Do(FactorWorker.deal, len(units)),
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
            takes[unit] = self.call(wanted[unit], Do(FactorWorker.take), unit, *dealt.pop(0))
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
            for unit in units_of(parts)
            if unit not in self._held_items[worker]
        }
        if not lacking:
            return
        units = tuple(sorted(lacking))
        calls, given = [], []
        # Only of what each shall hold: a unit that has moved is still with its former holder.
        for worker in target:
            call, kept = self.keeping(worker, Do(FactorWorker.give_items, len(units)), units_of(target[worker]), units)
            calls.append(call)
            given.append(kept)
        for place, unit in enumerate(units):
            calls.append(self.call(lacking[unit], Do(FactorWorker.take_items), unit, *(kept[place] for kept in given)))
        self.wait(calls)
        for unit, worker in lacking.items():
            self._held_items[worker].add(unit)

    def _let_go(self, target: Holdings) -> None:
        """Let workers drop what others hold now, and those go who hold nothing and are leaving."""
        calls = []
        for worker, held in list(self._held.items()):
            units = units_of(target.get(worker, ()))
            calls.append(
                self.call(worker, Do(FactorWorker.keep), units)
            )  # a loss may have left it with more than is known here
            self._held[worker] = held & set(units)
            self._held_items[worker] &= set(units)
        self.wait(calls)
        for worker in self._membership.leaving & self._membership.ready.keys():
            if not self._held.get(worker):
                self._membership.dismiss(worker, "others hold its rows now")
                self._drop(worker)

    def _rows_of(self, units: Iterable[int]) -> int:
        return sum(self._weights[unit].rows for unit in units)

    def _host(self, worker: int) -> str:
        member = self._membership.ready.get(worker)
        return member.host if member is not None else ""
