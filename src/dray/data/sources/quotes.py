"""Where records of CSV text begin, when a quoted value may hold line ends.

Pure: bytes in, positions out. The rules are pyarrow's: a quote opens a value only as its first character, a doubled
quote inside is a character, any other quote inside closes. Whether a byte is inside quotes seems to depend on the
whole file before it. By runs of adjacent quotes, it usually does not:

| run of quotes                              | does                                                             |
|--------------------------------------------|------------------------------------------------------------------|
| even                                       | nothing: doubled quotes, or an empty value                       |
| odd, after a delimiter or at a line start  | changes inside to outside, and outside to inside                 |
| odd, after anything else                   | leads outside: it closes, or is a plain character                |

So after any run of the third kind the state is known without the text before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

LF, CR, TAB, BLANK = 10, 13, 9, 32
TAIL_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Quoting:
    """The bytes that matter; `quote` is None where nothing is quoted."""

    delimiter: int
    quote: int | None
    newline: bytes = b"\n"
    """What ends a line: b"\\r" in files that have no other."""
    spaced: bool = False
    """Blanks and tabs around a value do not belong to it. If the delimiter is a blank, any run of them is one."""

    @property
    def by_blanks(self) -> bool:
        return self.spaced and self.delimiter == BLANK


@dataclass(frozen=True, slots=True)
class Effect:
    """How a text changes the state before it."""

    sure: bool = False
    """The state after the text does not depend on the state before it."""
    turns: bool = False
    """If `sure`: the text ends inside quotes. Else: it inverts the state."""

    def after(self, inside: bool) -> bool:
        return self.turns if self.sure else inside != self.turns

    def then(self, following: Effect) -> Effect:
        return following if following.sure else Effect(self.sure, self.turns != following.turns)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of an odd number of quotes, in order."""

    starts: Positions
    stops: Positions
    turning: npt.NDArray[np.bool_]

    def inside_after(self, inside: bool) -> npt.NDArray[np.bool_]:
        """Return for every run whether the text after it is inside quotes."""
        turns = np.cumsum(self.turning)
        resets = np.maximum.accumulate(np.where(self.turning, -1, np.arange(len(self.turning))))
        since: Positions = turns - np.where(resets >= 0, turns[resets], 0)
        state: npt.NDArray[np.bool_] = ((since + np.where(resets >= 0, 0, int(inside))) & 1).astype(bool)
        return state


def effect_of(data: bytes, quoting: Quoting) -> Effect:
    """Return the effect of a text that begins after a line end and does not end inside a run of quotes."""
    if quoting.quote is None or bytes([quoting.quote]) not in data:
        return Effect()
    runs = _runs(data, quoting)
    if not len(runs.starts):
        return Effect()
    sure = not runs.turning.all()
    return Effect(sure, bool(runs.inside_after(False)[-1]))


def first_sure_start(data: bytes, quoting: Quoting) -> int | None:
    """Return a position in `data` where a record begins for certain; None if there is none.

    `data` begins after a line end.
    """
    if quoting.quote is None:
        return 0
    quote = bytes([quoting.quote])
    data = data.rstrip(quote)  # a run that may go on after the end
    if quote not in data:
        return None
    runs = _runs(data, quoting)
    sure = np.flatnonzero(~runs.turning)
    if not len(sure):
        return None
    first = int(sure[0])
    inside = runs.inside_after(False)
    ends = np.append(runs.starts[first + 1 :], len(data))
    for start, stop, within in zip(runs.stops[first:], ends, inside[first:], strict=True):
        if not within and (found := data.find(quoting.newline, start, stop)) >= 0:
            return found + 1
    return None


def first_start(data: bytes, quoting: Quoting, inside: bool) -> int | None:
    """Return where the first record in `data` begins; `data` begins after a line end."""
    if not inside:
        return 0
    runs = _runs(data, quoting)
    states = runs.inside_after(inside)
    ends = np.append(runs.starts[1:], len(data))
    for start, stop, within in zip(runs.stops, ends, states, strict=False):  # no run at all: one end
        if not within and (found := data.find(quoting.newline, start, stop)) >= 0:
            return found + 1
    return None


def last_end(data: bytes, quoting: Quoting) -> int:
    """Return where the last whole record of `data` ends (0: there is none). `data` begins with a record."""
    if quoting.quote is None or bytes([quoting.quote]) not in data:
        return data.rfind(quoting.newline) + 1
    # Usually the last few kB are enough.
    tail = data.find(quoting.newline, max(0, len(data) - TAIL_BYTES)) + 1
    for start in (tail, 0):
        text = data[start:] if start else data
        runs = _runs(text, quoting)
        first = 0 if start == 0 else int(np.argmin(runs.turning)) if not runs.turning.all() else len(runs.turning)
        states = runs.inside_after(False)
        stop = len(text)
        for index in range(len(runs.starts) - 1, first - 1, -1):
            found = -1 if states[index] else text.rfind(quoting.newline, int(runs.stops[index]), stop)
            if found >= 0:
                return start + found + 1
            stop = int(runs.starts[index])
        if start == 0:
            return text.rfind(quoting.newline, 0, stop) + 1
    return 0


def ends_inside(data: bytes, quoting: Quoting) -> bool:
    """Whether `data`, which begins with a record, ends inside quotes."""
    return effect_of(data, quoting).after(False)


def torn_values(data: bytes, quoting: Quoting) -> Positions:
    """Return where values of several lines end in a quote with text after it, as `"a` and a later `"b"` make one.

    `data` begins with a record. The quote that such a value begins with was probably never to be closed so late.
    """
    if quoting.quote is None or bytes([quoting.quote]) not in data:
        return np.empty(0, np.int64)
    array = np.frombuffer(data, np.uint8)
    runs = _runs(data, quoting)
    inside = np.append(False, runs.inside_after(False)[:-1])
    ends = (quoting.delimiter, LF, CR, BLANK, TAB) if quoting.spaced else (quoting.delimiter, LF, CR)
    text_after = ~np.isin(np.append(array, LF)[runs.stops], ends)
    found = np.flatnonzero(inside & text_after)
    opened = [int(runs.starts[index - 1]) for index in found]  # inside: the run before has opened the value
    closed = [int(runs.starts[index]) for index in found]
    several = [stop for start, stop in zip(opened, closed, strict=True) if quoting.newline in data[start:stop]]
    return np.array(several, np.int64)


def records(data: bytes, quoting: Quoting) -> tuple[Positions, Positions]:
    """Return where the records of `data` begin and end, without empty lines. `data` begins with a record."""
    if not data:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    array = np.frombuffer(data, np.uint8)
    following = np.append(array[1:], 0)
    breaks = np.flatnonzero((array == LF) | ((array == CR) & (following != LF)))
    if quoting.quote is not None and bytes([quoting.quote]) in data:
        runs = _runs(data, quoting)
        before = np.searchsorted(runs.starts, breaks)
        breaks = breaks[~np.append(False, runs.inside_after(False))[before]]
    ends = breaks + 1
    if not len(ends) or ends[-1] < len(data):
        ends = np.append(ends, len(data))
    starts = np.append(0, ends[:-1])
    lengths = ends - starts
    empty = ((lengths == 1) & np.isin(array[starts], (LF, CR))) | ((lengths == 2) & (array[starts] == CR))
    return starts[~empty].astype(np.int64), ends[~empty].astype(np.int64)


def _runs(data: bytes, quoting: Quoting) -> _Runs:
    array = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(array == (quoting.quote if quoting.quote is not None else -1))
    apart = np.flatnonzero(np.diff(quotes) != 1)
    starts = quotes[np.append(0, apart + 1)] if len(quotes) else quotes
    stops = quotes[np.append(apart, len(quotes) - 1)] + 1 if len(quotes) else quotes
    odd = ((stops - starts) & 1).astype(bool)
    starts, stops = starts[odd], stops[odd]
    before = array[starts - 1]  # a run at 0 follows a line end; this reads some other byte for it
    turning = (starts == 0) | (before == quoting.delimiter) | (before == LF) | (before == CR)
    if quoting.spaced:
        turning |= _after_blanks(array, starts, quoting)
    return _Runs(starts, stops, turning)


def _after_blanks(array: npt.NDArray[np.uint8], starts: Positions, quoting: Quoting) -> npt.NDArray[np.bool_]:
    """Whether there is nothing but blanks between the start of a value and these positions."""
    blank = (array == BLANK) | (array == TAB)
    if quoting.by_blanks:
        found: npt.NDArray[np.bool_] = blank[starts - 1]
        return found
    others = np.append(-1, np.flatnonzero(~blank | (array == quoting.delimiter)))
    last = others[np.searchsorted(others, starts) - 1]
    begun: npt.NDArray[np.bool_] = (last < 0) | np.isin(array[last], (quoting.delimiter, LF, CR))
    return begun


def without_blanks(data: bytes, quoting: Quoting) -> bytes:
    """Return the text without the blanks around its values; of those that divide values, one tab is left.

    `data` begins with a record. Quoted values stay as they are.
    """
    array = np.frombuffer(data, np.uint8)
    blank = (array == BLANK) | (array == TAB)
    positions = np.flatnonzero(blank if quoting.by_blanks else blank & (array != quoting.delimiter))
    if quoting.quote is not None and len(positions) and bytes([quoting.quote]) in data:
        runs = _runs(data, quoting)
        inside = np.append(False, runs.inside_after(False))[np.searchsorted(runs.starts, positions)]
        positions = positions[~inside]
    if not len(positions):
        return data
    apart = np.flatnonzero(np.diff(positions) != 1)
    starts, stops = positions[np.append(0, apart + 1)], positions[np.append(apart, len(positions) - 1)] + 1
    around = np.concatenate([[LF], array, [LF]])
    ends = (LF, CR) if quoting.by_blanks else (LF, CR, quoting.delimiter)
    outer = np.isin(around[starts], ends) | np.isin(around[stops + 1], ends)
    text = array.copy()
    if quoting.by_blanks:
        text[starts] = TAB
        starts = starts + ~outer
    else:
        starts, stops = starts[outer], stops[outer]
    dropped = np.zeros(len(array) + 1, np.int8)
    np.add.at(dropped, starts, 1)
    np.add.at(dropped, stops, -1)
    kept: bytes = text[np.cumsum(dropped[:-1], dtype=np.int8) == 0].tobytes()
    return kept
