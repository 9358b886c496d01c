"""Run a function over items, whatever happens on the way: every item comes to a result or to an error, once.

The caller's own thread does everything, while it waits for the next result: items come from their iterator in that
thread, and nothing runs on behind its back. At most a few batches are on their way, so memory stays flat.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

from dray.batch import blame, packing, sizing
from dray.batch.executor import Batch, Died, Done, Executor, Packed, Trouble
from dray.batch.options import Options
from dray.batch.ordering import Shelf
from dray.errors import ItemError
from dray.events.kinds import Event, Progress

AHEAD_BATCHES = 64
"""Batches for each slot that may be done before the one whose turn it is."""
AHEAD_BYTES = 64 << 20
PROGRESS_EVERY_S = 0.2
PULL_S = 0.1
"""An iterator that is slow gives smaller batches, so that its items do not wait for each other."""
_PUMP_EVERY_S = 0.02
_PATIENCE_S = 0.5
_FIXES = {
    "raised": 'To go on without such items, use on_error="skip" (or "return" for the error in place of the result).',
    "time": 'Raise timeout_s, or go on without such items: on_error="skip".',
    "died": 'Try the function on this item alone, or go on without such items: on_error="skip".',
    "memory": "Give each item more memory (fewer workers), smaller items, or go on without such items: "
    'on_error="skip".',
    "pickle": "Pass and return plain data (numbers, text, arrays, tables) and open connections and files inside "
    "the function.",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one item."""

    index: int
    value: Any = None
    error: ItemError | None = None


@dataclass(slots=True)
class Chunk:
    """What became of neighbouring items."""

    first: int
    count: int
    results: Any = None
    errors: dict[int, ItemError] = field(default_factory=dict)
    """By offset."""
    bytes: int = 0


Emit = Callable[[Event], object]
"""`Telemetry.emit`, which would load Arrow along with it."""


def silence(_event: Event) -> None:
    pass


class Items:
    """The items, taken from the front once, in the thread that asks."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.total = len(items) if isinstance(items, Sized) else None
        self.taken = 0
        self.ended = False
        self.failure: BaseException | None = None
        """What the iterator raised: told when all before it is."""
        # Of these, a stretch can be taken at once: no code of the user's runs in between.
        self._sequence: Sequence[Any] | None = items if isinstance(items, list | tuple | range) else None
        self._iterator = None if self._sequence is not None else iter(items)
        self.settled = self._sequence is not None

    @property
    def remaining(self) -> int | None:
        return None if self.total is None else max(0, self.total - self.taken)

    def take(self, count: int, executor: Executor) -> list[Any]:
        """Return at most so many; fewer at the end or when they come slowly. A `Trouble` is the last of its list."""
        if self._sequence is not None:
            taken = list(self._sequence[self.taken : self.taken + count])
            self.taken += len(taken)
            self.ended = self.taken >= len(self._sequence)
            return taken
        return self._pull(count, executor)

    def _pull(self, count: int, executor: Executor) -> list[Any]:
        assert self._iterator is not None
        taken: list[Any] = []
        deadline = time.monotonic() + PULL_S
        while len(taken) < count:
            try:
                item = next(self._iterator)
            except StopIteration:
                self.ended = True
                break
            except Exception as error:
                self.ended, self.failure = True, error
                break
            self.taken += 1
            if type(item) not in packing.ATOMIC:
                item = executor.freeze(item)
            taken.append(item)
            if type(item) is Trouble or time.monotonic() >= deadline:
                break
        return taken


Move = Callable[["Engine"], "Callable[[], Executor] | None"]
"""Asked once something is known of the items: how to open a better executor, if there is one."""


class Engine:
    """One map on its way. Made, asked for `chunks` and closed by one thread."""

    def __init__(
        self, executor: Executor, items: Items, options: Options, emit: Emit = silence, move: Move | None = None
    ) -> None:
        self.executor = executor
        self.items = items
        self.pace = sizing.Pace()
        self.done = 0
        self.failed = 0
        self.begun = time.monotonic()
        self._options = options
        self._emit = emit
        self._move = move
        self._next_executor: Callable[[], Executor] | None = None
        self._numbers = itertools.count()
        self._batches: dict[int, Batch] = {}
        self._again: list[tuple[float, int, Batch]] = []
        self._shelf: Shelf[Chunk] = Shelf(options.ordered)
        self._shelf_bytes = 0
        self._stopping = False
        self._closed = False
        self._pumped_at = self._told_at = 0.0

    def chunks(self) -> Generator[Chunk, None, None]:
        """Yield what became of the items, in order or as it comes. Closing this closes the executor."""
        try:
            while True:
                self._fill()
                for chunk in self._shelf.take():
                    self._shelf_bytes -= chunk.bytes
                    yield chunk
                if self._over():
                    break
                self._wait(self._patience())
            self._progress(last=True)
            self.close(good=True)
            if self.items.failure is not None:
                raise self.items.failure
        finally:
            self.close(good=False)

    def values(self, chunk: Chunk) -> list[Any]:
        """Return the values of a chunk; None where there is an error."""
        if chunk.results is None:
            return [None] * chunk.count
        try:
            return self.executor.unpack(chunk.results)
        except Exception as error:
            reason = f"Its result cannot be read in this process: {type(error).__name__}: {error}"[:500]
            for offset in range(chunk.count):
                if offset not in chunk.errors:
                    chunk.errors[offset] = self._error(chunk.first, Trouble(offset, "pickle", reason), "")
            return [None] * chunk.count

    def pump(self) -> None:
        """Keep the processes busy while the caller looks at results; cheap when called too often."""
        now = time.monotonic()
        if now - self._pumped_at >= _PUMP_EVERY_S and not self._closed:
            self._wait(0.0)
            self._fill()

    def close(self, good: bool) -> None:
        if not self._closed:
            self._closed = True
            self.executor.close(good)

    def _over(self) -> bool:
        nothing_more = self.items.ended or self._stopping
        return nothing_more and not self._again and not self._batches and not len(self._shelf)

    def _patience(self) -> float:
        if not self._again:
            return _PATIENCE_S
        return max(0.0, min(_PATIENCE_S, self._again[0][0] - time.monotonic()))

    def _wait(self, timeout_s: float) -> None:
        for event in self.executor.poll(timeout_s):
            if isinstance(event, Done):
                self._finish(event)
            else:
                self._recover(event)
        self._pumped_at = time.monotonic()
        self._progress()

    def _fill(self) -> None:
        if self._next_executor is not None and not self._change_executor():
            return
        slots = self.executor.slots
        depth = sizing.queue_depth(self.pace, self.items.remaining, slots) if self._may_read_ahead else 1
        while self.executor.waiting() < slots * depth:
            batch = self._due() or self._new()
            if batch is None:
                return
            self._batches[batch.number] = batch
            self.executor.submit(batch)

    def _change_executor(self) -> bool:
        """Go elsewhere, once nothing is on its way here; return whether that is done."""
        assert self._next_executor is not None
        if self._batches or self._again:
            return False
        self.executor.close(True)
        self.executor, self._next_executor = self._next_executor(), None
        return True

    def _due(self) -> Batch | None:
        if self._again and self._again[0][0] <= time.monotonic():
            return heapq.heappop(self._again)[2]
        return None

    def _new(self) -> Batch | None:
        """Return the next items as a batch; those that cannot be sent go to the shelf as errors."""
        while not (self.items.ended or self._stopping or self._far_ahead()):
            first = self.items.taken
            items = self.items.take(self._size(), self.executor)
            trouble = items.pop() if items and type(items[-1]) is Trouble else None
            if trouble is not None:
                self._fail(first + len(items), trouble, "")
            if items and (batch := self._pack(first, items)):
                return batch
        return None

    @property
    def _may_read_ahead(self) -> bool:
        """Whether an item may be asked for before the one before it has run: its iterator may reuse that."""
        return self.executor.freezes or self.items.settled

    def _size(self) -> int:
        if not self._may_read_ahead:
            return 1
        if self._options.batch is not None:
            return self._options.batch
        return sizing.batch_size(self.pace, self.items.remaining, self.executor.slots, self.executor.task_overhead_s)

    def _far_ahead(self) -> bool:
        ahead = len(self._shelf) + len(self._batches) + len(self._again)
        return ahead >= AHEAD_BATCHES * self.executor.slots or self._shelf_bytes >= AHEAD_BYTES

    def _pack(self, first: int, items: Sequence[Any]) -> Batch | None:
        packed = self.executor.pack(items)
        if not packed.troubles:
            return self._batch(first, len(items), packed)
        bad = {trouble.offset: trouble for trouble in packed.troubles}
        for offset, trouble in bad.items():
            self._fail(first + offset, trouble, "")
        start = 0
        for stop in [*sorted(bad), len(items)]:
            if stop > start and (batch := self._pack(first + start, items[start:stop])):
                self._later(batch)
            start = stop + 1
        return self._due()

    def _batch(self, first: int, count: int, packed: Packed, **more: Any) -> Batch:
        return Batch(next(self._numbers), first, count, packed.payload, packed.bytes, packed.shared, **more)

    def _later(self, batch: Batch) -> None:
        heapq.heappush(self._again, (batch.due, batch.number, batch))

    def _finish(self, done: Done) -> None:
        batch = self._batches.pop(done.batch)
        self.executor.release(batch.shared)
        self.pace.saw(batch.count, done.seconds, batch.bytes + done.bytes, done.away_s)
        chunk = Chunk(batch.first, batch.count, done.results, bytes=done.bytes)
        for trouble in done.troubles:
            chunk.errors[trouble.offset] = self._error(batch.first, trouble, trouble.item)
        self._shelve(chunk)
        if self._move is not None and not self.items.ended and (open_executor := self._move(self)):
            self._move, self._next_executor = None, open_executor

    def _recover(self, died: Died) -> None:
        batch = self._batches.pop(died.batch)
        decisions = blame.after_death(
            batch.count,
            deaths=batch.deaths,
            losses=batch.losses,
            suspect=died.suspect,
            outside=died.outside,
            blameless=died.blameless,
            retries=self._options.retries,
        )
        again = [decision for decision in decisions if isinstance(decision, blame.Again)]
        for decision in decisions:
            if isinstance(decision, blame.GiveUp):
                self._give_up(batch, died, decision)
        if len(again) == 1 and (again[0].start, again[0].stop) == (0, batch.count):
            batch.deaths, batch.losses = again[0].deaths, again[0].losses
            batch.due = time.monotonic() + again[0].wait_s
            self._later(batch)
            return
        try:
            parts = self.executor.split(batch.payload, [(decision.start, decision.stop) for decision in again])
        except Exception as error:  # what neither the process nor the driver can read
            self._give_all_up(batch, died, again, error)
            return
        for decision, packed in zip(again, parts, strict=True):
            due = time.monotonic() + decision.wait_s
            count = decision.stop - decision.start
            part = self._batch(batch.first + decision.start, count, packed, deaths=decision.deaths, due=due)
            self._later(part)
        self.executor.release(batch.shared)

    def _give_all_up(self, batch: Batch, died: Died, again: Sequence[blame.Again], error: Exception) -> None:
        reason = f"{died.reason} Its batch cannot be taken apart: {type(error).__name__}: {error}"[:500]
        for offset in (offset for part in again for offset in range(part.start, part.stop)):
            self._fail(batch.first + offset, Trouble(offset, died.kind, reason), "")
        self.executor.release(batch.shared)

    def _give_up(self, batch: Batch, died: Died, decision: blame.GiveUp) -> None:
        tries = f" ({decision.tries} tries)" if decision.tries > 1 else ""
        trouble = Trouble(decision.offset, died.kind, f"{died.reason}{tries}")
        self._fail(batch.first + decision.offset, trouble, self.executor.text(batch.payload, decision.offset))

    def _fail(self, index: int, trouble: Trouble, item: str) -> None:
        alone = Trouble(0, trouble.kind, trouble.reason, trouble.item or item, trouble.traceback, trouble.error)
        self._shelve(Chunk(index, 1, errors={0: self._error(index, alone, alone.item)}))

    def _error(self, first: int, trouble: Trouble, item: str) -> ItemError:
        index = first + trouble.offset
        named = f"Item {index:,} ({item})" if item else f"Item {index:,}"
        error = ItemError(
            f"{named} failed: {trouble.reason}", _FIXES[trouble.kind], index, item, trouble.kind, trouble.traceback
        )
        error.__cause__ = packing.load_error(trouble.error)
        if error.__cause__ is not None and trouble.traceback:
            error.__cause__.add_note(f"In the process that ran it:\n{trouble.traceback}")
        return error

    def _shelve(self, chunk: Chunk) -> None:
        self._shelf.put(chunk.first, chunk.count, chunk)
        self._shelf_bytes += chunk.bytes
        self.done += chunk.count
        self.failed += len(chunk.errors)
        if chunk.errors and self._options.on_error == "raise":
            self._stopping = True

    def _progress(self, last: bool = False) -> None:
        now = time.monotonic()
        if last or now - self._told_at >= PROGRESS_EVERY_S:
            self._told_at = now
            self._emit(Progress(done=self.done, total=self.items.total, unit="items"))
