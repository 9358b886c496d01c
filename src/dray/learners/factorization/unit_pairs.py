"""What the owner of a block of users trains and tests on: one value for each pair, made of its rows.

| kind     | value of a pair                                                                         |
|----------|-----------------------------------------------------------------------------------------|
| explicit | its last rating: by time if there is one, of ratings at the same time the later row     |
| implicit | the sum of its weights, each halved for every half-life that has passed; 0 is no pair   |

Rows are put to the test first, then each side is summed up by itself. The answer depends on the rows and their order,
not on how they were assigned. Pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from dray.errors import ConfigError, DataError
from dray.learners.factorization import split as splitting
from dray.learners.factorization.events import Kind, Mask, UnitRows
from dray.learners.factorization.factors import Ints, Longs
from dray.learners.factorization.ratings import Triples
from dray.learners.factorization.times import Doubles

_KEY_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """Which rows test the model."""

    how: Literal["random", "time", "last"] | None = None
    """A share of the pairs, all rows since a moment, or the last rows of each user; None: none."""
    share: float = 0.0
    """For random."""
    moment: float | None = None
    """For time: in seconds since 1970."""
    last: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ageing:
    """How the weight of an event falls with time."""

    half_life_s: float
    as_of: float
    """The moment for which weights are computed, in seconds since 1970; what is later counts in full."""

    def __post_init__(self) -> None:
        if not self.half_life_s > 0:
            raise ConfigError(f"The half-life is {self.half_life_s} seconds.", fix="Use a number above 0.")

    def factors(self, times: Doubles | float) -> Any:
        """Return what weights of that time are multiplied by."""
        return np.exp2(-np.maximum(self.as_of - times, 0.0) / self.half_life_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairNotes:
    """What was counted on the way. Notes of parts add up."""

    train_rows: int = 0
    """Rows of the data, without old pairs."""
    test_rows: int = 0
    old_pairs: int = 0
    """Pairs of the earlier model."""
    duplicates: int = 0
    """Training rows, and old pairs, whose pair had one before: replaced (explicit) or added up (implicit)."""
    test_duplicates: int = 0
    cancelled: int = 0
    """Training pairs left out because their weights came to 0."""
    not_positive: int = 0
    """Test pairs left out because their weights came to 0 or less: nothing that a list should hold."""

    def __add__(self, other: PairNotes) -> PairNotes:
        return PairNotes(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(PairNotes)})


@dataclass(frozen=True, slots=True)
class UnitPairs:
    """Pairs to train and to test on, each sorted by user and item, and each pair once."""

    train: Triples
    test: Triples
    notes: PairNotes


def unit_pairs(given: Sequence[UnitRows], kind: Kind, split: SplitRule, ageing: Ageing | None = None) -> UnitPairs:
    """Return the pairs of one block of users. `given`: its rows in the order of the data; old pairs may be anywhere."""
    _require_times(given, split, ageing)
    given = sorted(given, key=lambda rows: not rows.old)  # stable
    users = _joined([rows.users for rows in given], np.int32)
    items = _joined([rows.items for rows in given], np.int32)
    test = _test_rows(given, split, users, items)
    old = sum(len(rows) for rows in given if rows.old)
    order = _by_pair(users, items)
    picked = test[order]
    sides = []
    for rows in (order[~picked], order[picked]):
        user, item = users[rows], items[rows]
        starts = np.flatnonzero(_changes(user) | _changes(item))
        sides.append((rows, starts, user[starts], item[starts]))
    del order, picked, users, items
    if kind == "explicit":
        made = [_last_ratings(given, rows, starts) for rows, starts, _, _ in sides]
        triples = [Triples(user, item, value) for (_, _, user, item), value in zip(sides, made, strict=True)]
        cancelled = not_positive = 0
    else:
        weights = _weights(given, ageing)
        sums = [_sums(weights, rows, starts) for rows, starts, _, _ in sides]
        keep = [sums[0] != 0, sums[1] > 0]
        triples = [
            Triples(user[kept], item[kept], value[kept])
            for (_, _, user, item), value, kept in zip(sides, sums, keep, strict=True)
        ]
        cancelled, not_positive = (int(np.count_nonzero(~kept)) for kept in keep)
    (train_rows, train_pairs), (test_rows, test_pairs) = ((len(side[0]), len(side[1])) for side in sides)
    notes = PairNotes(
        train_rows=train_rows - old,
        test_rows=test_rows,
        old_pairs=old,
        duplicates=train_rows - train_pairs,
        test_duplicates=test_rows - test_pairs,
        cancelled=cancelled,
        not_positive=not_positive,
    )
    return UnitPairs(triples[0], triples[1], notes)


def _require_times(given: Sequence[UnitRows], split: SplitRule, ageing: Ageing | None) -> None:
    why = "ageing" if ageing else f'a split by "{split.how}"' if split.how in ("time", "last") else ""
    if why and any(rows.times is None and len(rows) for rows in given if not rows.old):
        raise DataError(f"The rows have no time, which {why} needs.", fix="Name the column: --time.")
    if split.how == "time" and split.moment is None:
        raise ConfigError("A split by time needs a time.", fix="Give the time from which on rows are for testing.")
    if any(rows.old and rows.test for rows in given):
        raise ConfigError("Pairs of an earlier model cannot be for testing.", fix="Give them as old or as test.")


def _test_rows(given: Sequence[UnitRows], split: SplitRule, users: Ints, items: Ints) -> Mask:
    """Return which rows are for testing: those of the test data whole, old pairs never."""
    lengths = np.array([len(rows) for rows in given], np.int64)
    test = np.repeat(np.array([rows.test for rows in given], np.bool_), lengths)
    if split.how is None:
        return test
    free = np.repeat(np.array([not (rows.test or rows.old) for rows in given], np.bool_), lengths)
    if split.how == "random":
        return test | (free & splitting.at_random(users, items, split.share, split.seed))
    held = [rows.times for rows in given if not (rows.test or rows.old) and rows.times is not None]
    times = _joined(held, np.float64)
    if split.how == "time":
        test[free] = splitting.since(times, split.moment)
    elif len(times):
        test[free] = splitting.last_of_each_user(users[free], times, split.last)
    return test


def _by_pair(users: Ints, items: Ints, key_bits: int = _KEY_BITS) -> Longs:
    """Return the rows in the order of their pairs; those of a pair stay as they are."""
    if len(users) == 0:
        return np.zeros(0, np.int64)
    item_bits, row_bits = int(items.max()).bit_length(), (len(users) - 1).bit_length()
    if int(users.max()).bit_length() + item_bits + row_bits > key_bits:
        return np.lexsort((items, users))
    # User, item and row in one number each: one sort of numbers in place, many times the speed of a stable one.
    keys = users.astype(np.uint64)
    keys <<= np.uint64(item_bits)
    keys |= items.astype(np.uint64)
    keys <<= np.uint64(row_bits)
    keys |= np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    keys &= np.uint64((1 << row_bits) - 1)
    return keys.view(np.int64)


def _changes(values: Ints) -> Mask:
    """True where a value differs from the one before; True for the first."""
    changed = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def _last_ratings(given: Sequence[UnitRows], rows: Longs, starts: Longs) -> Any:
    """Return the last rating of each pair; the rows of a pair are consecutive, in the order of the data."""
    values = _joined([part.values for part in given], np.float32)
    ends = np.append(starts, len(rows))[1:]
    last = ends - 1
    timed = all(part.old or part.times is not None for part in given) and any(not part.old for part in given)
    if timed and len(starts) < len(rows):
        # What the earlier model knew is older than anything of the data, whatever its time.
        held = [np.full(len(part), -np.inf) if part.old or part.times is None else part.times for part in given]
        times = _joined(held, np.float64)[rows]
        latest = np.repeat(np.maximum.reduceat(times, starts), ends - starts)
        places = np.where(times == latest, np.arange(len(rows)), -1)
        last = np.maximum.reduceat(places, starts)
    return values[rows[last]]


def _weights(given: Sequence[UnitRows], ageing: Ageing | None) -> Doubles:
    """Return the weight of every row as of now."""
    weights = np.empty(sum(len(rows) for rows in given))
    begin = 0
    for rows in given:
        piece = weights[begin : begin + len(rows)]
        piece[:] = rows.values
        moment = rows.as_of if rows.old else rows.times
        if ageing and moment is not None:
            piece *= ageing.factors(moment)
        begin += len(rows)
    return weights


def _sums(weights: Doubles, rows: Longs, starts: Longs) -> Any:
    """Return the sum of each pair's weights, added one by one in the order of the data."""
    pair = np.zeros(len(rows), np.int64)
    pair[starts[1:]] = 1
    np.cumsum(pair, out=pair)
    return np.bincount(pair, weights[rows], minlength=len(starts)).astype(np.float32)


def _joined(arrays: Sequence[Any], dtype: Any) -> Any:
    """Return them as one; a single one is not copied."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
