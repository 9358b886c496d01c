"""What one worker holds of a training on implicit feedback: the events of some users, and those of some items.

A unit is a part of the users and the part of the items of the same number. Each is solved from the factors of all of
the other side, which come from the workers that hold them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dray.learners.factorization import implicit
from dray.learners.factorization.evaluate import RankingSums, popular_sums, ranking_sums
from dray.learners.factorization.events import UnitRows
from dray.learners.factorization.explicit import SideName, side_of
from dray.learners.factorization.explicit_share import UnitReport, by_user_and_item, popularity_by_place
from dray.learners.factorization.factors import Factors, Floats, Ints, Longs, Seen
from dray.learners.factorization.grid import Layout, Shape
from dray.learners.factorization.implicit import ImplicitSettings, Rows
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Triples
from dray.learners.factorization.unit_pairs import UnitPairs

_LEAST_UNITS = 4
_MOST_UNITS = 64
_ENTRIES_PER_UNIT = 100_000


@dataclass(frozen=True)
class ImplicitPlan:
    """What all workers know: the unit of each user and item, and how to solve.

    Rows are ordered by unit, by their position in the layout: units weigh about the same, though ids that follow each
    other may be popular together.
    """

    layout: Layout
    settings: ImplicitSettings

    @property
    def units(self) -> int:
        return self.layout.shape.blocks

    def span(self, side: SideName, unit: int) -> tuple[int, int]:
        return side_of(self.layout, side).span(unit)

    def user_blocks(self) -> Ints:
        """The unit of each user."""
        return self.layout.users.piece

    def first(self, side: SideName, unit: int) -> Floats:
        """Return a unit's factors before the first iteration."""
        start, stop = self.span(side, unit)
        return implicit.random_rows(side, unit, stop - start, self.settings)


def shape_of(entries: int, n_users: int, n_items: int) -> Shape:
    """Return how many units so much data is divided into: few for little, as each is handed around."""
    units = min(_MOST_UNITS, max(_LEAST_UNITS, entries // _ENTRIES_PER_UNIT), n_users, n_items)
    return Shape(max(1, units), 1)


@dataclass(frozen=True)
class PartFactors:
    """The factors of a part, and what they add to the Gram matrix."""

    factors: Floats
    gram: NDArray[np.float64]

    @staticmethod
    def of(factors: Floats) -> PartFactors:
        return PartFactors(factors, implicit.gram_of_part(factors))

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.gram).all())


@dataclass(frozen=True)
class ImplicitUnit:
    """A part of the users: its events, and those to test on."""

    rows: Rows
    test: Triples

    def __len__(self) -> int:
        return len(self.rows.columns)


@dataclass
class ImplicitShare:
    """One call at a time."""

    plan: ImplicitPlan
    units: dict[int, ImplicitUnit] = field(default_factory=dict)
    by_item: dict[int, Rows] = field(default_factory=dict)
    own: dict[tuple[SideName, int], Floats] = field(default_factory=dict)
    """The last solutions, where the next begin."""

    def pieces(self, rows: Sequence[UnitRows]) -> Iterator[Sequence[UnitRows]]:
        """Yield the rows of a unit: all at once."""
        yield rows

    def build(self, unit: int, parts: Iterable[UnitPairs]) -> UnitReport:
        layout, (part,) = self.plan.layout, parts
        rows = implicit.rows_by_user([_placed(layout, part.train)], *self.plan.span("users", unit))
        self.units[unit] = ImplicitUnit(rows, _placed(layout, part.test))
        counts = np.bincount(part.train.items, minlength=len(layout.items.position)).astype(np.int32)
        return UnitReport(unit, len(part.train), len(part.test), (), counts)

    def take_items(self, unit: int, parts: Sequence[Triples]) -> None:
        self.by_item[unit] = implicit.rows_by_user(parts, *self.plan.span("items", unit))

    def keep(self, units: Collection[int]) -> None:
        """Drop all units but these."""
        for unit in self.units.keys() - set(units):
            del self.units[unit]
        for unit in self.by_item.keys() - set(units):
            del self.by_item[unit]

    def restore(self, side: SideName, parts: dict[int, PartFactors | None]) -> None:
        """Restore these units; None is the state before the first epoch."""
        for unit, part in parts.items():
            self.own[side, unit] = self.plan.first(side, unit) if part is None else part.factors.copy()

    def solve(self, side: SideName, others: Sequence[PartFactors], threads: Threads) -> dict[int, PartFactors]:
        """Solve the rows held here from all factors of the other side."""
        factors = np.concatenate([part.factors for part in others])
        gram = implicit.gram_of_parts([part.gram for part in others])
        solved = {}
        for unit in sorted(self.units):
            rows = self.units[unit].rows if side == "users" else self.by_item[unit]
            own = self.own[side, unit]
            implicit.solve_rows(rows, factors, gram, self.plan.settings, own, threads)
            solved[unit] = PartFactors.of(own.copy())
        return solved

    def rankings(
        self,
        users: dict[int, PartFactors],
        items: Sequence[PartFactors],
        item_counts: Longs,
        ks: Sequence[int],
        threads: int,
    ) -> dict[int, RankingSums]:
        """Return the ranking sums of each unit's users. Items are given by their position in the layout."""
        popularity = popularity_by_place(self.plan.layout, item_counts)
        all_items = np.concatenate([part.factors for part in items])
        return {
            unit: ranking_sums(
                Factors.of(part.factors.copy(), all_items), *self._to_rank(unit), ks, popularity, threads=threads
            )
            for unit, part in users.items()
        }

    def popular(self, units: Sequence[int], item_counts: Longs, ks: Sequence[int]) -> dict[int, RankingSums]:
        """The same, for lists of what is popular."""
        popularity = popularity_by_place(self.plan.layout, item_counts)
        return {unit: popular_sums(*self._to_rank(unit), ks, popularity) for unit in units}

    def _to_rank(self, unit: int) -> tuple[Seen, Ints, Ints]:
        """Return what the users of a unit have seen, and their test pairs."""
        held, first = self.units[unit], self.plan.span("users", unit)[0]
        return Seen(held.rows.starts, held.rows.columns), held.test.users - np.int32(first), held.test.items

    def seen(self, unit: int, piece: int) -> Triples:  # noqa: ARG002  (there is one)
        """Return a unit's pairs, by user and item."""
        layout = self.plan.layout
        users, items, values = _entries(self.plan, unit, self.units[unit])
        users, items = layout.users.order[users], layout.items.order[items]
        order = by_user_and_item(users, items)
        return Triples(users[order], items[order], values[order])

    def pair_counts(self, unit: int) -> tuple[Ints, Ints]:
        """Return a unit's users, and how many pairs each has."""
        start, stop = self.plan.span("users", unit)
        return self.plan.layout.users.order[start:stop], np.diff(self.units[unit].rows.starts).astype(np.int32)


def give_items(plan: ImplicitPlan, held: Mapping[int, ImplicitUnit], units: Sequence[int]) -> list[Triples]:
    """Return the entries of the users of the held units with the items of each of `units`.

    Users and items change places.
    """
    entries = [_entries(plan, unit, own) for unit, own in held.items()]
    users, items, values = (np.concatenate(arrays) for arrays in zip(*entries, strict=True))
    order = np.argsort(items, kind="stable")
    ascending = items[order]
    edges = np.searchsorted(ascending, plan.layout.items.starts)
    chosen = [order[edges[unit] : edges[unit + 1]] for unit in units]
    return [Triples(items[rows], users[rows], values[rows]) for rows in chosen]


def _entries(plan: ImplicitPlan, unit: int, held: ImplicitUnit) -> tuple[Ints, Ints, Floats]:
    """Return the places of users and items, and the values, of a unit's pairs."""
    rows, first = held.rows, plan.span("users", unit)[0]
    users = np.repeat(np.arange(len(rows), dtype=np.int32) + np.int32(first), np.diff(rows.starts))
    return users, rows.columns, rows.weights


def _placed(layout: Layout, triples: Triples) -> Triples:
    """Return triples by the places of their users and items."""
    return Triples(layout.users.position[triples.users], layout.items.position[triples.items], triples.values)
