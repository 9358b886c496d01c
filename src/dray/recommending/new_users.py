"""Users that the model does not know, from their events: what each had, in one value a pair, as in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.batch.engine import Emit
from dray.data.parquet import open_dataset
from dray.ingesting.cache import PLAIN, Reading, as_parquet
from dray.learners.factorization.factors import Seen
from dray.learners.factorization.ids import UNKNOWN
from dray.learners.factorization.opening import Recommender
from dray.learners.factorization.rows import by_unit, found_before, merge, require_columns, scan
from dray.learners.factorization.unit_pairs import Ageing, SplitRule, unit_pairs
from dray.storage import StorageOptions


@dataclass(frozen=True)
class EventUsers:
    """The users of a file of events."""

    known: pa.Array
    """Those that the model has vectors for; their events are not used."""
    new: pa.Array
    """The others, ascending."""
    events: Seen
    """Of each new user the items that the model knows, with a value each."""
    unknown_items: int
    """Pairs of new users with an item that the model does not know: left out."""

    def part(self, begin: int, end: int) -> tuple[pa.Array, Seen]:
        """Return some of the new users with their events."""
        starts = self.events.starts[begin : end + 1]
        rows = slice(starts[0], starts[-1])
        assert self.events.values is not None
        events = Seen(starts - starts[0], self.events.items[rows], self.events.values[rows])
        return self.new.slice(begin, end - begin), events

    def only(self, wanted: pa.Array) -> EventUsers:
        """Return those whom `wanted` names."""
        places = np.flatnonzero(pc.is_in(self.new, wanted).to_numpy(zero_copy_only=False))
        counts = np.diff(self.events.starts)[places]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        rows = np.repeat(self.events.starts[places] - starts[:-1], counts) + np.arange(starts[-1])
        assert self.events.values is not None
        events = Seen(starts, self.events.items[rows], self.events.values[rows])
        known = self.known.filter(pc.is_in(self.known, wanted))
        return EventUsers(known, self.new.take(pa.array(places)), events, self.unknown_items)


def read_new_users(
    data: Any, known: Recommender, storage: StorageOptions, emit: Emit, reading: Reading = PLAIN
) -> EventUsers:
    """Read events, with the columns of the run, as training does; what it refuses is refused."""
    rule, model = known.rule, known.model
    parquet = as_parquet(data, storage, reading, emit, lambda schema: require_columns(schema, rule))
    slices = open_dataset(parquet, storage).row_groups
    before = found_before(model.user_ids, np.diff(model.seen.starts), model.item_ids, model.item_counts)
    there = merge([before, scan(slices, rule, storage)])
    (pieces,) = by_unit(slices, rule, there.ids, np.zeros(len(there.user_ids), np.int64), 1, storage)
    times = [piece.times.max(initial=-np.inf) for piece in pieces if piece.times is not None]
    ageing = None
    if known.half_life_s is not None and times:
        newest = max(*map(float, times), -np.inf if model.as_of is None else model.as_of)
        ageing = Ageing(half_life_s=known.half_life_s, as_of=newest)
    pairs = unit_pairs(pieces, rule.kind, SplitRule(), ageing).train
    rows = sum((np.bincount(piece.users, minlength=len(there.user_ids)) for piece in pieces), np.int64(0))
    present = np.flatnonzero(rows)
    found = model.find_users(there.user_ids.take(pa.array(present)))
    new = present[found == UNKNOWN]
    place = np.full(len(there.user_ids), UNKNOWN, np.int32)
    place[new] = np.arange(len(new), dtype=np.int32)
    users, items = place[pairs.users], model.find_items(there.item_ids)[pairs.items]
    usable = (users != UNKNOWN) & (items != UNKNOWN)
    return EventUsers(
        known=there.user_ids.take(pa.array(present[found != UNKNOWN])),
        new=there.user_ids.take(pa.array(new)),
        events=Seen.of(users[usable], items[usable], len(new), pairs.values[usable]),
        unknown_items=int(np.count_nonzero((users != UNKNOWN) & (items == UNKNOWN))),
    )
