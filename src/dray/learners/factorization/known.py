"""What all workers found together: one sorted dictionary of ids for each side, and how often each occurs.

Pure, and the same answer for the same rows, whichever worker found which of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.errors import DataError
from dray.learners.factorization.events import Trouble, Wrong, refusal, require_weights
from dray.learners.factorization.factors import Longs
from dray.learners.factorization.times import TimeSketch
from dray.learners.ids import as_ids

_PIECES_ROWS = 1 << 20


class IdCounts:
    """Distinct ids, each with the number of its rows. Memory follows the ids, not the rows. Picklable."""

    def __init__(self, side: str, ids: pa.Array | None = None, counts: Longs | None = None, where: str = "") -> None:
        self.side = side
        self.where = where
        """A file in which such ids were found: to tell of other ids elsewhere."""
        self._pieces: list[tuple[pa.Array, Longs]] = []
        self._held = self._loose = 0
        if ids is not None and counts is not None:
            self.add(ids, counts, where)

    def add(self, ids: pa.Array, counts: Longs, where: str) -> None:
        """Count ids; any may have been counted before."""
        if len(ids) == 0:
            return
        ids = as_ids(ids, f"{self.side} id")
        if self._pieces and ids.type != self._pieces[0][0].type:
            raise _two_types(self.side, self._pieces[0][0], self.where, ids, where)
        self.where = self.where or where
        self._pieces.append((ids, counts))
        self._loose += len(ids)
        if self._loose > max(_PIECES_ROWS, self._held):  # each id is moved a few times only, however many pieces come
            self.result()

    def result(self) -> tuple[pa.Array, Longs]:
        """Return each id once, in no order."""
        if len(self._pieces) != 1 or self._loose:
            ids, (counts,) = _summed([piece for piece, _ in self._pieces], [[counts for _, counts in self._pieces]])
            self._pieces = [(ids, counts)] if len(ids) else []
            self._held, self._loose = len(ids), 0
        return self._pieces[0] if self._pieces else (pa.nulls(0), np.zeros(0, np.int64))


@dataclass
class Found:
    """What a look through some rows found. Picklable."""

    users: IdCounts
    items: IdCounts
    rows: int = 0
    dropped: int = 0
    """Rows that were left out because they have no user or no item; not among `rows`."""
    test: bool = False
    """The rows are for testing only, from data of its own."""
    events: dict[str, int] = field(default_factory=dict)
    """Rows of each event type."""
    weights: Mapping[str, float] | None = None
    """Of the event types; None without any."""
    latest: float | None = None
    times: TimeSketch | None = None
    trouble: dict[Wrong, Trouble] = field(default_factory=dict)


def found_before(user_ids: pa.Array, user_counts: Longs, item_ids: pa.Array, item_counts: Longs) -> Found:
    """Return the ids of an earlier model as if they had been found, with the pairs that it knows of each."""
    users = IdCounts("user", user_ids, user_counts, "the earlier model")
    return Found(users, IdCounts("item", item_ids, item_counts, "the earlier model"))


@dataclass(frozen=True, slots=True)
class Ids:
    """The id of every index: text or int64, ascending."""

    user_ids: pa.Array
    item_ids: pa.Array


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of all rows. The index of an id is its place; ids of the test data are there as well."""

    user_ids: pa.Array
    """Text or int64, ascending."""
    item_ids: pa.Array
    user_counts: Longs
    """Rows of each user, without those for testing only."""
    item_counts: Longs
    rows: int
    """Without those for testing only."""
    test_rows: int
    events: dict[str, int]
    """Rows of each event type, the most frequent first; without those for testing only."""
    latest: float | None
    """The last moment, in seconds since 1970; None without times. Without the rows for testing only."""
    times: TimeSketch | None
    test_users: int
    """Users that occur in the test data only."""
    test_items: int
    dropped: int = 0
    """Rows that were left out because they have no user or no item."""
    test_dropped: int = 0

    @property
    def ids(self) -> Ids:
        return Ids(self.user_ids, self.item_ids)

    def moment(self, share: float) -> float:
        """Return the moment since which at most `share` of the rows happened, close to it if they are many."""
        if self.times is None:
            raise DataError("The rows have no time to split by.", fix="Name the column: --time, or split at random.")
        return self.times.moment(share)

    def newest(self, moment: float | None) -> float | None:
        """Return the time of the last row to train on: before `moment`, since which rows are for testing, if given."""
        if moment is None or self.times is None:
            return self.latest
        return self.times.latest_before(moment)


def merge(found: Sequence[Found]) -> Known:
    """Put together what was found, and refuse what no model can be made of."""
    train, test = [part for part in found if not part.test], [part for part in found if part.test]
    for parts in (train, test):
        _require_no_trouble(parts)
    types = reduce(lambda one, other: one + other, (Counter(part.events) for part in found), Counter[str]())
    weights = next((part.weights for part in found if part.weights is not None), None)
    if weights is not None:
        require_weights(types, weights)
    rows, dropped = sum(part.rows for part in train), sum(part.dropped for part in train)
    if dropped and not rows:
        raise DataError(
            f"None of the {dropped:,} rows has both a user and an item.", fix="Check the columns: --user and --item."
        )
    users, user_counts, test_users = _one_side([part.users for part in train], [part.users for part in test])
    items, item_counts, test_items = _one_side([part.items for part in train], [part.items for part in test])
    for side, counts in (("user", user_counts), ("item", item_counts)):
        _require_several(side, counts)
    train_types = reduce(lambda one, other: one + other, (Counter(part.events) for part in train), Counter[str]())
    latest = [part.latest for part in train if part.latest is not None]
    return Known(
        user_ids=users,
        item_ids=items,
        user_counts=user_counts,
        item_counts=item_counts,
        rows=rows,
        test_rows=sum(part.rows for part in test),
        events=dict(sorted(train_types.items(), key=lambda entry: (-entry[1], entry[0]))),
        latest=max(latest, default=None),
        times=_all_times([part.times for part in train if part.times is not None]),
        test_users=test_users,
        test_items=test_items,
        dropped=dropped,
        test_dropped=sum(part.dropped for part in test),
    )


def _one_side(train: Sequence[IdCounts], test: Sequence[IdCounts]) -> tuple[pa.Array, Longs, int]:
    """Return the ids ascending, the training rows of each, and how many are in the test data only."""
    parts = [(part, *part.result(), is_test) for group, is_test in ((train, False), (test, True)) for part in group]
    parts = [part for part in parts if len(part[1])]
    for part, ids, _, _ in parts[1:]:
        if ids.type != parts[0][1].type:
            raise _two_types(part.side, parts[0][1], parts[0][0].where, ids, part.where)
    zeros = [np.zeros(len(ids), np.int64) for _, ids, _, _ in parts]
    counted = [zero if is_test else counts for zero, (_, _, counts, is_test) in zip(zeros, parts, strict=True)]
    seen = [zero if is_test else zero + 1 for zero, (_, _, _, is_test) in zip(zeros, parts, strict=True)]
    ids, (counts, in_training) = _summed([ids for _, ids, _, _ in parts], [counted, seen])
    order = pc.sort_indices(ids)
    return ids.take(order), counts[order.to_numpy()], int(np.count_nonzero(in_training == 0))


def _summed(ids: Sequence[pa.Array], columns: Sequence[Sequence[Longs]]) -> tuple[pa.Array, list[Longs]]:
    """Return each id once, and the sum of each column over its rows."""
    if not ids:
        return pa.nulls(0), [np.zeros(0, np.int64) for _ in columns]
    names = [str(number) for number in range(len(columns))]
    sums = [pa.chunked_array([pa.array(part) for part in column]) for column in columns]
    table = pa.table([pa.chunked_array(list(ids)), *sums], ["id", *names])
    grouped = table.group_by("id", use_threads=False).aggregate([(name, "sum") for name in names])
    summed = [grouped.column(f"{name}_sum").to_numpy() for name in names]
    return grouped.column("id").combine_chunks(), summed


def _all_times(sketches: Sequence[TimeSketch]) -> TimeSketch | None:
    if not sketches:
        return None
    merged = TimeSketch()
    for sketch in sketches:
        merged.merge(sketch)
    return merged


def _require_no_trouble(parts: Sequence[Found]) -> None:
    rows = sum(part.rows for part in parts)
    for wrong in get_args(Wrong):
        troubles = [part.trouble[wrong] for part in parts if wrong in part.trouble]
        if troubles:
            raise refusal(wrong, reduce(Trouble.joined, troubles), rows)


def _require_several(side: str, counts: Longs) -> None:
    several = int(np.count_nonzero(counts))
    if several == 0:
        raise DataError("There is no row to train on.", fix="Check the location, the filter and the split.")
    if several == 1:
        raise DataError(
            f"There is one {side} only: nothing is shared between {side}s.",
            fix=f"Give the rows of several {side}s, or check that --{side} names the right column.",
        )


def _two_types(side: str, one: pa.Array, where: str, other: pa.Array, elsewhere: str) -> DataError:
    if not pt.is_string(one.type):  # told the same whichever was found first
        one, where, other, elsewhere = other, elsewhere, one, where
    return DataError(
        f"The {side} ids are text in {where} and whole numbers in {elsewhere}, such as {one[0].as_py()!r} and "
        f"{other[0].as_py()!r}: 1 and '1' are different {side}s.",
        fix=f"Write all {side} ids as text, or all as whole numbers.",
    )
