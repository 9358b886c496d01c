"""The files of a factor model: NumPy arrays, Arrow ids and model.json, in a local directory or on S3. No pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dray.errors import DAMAGE, DrayError, ModelError
from dray.learners.factorization.factors import by_popularity, count
from dray.learners.factorization.ids import Lookup
from dray.storage import StorageOptions, absolute, is_s3, join, open_storage, translate_errors, write_atomically
from dray.threads.limits import cpus_of_this_process

ABOUT = "model.json"
FORMAT = 1
ARRAYS = ("user_factors", "item_factors", "user_bias", "item_bias", "seen_starts", "seen_items", "seen_values")
IDS = ("users", "items")
_DERIVED = ("users_order", "items_order", "item_counts", "popular")
"""What follows from the others, kept so that the first answer need not wait for it: the indices in ascending order of
the ids (what an id is found by without a table of all ids), how many users had an item, and the items in that order."""
INDEX = ("index_order", "index_codes", "index_scales", "index_lengths", "index_slacks", "index_longest")
"""Of a large catalogue: what top.ItemIndex looks for one user's items in."""
_OF_ITEMS = ("popular", "index_order")
"""Indices that kernels follow without a look, and that are read as a whole."""
FEW_ITEMS = 20_000
"""So many are scored one by one in a millisecond; an index pays for more."""


class Parts(Mapping[str, Any]):
    """The arrays and ids of a model by name; what is not in memory is read when it is first asked for."""

    def __init__(self, held: dict[str, Any]) -> None:
        self._held = held

    def __getitem__(self, name: str) -> Any:
        if name not in self._held:
            self._held[name] = self.read(name)
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*ARRAYS, *IDS, *_DERIVED, *(INDEX if self.has_index else ())))

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def has_index(self) -> bool:
        """Whether there are so many items that one user's are looked for in an index."""
        return len(self["popular"]) > FEW_ITEMS

    def read(self, name: str) -> Any:
        """Return a part that was not given: of a model in memory, one that follows from the others."""
        if name in INDEX:
            self._held |= zip(INDEX, self._make_index(), strict=True)
            return self._held[name]
        if name == "item_counts":
            return count(self["seen_items"], len(self["item_factors"]))
        if name == "popular":
            return by_popularity(self["item_counts"])
        return Lookup.ordered(self[name.removesuffix("_order")])

    def _make_index(self) -> tuple[npt.NDArray[Any], ...]:
        from dray.learners.factorization.top import encode_items

        return encode_items(self["item_factors"], self["popular"], min(4, cpus_of_this_process()))


class StoredParts(Parts):
    """Parts in files. Local arrays are mapped into memory: what is never looked at is never read."""

    def __init__(self, location: str, options: StorageOptions, shapes: Mapping[str, Any]) -> None:
        super().__init__({})
        self._location, self._options, self._shapes = location, options, shapes

    @property
    def has_index(self) -> bool:
        return all(name in self._shapes for name in INDEX)

    def read(self, name: str) -> Any:
        if name in INDEX and not self.has_index:
            return super().read(name)
        if name in IDS:
            return self._ids(name)
        path = join(self._location, f"{name}.npy")
        try:
            array = self._array(path, mapped=not is_s3(path) and 0 not in self._shapes[name]["shape"])
        except DrayError:
            raise
        except Exception as error:  # whatever Python's own parser says of a header: NumPy hands it on
            raise _damaged(path, str(error)) from error
        if [str(array.dtype), list(array.shape)] != [self._shapes[name]["dtype"], self._shapes[name]["shape"]]:
            raise _damaged(path, f"{array.dtype}{list(array.shape)} is not what {ABOUT} says")
        if name in _OF_ITEMS and len(array) and not 0 <= array.min() <= array.max() < self._shapes["items"]["shape"][0]:
            raise _damaged(path, "it names items that are not there")
        return array

    def _array(self, path: str, *, mapped: bool) -> npt.NDArray[Any]:
        filesystem, inner = open_storage(path, self._options)
        with translate_errors(path):
            if mapped:  # copy on write: the kernels are compiled for arrays that may be written, and never do
                return np.asarray(np.load(inner, mmap_mode="c", allow_pickle=False))
            with filesystem.open_input_stream(inner) as stream:
                return np.asarray(np.load(pa.BufferReader(stream.read()), allow_pickle=False))

    def _ids(self, name: str) -> pa.Array:
        path = join(self._location, f"{name}.arrow")
        filesystem, inner = open_storage(path, self._options)
        with translate_errors(path):
            if is_s3(path):
                with filesystem.open_input_stream(inner) as stream:
                    source: Any = pa.BufferReader(stream.read())
            else:
                source = pa.memory_map(inner)
            try:
                table = pa.ipc.open_file(source).read_all()
                table.validate(full=True)  # Arrow follows what a file says of its own texts
                ids = table.column("id").combine_chunks()
            except (pa.ArrowException, OSError, *DAMAGE) as error:
                raise _damaged(path, str(error)) from error
        told = self._shapes[name]
        if [str(ids.type), [len(ids)], ids.null_count] != [told["dtype"], told["shape"], 0]:
            raise _damaged(path, f"{len(ids)} ids of type {ids.type} are not what {ABOUT} says")
        return ids


def write(location: str, options: StorageOptions, about: Mapping[str, Any], parts: Parts) -> None:
    """Write all files, model.json last: without it, there is no model."""
    location = absolute(location).rstrip("/")
    shapes = {}
    for name in parts:
        if name in IDS:
            continue
        array = parts[name]
        shapes[name] = {"dtype": str(array.dtype), "shape": list(array.shape)}
        write_atomically(join(location, f"{name}.npy"), options, lambda file, array=array: _save(file, array))  # type: ignore[misc]
    for name in IDS:
        table = pa.table({"id": parts[name]})
        shapes[name] = {"dtype": str(parts[name].type), "shape": [len(parts[name])]}
        write_atomically(join(location, f"{name}.arrow"), options, lambda file, table=table: _save_ids(file, table))  # type: ignore[misc]
    document = json.dumps({"format": FORMAT, **about, "parts": shapes}, indent=2, sort_keys=True) + "\n"
    write_atomically(join(location, ABOUT), options, lambda file: file.write(document.encode()))


def read(location: str, options: StorageOptions) -> tuple[dict[str, Any], Parts]:
    """Return what model.json says and the parts, none of which is read yet."""
    location = absolute(location).rstrip("/")
    path = join(location, ABOUT)
    filesystem, inner = open_storage(path, options)
    with translate_errors(path):
        if not filesystem.get_file_info(inner).is_file:
            raise ModelError(f"There is no factor model at {location}: it has no {ABOUT}.", fix="Check the path.")
        with filesystem.open_input_stream(inner) as stream:
            content = stream.read()
    try:
        about: dict[str, Any] = json.loads(content)
        shapes = about["parts"]
        missing = [name for name in (*ARRAYS, *_DERIVED, *IDS) if name not in shapes]
        fitting = missing or about.get("format") != FORMAT or _fit(shapes)
    except DAMAGE as error:
        raise _damaged(path, str(error)) from error
    if about.get("format") != FORMAT:
        raise ModelError(
            f"{path} has format {about.get('format')}, this version of dray reads {FORMAT}.", fix="Update dray."
        )
    if missing:
        raise _damaged(path, f"it says nothing of {', '.join(missing)}")
    if not fitting:
        raise _damaged(path, "the shapes of its arrays do not fit together")
    return about, StoredParts(location, options, shapes)


def _fit(shapes: Mapping[str, Any]) -> bool:
    """Say whether the arrays have the types and sizes that belong together: the kernels rely on it."""
    found = {name: [part["dtype"], part["shape"]] for name, part in shapes.items()}
    (users, factors), (items, _), (pairs,) = (found[name][1] for name in ("user_factors", "item_factors", "seen_items"))
    wanted = {
        "user_factors": ["float32", [users, factors]],
        "item_factors": ["float32", [items, factors]],
        "user_bias": ["float32", [users]],
        "item_bias": ["float32", [items]],
        "seen_starts": ["int64", [users + 1]],
        "seen_items": ["int32", [pairs]],
        "seen_values": ["float32", [pairs]],
        "users_order": ["int32", [users]],
        "items_order": ["int32", [items]],
        "item_counts": ["int64", [items]],
    }
    return (
        all(found[name] == form for name, form in wanted.items())
        and [found["users"][1], found["items"][1]] == [[users], [items]]
        and {found["users"][0], found["items"][0]} <= {"string", "int64"}
    )


def digest(kind: str, mean: float, as_of: float | None, parts: Parts) -> str:
    """sha256 of what the model says: equal models, equal digest, wherever and however they were trained."""
    total = hashlib.sha256(f"{kind} {mean!r} {as_of!r}".encode())
    for name in ARRAYS:
        array = parts[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(_bytes_of(array).data)
    for name in IDS:
        total.update(f"{name} {parts[name].type} {len(parts[name])}".encode())
        for begin in range(0, len(parts[name]), 1 << 16):
            for value in parts[name].slice(begin, 1 << 16).to_pylist():
                text = value.encode() if isinstance(value, str) else str(value).encode()
                total.update(b"%d:" % len(text) + text)
    return total.hexdigest()


def _save(file: pa.NativeFile, array: npt.NDArray[Any]) -> None:
    """Write what np.load reads, by pieces: NumPy would copy the whole for a file that is not its own."""
    np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
    flat = _bytes_of(array)
    for begin in range(0, len(flat), 8 << 20):
        file.write(flat[begin : begin + (8 << 20)])


def _bytes_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _save_ids(file: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _damaged(path: str, how: str) -> ModelError:
    return ModelError(f"{path} is damaged: {how}.", fix="Put the file back if there is a copy, or train again.")
