"""What samples of JSON files hold.

Python's parser tells of what kind each value is, but takes ten times as long as pyarrow's. So objects are looked at
one by one only where pyarrow finds that something in their block does not fit what was seen before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.sources.json_records import Records
from dray.data.sources.json_types import Place, Seen, flat_schema, flatten, read_objects

BLOCK_RECORDS = 500
_DATE, _CLOCK, _ZONE = r"\d{4}-\d\d-\d\d", r"[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,%d})?)?", r"(?:Z|[+-]\d\d(?::?\d\d)?)"


def look(records: Records, location: str, seen: Seen, asked: Mapping[str, pa.DataType], *, numbered: bool) -> None:
    """Add the objects of a sample to what was seen; what is no object is passed over here, and rejected later.

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
                value = json.loads(text)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                seen.add(value, Place(location, line if numbered else None))


@dataclass(frozen=True, slots=True)
class _Known:
    """What was seen so far."""

    shape: pa.Schema
    """With times as text: read as times, they would not tell what was written, with a zone or without."""
    times: tuple[pa.Field, ...]
    """Columns that hold nothing but times."""

    def covers(self, text: bytes) -> bool:
        """Say whether the objects hold no name and no kind of value that is new."""
        try:
            table = flatten(read_objects(text, self.shape, "reject"))
        except (pa.ArrowException, UnicodeDecodeError):
            return False
        return all(_are_times(table[field.name], field.type) for field in self.times)


def _known(seen: Seen, asked: Mapping[str, pa.DataType]) -> _Known:
    # Null is what was never seen to be anything else: the first value there is new.
    fields = list(seen.arrow("", asked, unknown=pa.null())) if seen.fields else []
    times = tuple(field for field in flat_schema(pa.schema(fields)) if pt.is_timestamp(field.type))
    return _Known(pa.schema([_as_written(field, pa.string()) for field in fields]), times)


def _as_written(field: pa.Field, time: pa.DataType) -> pa.Field:
    """Return the field with `time` for times; within lists null, so that each is looked at."""
    if pt.is_struct(field.type):
        return field.with_type(pa.struct([_as_written(inner, time) for inner in field.type]))
    if pt.is_list(field.type):
        return field.with_type(pa.list_(_as_written(field.type.value_field, pa.null())))
    return field.with_type(time) if pt.is_timestamp(field.type) else field


def _are_times(texts: pa.ChunkedArray, kind: pa.TimestampType) -> bool:
    clock = _CLOCK % (9 if kind.unit == "ns" else 6)
    pattern = f"^{_DATE}{clock}{_ZONE}$" if kind.tz else f"^{_DATE}(?:{clock})?$"
    return pc.all(pc.match_substring_regex(texts, pattern)).as_py() is not False  # None: there is no time
