"""The checks of `describe` on a few rows of what a training is about to load: what a metric alone does not show.

Few rows, from the beginnings of row groups that are spread over the data: they cost a fraction of a second whatever
the size of the data. What so few rows cannot tell, such as that a column holds one value only, is told where they are
all the rows or the footers say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from shlex import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dray.data.describing.concerns import codes_of, concerns_about, leak_concerns
from dray.data.describing.figures import NOTHING_KNOWN, ColumnProfile, Concern, Known
from dray.data.describing.footers import read_footers
from dray.data.describing.profile import profile_column
from dray.data.describing.values import plain_array
from dray.data.features import is_text
from dray.data.fitting import as_type, may_be_read_as_text
from dray.data.parquet import Dataset
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.data.source import Note
from dray.data.split import PickedRows, Split
from dray.data.splitmix import splitmix64
from dray.data.whole_numbers import judged_floats

Marks = npt.NDArray[np.uint64]

ROWS = 10_000
CELLS = 300_000
"""Rows x columns at most, but never fewer than `LEAST_ROWS`."""
LEAST_ROWS = 1000
MOST_COLUMNS = 500
"""Of more columns the first ones are checked."""
WINDOWS = 4
"""Row groups that rows are taken from."""
MOST_FOOTERS = 16
"""Files whose footers are read once more, to tell a column of one value from a rare one."""
NAMED = 5
"""Columns that one warning names."""
TWINS = 0.01
"""The share of evaluation rows that training rows may equal before it is told."""
LEAST_TWINS = 10
TOGETHER = "Keep one of rows that are alike: dray data ingest DATA OUT --dedup all"
APART = "Leave these rows out of the training data or of the evaluation data."
"""What to do where the rows to evaluate on are some of the data, and where they are data of their own."""
MOSTLY_DIFFERENT = 0.5
"""Rows of a few columns with few values are alike by chance: at least so many must differ to judge the others."""
MANY_NUMBERS = 100
"""Different numbers as text; fewer may be codes of categories."""

_GROUPED = {
    "empty": ("holds no value", "hold no value"),
    "constant": ("holds one value only", "hold one value only"),
    "id": ("looks like an id, which a model memorizes", "look like ids, which a model memorizes"),
}
_SINGLE = {
    "leak": "If it is known only after the label, leave it out: --ignore {}",
    "numbers-as-text": "Write it as numbers, or leave it out: --ignore {}",
}


@dataclass(frozen=True)
class Checked:
    """What a look at a few rows found; which of them are evaluated on may be known later only."""

    columns: tuple[Note, ...]
    """What should be known of the columns."""
    marks: Marks
    """One for each row that has a label, the same where all features are."""
    positions: npt.NDArray[np.int64]
    """Where these rows are in the data; in ranking where their groups begin, which decides for all their rows."""
    whole: bool
    """They are all the rows, of both data sets."""
    evaluation: Marks | None = None
    """Of the rows of evaluation data of its own."""

    def notes(self, split: Split | PickedRows | None) -> list[Note]:
        """Return all that should be known before a training in which `split` picks the rows to evaluate on."""
        if self.evaluation is not None:
            return [*self.columns, *twins(self.marks, self.evaluation, self.whole, APART)]
        if split is None:
            return [*self.columns]
        held_out = split.picks(self.positions)
        return [*self.columns, *twins(self.marks[~held_out], self.marks[held_out], self.whole, TOGETHER)]


def check(
    train: Dataset, evaluation: Dataset | None, features: Sequence[str], label: str, group: str | None = None
) -> Checked:
    """Look at a few rows of what a training is about to load; `group` is the column of ranking groups."""
    names = [name for name in features if name in train.schema.names and name != group][:MOST_COLUMNS]
    rows, positions = take_rows(train, [*names, label] if group is None else [*names, label, group])
    if group is not None:
        positions = group_starts(rows[group], positions)
        rows = rows.drop_columns(group)
    whole = rows.num_rows == train.rows
    found = _concerns(rows, label, whole, train)
    alike = [name for name in names if not any(one.column == name and one.kind in _GROUPED for one in found)]
    others = None
    if evaluation is not None and {*alike, label} <= set(evaluation.schema.names):
        others, _ = take_rows(evaluation, [*alike, label])
        whole = whole and others.num_rows == evaluation.rows
    marks, other_marks = _marks_of(rows, others, alike)
    known = _labelled(rows, label) & (positions >= 0)
    if others is not None:
        other_marks = other_marks[_labelled(others, label)]
    return Checked(
        (*notes_of(found, label), *_rounded(rows, alike)),
        marks[known],
        positions[known],
        whole,
        None if others is None else other_marks,
    )


def take_rows(data: Dataset, names: Sequence[str]) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """Return a few rows, in order, with their positions in the data."""
    wanted = min(ROWS, max(LEAST_ROWS, CELLS // max(1, len(names))))
    groups = data.row_groups if data.rows <= wanted else _spread(data.row_groups)
    share = -(-wanted // len(groups))
    slices = groups if data.rows <= wanted else [_beginning(group, share) for group in groups]
    batches, positions = [], []
    for slice_, batch in read_slices(slices, names, [], data.storage):
        batches.append(batch)
        positions.append(np.arange(slice_.position, slice_.position + batch.num_rows))
    plain = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables(plain, promote_options="permissive"), np.concatenate(positions)


def group_starts(groups: pa.ChunkedArray, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the position of the first row of each row's ranking group; -1 where it may be before what was read."""
    codes = codes_of(plain_array(groups))
    gaps = np.diff(positions, prepend=-1) != 1  # rows before it were not read; a group may begin in them
    starts = gaps | (np.diff(codes, prepend=-1) != 0)
    first: npt.NDArray[np.int64] = np.where(gaps, -1, positions)[np.flatnonzero(starts)[np.cumsum(starts) - 1]]
    return first


def _spread(groups: Sequence[Slice]) -> list[Slice]:
    count = min(WINDOWS, len(groups))
    return [groups[int((index + 0.5) * len(groups) / count)] for index in range(count)]


def _beginning(group: Slice, rows: int) -> Slice:
    return replace(group, stop=min(group.stop, group.start + rows))


def notes_of(found: Iterable[Concern], label: str) -> list[Note]:
    """Return one note for all columns of a kind, or one each where each has its own figures."""
    found = list(found)
    told = []
    for kind, (one, several) in _GROUPED.items():
        columns = [concern.column or "" for concern in found if concern.kind == kind]
        if columns:
            told.append(_of_columns(columns, one if len(columns) == 1 else several, label))
    for concern in found:
        if concern.kind in _SINGLE:
            message = concern.message.partition(": a leak?")[0]
            verb = " " if concern.kind == "leak" else ": "
            fix = _SINGLE[concern.kind].format(quote(concern.column or ""))
            told.append(Note(f'Column "{concern.column}"{verb}{message}.', fix))
    return told


def _of_columns(columns: Sequence[str], words: str, label: str) -> Note:
    named = ", ".join(f'"{name}"' for name in columns[:NAMED])
    more = len(columns) - NAMED
    flags = " ".join(f"--ignore {quote(name)}" for name in columns[:NAMED])
    if more > 0:
        named += f" and {more} more"
        flags += f" ...; dray data describe DATA --label {label} names all"
    noun = "Column" if len(columns) == 1 else "Columns"
    return Note(f"{noun} {named} {words}.", f"Leave {'it' if len(columns) == 1 else 'them'} out: {flags}")


def twins(train: Marks, evaluation: Marks, whole: bool, fix: str) -> list[Note]:
    """Return a note if evaluation rows equal training rows, by their marks: the metrics are then too good."""
    known = np.unique(train)
    if not len(train) or len(known) < MOSTLY_DIFFERENT * len(train):
        return []
    count = int(np.isin(evaluation, known).sum())
    if count < LEAST_TWINS or count < TWINS * len(evaluation):
        return []
    looked_at = "" if whole else " that were looked at"
    return [
        Note(
            f"{count:,} of {len(evaluation):,} evaluation rows{looked_at} equal a training row in all features: the "
            "metrics flatter the model.",
            fix,
        )
    ]


def _marks_of(rows: pa.Table, others: pa.Table | None, names: Sequence[str]) -> tuple[Marks, Marks]:
    """Return the marks of the rows of both tables; none where no column is left to compare."""
    none = np.zeros(0, np.uint64)
    if not names:
        return np.zeros(rows.num_rows, np.uint64), none  # all alike: nothing is told of them
    if others is None:
        return _row_marks(rows.select(names)), none
    apart = [name for name in names if not _fit_together(rows.schema.field(name), others.schema.field(name))]
    rows, others = rows.select(names), others.select(names)
    for name in apart:
        rows, others = _made_alike(rows, others, name)
    marks = _row_marks(pa.concat_tables([rows, others], promote_options="permissive"))
    return marks[: rows.num_rows], marks[rows.num_rows :]


def _fit_together(one: pa.Field, other: pa.Field) -> bool:
    try:
        pa.unify_schemas([pa.schema([one]), pa.schema([other])], promote_options="permissive")
    except pa.ArrowTypeError:
        return False
    return True


def _made_alike(rows: pa.Table, others: pa.Table, name: str) -> tuple[pa.Table, pa.Table]:
    """Return both tables with a column of one type: that of the first, where the other has the text of its values."""
    type_ = rows.schema.field(name).type
    if is_text(others.schema.field(name).type) and may_be_read_as_text(type_):
        return rows, _with(others, name, as_type(plain_array(others[name]), type_)[0])
    return _with(rows, name, rows[name].cast(pa.string())), _with(others, name, others[name].cast(pa.string()))


def _with(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def _rounded(rows: pa.Table, names: Sequence[str]) -> Iterator[Note]:
    """Yield a note for each column of doubles that are ids which float32 cannot tell apart."""
    for name in names:
        if pa.types.is_float64(rows.schema.field(name).type):
            verdict = judged_floats(name, rows[name].to_numpy())
            if verdict.message:
                yield Note(verdict.message, verdict.fix)


def _labelled(rows: pa.Table, label: str) -> npt.NDArray[np.bool_]:
    """Say which rows have a label: the others are neither trained nor evaluated on."""
    return codes_of(plain_array(rows[label])) >= 0


def _row_marks(table: pa.Table) -> Marks:
    """Return 64 bits for each row that are the same where all values are."""
    marks = np.zeros(table.num_rows, np.uint64)
    for column in table.columns:
        codes = codes_of(plain_array(column))
        marks = splitmix64(marks ^ splitmix64(codes.astype(np.uint64)))
    return marks


def _concerns(rows: pa.Table, label: str, whole: bool, data: Dataset) -> list[Concern]:
    profiles = [profile_column(name, rows[name], data.rows, whole, NOTHING_KNOWN) for name in rows.column_names]
    found = []
    for profile in profiles:
        if profile.name != label:
            about = concerns_about(profile, rows[profile.name])
            found += [one for one in about if one.kind in _GROUPED or _matters(one, profile)]
    if not whole:
        found = _certain(found, profiles, rows, data)
    target = next(profile for profile in profiles if profile.name == label)
    unusable = {one.column for one in found if one.kind in ("empty", "constant")}
    usable = [profile for profile in profiles if profile.name not in unusable]
    return found + [one for one in leak_concerns(target, rows, usable) if one.kind == "leak"]


def _matters(concern: Concern, profile: ColumnProfile) -> bool:
    """Whether it is worth a warning of its own: a few numbers kept as text may be names of categories."""
    return concern.kind == "numbers-as-text" and profile.distinct_seen >= MANY_NUMBERS


def _certain(
    found: Sequence[Concern], profiles: Sequence[ColumnProfile], rows: pa.Table, data: Dataset
) -> list[Concern]:
    """Leave out what a few rows only seem to say: of one value or none the footers of all rows know more."""
    suspects = {one.column for one in found if one.kind in ("empty", "constant")}
    known: dict[str, Known] = {}
    if suspects and len(data.files) <= MOST_FOOTERS:
        known = read_footers(data).columns
    by_type = {name for name in rows.column_names if pa.types.is_null(rows.schema.field(name).type)}
    sure = [one for one in found if one.column not in suspects or one.column in by_type]
    for name in [profile.name for profile in profiles if profile.name in suspects & known.keys() - by_type]:
        told = profile_column(name, rows[name], data.rows, False, known[name])
        sure += [one for one in concerns_about(told, rows[name]) if _is_certain(one, told)]
    return sure


def _is_certain(concern: Concern, profile: ColumnProfile) -> bool:
    if concern.kind == "empty":
        return profile.missing.basis == "exact"
    return concern.kind == "constant" and profile.low is not None and profile.low.basis == "exact"
