"""What one worker holds of a training on explicit ratings: some blocks of users with all their ratings.

Blocks of items come and go: a turn is one step of an epoch on this worker's blocks of users. Knows nothing of where
the blocks of items come from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dray.learners.factorization import explicit
from dray.learners.factorization.evaluate import Popularity, RankingSums, error_sums, popular_sums, ranking_sums
from dray.learners.factorization.events import UnitRows
from dray.learners.factorization.explicit import ExplicitSettings, FactorBlock, Scale, Step, Task
from dray.learners.factorization.factors import Factors, Floats, Ints, Longs, Seen
from dray.learners.factorization.grid import Block, Layout, build_blocks, joined
from dray.learners.factorization.pool import Threads
from dray.learners.factorization.ratings import Triples
from dray.learners.factorization.unit_pairs import UnitPairs


@dataclass(frozen=True)
class ExplicitPlan:
    """What all workers know: the unit of each user and item, and how to train."""

    layout: Layout
    settings: ExplicitSettings

    @property
    def units(self) -> int:
        return self.layout.shape.blocks

    def user_blocks(self) -> Ints:
        """The unit of each user."""
        return self.layout.users.piece // np.int32(self.layout.shape.cells)


@dataclass(frozen=True)
class ExplicitUnit:
    """A block of users: its ratings by block of items, and those to test on."""

    row: tuple[Block, ...]
    test: Triples
    trained: NDArray[np.bool_]
    """Of its users, in the order of the layout, those with a rating to train on."""

    def __len__(self) -> int:
        return sum(len(block) for block in self.row)


@dataclass(frozen=True, slots=True)
class UnitReport:
    """What a unit adds to the whole."""

    unit: int
    pairs: int
    test_pairs: int
    moments: tuple[explicit.Moments, ...]
    """Of its blocks; none for implicit feedback."""
    item_counts: Ints
    """How many of its users had each item."""
    test_moments: explicit.Moments = explicit.NO_MOMENTS
    """Of its test pairs; none for implicit feedback."""


@dataclass
class ExplicitShare:
    """One call at a time."""

    plan: ExplicitPlan
    units: dict[int, ExplicitUnit] = field(default_factory=dict)
    users: dict[int, FactorBlock] = field(default_factory=dict)
    items: dict[int, FactorBlock] = field(default_factory=dict)
    scale: Scale | None = None

    def pieces(self, rows_of_unit: Sequence[UnitRows]) -> Iterator[list[UnitRows]]:
        """Yield the rows of a unit, one piece of its users at a time: to make pairs of rows takes 40 bytes a row."""
        cells = self.plan.layout.shape.cells
        piece_of_user = (self.plan.layout.users.piece % cells).astype(np.uint8)
        for piece in range(cells):
            yield [rows.only(piece_of_user[rows.users] == piece) for rows in rows_of_unit]

    def build(self, unit: int, parts: Iterable[UnitPairs]) -> UnitReport:
        """Build the blocks of a unit; each of `parts` has the pairs of other pieces of its users, in their order."""
        layout = self.plan.layout
        start, stop = layout.users.span(unit)
        trained = np.zeros(stop - start, np.bool_)
        item_counts = np.zeros(len(layout.items.position), np.int32)
        rows: list[list[Block]] = []
        tests: list[Triples] = []
        for part in parts:
            rows.append([block.apart() for block in build_blocks(layout, [part.train], [unit]).rows[unit]])
            trained[layout.users.position[part.train.users] - start] = True
            item_counts += np.bincount(part.train.items, minlength=len(item_counts)).astype(np.int32)
            tests.append(part.test)
        # One block of items after the other: no more than one is there twice.
        row = tuple(joined([blocks.pop(0) for blocks in rows]) for _ in range(self.plan.units))
        held = self.units[unit] = ExplicitUnit(row, Triples.joined(tests), trained)
        of_blocks = tuple(explicit.moments(block) for block in row)
        of_test = explicit.moments(held.test)
        return UnitReport(unit, len(held), len(held.test), of_blocks, item_counts, of_test)

    def restore(self, scale: Scale, users: dict[int, FactorBlock | None]) -> None:
        """Restore these blocks of users; None is the state before the first epoch."""
        self.scale = scale
        for unit, block in users.items():
            self.users[unit] = self._first("users", unit) if block is None else block.copy()

    def keep(self, units: Collection[int]) -> None:
        """Drop all units but these."""
        for unit in self.units.keys() - set(units):
            del self.units[unit]
            self.users.pop(unit, None)

    def turn(
        self, step: int, rate: float, threads: Threads, takes: Mapping[int, FactorBlock | None] | None = None
    ) -> list[float]:
        """Do one step of an epoch, with the blocks of items that are here, or with those that are given.

        Return the squared errors by block of users. In which order blocks of a step are trained makes no difference.
        """
        assert self.scale is not None
        for item, block in (takes or {}).items():
            self.items[item] = self._first("items", item) if block is None else block.copy()
        count, now = self.plan.units, self.items.keys() if takes is None else takes.keys()
        tasks = [
            Task(self.users[unit], self.items[(unit + step) % count], held.row[(unit + step) % count])
            for unit, held in sorted(self.units.items())
            if (unit + step) % count in now
        ]
        return explicit.train_stratum(tasks, Step.of(self.plan.settings, self.scale, rate), threads)

    def give(self, items: Sequence[int]) -> list[FactorBlock]:
        """Hand blocks of items on."""
        return [self.items.pop(item) for item in items]

    def copies(self, units: Sequence[int]) -> tuple[bool, list[FactorBlock]]:
        """Return blocks of users as they are now, and whether all their numbers are finite."""
        blocks = [self.users[unit].copy() for unit in units]
        return all(block.is_finite for block in blocks), blocks

    def _first(self, side: explicit.SideName, block: int) -> FactorBlock:
        assert self.scale is not None
        return explicit.first_block(side, self.plan.layout, block, self.plan.settings, self.scale)

    # Evaluation: from the factors that are given, whatever is being trained

    def errors(
        self, users: dict[int, FactorBlock], items: Sequence[FactorBlock], known_items: Any, limits: tuple[float, float]
    ) -> dict[int, tuple[float, float]]:
        """Return the sums of squared and absolute errors on the test pairs of each unit."""
        found, item_factors = {}, _together(items)
        for unit, block in users.items():
            test = self.units[unit].test
            rows, columns = self._places(unit, test, known_items)
            found[unit] = error_sums(self._factors(block, item_factors), rows, columns, test.values, limits)
        return found

    def rankings(
        self,
        users: dict[int, FactorBlock],
        items: Sequence[FactorBlock],
        item_counts: Longs,
        ks: Sequence[int],
        threads: int,
    ) -> dict[int, RankingSums]:
        """Return the ranking sums of each unit's users. Items are given by their position in the layout."""
        item_factors = _together(items)
        popularity = popularity_by_place(self.plan.layout, item_counts)
        return {
            unit: ranking_sums(self._factors(block, item_factors), *self._to_rank(unit), ks, popularity, threads)
            for unit, block in users.items()
        }

    def popular(self, units: Sequence[int], item_counts: Longs, ks: Sequence[int]) -> dict[int, RankingSums]:
        """The same, for lists of what is popular."""
        popularity = popularity_by_place(self.plan.layout, item_counts)
        return {unit: popular_sums(*self._to_rank(unit), ks, popularity) for unit in units}

    def _to_rank(self, unit: int) -> tuple[Seen, Ints, Ints]:
        """Return what the users of a unit have seen, and their test pairs."""
        start, stop = self.plan.layout.users.span(unit)
        rows, places, _ = self._pairs(unit)
        test, position = self.units[unit].test, self.plan.layout.items.position
        test_rows = self.plan.layout.users.position[test.users] - np.int32(start)
        return Seen.of(rows, places, stop - start), test_rows, position[test.items]

    def _factors(self, users: FactorBlock, items: FactorBlock) -> Factors:
        assert self.scale is not None
        own = users.copy()  # what comes from others may not be written, and the kernels are not made for that
        return Factors.of(own.factors, items.factors, own.bias, items.bias, self.scale.mean)

    def _places(self, unit: int, test: Triples, known_items: Any) -> tuple[Ints, Ints]:
        """Return rows within the unit and places of items; -1 for those that nothing was learned of."""
        layout = self.plan.layout
        rows = layout.users.position[test.users] - np.int32(layout.users.span(unit)[0])
        places = np.where(known_items[test.items], layout.items.position[test.items], -1)
        rows = np.where(self.units[unit].trained[rows], rows, -1)
        return rows.astype(np.int32), places.astype(np.int32)

    # What is kept of the pairs

    def seen(self, unit: int, piece: int) -> Triples:
        """Return the pairs of a piece of a unit's users, by user and item."""
        layout = self.plan.layout
        rows, places, values = self._pairs_of(unit, piece)
        users = layout.users.order[layout.users.span(unit)[0] + rows]
        items = layout.items.order[places]
        order = by_user_and_item(users, items)
        return Triples(users[order], items[order], values[order])

    def pair_counts(self, unit: int) -> tuple[Ints, Ints]:
        """Return a unit's users, and how many pairs each has."""
        start, stop = self.plan.layout.users.span(unit)
        counts = np.zeros(stop - start, np.int32)
        for piece in range(self.plan.layout.shape.cells):
            counts += np.bincount(self._pairs_of(unit, piece)[0], minlength=stop - start).astype(np.int32)
        return self.plan.layout.users.order[start:stop], counts

    def _pairs(self, unit: int) -> tuple[Ints, Ints, Floats]:
        """Return the pairs of a unit out of its blocks: row within the unit, place of the item, value."""
        pieces = [self._pairs_of(unit, piece) for piece in range(self.plan.layout.shape.cells)]
        rows, places, values = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        return rows, places, values

    def _pairs_of(self, unit: int, piece: int) -> tuple[Ints, Ints, Floats]:
        """The same of a piece of its users: a fraction of the memory."""
        rows, places, values = [], [], []
        for number, block in enumerate(self.units[unit].row):
            offsets = block.offsets[piece * block.cells : (piece + 1) * block.cells + 1]
            own = slice(offsets[0], offsets[-1])
            first = np.repeat(block.item_edges[:-1] + self.plan.layout.items.span(number)[0], np.diff(offsets))
            rows.append(block.users[own].astype(np.int32) + block.user_edges[piece])
            places.append(block.items[own] + first.astype(np.int32))
            values.append(block.values[own])
        return np.concatenate(rows), np.concatenate(places).astype(np.int32), np.concatenate(values)


def by_user_and_item(users: Ints, items: Ints) -> Longs:
    """Return the order of pairs, of which each occurs once: the sort need not be stable, and is four times as fast."""
    keys = users.astype(np.int64)
    keys <<= 32
    keys |= items
    return np.argsort(keys)


def popularity_by_place(layout: Layout, item_counts: Longs) -> Popularity:
    """Return how popular items are, in the order of the layout."""
    order = layout.items.order
    return Popularity(item_counts[order], order)


def _together(blocks: Sequence[FactorBlock]) -> FactorBlock:
    return FactorBlock(
        np.concatenate([block.factors for block in blocks]), np.concatenate([block.bias for block in blocks])
    )
