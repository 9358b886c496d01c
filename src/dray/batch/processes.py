"""Batches on this machine: a few processes of our own, each at the end of a socket.

One that is killed loses the batch it was on, and only that: another takes its place. Nothing here waits for a process:
what it has to say is read when it is there, so a large batch and a large result never wait for each other.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import sys
import time
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from dray.batch import packing, wire
from dray.batch.child import Child
from dray.batch.executor import Batch, BatchEvent, Died, Done, Kind, Trouble
from dray.batch.function import BatchFunction, Tell, ignore
from dray.batch.memory import own_bytes
from dray.batch.run_items import GRACE_S
from dray.batch.shared import Memory, Store
from dray.errors import ConfigError, WorkerError
from dray.events.format import size
from dray.threads.cgroups import available_memory

Printed = Callable[[str, bool], None]
"""Hears what a process printed, and whether it was to stderr."""

STORE = Store(Memory())
"""Of this process: an array that is passed to one map after the other is still the same."""
LOOK_EVERY_S = 0.25
LOW_MEMORY = 0.03
MOST_START_FAILURES = 3
_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS}
_EXIT_S = 1.0


class Processes(packing.Packing):
    """An executor with `slots` processes, started when there is something for them to do."""

    task_overhead_s = 0.0005
    name = "processes"

    def __init__(
        self,
        function: Callable[[Any], Any] | BatchFunction[Any, Any],
        slots: int,
        *,
        limit_s: float | None = None,
        memory_bytes: int | None = None,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        threads: int = 1,
        output: Printed | None = None,
        tell: Tell = ignore,
    ) -> None:
        super().__init__(STORE)
        self.slots = slots
        self._function, self._function_keys = packing.pack_function(function, STORE)
        self._name = packing.name_of(function)
        self._limit_s = limit_s
        self._memory_bytes = memory_bytes
        self._environment = dict(environment or {})
        self._directory = directory
        self._threads = threads
        self._output = output or to_the_streams
        self._tell_driver = tell
        self._children: list[Child] = []
        self._batches: dict[int, Batch] = {}
        self._found: list[BatchEvent] = []
        self._selector = selectors.DefaultSelector()
        self._start_failures = 0
        self._looked_at = 0.0
        self._finalizer = weakref.finalize(self, _kill_all, self._children, os.getpid())

    def waiting(self) -> int:
        return len(self._batches)

    def submit(self, batch: Batch) -> None:
        self._batches[batch.number] = batch
        if len(self._children) < self.slots and all(child.batches for child in self._children):
            self._start()
        child = min(self._children, key=lambda child: len(child.batches))
        if not child.batches:
            child.since = time.perf_counter()
        child.batches.append(batch.number)
        self._send(child, wire.BATCH, batch.number, batch.shared, batch.payload)

    def poll(self, timeout_s: float) -> list[BatchEvent]:
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            for key, _ in self._selector.select(min(left, LOOK_EVERY_S)):
                child, what = key.data
                if child in self._children:
                    self._hear(child, what)
            self._look()
            if self._found or time.monotonic() >= deadline:
                found, self._found = self._found, []
                return found

    def close(self, good: bool) -> None:
        if good:
            self._see_off()
        for child in self._children:
            child.kill()
        for child in self._children:
            child.reap()
            for what in ("stdout", "stderr"):
                self._say(child, what)
            child.close()
        self._children.clear()
        self._batches.clear()
        self._selector.close()
        STORE.release(self._function_keys)
        self._function_keys = ()
        STORE.end()

    def _see_off(self) -> None:
        """Let the processes end by themselves, for a moment: what they registered to do at their exit is done."""
        for child in self._children:
            child.hang_up()
            self._selector.unregister(child.channel)
        deadline = time.monotonic() + _EXIT_S
        while any(child.alive() for child in self._children) and time.monotonic() < deadline:
            for key, _ in self._selector.select(0.02):
                child, what = key.data
                if what == "exit" or not self._say(child, what):
                    self._selector.unregister(key.fileobj)

    def _start(self) -> None:
        child = Child(self._environment, self._directory)
        self._children.append(child)
        for descriptor, what in child.descriptors():
            self._selector.register(descriptor, selectors.EVENT_READ, (child, what))
        self._send(child, wire.HELLO, 0, self._function_keys, self._function, self._limit_s, self._threads)

    def _send(self, child: Child, kind: int, number: int, keys: Sequence[Hashable], body: bytes, *more: Any) -> None:
        dropped = STORE.dropped()
        for other in self._children:
            other.to_forget += [key for key in dropped if key in other.known]
        new = [key for key in dict.fromkeys(keys) if key not in child.known]
        told = [(key, file.path, file.head, file.spans) for key in new for file in [STORE.handle(key)]]
        head = pickle.dumps((told, child.to_forget, *more))
        child.known.update(new)
        child.known.difference_update(child.to_forget)
        child.to_forget = []
        child.send(wire.HEADER.pack(kind, number, len(head), len(body)) + head, body)
        self._push(child)

    def _push(self, child: Child) -> None:
        """Write as much as the socket takes, and be told when it takes more."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.push() else 0)
        if self._selector.get_key(child.channel).events != events:
            self._selector.modify(child.channel, events, (child, "channel"))

    def _hear(self, child: Child, what: str) -> None:
        if what in ("stdout", "stderr"):
            if not self._say(child, what):  # closed
                self._selector.unregister(child.descriptor(what))
        elif what == "exit":
            self._reap(child)
        else:
            self._push(child)
            open_ = child.pull()
            for message in child.messages():
                self._take(child, *message)
            if not open_:  # it is about to end, or can no longer answer: the kernel keeps the cause of an end begun
                self._reap(child)

    def _say(self, child: Child, what: str) -> bool:
        """Pass on what a process printed; return whether that was anything."""
        text = child.printed(what)
        if text:
            self._output(text, what == "stderr")
        return bool(text)

    def _take(self, child: Child, kind: int, number: int, head: bytes, body: bytes) -> None:
        if kind == wire.READY:
            child.ready, child.since, self._start_failures = True, time.perf_counter(), 0
            return
        if kind == wire.TOLD:
            self._tell_driver(pickle.loads(head))  # noqa: S301  (from a process of ours)
            return
        if kind == wire.UNUSABLE:
            raise _unusable(self._name, *pickle.loads(head))  # noqa: S301
        seconds, troubles, unreadable = pickle.loads(head)  # noqa: S301
        child.batches.remove(number)
        batch = self._batches.pop(number)
        now = time.perf_counter()
        away_s, child.since = now - child.since - seconds, now
        if troubles is None:
            self._found.append(Died(number, unreadable, "pickle", outside=False))
            return
        told = [Trouble(*trouble) for trouble in troubles]
        self._found.append(Done(batch.number, body, told, seconds, away_s, len(body)))

    def _look(self) -> None:
        """End what takes too long and what eats the memory."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        for child in self._children:
            if self._limit_s is not None and child.running_s() > self._limit_s + GRACE_S:
                self._end(child, "time", f"It took longer than {self._limit_s:g} s and could not be interrupted.")
            elif self._memory_bytes and (used := own_bytes(child.pid)) > self._memory_bytes:
                self._end(child, "memory", f"Its process used {size(used)}, more than {size(self._memory_bytes)}.")
        memory = available_memory()
        if memory is not None and memory[0] < LOW_MEMORY * memory[1]:
            # One that is starting has begun nothing: its end would be taken for a fault of the function's module.
            busy = [child for child in self._children if child.ready and child.batches]
            if busy:
                largest = max(busy, key=lambda child: own_bytes(child.pid))
                used = own_bytes(largest.pid)
                self._end(largest, "memory", f"Its process used {size(used)} when the machine ran out of memory.")

    def _end(self, child: Child, kind: Kind, reason: str) -> None:
        if child.verdict is None:
            child.verdict = (kind, reason)
            child.kill()

    def _reap(self, child: Child) -> None:
        """Tell of the batches that a process took along."""
        if child not in self._children:
            return
        child.pull()
        for message in child.messages():
            self._take(child, *message)
        for what in ("stdout", "stderr"):
            self._say(child, what)
        self._children.remove(child)
        for descriptor, _ in child.descriptors():
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
        child.kill()  # whatever it has started itself
        code = child.reap()
        offset = child.offset()
        child.close()
        if not child.ready:
            self._start_failures += 1
            if self._start_failures >= MOST_START_FAILURES:
                raise WorkerError(
                    f"The processes for {self._name} end before they are ready: {_cause(code)}. {child.last_words()}",
                    fix="Importing the function's module seems to end the process: try it in a fresh Python.",
                )
        self._tell(child, code, offset)

    def _tell(self, child: Child, code: int, offset: int) -> None:
        kind, reason = child.verdict or ("died", f"Its process {_cause(code)}.")
        outside = child.verdict is None and code < 0 and -code not in _CRASHES
        if kind == "died" and (words := child.last_words()):
            reason = f"{reason} Its last words: {words}"
        for position, number in enumerate(child.batches):
            del self._batches[number]
            began = position == 0 and child.ready and offset != wire.SENDING
            self._found.append(
                Died(
                    number,
                    reason,
                    kind,
                    suspect=offset if began and offset >= 0 else None,
                    outside=outside or (kind == "memory" and self._memory_bytes is None),
                    blameless=not began,
                )
            )


def _unusable(name: str, reason: str, missing: str | None, trace: str) -> Exception:
    fix = f'See the cause: python -c "import ..." in {os.getcwd()} should fail in the same way.'  # noqa: PTH109
    if missing:
        fix = (
            f'Make "{missing}" importable for the processes: install it, or put its directory on PYTHONPATH (on a '
            'cluster: runtime_env={"working_dir": "."}).'
        )
    error = ConfigError(f"The processes cannot load the function {name}: {reason}", fix=fix)
    error.add_note(trace)
    return error


def _cause(code: int) -> str:
    if code >= 0:
        return f"ended itself with exit code {code} (os._exit, or a library that gives up)"
    name = signal.Signals(-code).name
    if -code in _CRASHES:
        return f"crashed ({name})"
    return f"was killed ({name}; by the function, by another process, or by the kernel when memory ran out)"


def to_the_streams(text: str, to_stderr: bool) -> None:
    """Print it as if this process had: a notebook shows it, too."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.write(text)
    stream.flush()


def _kill_all(children: list[Child], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the driver: they are not its own
        return
    for child in children:
        child.kill()
        child.reap()
        child.close()
    children.clear()
