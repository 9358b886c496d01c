"""What goes to and from a process that runs items, and how it is read there.

Imported by every such process before anything else: nothing here may load more than `pickle` does.
"""

from __future__ import annotations

import _pickle as pickle  # without `re` and `enum`, which take longer to load than all the rest
import io
import mmap
import os
import struct

TYPE_CHECKING = False  # `typing` itself takes longer to load than all of this
if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Any

HEADER = struct.Struct("<BqQQ")
"""Kind, number of the batch, bytes of the head, bytes of the body."""
HELLO, BATCH = 0, 1
READY, UNUSABLE, DONE, TOLD = 0, 1, 2, 3

READING, SENDING, PACKING = -1, -2, -3
"""Where a process is when it is at no item: before the first, after the last, and making the results ready."""

objects: dict[Hashable, Any] = {}
"""The large objects that this process has, by their keys."""


class Reader(pickle.Unpickler):
    """Reads a pickle in which large objects are keys."""

    def persistent_load(self, pid: Any) -> Any:
        return objects[pid]


def loads(data: bytes | memoryview) -> Any:
    return Reader(io.BytesIO(data)).load()


def thaw(data: bytes, _keys: tuple[Hashable, ...]) -> Any:
    """Return an item that was pickled by itself, at the moment when it came from its iterator."""
    return loads(data)


class Frozen:
    """Such an item in a list that is pickled: it is read as the item itself."""

    __slots__ = ("data", "keys", "stored_bytes")

    def __init__(self, data: bytes, keys: tuple[Hashable, ...], stored_bytes: int = 0) -> None:
        self.data = data
        self.keys = keys
        self.stored_bytes = stored_bytes

    def __reduce__(self) -> Any:
        return thaw, (self.data, self.keys)


def map_object(path: str, head: bytes, spans: list[tuple[int, int]]) -> Any:
    """Return an object whose buffers lie in a file: mapped, so that all processes share one copy, and read-only."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    view = memoryview(mapped)
    return pickle.loads(head, buffers=[view[start:stop] for start, stop in spans])
