"""How the time column of a recommender's data is written: decided once, in the driver."""

from __future__ import annotations

import numpy as np
import pyarrow.types as pt

from dray.data.parquet import Dataset
from dray.data.time_columns import Seen, sampled
from dray.data.time_text import PER_SECOND
from dray.data.times import Look, has_text, plain, recognise, recognise_numbers, times_of
from dray.errors import DataError


def look_at_times(train: Dataset, name: str, asked: str | None) -> Look:
    """Return how the times are written, by some of them; no form for timestamps and dates. Refuse what is no time."""
    arrow = train.schema.field(name).type
    arrow = arrow.value_type if pt.is_dictionary(arrow) else arrow
    if pt.is_timestamp(arrow) or pt.is_date(arrow) or pt.is_null(arrow):
        return Look()
    seen = sampled(train, name)
    values = seen.values.combine_chunks()
    if asked is not None:
        if not times_of(values, asked).valid.any():
            raise _not_a_time(name, seen, f" of the form {asked}")
        return Look(asked)
    if form := recognise_numbers(values):
        return Look(form)
    look = recognise(values)
    if look.problem:
        raise _undecided(name, look)
    if not look.form and has_text(values).any():
        raise _not_a_time(name, seen, "")
    return look


def reason(name: str | None, look: Look) -> tuple[str, ...]:
    """Return what is told of the times; nothing of timestamps, dates and seconds."""
    if name is None or look.form in ("", "seconds"):
        return ()
    if look.form in PER_SECOND:
        return (f"time: {name} holds {look.form} since 1970",)
    read_as = plain(look.form, look.examples[0]) if look.examples else look.form
    return (f"time: {name} is text, read as {read_as}",)


def _not_a_time(name: str, seen: Seen, like: str) -> DataError:
    places = zip(seen.values.chunks, seen.positions, strict=True)
    chunk, position = next((chunk, position) for chunk, position in places if has_text(chunk).any())
    row = int(np.argmax(has_text(chunk)))
    return DataError(
        f'The time column "{name}" holds text that is not a time{like}, such as "{str(chunk[row].as_py())[:100]}" in '
        f"row {position + row + 1:,}.",
        fix=f"Name another column, or say how its times are written: --time-form '{name}=%d.%m.%Y %H:%M', say.",
    )


def _undecided(name: str, look: Look) -> DataError:
    first, forms = look.examples[0], [plain(form, look.examples[0]) for form in look.others]
    if look.problem == "mixed":
        return DataError(
            f'The time column "{name}" holds times in two forms, such as "{first}" and "{look.examples[1]}".',
            fix="Write them in one form.",
        )
    return DataError(
        f'The time column "{name}" holds "{first}", and no value that was looked at tells the day from the month.',
        fix=f"Say which comes first: --time-form '{name}={forms[0]}', or --time-form '{name}={forms[1]}'.",
    )
