"""What a row of ratings or events means: which columns are read, the value of a row, and what cannot be used.

| rule          | value of a row                                      |
|---------------|-----------------------------------------------------|
| `rating`      | the rating: finite and not negative                 |
| `event`       | the weight of its event type; every type needs one  |
| neither       | 1                                                   |

What is wrong with a column as a whole is refused at once; rows that cannot be used are counted with an example, so
that the error tells how many there are in all the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.features import dictionary_of, is_text, require_column
from dray.errors import DataError, nearest
from dray.learners.factorization.factors import Floats, Ints
from dray.learners.factorization.filter_text import column_in_filter, value_in_filter
from dray.learners.factorization.times import Doubles, require_time
from dray.learners.ids import ids_like

Kind = Literal["explicit", "implicit"]
Mask = npt.NDArray[np.bool_]
Wrong = Literal[
    "no user",
    "no item",
    "no time",
    "text time",
    "text rating",
    "infinite as text",
    "number as text",
    "no rating",
    "infinite rating",
    "negative rating",
]
"""What may be wrong with a row, in the order in which it is reported."""
NO_TYPE = "(missing)"
"""The event type of a row without one."""
MOST_TYPES = 1000
_INFINITE = r"(?i)^\s*[-+]?inf(inity)?\s*$"
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRule:
    """Which columns a row of the data is made of."""

    user: str
    item: str
    rating: str | None = None
    """Explicit feedback: the column of the ratings."""
    event: str | None = None
    """Implicit feedback: the column of the event types."""
    time: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of each event type."""
    drops_missing: bool = False
    """Rows without a user or an item are left out; those of weight 0 are in any case."""
    ids: tuple[pa.DataType, pa.DataType] | None = None
    """The types of a model's users and items: ids of any type become these, by their text. None: they stay."""
    time_form: str = ""
    """How the times are written: text, or what numbers count; empty for timestamps and dates."""

    @property
    def kind(self) -> Kind:
        return "explicit" if self.rating else "implicit"

    @property
    def columns(self) -> list[str]:
        named = (self.user, self.item, self.rating, self.event, self.time)
        return list(dict.fromkeys(name for name in named if name))

    @property
    def texts(self) -> list[str]:
        """What is read as dictionaries if it is text: so no string is built for a row."""
        named = (self.user, self.item, self.rating, self.event, self.time)
        return list(dict.fromkeys(name for name in named if name))


@dataclass(frozen=True, slots=True)
class UnitRows:
    """Rows of one block of users, in the order of the data: 12 bytes a row, 20 with times."""

    users: Ints
    items: Ints
    values: Floats
    times: Doubles | None = None
    test: bool = False
    """All of them are for testing: they come from data of its own."""
    old: bool = False
    """Pairs of an earlier model: one value a pair, never for testing, before all events of the data."""
    as_of: float | None = None
    """For old pairs: the time for which their values were aged; None if they were not."""

    def __len__(self) -> int:
        return len(self.values)

    def only(self, chosen: Mask) -> UnitRows:
        """Return some of the rows."""
        times = None if self.times is None else self.times[chosen]
        return replace(
            self, users=self.users[chosen], items=self.items[chosen], values=self.values[chosen], times=times
        )


@dataclass(frozen=True, slots=True)
class Trouble:
    """Rows that cannot be used, with the first of them."""

    rows: int
    column: str
    value: str
    """The value in the first row; empty if there is none."""
    file: str
    position: int
    """Of the first row in all the data."""

    def joined(self, other: Trouble) -> Trouble:
        first = min(self, other, key=lambda trouble: (trouble.position, trouble.file))
        return replace(first, rows=self.rows + other.rows)


def without_ids(batch: pa.RecordBatch, rule: RowRule) -> Mask | None:
    """Return which rows are left out because they have no user or no item; None where there are none."""
    missing = _missing(batch.column(rule.user)) | _missing(batch.column(rule.item))
    if missing.any() and not rule.drops_missing:
        counts_nothing = weights_of(batch.column(rule.event), rule.weights) == 0 if rule.event else np.False_
        missing &= counts_nothing
    return missing if missing.any() else None


def with_ids_of_model(batch: pa.RecordBatch, rule: RowRule) -> pa.RecordBatch:
    """Return the rows with ids as the model of the rule has them; one that it cannot have is missing."""
    for name, type_ in zip((rule.user, rule.item), rule.ids or (), strict=False):
        found, _ = ids_like(batch.column(name), type_)
        batch = batch.set_column(batch.schema.get_field_index(name), name, found)
    return batch


def _missing(column: pa.Array) -> Mask:
    if pt.is_dictionary(column.type) and column.dictionary.null_count:
        column = column.dictionary_decode()
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    missing: Mask = pc.is_null(column).to_numpy(zero_copy_only=False)
    return missing


def require_columns(schema: pa.Schema, rule: RowRule) -> None:
    """Refuse data whose columns cannot be used: what the footers alone tell."""
    roles = {"user": rule.user, "item": rule.item, "rating": rule.rating, "event": rule.event, "time": rule.time}
    types = {role: require_column(schema, name, role=f"--{role}") for role, name in roles.items() if name}
    if rule.ids is None:
        require_id(rule.user, types["user"], "user")
        require_id(rule.item, types["item"], "item")
    if rule.rating:
        _require_rating(rule.rating, types["rating"])
    if rule.event:
        _require_event(rule.event, types["event"])
    if rule.time:
        require_time(rule.time, types["time"])


def require_id(name: str, arrow: pa.DataType, side: str) -> None:
    kind = arrow.value_type if pt.is_dictionary(arrow) else arrow
    if is_text(kind) or pt.is_integer(kind) or pt.is_null(kind):
        return
    fix = "Use text or whole numbers; cast the column first: dray data ingest ... --transform."
    if pt.is_floating(kind):
        fix = (
            "Write whole numbers as int64, or the ids as text: dray data ingest ... --transform. Whole numbers become "
            "floats where some are missing: leave those rows out."
        )
    raise DataError(f'The {side} column "{name}" is {kind}, which cannot be an id.', fix=fix)


def _require_rating(name: str, arrow: pa.DataType) -> None:
    kind = arrow.value_type if pt.is_dictionary(arrow) else arrow
    number = pt.is_floating(kind) or pt.is_integer(kind) or pt.is_decimal(kind) or pt.is_boolean(kind)
    if not (number or pt.is_null(kind) or is_text(kind)):  # text is reported with an example from the rows
        raise DataError(
            f'The rating column "{name}" is {kind}, not a number.',
            fix="Name a column of numbers; for events without ratings leave --rating out.",
        )


def _require_event(name: str, arrow: pa.DataType) -> None:
    kind = arrow.value_type if pt.is_dictionary(arrow) else arrow
    if not (is_text(kind) or pt.is_integer(kind) or pt.is_null(kind)):
        raise DataError(
            f'The event column "{name}" is {kind}, not a type of event.',
            fix="Name a column of text such as view or purchase; a column of numbers may be meant as --rating.",
        )


def ratings_of(column: pa.Array) -> Floats:
    """Return ratings as they are trained on; NaN where there is none."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_boolean(column.type):
        column = column.cast(pa.int8())
    numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):  # too large for float32 is infinite, and refused as that
        ratings: Floats = numbers.astype(np.float32)
    return ratings


def wrong_ratings(column: pa.Array) -> dict[Wrong, Mask]:
    """Return the rows, by what is wrong with them."""
    kind = column.type.value_type if pt.is_dictionary(column.type) else column.type
    if is_text(kind):
        local, indices = dictionary_of(column)
        missing = np.append(local.is_null().to_numpy(zero_copy_only=False), True)[indices]
        number, infinite = (_rows_like(pattern, local, indices) for pattern in (_NUMBER, _INFINITE))
        return {
            "text rating": ~(number | infinite | missing),
            "infinite as text": infinite,
            "number as text": number,
            "no rating": missing,
        }
    ratings = ratings_of(column)
    if len(ratings) == 0 or (ratings.min() >= 0 and ratings.max() < np.inf):  # min and max are NaN if any is
        return {}
    return {"no rating": np.isnan(ratings), "infinite rating": np.isinf(ratings), "negative rating": ratings < 0}


def _rows_like(pattern: str, local: pa.Array, indices: npt.NDArray[np.integer[Any]]) -> Mask:
    """Return the rows whose text is like that; those without a text are not."""
    alike = pc.fill_null(pc.match_substring_regex(local, pattern), False).to_numpy(zero_copy_only=False)
    rows: Mask = np.append(alike, False)[indices]
    return rows


def weights_of(column: pa.Array, weights: Mapping[str, float]) -> Floats:
    """Return the weight of each row's event type; NaN for a type without one."""
    local, indices = dictionary_of(column)
    found = [weights.get(kind, np.nan) for kind in local.to_pylist()]
    of_row: Floats = np.array([*found, weights.get(NO_TYPE, np.nan)], np.float32)[indices]
    return of_row


def count_types(column: pa.Array, name: str, counts: dict[str, int]) -> None:
    """Add the event types of a column."""
    local, indices = dictionary_of(column)
    seen = np.bincount(indices, minlength=len(local) + 1)
    used = np.flatnonzero(seen)
    for kind, count in zip(used.tolist(), seen[used].tolist(), strict=True):
        word = NO_TYPE if kind == len(local) else local[kind].as_py()
        counts[word] = counts.get(word, 0) + count
        if len(counts) > MOST_TYPES:
            raise DataError(
                f'The event column "{name}" has more than {MOST_TYPES:,} different values, such as "{word}": '
                "too many for event types.",
                fix="Name the column that holds event types such as view or purchase, or leave --event out.",
            )


def require_weights(types: Mapping[str, int], weights: Mapping[str, float], *, trained: bool = False) -> None:
    """Refuse event types that have no weight, the most frequent first. `trained`: a model has the weights it has."""
    unknown = sorted((kind for kind in types if kind not in weights), key=lambda kind: (-types[kind], kind))
    if not unknown:
        return
    some = ", ".join(f'"{kind}" ({types[kind]:,} rows)' for kind in unknown[:8])
    more = f" and {len(unknown) - 8:,} more" if len(unknown) > 8 else ""
    like = nearest(unknown[0], weights) or nearest(unknown[0].lower(), weights)
    flags = " ".join(f"--event-weight {quote(f'{kind}=1')}" for kind in unknown[:3])
    raise DataError(
        f"{'These event types have' if len(unknown) > 1 else 'This event type has'} no weight: {some}{more}.{like}",
        fix="Leave such rows out, or train a model that has a weight for them: --event-weight of dray train."
        if trained
        else f"Give each a weight, such as {flags}, or event_weights in the run file; 0 leaves such rows out.",
    )


def refusal(wrong: Wrong, trouble: Trouble, rows: int) -> DataError:
    """Return the error for rows that cannot be used."""
    column, some = trouble.column, f"{trouble.rows:,} of {rows:,} rows"
    such = f'"{trouble.value}" in {trouble.file}' if trouble.value else f"one of them in {trouble.file}"
    filtered = f"dray data ingest ... --filter '{column_in_filter(column)} %s'"
    if wrong in ("no user", "no item"):
        side = wrong.removeprefix("no ")
        what = f'{some} have no {side} in "{column}", {such}.'
        fix = f"Leave them out in training with --missing-id drop, or before: {filtered % 'is not None'}."
    elif wrong == "no time":
        keep = "is not None"
        if trouble.value:  # NaN is not None either; another number is not of the form of the others
            keep = "< 1e18" if trouble.value in ("nan", "inf", "-inf") else f"!= {trouble.value}"
        what, fix = f'{some} have no time in "{column}", {such}.', f"Leave them out: {filtered % keep}."
    elif wrong == "text time":
        what = f'The time column "{column}" holds text that is not a time in {some}, such as {such}'
        what += f", row {trouble.position + 1:,} of all data."
        fix = f"Correct them, or leave them out: {filtered % f'!= {value_in_filter(trouble.value)}'}. "
        fix += f"--time-form '{column}=FORM' reads another form."
    elif wrong == "no rating":
        what, fix = f'{some} have no rating in "{column}", {such}.', f"Leave them out: {filtered % '>= 0'}."
    elif wrong == "infinite rating":
        what = f'{some} have a rating in "{column}" that is infinite, or too large for 32 bits: {such}.'
        fix = f"Leave them out: {filtered % '< 1e30'}."
    elif wrong == "negative rating":
        what = f'{some} have a negative rating in "{column}", such as {such}.'
        fix = f"Shift the scale so that no rating is below 0, or leave them out: {filtered % '>= 0'}."
    elif wrong in ("text rating", "infinite as text"):
        hold = "hold no number" if wrong == "text rating" else "are infinite"
        what = f'The rating column "{column}" is text, and {some} {hold}, such as {such}.'
        fix = "Write it as numbers, without those rows: dray data ingest ... --transform."
    else:
        what = f'The rating column "{column}" is text, though it looks like numbers, such as {such}.'
        fix = "Write it as numbers: dray data ingest ... --transform."
    return DataError(what, fix=fix)


def first_example(column: pa.Array, wrong: Mask) -> tuple[int, str]:
    """Return the first wrong row and its value."""
    row = int(np.argmax(wrong))
    value: Any = column[row].as_py()
    return row, "" if value is None else str(value)[:100]
