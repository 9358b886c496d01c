"""Whether files are those that a run was begun on: by what is in them, however often they were moved or touched.

A footer tells places, sizes, least and greatest values, and changes with most changes. The file system (ctime, inode)
or the store (ETag) tells whether a file was written since. Where it was, the content decides, of which a thread beside
the training makes a digest: some hundred MB take less than a second of one core.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from dray.data.parquet import Dataset
from dray.errors import DrayError
from dray.ingesting.resuming import stamps
from dray.storage import DEFAULT, is_s3, open_storage, translate_errors

MOST_BYTES = 32 << 30
"""Of more data no digest is made: it would be read once more for it."""
CHUNK_BYTES = 8 << 20

Marks = dict[str, dict[str, Any]]
"""For each file: the digest of its footer, what the file system or store says of it, and a digest of its content."""


def marks_of(dataset: Dataset) -> Marks:
    """Return what tells the files of a data set from others; their content is looked at later."""
    names = [name for name, _, _ in dataset.contents]
    found = stamps(names, dataset.storage)
    return {
        name: {"footer": footer, "stamp": stamp, "content": None}
        for (name, *stamp), footer in zip(found, dataset.footers, strict=True)
    }


def first_change(before: Mapping[str, Mapping[str, Any]], dataset: Dataset) -> str | None:
    """Return what has become another, if anything has. Files without a mark (of an older version) are left alone."""
    for name, mark in marks_of(dataset).items():
        was = before.get(name)
        if was is None or (was["footer"] == mark["footer"] and was["stamp"] == mark["stamp"]):
            continue
        if was["footer"] != mark["footer"]:
            return f"{name} has changed"
        if is_s3(name):
            if was["stamp"][-1:] != mark["stamp"][-1:]:
                return f"{name} was uploaded again with another ETag"
        elif was["content"] is None:
            return f"{name} was written again, and the run ended before it had a digest of what was in it"
        elif content_digest(name) != was["content"]:
            return f"{name} holds other values"
    return None


def content_digest(name: str, stopped: Callable[[], bool] = lambda: False) -> str | None:
    """Return the digest of a file's bytes; None if it was stopped on the way."""
    digest = hashlib.sha256()
    filesystem, path = open_storage(name)
    with translate_errors(name), filesystem.open_input_stream(path) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            if stopped():
                return None
            digest.update(chunk)
    return digest.hexdigest()


class ContentDigests:
    """Makes the digests that are missing, in a thread of its own; `write` is called once, with those that are new."""

    def __init__(self, marks: Marks, write: Callable[[Mapping[str, str]], object]) -> None:
        self._marks = marks
        self._write = write
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._make, name="dray-digests", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what is known by now is written."""
        self._over.set()
        self._thread.join()

    def _make(self) -> None:
        with suppress(DrayError):  # a file that is gone, a full disk: the training tells of it if it matters
            if found := dict(self._found(_missing(self._marks))):
                self._write(found)

    def _found(self, names: Iterable[str]) -> Iterable[tuple[str, str]]:
        for name in names:
            digest = content_digest(name, self._over.is_set)
            if digest is None:
                return
            if stamps([name], DEFAULT)[0][1:] == self._marks[name]["stamp"]:  # of the file that is trained on
                yield name, digest


def _missing(marks: Marks) -> list[str]:
    names = [name for name, mark in marks.items() if mark["content"] is None and not is_s3(name)]
    return names if sum(marks[name]["stamp"][0] for name in names) <= MOST_BYTES else []
