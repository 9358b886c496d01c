"""Divide a CSV file by byte ranges: every range begins where a record does.

Usually a few kB after the wanted offset show where a record begins (see `quotes.py`). Where they do not, as in a file
without a quote, the bytes since the last known start are searched for quotes, at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.data.sources.files import DataFile, RandomFile, chunks, in_parallel
from dray.data.sources.quotes import Effect, Quoting, effect_of, first_start, first_sure_start
from dray.storage import StorageOptions

WINDOW_BYTES = 256 << 10


def record_starts(
    file: DataFile, begin: int, target_bytes: int, quoting: Quoting, storage: StorageOptions
) -> list[int]:
    """Return `begin` and further offsets at which records begin, about `target_bytes` apart."""
    wished = range(begin + target_bytes, file.bytes - target_bytes // 2, target_bytes)
    looks = in_parallel(lambda offset: _look(file, offset, quoting, storage), wished)
    steps = list(_steps(begin, [look for look in looks if look[0] < file.bytes]))
    stretches = [step for step in steps if quoting.quote is not None and step[0] < step[1]]
    effects = dict(
        zip(stretches, in_parallel(lambda step: _effect(file, *step, quoting, storage), stretches), strict=True)
    )
    starts = [begin]
    inside = False
    for known, line in steps:
        start: int | None = line
        if known < line:
            inside = effects.get((known, line), Effect()).after(inside)
            start = _next_start(file, line, inside, quoting, storage)
        else:
            inside = False
        if start is not None and starts[-1] < start < file.bytes:
            starts.append(start)
    return starts


def _steps(begin: int, looks: Sequence[tuple[int, int | None]]) -> Iterator[tuple[int, int]]:
    """Yield for every look the last offset with a known state, and the offset whose state is needed."""
    known = begin
    for line, sure in looks:
        if sure is not None and sure > known:
            known = sure
            yield sure, sure
        elif sure is None and line > known:
            yield known, line
            known = line


def _look(file: DataFile, offset: int, quoting: Quoting, storage: StorageOptions) -> tuple[int, int | None]:
    """Return the first line start at or after an offset, and the first certain start of a record after it."""
    with RandomFile(file, storage) as opened:
        position = offset - 1
        while position < file.bytes:
            data = opened.read(position, position + WINDOW_BYTES)
            found = data.find(quoting.newline)
            if found < 0:
                position += WINDOW_BYTES
                continue
            line = position + found + 1
            sure = first_sure_start(opened.read(line, line + WINDOW_BYTES), quoting)
            return line, None if sure is None else line + sure
    return file.bytes, None


def _effect(file: DataFile, start: int, stop: int, quoting: Quoting, storage: StorageOptions) -> Effect:
    """Return the effect on the state of the text between two line starts."""
    effect = Effect()
    for text in _lines(chunks(file, storage, start, stop), quoting.newline):
        effect = effect.then(effect_of(text, quoting))
    return effect


def _next_start(file: DataFile, line: int, inside: bool, quoting: Quoting, storage: StorageOptions) -> int | None:
    position = line
    for text in _lines(chunks(file, storage, line, None, WINDOW_BYTES), quoting.newline):
        found = first_start(text, quoting, inside)
        if found is not None:
            return position + found
        inside = effect_of(text, quoting).after(inside)
        position += len(text)
    return None


def _lines(read: Iterator[bytes], newline: bytes) -> Iterator[bytes]:
    """Yield the same bytes in chunks that end with a line."""
    rest: list[bytes] = []
    for chunk in read:
        end = chunk.rfind(newline) + 1
        if not end:
            rest.append(chunk)
            continue
        yield b"".join([*rest, chunk[:end]])
        rest = [chunk[end:]]
    if any(rest):
        yield b"".join(rest)
