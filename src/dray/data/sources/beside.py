"""Files that lie beside data and are none: a README, checksums, logs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dray.data.source import Note
from dray.storage import absolute

_DATA = r"(csv|tsv|tab|jsonl?|ndjson|parq|parquet|pq|arrows?|feather|ipc)(\.\w+)?"
"""The ending of data, compressed or not: license_plates.csv and notice.parquet hold rows."""
_BESIDE = re.compile(
    rf"(readme|licen[cs]e|copying|notice|changelog|checksums?|md5sums?|sha\d*sums?)([._-](?!(.*\.)?{_DATA}$).*)?"
    r"|.*\.(crc|md5|sha1|sha256|sha512|asc|sig|log|md|rst|pdf|html?)"
    r"|thumbs\.db|desktop\.ini",
    re.IGNORECASE,
)


def beside(files: Sequence[str], locations: Sequence[str]) -> list[str]:
    """Return which of the files that the locations name are no data.

    One that is named itself is data, and so are all where no other file is.
    """
    named = {absolute(location) for location in locations}
    found = [file for file in files if file not in named and _BESIDE.fullmatch(file.rpartition("/")[2])]
    return found if len(found) < len(files) else []


def notes_of(passed_over: Sequence[str], empty: Sequence[str] = ()) -> tuple[Note, ...]:
    """Return what is said of files without rows: those that are no data, and those of 0 bytes."""
    notes = []
    if passed_over:
        names = ", ".join(sorted({file.rpartition("/")[2] for file in passed_over})[:5])
        count = f"{len(passed_over):,} file{'s' if len(passed_over) > 1 else ''}"
        notes.append(Note(f"{count} beside the data passed over: {names}.", "Name a file itself to have it read."))
    if empty:
        count = f"{len(empty):,} file{'s have' if len(empty) > 1 else ' has'}"
        notes.append(Note(f"{count} 0 bytes, and no rows (first: {empty[0]}).", "Check that they were written whole."))
    return tuple(notes)
