"""One worker of a recommender's training: reads rows, holds units of users and items, trains them, tells how it is.

Knows nothing of Ray. What is trained, and what it needs from others, is in `learners/factorization`; who needs what
when, in `training/factorization`. Methods that return a tuple leave all but its first value where they were made.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from dray.data.shards import Slice
from dray.data.stream import give_memory_back
from dray.errors import StorageError
from dray.events.sampler import UsageReader
from dray.learners.factorization import rows as row_reader
from dray.learners.factorization.calls import DealReport, FactorPlan, Place, TurnReport
from dray.learners.factorization.evaluate import RankingSums
from dray.learners.factorization.events import Dealt, RowRule
from dray.learners.factorization.explicit import FactorBlock, Scale, SideName
from dray.learners.factorization.explicit_share import ExplicitPlan, ExplicitShare, ExplicitUnit, UnitReport
from dray.learners.factorization.factors import Ints, Longs
from dray.learners.factorization.implicit_share import (
    ImplicitPlan,
    ImplicitShare,
    ImplicitUnit,
    PartFactors,
)
from dray.learners.factorization.known import Found, Ids
from dray.learners.factorization.own_part import OwnPart, PartNotes, own_part
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Triples
from dray.learners.learner import InputGone
from dray.learners.status import Proof, Status, Stopped
from dray.storage import StorageOptions
from dray.threads.verify import CoresUsed, judge

PROOF_SECONDS = 1.0
PASSES = 2
"""Over the rows: for the ids, and for all else."""
T = TypeVar("T")


class FactorWorker:
    """`status`, `latest`, `abandon` and `stop` may be called from any thread; the rest from one at a time."""

    def __init__(self, number: int, threads: int) -> None:
        self.number = number
        """In its group."""
        self._threads = threads
        self._pool = Threads(threads)
        self._plan: FactorPlan | None = None
        self._explicit: ExplicitShare | None = None
        self._implicit: ImplicitShare | None = None
        self._usage = UsageReader()
        self._usage_lock = threading.Lock()
        self._rows = 0
        self._read = 0
        self._to_read = 0
        self._trouble = ""
        self._void = 0
        """Attempts up to this one were given up: what is still asked for them is not done."""
        self._reached: tuple[int, int] = (0, 0)
        self._failure: tuple[int, Exception] | None = None
        """What went wrong in an attempt: told by whatever is asked for next in it."""
        self._turns: list[TurnReport] = []
        self._trained_s = 0.0
        self._cores: CoresUsed | None = None
        self._warm = False
        self._proof: Proof | None = None
        self._stop = threading.Event()

    # From any thread

    def status(self, after_round: int) -> Status:  # noqa: ARG002  (the driver knows the epochs)
        with self._usage_lock:
            usage = self._usage.read()
        share = min(1.0, self._read / self._to_read) if self._to_read else 0.0
        return Status(usage, int(self._rows * share), self._rows, (), self._proof, self._trouble, 0)

    def latest(self) -> None:
        """The driver has its own copies."""

    def abandon(self, attempt: int) -> None:
        self._void = max(self._void, attempt)

    def stop(self) -> None:
        self._stop.set()

    # Rows

    def scan(self, slices: Sequence[Slice], rule: RowRule, storage: StorageOptions, test: bool) -> Found:
        rows = sum(piece.rows for piece in slices)
        self._rows += rows
        self._to_read += PASSES * rows
        found = row_reader.scan(slices, rule, storage, self._on_rows, self._on_wait, test=test)
        give_memory_back()
        return found

    def deal(
        self,
        slices: Sequence[Slice],
        rule: RowRule,
        ids: Ids,
        unit_of_user: Ints,
        units: Sequence[int],
        storage: StorageOptions,
        test: bool,
    ) -> tuple[DealReport | tuple[Dealt, ...], ...]:
        """Return the rows of the users of these units, and pass over all others."""
        rows = sum(piece.rows for piece in slices)
        self._to_read = max(self._to_read, self._read + rows)
        # Of all others there is one more, which is dropped: a worker's loss brings a few units back, not all.
        place = np.full(int(unit_of_user.max(initial=0)) + 1, len(units), np.int32)
        place[list(units)] = np.arange(len(units))
        dealt = row_reader.deal(
            *(slices, rule, ids, place[unit_of_user], len(units) + 1, storage, self._on_rows, self._on_wait), test=test
        )
        give_memory_back()
        return DealReport(socket.gethostname(), rows), *dealt[: len(units)]

    def prepare(self, plan: FactorPlan) -> None:
        """Begin with nothing."""
        self._plan = plan
        self._explicit = ExplicitShare(plan.plan) if isinstance(plan.plan, ExplicitPlan) else None
        self._implicit = ImplicitShare(plan.plan) if isinstance(plan.plan, ImplicitPlan) else None

    def take(self, unit: int, *dealt: tuple[Dealt, ...]) -> tuple[UnitReport, PartNotes]:
        """Make a unit of its rows, which are in the order of the data."""
        self._check_stop()
        assert self._plan is not None
        plan, notes = self._plan, PartNotes()

        def parts() -> Iterator[OwnPart]:
            nonlocal notes
            for rows in self._share.pieces([piece for some in dealt for piece in some]):
                part = own_part(rows, plan.kind, plan.split, plan.ageing)
                notes += part.notes
                yield part

        report = self._share.take(unit, parts())
        give_memory_back()
        return report, notes

    def give_items(self, own: Sequence[int], units: Sequence[int]) -> tuple[Triples | None, ...]:
        """Return the events that the users of `own` had with the items of each unit."""
        return None, *self._implicit_share.give_items(own, units)

    def take_items(self, unit: int, *parts: Triples) -> None:
        self._implicit_share.take_items(unit, parts)

    def hand_over(self, units: Sequence[int]) -> tuple[Any, ...]:
        """Return units as they are, for another worker."""
        items = self._implicit.by_item if self._implicit else {}
        return None, *((self._share.units[unit], items.get(unit)) for unit in units)

    def receive(self, units: Sequence[int], *contents: Any) -> None:
        for unit, (held, by_item) in zip(units, contents, strict=True):
            if self._explicit is not None:
                assert isinstance(held, ExplicitUnit)
                self._explicit.units[unit] = held
            elif isinstance(held, ImplicitUnit):
                self._implicit_share.units[unit] = held
                if by_item is not None:
                    self._implicit_share.by_item[unit] = by_item

    def keep(self, units: Sequence[int]) -> None:
        """Drop all units but these: others hold them."""
        for unit in self._share.units.keys() - set(units):
            self._share.units.pop(unit)
            if self._explicit is not None:
                self._explicit.users.pop(unit, None)
            if self._implicit is not None:
                self._implicit.by_item.pop(unit, None)
        give_memory_back()

    # Explicit ratings

    def stand(self, place: Place, scale: Scale, units: Sequence[int], *users: FactorBlock | None) -> None:
        """Have these units stand where the training does; None is the beginning."""
        with self._in_order(place):
            self._explicit_share.items.clear()
            self._explicit_share.stand(scale, dict(zip(units, users, strict=True)))

    def turn(
        self,
        place: Place,
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

    def finish(self, place: Place, units: Sequence[int]) -> tuple[TurnReport | FactorBlock, ...]:
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

    def stand_part(self, place: Place, side: SideName, units: Sequence[int], *parts: PartFactors | None) -> None:
        with self._in_order(place):
            self._implicit_share.stand(side, dict(zip(units, parts, strict=True)))

    def first_parts(self, side: SideName, units: Sequence[int]) -> tuple[PartFactors | None, ...]:
        """Return these parts as they are before the first iteration."""
        return None, *(PartFactors.of(self._implicit_share.plan.first(side, unit)) for unit in units)

    def solve(self, place: Place, side: SideName, *others: PartFactors) -> tuple[TurnReport | PartFactors, ...]:
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
        found: dict[int, RankingSums] = self._share.rankings(
            users, blocks[len(units) :], item_counts, ks, self._threads
        )
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

    def end_training(self) -> Proof:
        """Drop what is trained, which others have by now; return whether the threads were used."""
        if self._explicit is not None:
            self._explicit.users.clear()
            self._explicit.items.clear()
        if self._implicit is not None:
            self._implicit.own.clear()
            self._implicit.by_item.clear()
        give_memory_back()
        return self._prove()

    def _prove(self) -> Proof:
        """Judge the cores used so far, once."""
        if self._proof is None:
            measured = (self._cores or CoresUsed().start()).stop()
            self._proof = Proof(self._threads, measured.cores, judge(self._threads, measured))
        return self._proof

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
    def _in_order(self, place: Place) -> Iterator[None]:
        """Do what is asked for in an attempt only if all before it in that attempt was done."""
        self._check_stop()
        if place.number == 0:
            self._turns = []
        if self._failure is not None and self._failure[0] == place.attempt:
            raise self._failure[1]
        if place.attempt <= self._void or (place.number and self._reached != (place.attempt, place.number - 1)):
            raise InputGone("What was to come before in this epoch was given up, or has failed.", fix="")
        try:
            yield
        except Exception as error:
            self._failure = place.attempt, error
            raise
        self._reached = place

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        """Return what the work gives, and its seconds."""
        if self._cores is None:
            self._cores = CoresUsed().start()
        began = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - began
        self._trained_s += seconds
        return result, seconds

    def _after_epoch(self) -> None:
        """Prove the threads once there is enough to judge by; the first epoch may have compiled the kernels."""
        if not self._warm:
            self._warm, self._cores, self._trained_s = True, CoresUsed().start(), 0.0
        elif self._trained_s >= PROOF_SECONDS:
            self._prove()

    def _on_rows(self, rows: int) -> None:
        self._read += rows
        self._check_stop()

    def _on_wait(self, error: StorageError, _wait_s: float) -> None:
        self._trouble = error.what
        self._on_rows(0)


def _arrived(block: Any) -> FactorBlock | None:
    """Return a block that is there, or was promised."""
    found: FactorBlock | None = block.get() if hasattr(block, "get") else block
    return found
