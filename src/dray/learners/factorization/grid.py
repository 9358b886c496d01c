"""Cut ratings into blocks that can be trained on at the same time.

Users and items are divided into `blocks` blocks each, and each of those into `cells` pieces. Blocks (b, b + s) of one
step s share no user and no item, so they may run anywhere, in any order, at once, and give the same bits; so may the
cells (c, c + d) of one diagonal d of a block. What is computed is therefore a function of the ratings, the seed and
the shape of the grid, never of the number of workers or threads: the shape follows from the data alone.

Pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cbrt, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dray.learners.factorization.factors import Ints
from dray.learners.factorization.ratings import Triples

_UPDATE_PER_TURN = 1e-5
"""Seconds of an update by twice the seconds to ask a worker for a turn: 40 ns by 2 x 2 ms, measured. 4 blocks for up to
20M ratings, 8 for 50M, 20 for 1 billion."""

_LEAST_BLOCKS = 4
_MOST_CELLS = 8
_RATINGS_PER_CELL = 3000
"""Some 0.1 ms of work: fewer, and threads wait for each other longer than they compute."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How fine the grid is."""

    blocks: int
    """Blocks of users, and as many of items: at most that many workers can compute at once."""
    cells: int
    """Pieces of a block of users, and of items: at most that many threads can share one block."""

    @property
    def pieces(self) -> int:
        return self.blocks * self.cells


def shape_for(ratings: int, n_users: int, n_items: int) -> Shape:
    """Return the shape for this much data; none of its blocks is empty.

    As many workers as blocks compute ratings / blocks updates an epoch each, and are asked for blocks^2 turns: the sum
    of both times is least at the cube root.
    """
    most = max(1, min(n_users, n_items))
    # A multiple of four: two workers, or four, then have as many blocks each.
    blocks = min(most, max(1, round(cbrt(ratings * _UPDATE_PER_TURN) / _LEAST_BLOCKS)) * _LEAST_BLOCKS)
    cells = min(_MOST_CELLS, most // blocks, isqrt(ratings // (blocks * blocks * _RATINGS_PER_CELL)))
    return Shape(blocks, max(1, cells))


@dataclass(frozen=True, slots=True)
class Side:
    """The position of each user, or of each item."""

    position: Ints
    """Of each index, its position when rows are ordered by piece."""
    starts: Ints
    """Where each piece begins among the positions, and at the end how many there are."""
    cells: int
    unrated: Ints
    """The indices without a rating: nothing will be known of them."""

    @property
    def order(self) -> Ints:
        """The index at each position."""
        order = np.empty_like(self.position)
        order[self.position] = np.arange(len(order), dtype=np.int32)
        return order

    @property
    def piece(self) -> Ints:
        """The piece of each index."""
        return (np.searchsorted(self.starts, self.position, side="right") - 1).astype(np.int32)

    def span(self, block: int) -> tuple[int, int]:
        """The positions of a block, from and to."""
        return int(self.starts[block * self.cells]), int(self.starts[(block + 1) * self.cells])

    def edges(self, block: int) -> Ints:
        """Where the pieces of a block begin, and end, within the block."""
        edges: Ints = self.starts[block * self.cells : (block + 1) * self.cells + 1] - self.span(block)[0]
        return edges


@dataclass(frozen=True, slots=True)
class Layout:
    """Which user and which item belongs where. A few bytes a user: made once and given to every worker."""

    shape: Shape
    users: Side
    items: Side

    @property
    def index_type(self) -> type[np.uint16] | type[np.int32]:
        """What holds a row's number within its piece: two bytes do as a rule, and halve the memory of the indices."""
        longest = max(int(np.diff(side.starts).max()) for side in (self.users, self.items))
        return np.uint16 if longest <= np.iinfo(np.uint16).max + 1 else np.int32


def lay_out(user_counts: NDArray[Any], item_counts: NDArray[Any], shape: Shape, seed: int) -> Layout:
    """Divide users and items by their numbers of ratings, so that every piece has about as many ratings."""
    random = np.random.default_rng([seed, 1])
    return Layout(shape, _divide(user_counts, shape, random), _divide(item_counts, shape, random))


def _divide(counts: NDArray[Any], shape: Shape, random: np.random.Generator) -> Side:
    """Give each row a block, and a piece in it, so that all weigh about the same: a step waits for its heaviest.

    Within a piece the order is random, or popular rows would always come first.
    """
    shuffled = random.permutation(len(counts))  # which of equally heavy rows goes where
    block_of = _spread(counts[shuffled], shape.blocks)
    piece_of = np.empty(len(counts), np.int64)
    for block in range(shape.blocks):
        rows = shuffled[block_of == block]
        piece_of[rows] = block * shape.cells + _spread(counts[rows], shape.cells)
    shuffled = random.permutation(len(counts))
    order = shuffled[np.argsort(piece_of[shuffled], kind="stable")]
    position = np.empty(len(counts), np.int32)
    position[order] = np.arange(len(counts), dtype=np.int32)
    starts = np.zeros(shape.pieces + 1, np.int32)
    np.cumsum(np.bincount(piece_of, minlength=shape.pieces), out=starts[1:])
    return Side(position, starts, shape.cells, np.flatnonzero(counts == 0).astype(np.int32))


def _spread(weights: NDArray[Any], bins: int) -> NDArray[np.int64]:
    """Return a bin for each weight: the heaviest first, in rounds of one for each bin, onto the lightest first.

    So bins differ by one in number at most, and by little in weight, though a few items have most of the ratings.
    Rounds of equal weights do not change which bin is lightest: the many rows with few ratings are placed at once.
    """
    falling = np.argsort(-weights.astype(np.int64), kind="stable")
    sorted_weights = weights[falling]
    ends = np.searchsorted(-sorted_weights, -sorted_weights, side="right")  # of each run of equal weights
    load = np.zeros(bins, np.int64)
    bin_of = np.empty(len(weights), np.int64)
    first = 0
    while first < len(weights):
        rounds = max(1, int(ends[first] - first) // bins)
        these = falling[first : first + rounds * bins]
        lightest = np.argsort(load, kind="stable")
        bin_of[these] = np.tile(lightest, rounds)[: len(these)]
        load += np.bincount(bin_of[these], weights[these], bins).astype(np.int64)
        first += rounds * bins
    return bin_of


def strata(blocks: int, seed: int, epoch: int) -> list[int]:
    """Return the steps of an epoch: round once, from a random one on, in a random direction.

    Not in any order: from one step to the next a block of items moves on to the neighbouring block of users, which is
    nearly always held by the same worker, so that few blocks travel. Where an epoch begins and which way it goes
    varies, since the last block trained on weighs a little more.
    """
    random = np.random.default_rng([seed, 2, epoch])
    first, way = int(random.integers(blocks)), 1 if random.random() < 0.5 else -1
    return [(first + way * step) % blocks for step in range(blocks)]


def stratum(blocks: int, step: int) -> list[tuple[int, int]]:
    """Return the blocks (of users, of items) of a step: no two share either."""
    return [(block, (block + step) % blocks) for block in range(blocks)]


@dataclass(frozen=True, slots=True)
class Block:
    """The ratings of a block of users for a block of items: cell after cell, by user and item within a cell.

    By user, because a user's factors then stay in the processor's cache. The order is the same in whatever order the
    ratings came.
    """

    users: NDArray[Any]
    """Row within the user's piece."""
    items: NDArray[Any]
    values: NDArray[np.float32]
    offsets: NDArray[np.int64]
    """Where each cell (of users, of items) begins: cells * cells, row by row, and the end."""
    user_edges: Ints
    """Where the pieces of the block's users begin, in rows of the block, and the end."""
    item_edges: Ints

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def cells(self) -> int:
        return len(self.user_edges) - 1

    def apart(self) -> Block:
        """Return the same in memory of its own: blocks that are built together share theirs."""
        return replace(self, users=self.users.copy(), items=self.items.copy(), values=self.values.copy())


@dataclass(frozen=True, slots=True)
class Blocks:
    """The ratings of some blocks of users."""

    rows: dict[int, tuple[Block, ...]]
    """For a block of users, the blocks for each block of items."""
    duplicates: int
    """Ratings whose user and item had one before."""

    def __len__(self) -> int:
        return sum(len(block) for row in self.rows.values() for block in row)


def build_blocks(layout: Layout, parts: Sequence[Triples], user_blocks: Sequence[int] | None = None) -> Blocks:
    """Return the ratings of some blocks of users, or of all; what belongs to other users is passed over.

    Two passes over the ratings, count and place, then a sort in each cell: beside the ratings and the blocks, which
    take 8 bytes a rating, there is only what one cell needs. Drop the ratings afterwards.
    """
    from dray.learners.factorization import kernels

    shape = layout.shape
    wanted = range(shape.blocks) if user_blocks is None else sorted(set(user_blocks))
    slot = np.full(shape.blocks, -1, np.int64)  # of a block of users, its place among the wanted
    slot[list(wanted)] = np.arange(len(wanted))
    user_piece, item_piece = layout.users.piece, layout.items.piece
    n_cells = len(wanted) * shape.blocks * shape.cells**2
    counts = np.zeros(n_cells + 1, np.int64)
    for part in parts:
        kernels.count_cells(part.users, part.items, user_piece, item_piece, slot, shape.blocks, shape.cells, counts)
    offsets = np.cumsum(counts)
    total, kind = int(offsets[-1]), layout.index_type
    users, items, values = np.empty(total, kind), np.empty(total, kind), np.empty(total, np.float32)
    free = offsets[:-1].copy()
    user_row = layout.users.position - layout.users.starts[user_piece]
    item_row = layout.items.position - layout.items.starts[item_piece]
    for part in parts:
        kernels.place_in_cells(
            *(part.users, part.items, part.values, user_piece, item_piece, user_row, item_row),
            *(slot, shape.blocks, shape.cells, free, users, items, values),
        )
    longest = [int(np.diff(side.starts).max(initial=0)) for side in (layout.users, layout.items)]
    duplicates = kernels.sort_cells(offsets, users, items, values, longest[0], longest[1])
    rows = {
        user_block: tuple(
            _cut(layout, users, items, values, offsets, place * shape.blocks + item_block, user_block, item_block)
            for item_block in range(shape.blocks)
        )
        for place, user_block in enumerate(wanted)
    }
    return Blocks(rows, int(duplicates))


def joined(blocks: Sequence[Block]) -> Block:
    """Return the ratings of one block that was built from several pieces of its users, in their order."""
    users, items, values = (
        np.concatenate([getattr(block, name) for block in blocks]) for name in ("users", "items", "values")
    )
    offsets = np.sum([block.offsets for block in blocks], axis=0)  # of cells that are empty in all but one of them
    return replace(blocks[0], users=users, items=items, values=values, offsets=offsets)


def _cut(
    layout: Layout,
    users: NDArray[Any],
    items: NDArray[Any],
    values: NDArray[np.float32],
    offsets: NDArray[np.int64],
    place: int,
    user_block: int,
    item_block: int,
) -> Block:
    per_block = layout.shape.cells**2
    own = offsets[place * per_block : (place + 1) * per_block + 1]
    first, last = own[0], own[-1]
    return Block(
        *(users[first:last], items[first:last], values[first:last], own - first),
        *(layout.users.edges(user_block), layout.items.edges(item_block)),
    )
