"""UBJSON documents as bytes: whether one is whole, and where a value is in it. Pure.

XGBoost reads past the end of a document that was cut off, and the process dies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

_SIZES = {"Z": 0, "T": 0, "F": 0, "N": 0, "i": 1, "U": 1, "C": 1, "I": 2, "l": 4, "d": 4, "L": 8, "D": 8}
_TYPES = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_WORDS = {"Z": None, "T": True, "F": False}
_LENGTHS = {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q"}


def is_whole(content: bytes) -> bool:
    """Say whether the first value of `content` is complete and well-formed. Numbers in arrays are skipped, not read."""
    try:
        return _Walk(content).value() <= len(content)
    except (IndexError, KeyError, struct.error, RecursionError, UnicodeDecodeError):
        return False


def span_of(content: bytes, path: Sequence[str]) -> tuple[int, int] | None:
    """Return where the value begins and ends that these keys lead to, in a document that is whole; None without it."""
    return _Walk(content).find([key.encode() for key in path])


def decode(content: bytes) -> Any:
    """Return a document that is whole as dictionaries, lists, texts and numbers; arrays of one type as NumPy's."""
    return _Walk(content).read()


class _Walk:
    """Goes through the document once; every method returns or leaves `_at` behind what it went over."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def read(self) -> Any:
        return self._read_as(self._marker())

    def value(self) -> int:
        return self._value_of(self._marker())

    def find(self, path: Sequence[bytes]) -> tuple[int, int] | None:
        if not path:
            start = self._at
            return start, self.value()
        if self._peek() != "{":
            return None
        self._skip(1)
        while self._peek() != "}":
            length = self._length()
            key = self._content[self._at : self._at + length]
            self._skip(length)
            if key == path[0]:
                return self.find(path[1:])
            self.value()
        return None

    def _read_as(self, marker: str) -> Any:
        if marker == "{":
            return self._read_object()
        if marker == "[":
            return self._read_array()
        if marker in "SH":
            return self._take(self._length()).decode()
        if marker in _WORDS:
            return _WORDS[marker]
        return np.frombuffer(self._take(_SIZES[marker]), _TYPES[marker])[0].item()

    def _read_object(self) -> dict[str, Any]:
        found = {}
        while self._peek() != "}":
            key = self._take(self._length()).decode()
            found[key] = self.read()
        self._skip(1)
        return found

    def _read_array(self) -> Any:
        kind = None
        if self._peek() == "$":
            self._skip(1)
            kind = self._marker()
        if self._peek() != "#":
            values = []
            while self._peek() != "]":
                values.append(self.read())
            self._skip(1)
            return values
        self._skip(1)
        count = self._length()
        if kind is not None:
            return np.frombuffer(self._take(count * _SIZES[kind]), _TYPES[kind])
        return [self.read() for _ in range(count)]

    def _take(self, count: int) -> bytes:
        start = self._at
        self._skip(count)
        return self._content[start : self._at]

    def _value_of(self, marker: str) -> int:
        if marker == "{":
            self._object()
        elif marker == "[":
            self._array()
        elif marker in "SH":
            self._skip(self._length())
        else:
            self._skip(_SIZES[marker])
        return self._at

    def _object(self) -> None:
        while self._peek() != "}":
            self._skip(self._length())
            self.value()
        self._skip(1)

    def _array(self) -> None:
        kind = None
        if self._peek() == "$":
            self._skip(1)
            kind = self._marker()
        if self._peek() != "#":
            while self._peek() != "]":
                self.value()
            self._skip(1)
            return
        self._skip(1)
        count = self._length()
        if kind in _SIZES:
            self._skip(count * _SIZES[kind])
            return
        for _ in range(count):
            self._value_of(kind or self._marker())

    def _marker(self) -> str:
        marker = self._peek()
        self._skip(1)
        return marker

    def _peek(self) -> str:
        return chr(self._content[self._at])

    def _length(self) -> int:
        shape = _LENGTHS[self._marker()]
        (length,) = struct.unpack_from(shape, self._content, self._at)
        self._skip(struct.calcsize(shape))
        if length < 0:
            raise IndexError(length)
        return int(length)

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._content):
            raise IndexError(self._at)
