"""Where the records of JSON text are: a line each, or the items of one array.

Pure: bytes in, positions out. The text of an array is searched for its structure without building its values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

_STRUCTURE = np.zeros(256, bool)
_STRUCTURE[list(b'"{}[],')] = True
_DEPTH = np.zeros(256, np.int8)
_DEPTH[list(b"{[")] = 1
_DEPTH[list(b"}]")] = -1
_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of a text."""

    data: bytes
    starts: Positions
    stops: Positions
    open_end: bool = False
    """The array goes on after the text."""
    behind: int | None = None
    """Where text follows the end of the array."""

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, first: int, last: int) -> bytes:
        """Return records with nothing but white space between them."""
        start, stop = int(self.starts[first]), int(self.stops[last - 1])
        text = bytearray(self.data[start:stop])
        array = np.frombuffer(text, np.uint8)
        array[self.stops[first : last - 1] - start] = 10  # the comma, or the line end itself
        return bytes(text)


def lines(data: bytes) -> Records:
    """Return the lines that are not empty."""
    breaks = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
    stops = breaks if data.endswith(b"\n") else np.append(breaks, len(data))
    starts = np.append(0, stops[:-1] + 1)
    return _not_empty(data, starts, stops)


def last_line_end(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def items(data: bytes) -> Records:
    """Return the items of an array, from text that begins with one of them and may end with the array."""
    positions, depth = _structure(data)
    array = np.frombuffer(data, np.uint8)[positions]
    ends = positions[depth < 0]
    end = int(ends[0]) if len(ends) else len(data)
    commas = positions[(array == ord(",")) & (depth == 0) & (positions < end)]
    stops = np.append(commas, end) if data[int(commas[-1]) + 1 if len(commas) else 0 : end].strip(_SPACE) else commas
    starts = np.append(0, stops[:-1] + 1) if len(stops) else stops
    behind = re.search(rb"\S", data[end + 1 :]) if len(ends) else None
    found = _not_empty(data, starts, stops)
    return Records(data, found.starts, found.stops, not len(ends), None if behind is None else end + 1 + behind.start())


def last_item_end(data: bytes) -> int:
    """Return the position after the last item's comma; 0 if there is none."""
    positions, depth = _structure(data)
    array = np.frombuffer(data, np.uint8)[positions]
    closed = np.flatnonzero(depth < 0)
    stop = closed[0] if len(closed) else len(positions)
    commas = positions[:stop][(array[:stop] == ord(",")) & (depth[:stop] == 0)]
    return int(commas[-1]) + 1 if len(commas) else 0


def _structure(data: bytes) -> tuple[Positions, npt.NDArray[np.int32]]:
    """Return brackets and commas outside of strings, and the depth after each."""
    array = np.frombuffer(data, np.uint8)
    positions = np.flatnonzero(_STRUCTURE[array])
    found = array[positions]
    quotes = found == ord('"')
    if b"\\" in data:
        quotes &= ~_escaped(array, positions)
    outside = (np.cumsum(quotes) & 1 == 0) & (found != ord('"'))
    positions = positions[outside]
    return positions, np.cumsum(_DEPTH[found[outside]], dtype=np.int32)


def _escaped(array: npt.NDArray[np.uint8], positions: Positions) -> npt.NDArray[np.bool_]:
    """Return which positions follow an odd number of backslashes."""
    slashes = np.flatnonzero(array == ord("\\"))
    apart = np.flatnonzero(np.diff(slashes) != 1)
    starts = slashes[np.append(0, apart + 1)]
    stops = slashes[np.append(apart, len(slashes) - 1)] + 1
    return np.isin(positions, stops[((stops - starts) & 1).astype(bool)])


def _not_empty(data: bytes, starts: Positions, stops: Positions) -> Records:
    full = stops - starts > 8
    for index in np.flatnonzero(~full):
        full[index] = bool(data[starts[index] : stops[index]].strip(_SPACE))
    return Records(data, starts[full].astype(np.int64), stops[full].astype(np.int64))
