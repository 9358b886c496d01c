"""What samples of JSON files hold.

Python's parser gives the kind of each value, but takes ten times as long as pyarrow's. So objects are checked one by
one only where pyarrow finds that something in their block does not fit what was seen before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.sources.json_numbers import leaves
from dray.data.sources.json_records import Records
from dray.data.sources.json_types import Origin, Seen, flat_schema, flatten, load, read_objects
from dray.data.sources.numbers import Numbers, has_large
from dray.data.sources.types import is_number

BLOCK_RECORDS = 500
_DATE, _CLOCK, _ZONE = r"\d{4}-\d\d-\d\d", r"[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,%d})?)?", r"(?:Z|[+-]\d\d(?::?\d\d)?)"


def look(records: Records, location: str, seen: Seen, asked: Mapping[str, pa.DataType], *, numbered: bool) -> None:
    """Add the objects of a sample to what was seen; anything but an object is skipped here, and rejected later.

    `numbered`: the sample is the beginning of its file, so that its lines have numbers.
    """
    line, counted = 1, 0
    known: _Known | None = None
    for first in range(0, len(records), BLOCK_RECORDS):
        last = min(first + BLOCK_RECORDS, len(records))
        known = known or _known(seen, asked)
        if known.covers(records.text(first, last)):
            continue
        known = None
        for index in range(first, last):
            text = records.text(index, index + 1)
            start = int(records.starts[index]) + len(text) - len(text.lstrip())
            line, counted = line + records.data.count(b"\n", counted, start), start
            try:
                value = load(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                seen.add(value, Origin(location, line if numbered else None))


@dataclass(frozen=True, slots=True)
class _Known:
    """What was seen so far."""

    shape: pa.Schema
    """With times as text: read as times, they would not show whether they were written with a zone."""
    times: tuple[pa.Field, ...]
    """Columns that hold nothing but times."""
    numbers: Mapping[str, Numbers]
    """What the numbers look like, by column, where the type is guessed."""

    def covers(self, text: bytes) -> bool:
        """Whether the objects hold no new name and no new kind of value."""
        try:
            table = flatten(read_objects(text, self.shape, "error"))
        except (pa.ArrowException, UnicodeDecodeError):
            return False
        return all(_are_times(table[field.name], field.type) for field in self.times) and not any(
            self._is_new(path, values)
            for name, column in zip(table.column_names, table.columns, strict=True)
            for path, values in leaves(name, column)
        )

    def _is_new(self, path: str, values: pa.ChunkedArray) -> bool:
        """Whether there may be a number that the type so far reads, but would change."""
        known = self.numbers.get(path)
        if known is None or not is_number(values.type):
            return False
        if pt.is_decimal(values.type):  # takes strings too
            return True
        if known.inexact is None and has_large(values):
            return True
        return pt.is_int64(values.type) and known.low >= 0 and (pc.min(values).as_py() or 0) < 0


def _known(seen: Seen, asked: Mapping[str, pa.DataType]) -> _Known:
    # Null: only nulls were seen, so the first value is new.
    fields = list(seen.arrow("", asked, unknown=pa.null())) if seen.fields else []
    times = tuple(field for field in flat_schema(pa.schema(fields)) if pt.is_timestamp(field.type))
    return _Known(
        pa.schema([_as_written(field, pa.string()) for field in fields]), times, dict(_numbers(seen, "", asked))
    )


def _numbers(seen: Seen, path: str, asked: Mapping[str, pa.DataType]) -> Iterator[tuple[str, Numbers]]:
    if path in asked:
        return
    yield path, seen.numbers
    for name, inner in seen.fields.items():
        yield from _numbers(inner, f"{path}.{name}" if path else name, asked)
    if seen.items is not None:
        yield from _numbers(seen.items, f"{path}[]", asked)


def _as_written(field: pa.Field, time: pa.DataType) -> pa.Field:
    """Return the field with `time` for times; null within lists, so that each is checked."""
    if pt.is_struct(field.type):
        return field.with_type(pa.struct([_as_written(inner, time) for inner in field.type]))
    if pt.is_list(field.type):
        return field.with_type(pa.list_(_as_written(field.type.value_field, pa.null())))
    return field.with_type(time) if pt.is_timestamp(field.type) else field


def _are_times(texts: pa.ChunkedArray, kind: pa.TimestampType) -> bool:
    clock = _CLOCK % (9 if kind.unit == "ns" else 6)
    pattern = f"^{_DATE}{clock}{_ZONE}$" if kind.tz else f"^{_DATE}(?:{clock})?$"
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False  # None: there is no time
