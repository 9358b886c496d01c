"""How the time column of a recommender's data is written: decided once, in the driver."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.parquet import Dataset
from dray.data.time_columns import Seen, sampled
from dray.data.time_text import PER_SECOND, read_times
from dray.data.times import Look, has_text, is_of_digits, plain, recognise, recognise_numbers, times_of, whole_texts
from dray.errors import DataError

_YEAR_S = 365 * 86_400


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
        return Look(asked, examples=_example(values, asked))
    if form := recognise_numbers(values):
        return Look(form, examples=_example(values, form))
    look = recognise(values)
    if look.problem:
        raise _undecided(name, look)
    if not look.form and has_text(values).any():
        raise _not_a_time(name, seen, "")
    return look


def _example(values: pa.Array, form: str) -> tuple[str, ...]:
    """Return a value that is a time of such a form, without its fraction."""
    texts = whole_texts(pc.floor(values) if pt.is_floating(values.type) and form in PER_SECOND else values)
    valid = read_times(texts, form).valid
    return (texts[int(np.argmax(valid))].as_py(),) if valid.any() else ()


def reason(name: str | None, look: Look) -> tuple[str, ...]:
    """Return what is told of the times; nothing of timestamps and dates. Of numbers also what day one of them is."""
    if name is None or not look.form:
        return ()
    if look.form in PER_SECOND:
        return (f"time: {name} holds {look.form} since 1970{_such_as(look)}",)
    if is_of_digits(look.form):
        return (f"time: {name} holds dates as numbers, read as {look.form}{_such_as(look)}",)
    read_as = plain(look.form, look.examples[0]) if look.examples else look.form
    return (f"time: {name} is text, read as {read_as}",)


def never_old(name: str | None, look: Look, as_of: float) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, and what to do, where events are to age but their times are numbers of another kind."""
    if look.form in PER_SECOND and as_of < _YEAR_S:
        yield (
            f'The times in "{name}" are read as {look.form} since 1970, and all are before 1971{_such_as(look)}: '
            "hardly an event is older than another.",
            "Write them as dates, such as 2024-01-31 or 20240131, or as seconds since 1970; or leave --half-life-days "
            "out.",
        )


def _such_as(look: Look) -> str:
    if not look.examples:
        return ""
    second = read_times(pa.array(look.examples[:1]), look.form).seconds[0]
    return f", such as {look.examples[0]} ({second.astype('datetime64[s]').astype('datetime64[D]')})"


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
