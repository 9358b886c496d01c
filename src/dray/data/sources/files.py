"""Bytes of files, local or on S3: ranges of plain ones, streams of compressed ones.

After a transient error of the store, reading goes on at the byte where it stopped.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from dray.data.source import Note, Piece
from dray.data.sources.beside import beside
from dray.data.sources.linked import each_once
from dray.errors import DataError
from dray.storage import StorageOptions, expand, is_s3, open_storage, translate_errors, with_retries

CHUNK_BYTES = 4 << 20
"""Bytes read at once, and about the size of a block that is parsed at once."""
PARALLEL_REQUESTS = 16
LOCAL_READERS = 4
"""Threads that read the heads or footers of local files: more would only wait for the interpreter."""
_COMPRESSIONS = {".gz": "gzip", ".gzip": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd",
                 ".zip": "zip"}  # fmt: skip

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file as it was when the source was opened."""

    location: str
    bytes: int
    compression: str | None = None
    member: str | None = None
    """Of a zip archive: one of the files in it."""

    @property
    def name(self) -> str:
        return self.location if self.member is None else f"{self.location}/{self.member}"


class OpenedFile(Protocol):
    """A file with what its first bytes or its footer show."""

    @property
    def file(self) -> DataFile: ...


Opened = TypeVar("Opened", bound=OpenedFile)


@dataclass(frozen=True, slots=True)
class FileSource(Generic[Opened]):
    """What the sources of most formats share: their files. Rows are not counted before they are read."""

    name: str
    files: tuple[Opened, ...]
    storage: StorageOptions
    notes: tuple[Note, ...] = field(default=(), kw_only=True)

    @property
    def rows(self) -> int | None:
        return None

    @property
    def bytes(self) -> int:
        return sum({file.file.location: file.file.bytes for file in self.files}.values())

    def file_of(self, piece: Piece) -> Opened:
        return next(file for file in self.files if file.file.name == piece.name)


def plain_name(location: str) -> str:
    """Return the name in lower case, without the suffix of a compression: its own suffix is the format."""
    name = location.rpartition("/")[2].lower()
    return next((name.removesuffix(end) for end in _COMPRESSIONS if name.endswith(end)), name)


class Expanded(NamedTuple):
    """What locations name."""

    files: list[str]
    """Of data."""
    passed_over: list[str]
    """Beside them, and no data."""
    again: dict[str, str]
    """Directories that are others by a link, whose files are read under those."""


def expand_data(locations: Sequence[str], storage: StorageOptions) -> Expanded:
    """Return the files of data that the locations name, each once, and what was passed over."""
    files, again = each_once(expand(locations, storage))
    passed_over = beside(files, locations)
    return Expanded(files if not passed_over else sorted({*files} - {*passed_over}), passed_over, again)


def find_files(locations: Sequence[str], storage: StorageOptions) -> list[DataFile]:
    """Return every file of data that the locations name, with its size."""
    found = []
    for _, group in groupby(expand_data(locations, storage).files, is_s3):  # sorted, and so the local ones together
        names = list(group)
        filesystem, _ = open_storage(names[0], storage)
        with translate_errors(names[0]):
            infos = filesystem.get_file_info([open_storage(name, storage)[1] for name in names])
        # A size of None: the file was removed after it was listed; reading it raises the error.
        found += [DataFile(name, info.size or 0, compression_of(name)) for name, info in zip(names, infos, strict=True)]
    return found


def compression_of(location: str) -> str | None:
    return next((codec for end, codec in _COMPRESSIONS.items() if location.lower().endswith(end)), None)


def in_parallel(act: Callable[[Item], Result], items: Sequence[Item], threads: int = PARALLEL_REQUESTS) -> list[Result]:
    """Return `act` of every item, in threads: for requests that wait for a store."""
    if len(items) < 2:
        return [act(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items))) as pool:
        return list(pool.map(act, items))


@contextmanager
def reading(location: str, what: str) -> Iterator[None]:
    """Raise errors of damaged or unreadable files with the file's name."""
    try:
        with translate_errors(location):
            yield
    except (pa.ArrowException, OSError, EOFError) as error:
        first_line = (str(error).splitlines() or ["no reason given"])[0]
        raise DataError(
            f"Cannot read {location} as {what}: {first_line}",
            fix="Check that the file is complete (it may still be written, or was cut off), or leave it out.",
        ) from error


class RandomFile:
    """Reads ranges of a file, with retries; opens it again after an error. One thread uses it."""

    def __init__(self, file: DataFile, storage: StorageOptions) -> None:
        self._file = file
        self._storage = storage
        self._stream: pa.NativeFile | None = None

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes of a range; fewer only at the end of the file."""
        if start >= stop:
            return b""
        return with_retries(self._file.location, self._storage, lambda: self._read(start, stop))

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __enter__(self) -> RandomFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, start: int, stop: int) -> bytes:
        try:
            if self._stream is None:
                filesystem, path = open_storage(self._file.location, self._storage)
                self._stream = filesystem.open_input_file(path)
                self._check_size(self._stream.size())
            found: bytes = self._stream.read_at(stop - start, start)
        except BaseException:
            self.close()
            raise
        if len(found) < min(stop, self._file.bytes) - start:
            self._check_size(start + len(found))
        return found

    def _check_size(self, size: int) -> None:
        if size != self._file.bytes:
            raise DataError(
                f"{self._file.location} was changed while dray read it: it had {self._file.bytes:,} bytes and "
                f"now has {size:,}.",
                fix="Start again when no process writes the data.",
            )


def chunks(
    file: DataFile, storage: StorageOptions, start: int = 0, stop: int | None = None, size: int = CHUNK_BYTES
) -> Iterator[bytes]:
    """Yield the bytes of a range in order; of a compressed file, its contents from `start` on.

    One chunk is read ahead while the caller works on another.
    """
    with RandomFile(file, storage) as opened:
        read = _ranges(opened, file, start, stop, size) if file.compression is None else _stream(opened, file, start)
        with ThreadPoolExecutor(1) as pool:
            ahead = pool.submit(next, read, b"")
            while chunk := ahead.result():
                ahead = pool.submit(next, read, b"")
                yield chunk


def _ranges(opened: RandomFile, file: DataFile, start: int, stop: int | None, size: int) -> Iterator[bytes]:
    stop = file.bytes if stop is None else stop
    for first in range(start, stop, size):
        yield opened.read(first, min(first + size, stop))


def _stream(opened: RandomFile, file: DataFile, skip: int) -> Iterator[bytes]:
    if file.compression == "zip":
        yield from _unzipped(opened, file, skip)
        return
    raw = as_stream(opened, file)
    with reading(file.location, f"{file.compression} data"), pa.CompressedInputStream(raw, file.compression) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            if skip < len(chunk):
                yield chunk[skip:]
            skip = max(0, skip - len(chunk))


def members(file: DataFile, storage: StorageOptions) -> list[DataFile]:
    """Return the files of data in a zip archive; any other file is itself."""
    if file.compression != "zip" or file.member is not None:
        return [file]
    with RandomFile(file, storage) as opened, _archive(opened, file) as archive:
        wanted, _ = _inside(archive, file)
    if not wanted:
        raise DataError(f"There is no file in {file.location}.", fix="Name an archive that holds data.")
    return [replace(file, member=name) for name in wanted]


def passed_over_in(file: DataFile, storage: StorageOptions) -> list[str]:
    """Return the names of what is beside the data in a zip archive."""
    with RandomFile(file, storage) as opened, _archive(opened, file) as archive:
        return [f"{file.location}/{name}" for name in _inside(archive, file)[1]]


def _inside(archive: zipfile.ZipFile, file: DataFile) -> tuple[list[str], list[str]]:
    """Return the files of data, and those beside them; what a system adds for itself is neither.

    Their names become those of outputs: one that leads elsewhere is refused, and so is one that two files have.
    """
    named = [info.filename for info in archive.infolist() if not info.is_dir()]
    named = [name for name in named if not name.startswith("__MACOSX/") and not name.rpartition("/")[2].startswith(".")]
    passed_over = beside(named, [])
    data = [name for name in named if name not in passed_over]
    for name, times in Counter(data).items():
        if times > 1 or name.startswith("/") or ".." in name.split("/"):
            wrong = f"{times:,} files" if times > 1 else "a file outside it,"
            raise DataError(
                f"{file.location} has {wrong} named {name!r}.", fix="Unpack what you need of it, and name those files."
            )
    return data, passed_over


def _unzipped(opened: RandomFile, file: DataFile, skip: int) -> Iterator[bytes]:
    with _archive(opened, file) as archive:
        names = _inside(archive, file)[0] if file.member is None else [file.member]
        if len(names) != 1:
            raise DataError(
                f"{file.location} has {len(names):,} files; of this format an archive may have one.",
                fix="Unpack it, and name the directory.",
            )
        with archive.open(names[0]) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                if skip < len(chunk):
                    yield chunk[skip:]
                skip = max(0, skip - len(chunk))


_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    ValueError,
    LookupError,
    struct.error,
)
"""What `zipfile` raises for an archive whose directory or contents are not as they should be."""


@contextmanager
def _archive(opened: RandomFile, file: DataFile) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive; raise what is wrong with it with its name."""
    try:
        with zipfile.ZipFile(io.BufferedReader(_Raw(opened, file.bytes), 1 << 20)) as archive:
            if any(info.flag_bits & 1 for info in archive.infolist()):
                raise DataError(f"{file.location} is encrypted.", fix="Unpack it, and name what was in it.")
            yield archive
    except _DAMAGED as error:
        raise DataError(
            f"Cannot read {file.location} as a zip archive: {error}",
            fix="Check that the file is complete, or unpack it and name the directory.",
        ) from error


class _Raw(io.RawIOBase):
    """The stored bytes of a file as Python's own kind of stream."""

    def __init__(self, opened: RandomFile, size: int) -> None:
        self._opened, self._size, self._position = opened, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        found = self._opened.read(self._position, min(self._position + len(buffer), self._size))
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)


def as_stream(opened: RandomFile, file: DataFile) -> pa.NativeFile:
    """Return a file as a stream for pyarrow's readers, with the retries of `RandomFile`."""
    return pa.PythonFile(io.BufferedReader(_Raw(opened, file.bytes), 1 << 20), mode="r")


def head(file: DataFile, storage: StorageOptions, size: int) -> bytes:
    """Return the first bytes of a file's contents."""
    if file.compression is None:
        with RandomFile(file, storage) as opened:
            return opened.read(0, min(size, file.bytes))
    collected = b""
    for chunk in chunks(file, storage):
        collected += chunk
        if len(collected) >= size:
            break
    return collected[:size]
