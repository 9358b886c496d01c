"""One worker of a recommender's training: reads rows, holds units of users and items, trains them, reports how it is.

Knows nothing of Ray. Methods that return a tuple leave all but its first value where they were made. Units that are
built or adopted while an attempt goes on wait in `_coming` until `keep`: within an attempt nothing else is trained.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from dray.data.shards import Slice
from dray.data.stream import give_memory_back
from dray.learners.factorization import rows as row_reader
from dray.learners.factorization.calls import CallPlace, FactorPlan, TurnReport
from dray.learners.factorization.evaluate import RankingSums
from dray.learners.factorization.events import Kind, RowRule, UnitRows
from dray.learners.factorization.explicit import ExplicitSettings, FactorBlock, Scale, SideName
from dray.learners.factorization.explicit_share import ExplicitPlan, ExplicitShare, ExplicitUnit, UnitReport
from dray.learners.factorization.factors import Ints, Longs
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.implicit_share import (
    ImplicitPlan,
    ImplicitShare,
    ImplicitUnit,
    PartFactors,
    give_items,
)
from dray.learners.factorization.known import Found, Ids
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Triples
from dray.learners.factorization.unit_pairs import PairNotes, UnitPairs, unit_pairs
from dray.learners.factorization.warming import Warming
from dray.learners.layouts import ReadRows
from dray.learners.learner import InputGone
from dray.learners.reporting_worker import ReportingWorker
from dray.learners.status import Proof
from dray.storage import StorageOptions
from dray.threads.verify import CoresUsed

PROOF_SECONDS = 1.0
PASSES = 2
"""Over the rows: for the ids, and for all else."""
T = TypeVar("T")


class FactorWorker(ReportingWorker):
    """`status`, `latest`, `interrupt` and `stop` may be called from any thread; the rest from one at a time, but what
    `KeyedSide` says may run beside."""

    def __init__(self, number: int, threads: int) -> None:
        super().__init__(number, threads)
        self._pool = Threads(threads)
        self._plan: FactorPlan | None = None
        self._explicit: ExplicitShare | None = None
        self._implicit: ImplicitShare | None = None
        self._coming: ExplicitShare | ImplicitShare | None = None
        """Units that are not trained yet."""
        self._void = 0
        """Attempts up to this one were given up: what is still asked for them is not done."""
        self._reached: tuple[int, int, int] = (0, 0, 0)
        self._failure: tuple[int, Exception] | None = None
        """What went wrong in an attempt: told by whatever is asked for next in it."""
        self._turns: list[TurnReport] = []
        self._trained_s = 0.0
        self._warm = False
        self._warming: Warming | None = None

    def interrupt(self, attempt: int) -> None:
        self._void = max(self._void, attempt)

    @property
    def doing(self) -> str:
        return "" if self._warming is None else self._warming.doing

    def _compile(self, kind: Kind) -> Warming:
        """Have the kernels compiled, beside what the worker does meanwhile."""
        if self._warming is None:
            self._warming = Warming(kind)
        return self._warming

    # Rows

    def scan(self, slices: Sequence[Slice], rule: RowRule, storage: StorageOptions, test: bool) -> Found:
        self._compile(rule.kind)
        rows = sum(piece.rows for piece in slices)
        self.rows += rows
        self.to_read += PASSES * rows
        found = row_reader.scan(slices, rule, storage, self.on_rows, self.on_wait, test=test)
        give_memory_back()
        return found

    def read(
        self,
        slices: Sequence[Slice],
        units: Sequence[int],
        test: bool,
        rule: RowRule,
        ids: Ids,
        unit_of_user: Ints,
        storage: StorageOptions,
    ) -> tuple[ReadRows | tuple[UnitRows, ...], ...]:
        """Return the rows of the users of these units, and pass over all others."""
        self._compile(rule.kind)
        rows = sum(piece.rows for piece in slices)
        self.to_read = max(self.to_read, self._read + rows)
        # Of all others there is one more, which is dropped: a worker's loss brings a few units back, not all.
        place = np.full(int(unit_of_user.max(initial=0)) + 1, len(units), np.int32)
        place[list(units)] = np.arange(len(units))
        found = row_reader.by_unit(
            *(slices, rule, ids, place[unit_of_user], len(units) + 1, storage, self.on_rows, self.on_wait), test=test
        )
        give_memory_back()
        return ReadRows(socket.gethostname(), rows), *found[: len(units)]

    def prepare(self, preparation: FactorPlan) -> None:
        """Begin with nothing."""
        self._plan = preparation
        plan = preparation.plan
        self._compile("explicit" if isinstance(plan, ExplicitPlan) else "implicit").wait()
        self._explicit = ExplicitShare(plan) if isinstance(plan, ExplicitPlan) else None
        self._implicit = ImplicitShare(plan) if isinstance(plan, ImplicitPlan) else None
        self._coming = ExplicitShare(plan) if isinstance(plan, ExplicitPlan) else ImplicitShare(plan)

    def build(self, unit: int, *rows: tuple[UnitRows, ...]) -> tuple[UnitReport, PairNotes]:
        """Make a unit of its rows, which are in the order of the data."""
        self.check_stop()
        assert self._plan is not None and self._coming is not None
        plan, coming, notes = self._plan, self._coming, PairNotes()

        def pairs() -> Iterator[UnitPairs]:
            nonlocal notes
            for some in coming.pieces([piece for listed in rows for piece in listed]):
                made = unit_pairs(some, plan.kind, plan.split, plan.ageing)
                notes += made.notes
                yield made

        report = coming.build(unit, pairs())
        give_memory_back()
        return report, notes

    def give(self, own: Sequence[int], units: Sequence[int]) -> tuple[Triples | None, ...]:
        """Return the events that the users of `own` had with the items of each unit."""
        coming = self._coming
        assert isinstance(coming, ImplicitShare)
        units_here = {**coming.units, **self._implicit_share.units}
        held = {unit: units_here[unit] for unit in own}
        return None, *give_items(self._implicit_share.plan, held, units)

    def complete(self, unit: int, *given: Triples) -> None:
        assert isinstance(self._coming, ImplicitShare)
        self._coming.take_items(unit, given)

    def export(self, units: Sequence[int]) -> tuple[Any, ...]:
        """Return units as they are, for another worker."""
        coming = self._coming
        held = {**coming.units, **self._share.units} if coming is not None else {}
        items: dict[int, Any] = {}
        if self._implicit is not None and isinstance(coming, ImplicitShare):
            items = {**coming.by_item, **self._implicit.by_item}
        return None, *((held[unit], items.get(unit)) for unit in units)

    def adopt(self, units: Sequence[int], *contents: Any) -> None:
        for unit, (held, by_item) in zip(units, contents, strict=True):
            if isinstance(self._coming, ExplicitShare):
                assert isinstance(held, ExplicitUnit)
                self._coming.units[unit] = held
            elif isinstance(held, ImplicitUnit):
                assert self._coming is not None
                self._coming.units[unit] = held
                if by_item is not None:
                    self._coming.by_item[unit] = by_item

    def keep(self, units: Sequence[int]) -> None:
        """Hold exactly these units: those that were built or adopted join, all others are dropped."""
        coming = self._coming
        assert coming is not None
        for share, new in ((self._explicit, coming), (self._implicit, coming)):
            if share is None:
                continue
            for unit in units:
                if unit not in share.units:
                    share.units[unit] = new.units[unit]  # type: ignore[assignment]
                if isinstance(share, ImplicitShare) and isinstance(new, ImplicitShare) and unit in new.by_item:
                    share.by_item.setdefault(unit, new.by_item[unit])
            share.keep(units)
        coming.keep(())
        give_memory_back()

    # Explicit ratings

    def restore(self, place: CallPlace, scale: Scale, units: Sequence[int], *users: FactorBlock | None) -> None:
        """Set these units to a checkpoint; None is the beginning."""
        with self._in_order(place):
            self._explicit_share.items.clear()
            self._explicit_share.restore(scale, dict(zip(units, users, strict=True)))

    def turn(
        self,
        place: CallPlace,
        step: int,
        rate: float,
        takes: Sequence[int],
        gives: Sequence[int],
        *incoming: Any,
    ) -> tuple[FactorBlock | None, ...]:
        """One step of an epoch: train, take blocks of items, train on them too, hand blocks of items on.

        What comes from others is waited for when all else is done: they have a whole step to be late.
        """
        share = self._explicit_share
        with self._in_order(place):
            squares, seconds = self._timed(lambda: share.turn(step, rate, self._pool))
            taken = dict(zip(takes, (_arrived(one) for one in incoming), strict=True))
            more, more_seconds = self._timed(lambda: share.turn(step, rate, self._pool, taken))
            given = share.give(gives)
            count = share.plan.units
            rows = sum(len(held.row[(unit + step) % count]) for unit, held in share.units.items())
            finite = all(block.is_finite for block in given)
            self._turns.append(TurnReport((*squares, *more), finite, rows, seconds + more_seconds))
        return None, *given

    def finish(self, place: CallPlace, units: Sequence[int]) -> tuple[TurnReport | FactorBlock, ...]:
        """Return what the turns of the epoch came to, and blocks of users as it left them."""
        with self._in_order(place):
            finite, blocks = self._explicit_share.copies(units)
        self._after_epoch()
        turns = self._turns
        report = TurnReport(
            tuple(square for turn in turns for square in turn.squares),
            finite and all(turn.finite for turn in turns),
            sum(turn.rows for turn in turns),
            sum(turn.seconds for turn in turns),
        )
        return report, *blocks

    def errors(
        self, units: Sequence[int], known_items: Any, limits: tuple[float, float], *blocks: FactorBlock
    ) -> dict[int, tuple[float, float]]:
        """Return errors on the test part, of the units' users (the first blocks) and all items (the others)."""
        users = dict(zip(units, blocks, strict=False))
        return self._explicit_share.errors(users, blocks[len(units) :], known_items, limits)

    # Implicit feedback

    def restore_side(self, place: CallPlace, side: SideName, units: Sequence[int], *parts: PartFactors | None) -> None:
        with self._in_order(place):
            self._implicit_share.restore(side, dict(zip(units, parts, strict=True)))

    def first_parts(self, side: SideName, units: Sequence[int]) -> tuple[PartFactors | None, ...]:
        """Return these parts as they are before the first iteration."""
        return None, *(PartFactors.of(self._implicit_share.plan.first(side, unit)) for unit in units)

    def solve(self, place: CallPlace, side: SideName, *others: PartFactors) -> tuple[TurnReport | PartFactors, ...]:
        """Solve the rows of one side that are held here; return their factors, in the order of the units."""
        share = self._implicit_share
        with self._in_order(place):
            solved, seconds = self._timed(lambda: share.solve(side, others, self._pool))
        if side == "items":
            self._after_epoch()
        rows = sum(len(held) for held in share.units.values()) if side == "users" else 0
        finite = all(part.is_finite for part in solved.values())
        return TurnReport((), finite, rows, seconds), *(solved[unit] for unit in sorted(solved))

    # Both

    def rankings(
        self, units: Sequence[int], item_counts: Longs, ks: Sequence[int], *blocks: Any
    ) -> dict[int, RankingSums]:
        """Return how the units' users (the first blocks) rank all items (the others)."""
        users = dict(zip(units, blocks, strict=False))
        found: dict[int, RankingSums] = self._share.rankings(users, blocks[len(units) :], item_counts, ks, self.threads)
        return found

    def popular(self, units: Sequence[int], item_counts: Longs, ks: Sequence[int]) -> dict[int, RankingSums]:
        """Return how well lists of what is popular would do."""
        found: dict[int, RankingSums] = self._share.popular(units, item_counts, ks)
        return found

    def seen(self, unit: int, piece: int) -> tuple[None, Triples]:
        """Return the pairs of a piece of a unit's users, by user and item."""
        return None, self._share.seen(unit, piece)

    def pair_counts(self, units: Sequence[int]) -> dict[int, tuple[Ints, Ints]]:
        """Return the users of these units, and how many pairs each has."""
        counts = {unit: self._share.pair_counts(unit) for unit in units}
        give_memory_back()
        return counts

    def train_with(self, number: int, settings: ExplicitSettings | ImplicitSettings) -> None:
        """Train the fit of that number from now on, with these settings."""
        if isinstance(settings, ExplicitSettings):
            self._explicit_share.plan = replace(self._explicit_share.plan, settings=settings)
        else:
            self._implicit_share.plan = replace(self._implicit_share.plan, settings=settings)
        if number != self.fit:
            self.begin_fit(number)
            self._trained_s, self._warm = 0.0, False

    def end_fit(self, last: bool) -> Proof:
        """Drop what is trained, which the driver has by now; return whether the threads were used.

        With `last`, drop what only another fit would need.
        """
        if self._explicit is not None:
            self._explicit.users.clear()
            self._explicit.items.clear()
        if self._implicit is not None:
            self._implicit.own.clear()
            if last:
                self._implicit.by_item.clear()
        give_memory_back()
        return self.prove()

    @property
    def _share(self) -> Any:
        return self._explicit or self._implicit

    @property
    def _explicit_share(self) -> ExplicitShare:
        assert self._explicit is not None
        return self._explicit

    @property
    def _implicit_share(self) -> ImplicitShare:
        assert self._implicit is not None
        return self._implicit

    @contextmanager
    def _in_order(self, place: CallPlace) -> Iterator[None]:
        """Do what is asked for in an attempt only if all before it in its series was done."""
        self.check_stop()
        if place.number == 0:
            self._turns = []
        if self._failure is not None and self._failure[0] == place.attempt:
            raise self._failure[1]
        if place.attempt <= self._void or (
            place.number and self._reached != (place.attempt, place.series, place.number - 1)
        ):
            raise InputGone("What was to come before in this epoch was given up, or has failed.", fix="")
        try:
            yield
        except Exception as error:
            self._failure = place.attempt, error
            raise
        self._reached = place

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        """Return what the work gives, and its seconds."""
        if self.cores is None:
            self.cores = CoresUsed().start()
        began = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - began
        self._trained_s += seconds
        return result, seconds

    def _after_epoch(self) -> None:
        """Prove the threads once there is enough to judge by; the first epoch may have compiled the kernels."""
        if not self._warm:
            self._warm, self.cores, self._trained_s = True, CoresUsed().start(), 0.0
        elif self._trained_s >= PROOF_SECONDS:
            self.prove()


def _arrived(block: Any) -> FactorBlock | None:
    """Return a block that is there, or was promised."""
    found: FactorBlock | None = block.get() if hasattr(block, "get") else block
    return found
