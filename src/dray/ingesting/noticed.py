"""What was noticed when a source was opened or read, told to the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dray.data.source import Note
from dray.data.sources.types import flag_of_type
from dray.events.format import many
from dray.events.kinds import Warned

if TYPE_CHECKING:
    from dray.batch.engine import Emit


_NAMED = 5


def of_extra_fields(rows: Mapping[str, int]) -> tuple[Note, ...]:
    """Return what is to be told of fields that were left out; `rows`: those that had each of them."""
    if not rows:
        return ()
    most = Counter(dict(sorted(rows.items()))).most_common(_NAMED)
    named = ", ".join(f'"{name}" in {many(count, "rows")}' for name, count in most)
    more = f" and {len(rows) - len(most):,} more" if len(rows) > len(most) else ""
    what = (
        "1 field that the first rows did not have was"
        if len(rows) == 1
        else (f"{len(rows):,} fields that the first rows did not have were")
    )
    name = most[0][0]
    return (
        Note(
            f"{what} left out: {named}{more}.",
            fix=f"{flag_of_type(name)} reads that one; --read extra_fields=reject leaves out such rows instead.",
        ),
    )


def tell(notes: Iterable[Note], emit: Emit) -> None:
    """Emit each note once."""
    for note in dict.fromkeys(notes):
        emit(Warned(note.what, fix=note.fix))
