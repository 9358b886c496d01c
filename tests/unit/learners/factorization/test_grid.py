"""Blocks that can be trained on at once."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.learners.factorization.grid import (
    Block,
    Blocks,
    Layout,
    Shape,
    build_blocks,
    lay_out,
    shape_for,
    strata,
    stratum,
)
from dray.learners.factorization.ratings import Ratings, Triples
from rating_data import made_ratings, shuffled
from serial_factorization import layout_of


@st.composite
def grids(draw: st.DrawFn) -> tuple[Ratings, Layout]:
    n_users, n_items = draw(st.integers(2, 40)), draw(st.integers(2, 40))
    ratings = made_ratings(draw(st.integers(1, 300)), n_users, n_items, seed=draw(st.integers(0, 5)))
    blocks = draw(st.integers(1, min(n_users, n_items)))
    cells = draw(st.integers(1, min(n_users, n_items) // blocks))
    return ratings, layout_of(ratings, draw(st.integers(0, 3)), Shape(blocks, cells))


def indices_of(layout: Layout, block: Block, user_block: int, item_block: int, row: int, column: int) -> Triples:
    """The ratings of a cell, with the indices that they came with."""
    at = row * block.cells + column
    cell = slice(block.offsets[at], block.offsets[at + 1])
    user_at = layout.users.span(user_block)[0] + block.user_edges[row] + block.users[cell].astype(np.int64)
    item_at = layout.items.span(item_block)[0] + block.item_edges[column] + block.items[cell].astype(np.int64)
    return Triples(layout.users.order[user_at], layout.items.order[item_at], block.values[cell])


def all_cells(layout: Layout, blocks: Blocks) -> dict[tuple[int, int, int, int], Triples]:
    return {
        (user_block, item_block, row, column): indices_of(layout, block, user_block, item_block, row, column)
        for user_block, line in blocks.rows.items()
        for item_block, block in enumerate(line)
        for row in range(block.cells)
        for column in range(block.cells)
    }


def as_list(triples: Triples) -> list[tuple[int, int, float]]:
    return list(zip(triples.users.tolist(), triples.items.tolist(), triples.values.tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(grids())
def test_every_rating_is_in_exactly_one_cell(grid: tuple[Ratings, Layout]) -> None:
    ratings, layout = grid
    blocks = build_blocks(layout, [ratings.triples])
    found = [rating for cell in all_cells(layout, blocks).values() for rating in as_list(cell)]
    assert sorted(found) == sorted(as_list(ratings.triples))
    assert len(blocks) == len(ratings)
    pairs = len(set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True)))
    assert blocks.duplicates == len(ratings) - pairs


@settings(max_examples=60, deadline=None)
@given(grids())
def test_what_runs_at_once_shares_no_user_and_no_item(grid: tuple[Ratings, Layout]) -> None:
    ratings, layout = grid
    cells = all_cells(layout, build_blocks(layout, [ratings.triples]))
    p, t = layout.shape.blocks, layout.shape.cells
    for step in range(p):
        pairs = stratum(p, step)
        of_block = [
            (
                {user for row in range(t) for column in range(t) for user in cells[(*pair, row, column)].users},
                {item for row in range(t) for column in range(t) for item in cells[(*pair, row, column)].items},
            )
            for pair in pairs
        ]
        assert not any(a[0] & b[0] or a[1] & b[1] for a, b in combinations(of_block, 2))
        for pair, diagonal in ((pair, diagonal) for pair in pairs for diagonal in range(t)):
            at_once = [cells[(*pair, row, (row + diagonal) % t)] for row in range(t)]
            for a, b in combinations(at_once, 2):
                assert not set(a.users.tolist()) & set(b.users.tolist())
                assert not set(a.items.tolist()) & set(b.items.tolist())


@given(st.integers(1, 50), st.integers(0, 5), st.integers(0, 5))
def test_an_epoch_runs_every_block_once(blocks: int, seed: int, epoch: int) -> None:
    done = [pair for step in strata(blocks, seed, epoch) for pair in stratum(blocks, step)]
    assert sorted(done) == [(user, item) for user in range(blocks) for item in range(blocks)]


def test_epochs_have_orders_of_their_own_that_the_seed_fixes() -> None:
    assert strata(20, 7, 1) == strata(20, 7, 1)
    assert len({tuple(strata(20, seed, epoch)) for seed in range(3) for epoch in range(3)}) > 5


def same(left: Block, right: Block) -> bool:
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in Block.__slots__)


@settings(max_examples=40, deadline=None)
@given(grids(), st.integers(1, 5), st.integers(0, 3))
def test_blocks_are_the_same_for_any_workers_and_any_order_of_arrival(
    grid: tuple[Ratings, Layout], workers: int, seed: int
) -> None:
    ratings, layout = grid
    whole = build_blocks(layout, [ratings.triples])
    mixed = shuffled(ratings, seed).triples
    half = len(mixed) // 2
    parts = [Triples(mixed.users[cut], mixed.items[cut], mixed.values[cut]) for cut in (slice(half), slice(half, None))]
    for worker in range(workers):
        own = [block for block in range(layout.shape.blocks) if block % workers == worker]
        held = build_blocks(layout, parts, own)
        assert list(held.rows) == own
        for number, line in held.rows.items():
            assert all(same(*pair) for pair in zip(line, whole.rows[number], strict=True))


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300), st.integers(1, 6), st.integers(1, 4))
@settings(deadline=None)
def test_pieces_differ_by_one_row_at_most(counts: list[int], blocks: int, cells: int) -> None:
    layout = lay_out(np.array(counts), np.array(counts), Shape(blocks, cells), 0)
    for side in (layout.users, layout.items):
        sizes = np.diff(side.starts)
        assert sizes.max() - sizes.min() <= 1
        assert sorted(side.position) == list(range(len(counts)))
        assert np.array_equal(side.position[side.order], np.arange(len(counts)))
        assert set(side.unrated.tolist()) == {index for index, count in enumerate(counts) if not count}


def test_pieces_weigh_the_same_though_few_items_have_most_ratings() -> None:
    counts = (1e6 / np.arange(10, 5010)).astype(np.int64)  # the first fiftieth of the items has a third of the ratings
    side = lay_out(counts, counts, Shape(4, 4), 0).items
    loads = np.bincount(side.piece, counts)
    assert loads.max() < 1.15 * loads.mean()
    blocks = loads.reshape(4, 4).sum(axis=1)
    assert blocks.max() < 1.05 * blocks.mean()


@pytest.mark.parametrize(("ratings", "blocks"), [(100_000, 4), (20_000_000, 4), (50_000_000, 8), (1_000_000_000, 20)])
def test_the_shape_follows_from_the_data(ratings: int, blocks: int) -> None:
    assert shape_for(ratings, 100_000, 30_000).blocks == blocks


@given(st.integers(1, 10**9), st.integers(1, 10**6), st.integers(1, 10**6))
def test_no_piece_is_without_users_or_items(ratings: int, n_users: int, n_items: int) -> None:
    shape = shape_for(ratings, n_users, n_items)
    assert 1 <= shape.pieces <= min(n_users, n_items)


def test_long_pieces_are_counted_in_four_bytes() -> None:
    short, long = np.ones(65_536, np.int64), np.ones(65_537, np.int64)
    assert lay_out(short, short, Shape(1, 1), 0).index_type is np.uint16
    layout = lay_out(long, long, Shape(1, 1), 0)
    assert layout.index_type is np.int32
    every = np.arange(65_537, dtype=np.int32)
    block = build_blocks(layout, [Triples(every, every[::-1].copy(), np.zeros(65_537, np.float32))]).rows[0][0]
    assert np.array_equal(layout.users.order[block.users], 65_536 - layout.items.order[block.items])


def test_blocks_take_eight_bytes_a_rating() -> None:
    ratings = made_ratings(200_000, 2000, 500)
    blocks = build_blocks(layout_of(ratings, 0), [ratings.triples])
    held = sum(
        array.nbytes
        for line in blocks.rows.values()
        for block in line
        for array in (block.users, block.items, block.values, block.offsets)
    )
    assert held <= 8.1 * len(ratings)
