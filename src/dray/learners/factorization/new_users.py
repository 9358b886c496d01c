"""Users that the model does not know, from their events: what each had, in one value a pair, as in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.shards import Slice
from dray.learners.factorization.events import RowRule, require_weights
from dray.learners.factorization.factors import Seen
from dray.learners.factorization.ids import UNKNOWN
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.rows import found_before, merge, read_as_one, scan
from dray.learners.factorization.unit_pairs import Ageing, SplitRule, unit_pairs
from dray.learners.recommender import EventUsers
from dray.storage import StorageOptions


@dataclass(frozen=True)
class NewUsers:
    """Ids, ascending, and of each the items that the model knows, with a value each."""

    ids: pa.Array
    events: Seen

    def between(self, begin: int, end: int) -> NewUsers:
        starts = self.events.starts[begin : end + 1]
        rows = slice(starts[0], starts[-1])
        assert self.events.values is not None
        events = Seen(starts - starts[0], self.events.items[rows], self.events.values[rows])
        return NewUsers(self.ids.slice(begin, end - begin), events)

    def only(self, wanted: pa.Array) -> NewUsers:
        chosen = np.flatnonzero(pc.is_in(self.ids, wanted).to_numpy(zero_copy_only=False))
        counts = np.diff(self.events.starts)[chosen]
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        rows = np.repeat(self.events.starts[chosen] - starts[:-1], counts) + np.arange(starts[-1])
        assert self.events.values is not None
        return NewUsers(
            self.ids.take(pa.array(chosen)), Seen(starts, self.events.items[rows], self.events.values[rows])
        )


def for_model(rule: RowRule, model: FactorModel) -> RowRule:
    """Return the rule for events that are new to a model."""
    return replace(rule, drops_missing=True, ids=(model.user_ids.type, model.item_ids.type))


def read_users(
    slices: Sequence[Slice], model: FactorModel, rule: RowRule, half_life_s: float | None, storage: StorageOptions
) -> EventUsers:
    """Read events, with the columns of the run, as training does; what it refuses is refused.

    But ids are as the model's own are, by their text, and rows without a user or an item are left out.
    """
    rule = for_model(rule, model)
    before = found_before(model.user_ids, np.diff(model.seen.starts), model.item_ids, model.item_counts)
    found_rows = scan(slices, rule, storage)
    if rule.kind == "implicit" and found_rows.weights is not None:
        require_weights(found_rows.events, found_rows.weights, trained=True)
    there = merge([before, found_rows])
    pieces = read_as_one(slices, rule, there.ids, storage)
    times = [piece.times.max(initial=-np.inf) for piece in pieces if piece.times is not None]
    ageing = None
    if half_life_s is not None and times:
        newest = max(*map(float, times), -np.inf if model.as_of is None else model.as_of)
        ageing = Ageing(half_life_s=half_life_s, as_of=newest)
    pairs = unit_pairs(pieces, rule.kind, SplitRule(), ageing).train
    rows = sum((np.bincount(piece.users, minlength=len(there.user_ids)) for piece in pieces), np.int64(0))
    present = np.flatnonzero(rows)
    found = model.find_users(there.user_ids.take(pa.array(present)))
    new = present[found == UNKNOWN]
    position = np.full(len(there.user_ids), UNKNOWN, np.int32)
    position[new] = np.arange(len(new), dtype=np.int32)
    users, items = position[pairs.users], model.find_items(there.item_ids)[pairs.items]
    usable = (users != UNKNOWN) & (items != UNKNOWN)
    return EventUsers(
        without_ids=there.dropped,
        known=there.user_ids.take(pa.array(present[found != UNKNOWN])),
        new=NewUsers(
            ids=there.user_ids.take(pa.array(new)),
            events=Seen.of(users[usable], items[usable], len(new), pairs.values[usable]),
        ),
        unknown_items=int(np.count_nonzero((users != UNKNOWN) & (items == UNKNOWN))),
    )
