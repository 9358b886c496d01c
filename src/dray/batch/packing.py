"""Make functions and items ready for another process: pickled, with large objects as keys of the store.

Functions and classes of the main program, lambdas and closures go by value (cloudpickle), in memory and to processes of
the same user only; what is importable goes by its name.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import cloudpickle

from dray.batch.executor import Packed, Trouble
from dray.batch.function import BatchFunction
from dray.batch.run_items import text_of
from dray.batch.shared import LARGE_BYTES, Store, size_of
from dray.batch.wire import Frozen, Reader, thaw
from dray.errors import ConfigError

ATOMIC = frozenset((int, float, bool, str, bytes, complex, type(None)))
"""What cannot change between coming from an iterator and being pickled."""
_SMALL = frozenset((int, float, bool, complex, type(None), tuple, list, dict, set, frozenset, type))


class _Writer(cloudpickle.Pickler):  # type: ignore[misc]
    """Writes large objects as their keys."""

    def __init__(self, file: io.BytesIO, store: Store, known: Mapping[int, Hashable]) -> None:
        super().__init__(file, protocol=5)
        self.keys: list[Hashable] = []
        self.stored_bytes = 0
        """Of large objects that were new."""
        self._store = store
        self._known = known

    def persistent_id(self, value: Any) -> Hashable | None:
        if type(value) in _SMALL:
            return None
        size = size_of(value)
        if size < LARGE_BYTES:
            return None
        key = self._known.get(id(value))
        if key is None:
            stored = self._store.stored
            key = self._store.put(value, size)
            self.stored_bytes += size if self._store.stored > stored else 0
        else:
            self._store.use([key])
        self.keys.append(key)
        return key


class _Local(Reader):
    """Reads in the driver what was written for the processes."""

    def __init__(self, data: bytes, store: Store, thawed: bool) -> None:
        super().__init__(io.BytesIO(data))
        self.views: dict[Hashable, Any] = {}
        self._store = store
        self._thawed = thawed

    def persistent_load(self, pid: Any) -> Any:
        if pid not in self.views:
            self.views[pid] = self._store.view(pid)
        return self.views[pid]

    def find_class(self, module: str, name: str) -> Any:
        return self._thaw if (module, name) == (thaw.__module__, "thaw") else super().find_class(module, name)

    def _thaw(self, data: bytes, keys: tuple[Hashable, ...]) -> Any:
        return _Local(data, self._store, True).load() if self._thawed else Frozen(data, keys)


def dumps(
    value: Any, store: Store, known: Mapping[int, Hashable] = MappingProxyType({})
) -> tuple[bytes, tuple[Hashable, ...], int]:
    """Return a pickle, the keys in it, each of which is in use from now on, and the bytes of it and what it stored.

    Nothing is in use if it cannot be pickled. `known` are objects that came from the store themselves.
    """
    file = io.BytesIO()
    writer = _Writer(file, store, known)
    try:
        writer.dump(value)
    except BaseException:
        store.release(writer.keys)
        raise
    data = file.getvalue()
    return data, tuple(writer.keys), len(data) + writer.stored_bytes


def pack_function(
    function: Callable[[Any], Any] | BatchFunction[Any, Any], store: Store
) -> tuple[bytes, tuple[Hashable, ...]]:
    """Return the function for other processes; one that cannot be sent is the user's to mend, and is named."""
    store.begin()
    try:
        return dumps(function, store)[:2]
    except Exception as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"The function {name_of(function)} cannot be sent to another process: {first_line}",
            fix="It refers to something that lives in this process only (a connection, an open file, a lock, a "
            'generator). Make that inside the function, or use where="here".',
        ) from error


def name_of(function: Any) -> str:
    """Return a function's name as its author knows it."""
    inner = getattr(function, "func", function)  # of a partial
    module = getattr(inner, "__module__", None)
    name = getattr(inner, "__qualname__", None) or type(inner).__name__
    return str(name) if module in (None, "__main__") else f"{module}.{name}"


class Packing:
    """The part of an executor for other processes that packs items: pickled, with large objects in its store."""

    freezes = True

    def __init__(self, store: Store) -> None:
        self._store = store

    def freeze(self, item: Any) -> Frozen | Trouble:
        """Pickle an item the moment it comes: its iterator may reuse what it gave."""
        self._store.begin()
        try:
            data, keys, size = dumps(item, self._store)
        except Exception as error:
            return _cannot(0, item, error)
        return Frozen(data, keys, size - len(data))

    def pack(self, items: Sequence[Any]) -> Packed:
        """Return the items in one pickle; if one cannot be, tell which."""
        self._store.begin()
        try:
            payload, keys, size = dumps(items, self._store)
        except Exception:
            return Packed(None, troubles=self._find_unpicklable(items))
        frozen = [item for item in items if type(item) is Frozen]
        keys += tuple(key for item in frozen for key in item.keys)
        return Packed(payload, size + sum(item.stored_bytes for item in frozen), keys)

    def split(self, payload: bytes, spans: Sequence[tuple[int, int]]) -> list[Packed]:
        """Return stretches of packed items, packed by themselves. Large objects are not stored anew."""
        reader = _Local(payload, self._store, thawed=False)
        items = reader.load()
        known = {id(view): key for key, view in reader.views.items()}
        parts = []
        for start, stop in spans:
            part = items[start:stop]
            data, keys, size = dumps(part, self._store, known)
            frozen = tuple(key for item in part if type(item) is Frozen for key in item.keys)
            self._store.use(frozen)
            parts.append(Packed(data, size, keys + frozen))
        return parts

    def text(self, payload: bytes, offset: int) -> str:
        """Return an item of a batch as text."""
        try:
            return text_of(_Local(payload, self._store, thawed=True).load()[offset])
        except Exception:  # one that only the processes can read
            return ""

    def unpack(self, results: bytes) -> list[Any]:
        values: list[Any] = pickle.loads(results)  # noqa: S301  (from a process of ours)
        return values

    def release(self, keys: Sequence[Hashable]) -> None:
        self._store.release(keys)

    def _find_unpicklable(self, items: Sequence[Any]) -> list[Trouble]:
        troubles = []
        for offset, item in enumerate(items):
            try:
                self._store.release(dumps(item, self._store)[1])
            except Exception as error:
                troubles.append(_cannot(offset, item, error))
        return troubles


def load_error(data: bytes | None) -> BaseException | None:
    """Return the function's own exception, if it can be read here."""
    if data is None:
        return None
    try:
        error = pickle.loads(data)  # noqa: S301  (from a process of ours)
    except Exception:
        return None
    return error if isinstance(error, BaseException) else None


def _cannot(offset: int, item: Any, error: Exception) -> Trouble:
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    reason = f"It, a {type(item).__name__}, cannot be pickled: {first_line}"[:500]
    return Trouble(offset, "pickle", reason, text_of(item))
