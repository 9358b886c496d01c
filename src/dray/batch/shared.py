"""Large objects that are handed over once, however often they are passed.

They are found by identity: the same array in a hundred items, in a closure or in call after call is stored once. That
it is the same object does not mean that it still holds the same: what can be changed is compared with what was stored.
"""

from __future__ import annotations

import itertools
import os
import pickle
import sys
import tempfile
import threading
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dray.batch import wire

LARGE_BYTES = 1 << 20
IDLE_BYTES = 64 << 20
"""Stored objects that no batch uses now and that were passed only once; beyond that the oldest go."""
_COMPARED = 1 << 20
"""Bytes that are compared at once: they fit into a core's cache."""


class Backend(Protocol):
    """Where the objects are kept for the processes."""

    def keep(self, value: Any) -> Any:
        """Store it; return what `view` and `drop` want, and what the processes are told."""
        ...

    def view(self, handle: Any) -> Any:
        """Return the stored object, not copied."""
        ...

    def drop(self, handle: Any) -> None: ...


def size_of(value: Any) -> int:
    """Return the bytes of what may be large by itself: arrays, tables, byte strings; 0 for anything else."""
    kind = type(value)
    if kind in (bytes, bytearray, str):
        return len(value)
    if getattr(kind, "nbytes", None) is not None:  # numpy, Arrow, torch
        size = value.nbytes
        return size if isinstance(size, int) else 0
    if getattr(kind, "estimated_size", None) is not None:  # polars
        return int(value.estimated_size())
    return 0


@dataclass(slots=True)
class _Entry:
    key: Hashable
    place: int
    """The object's identity."""
    handle: Any
    bytes: int
    weak: weakref.ref[Any] | None
    strong: Any
    """The object itself where it cannot be referred to weakly."""
    head: int
    """Hash of the pickle without its buffers."""
    users: int = 0
    sightings: int = 0
    checked: int = -1
    outdated: bool = False
    """The object holds something else by now: batches on their way still use what was stored."""

    @property
    def value(self) -> Any:
        return self.weak() if self.weak is not None else self.strong


class Store:
    """The large objects of this process, by identity. Any thread may use it."""

    def __init__(self, backend: Backend) -> None:
        self.stored = 0
        """How often something was stored: for tests and the curious."""
        self._backend = backend
        self._entries: dict[Hashable, _Entry] = {}
        self._keys: dict[int, Hashable] = {}
        self._numbers = itertools.count()
        self._dropped: list[Hashable] = []
        self._session = 0
        self._lock = threading.RLock()

    def begin(self) -> None:
        """What was seen so far may have been changed by now."""
        with self._lock:
            self._session += 1
            self._remove_dead()

    def put(self, value: Any, size: int) -> Hashable:
        """Return the key of an object, which counts as used once more; store it if it is new or has changed."""
        with self._lock:
            key = self._keys.get(id(value))
            entry = self._entries[key] if key is not None else None
            if entry is not None and not self._holds(entry, value):
                self._outdate(entry)
                entry = None
            if entry is None:
                entry = self._add(value, size)
            entry.users += 1
            entry.sightings += 1
            return entry.key

    def handle(self, key: Hashable) -> Any:
        return self._entries[key].handle

    def view(self, key: Hashable) -> Any:
        return self._backend.view(self.handle(key))

    def use(self, keys: Sequence[Hashable]) -> None:
        with self._lock:
            for key in keys:
                self._entries[key].users += 1

    def release(self, keys: Sequence[Hashable]) -> None:
        """These are used once less. Those whose object is gone, or too many unused ones, are removed."""
        with self._lock:
            for key in keys:
                self._entries[key].users -= 1
            if keys:
                self._remove_dead()

    def dropped(self) -> list[Hashable]:
        """Return what was dropped since the last call, so that the processes may forget it."""
        with self._lock:
            dropped, self._dropped = self._dropped, []
            return dropped

    def end(self) -> None:
        """Drop what only this use has kept alive."""
        with self._lock:
            for entry in list(self._entries.values()):
                if entry.users <= 0 and entry.weak is None:
                    self._drop(entry)
            self._remove_dead()

    def _add(self, value: Any, size: int) -> _Entry:
        try:
            weak, strong = weakref.ref(value), None
        except TypeError:
            weak, strong = None, value
        head = b"" if _fixed(value) else _parts(value)[0]
        key = f"{os.getpid()}-{id(self)}-{next(self._numbers)}"
        handle = self._backend.keep(value)
        entry = _Entry(key, id(value), handle, size, weak, strong, hash(head), checked=self._session)
        self.stored += 1
        self._entries[key], self._keys[id(value)] = entry, key
        return entry

    def _holds(self, entry: _Entry, value: Any) -> bool:
        """Whether the entry is of this object, not of one that had its address before, and has its content."""
        if entry.value is not value:
            return False
        if entry.checked == self._session or _fixed(value):
            return True
        entry.checked = self._session
        head, buffers = _parts(value)
        if hash(head) != entry.head:
            return False
        _, stored = _parts(self._backend.view(entry.handle))
        return len(stored) == len(buffers) and all(map(_equal, buffers, stored))

    def _remove_dead(self) -> None:
        idle = []
        for entry in list(self._entries.values()):
            if entry.users > 0:
                continue
            if entry.outdated or entry.value is None:
                self._drop(entry)
            elif entry.weak is None or entry.sightings == 1:
                idle.append(entry)
        total = sum(entry.bytes for entry in idle)
        for entry in idle[:-1]:  # the newest stays: it may be the one that is passed again and again
            if total <= IDLE_BYTES:
                break
            total -= entry.bytes
            self._drop(entry)

    def _outdate(self, entry: _Entry) -> None:
        entry.outdated = True
        if self._keys.get(entry.place) == entry.key:
            del self._keys[entry.place]
        if entry.users <= 0:
            self._drop(entry)

    def _drop(self, entry: _Entry) -> None:
        del self._entries[entry.key]
        if self._keys.get(entry.place) == entry.key:
            del self._keys[entry.place]
        self._dropped.append(entry.key)
        self._backend.drop(entry.handle)


def _parts(value: Any) -> tuple[bytes, list[memoryview]]:
    """Return an object's pickle without its large buffers, and those: nothing is copied."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return head, [buffer.raw() for buffer in buffers]


def _equal(one: memoryview, other: memoryview) -> bool:
    if one.nbytes != other.nbytes:
        return False
    whole = one.nbytes - one.nbytes % 8
    return one[whole:] == other[whole:] and _equal_words(one[:whole].cast("Q"), other[:whole].cast("Q"))


def _equal_words(one: memoryview, other: memoryview) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None:  # memoryviews are compared item by item, at about 2 GB/s
        return one == other
    step = _COMPARED // 8
    return all(
        numpy.array_equal(
            numpy.frombuffer(one[start : start + step], "u8"), numpy.frombuffer(other[start : start + step], "u8")
        )
        for start in range(0, len(one), step)
    )


def _fixed(value: Any) -> bool:
    """Whether it cannot be changed, so that there is nothing to compare."""
    if isinstance(value, bytes | str):
        return True
    if type(value).__module__.partition(".")[0] in ("pyarrow", "polars"):
        return True
    flags = getattr(value, "flags", None)
    return flags is not None and getattr(flags, "owndata", False) and not getattr(flags, "writeable", True)


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """An object in memory that other processes of this machine can map."""

    descriptor: int
    path: str
    head: bytes
    spans: list[tuple[int, int]]
    temporary: str | None = None


class Memory:
    """Keeps objects in files without a name, in memory: they go with the last process that has them."""

    def keep(self, value: Any) -> MemoryFile:
        if isinstance(value, bytes | bytearray | str):  # pickle has no other place for their content
            value = _Carrier(value)
        head, buffers = _parts(value)
        descriptor, path, temporary = _nameless()
        spans: list[tuple[int, int]] = []
        position = 0
        for buffer in buffers:
            position = -(-position // 64) * 64  # arrays like their start aligned
            spans.append((position, position + buffer.nbytes))
            while buffer.nbytes:
                written = os.pwrite(descriptor, buffer[: 1 << 30], position)
                buffer, position = buffer[written:], position + written
        if position == 0:
            os.pwrite(descriptor, b"\0", 0)  # what is empty cannot be mapped
        return MemoryFile(descriptor, path, head, spans, temporary)

    def view(self, handle: MemoryFile) -> Any:
        return wire.map_object(handle.path, handle.head, handle.spans)

    def drop(self, handle: MemoryFile) -> None:
        os.close(handle.descriptor)
        if handle.temporary:
            os.unlink(handle.temporary)  # noqa: PTH108


class _Carrier:
    """A string of bytes or characters whose content pickles as a buffer."""

    def __init__(self, value: bytes | bytearray | str) -> None:
        self.value = value

    def __reduce_ex__(self, _protocol: Any) -> Any:
        value = self.value
        if isinstance(value, str):
            return str, (pickle.PickleBuffer(value.encode("utf-8", "surrogatepass")), "utf-8", "surrogatepass")
        return type(value), (pickle.PickleBuffer(value),)


def _nameless() -> tuple[int, str, str | None]:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("dray")
        return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}", None
    descriptor, path = tempfile.mkstemp(prefix="dray-map-", suffix=".memory")
    return descriptor, path, path
