"""Is a UBJSON document whole? XGBoost reads past the end of one that was cut off, and the process dies. Pure."""

from __future__ import annotations

import struct

_SIZES = {"Z": 0, "T": 0, "F": 0, "N": 0, "i": 1, "U": 1, "C": 1, "I": 2, "l": 4, "d": 4, "L": 8, "D": 8}
_LENGTHS = {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q"}


def is_whole(content: bytes) -> bool:
    """Say whether the first value of `content` is complete and well-formed. Numbers in arrays are skipped, not read."""
    try:
        return _Walk(content).value() <= len(content)
    except (IndexError, KeyError, struct.error, RecursionError, UnicodeDecodeError):
        return False


class _Walk:
    """Goes through the document once; every method returns or leaves `_at` behind what it went over."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def value(self) -> int:
        return self._value_of(self._marker())

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
