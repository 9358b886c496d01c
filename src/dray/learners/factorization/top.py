"""The best items of a user, of all users: exact, in bounded memory, the same for any number of threads.

Items rank by score, equal ones by index. Both ways find candidates fast and give them their exact score in the end:
all users by matrix products of tiles (`best_for_users`), one user by codes of four bits (`ItemIndex`), which are an
eighth of the factors to read and tell for nearly every item that it is not among the best.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from dray.errors import ModelError
from dray.learners.factorization.factors import Factors, Floats, Ints, Seen
from dray.learners.recommender import require_some

USERS_AT_ONCE = 256
ITEMS_AT_ONCE = 2048
SPARE = 8
"""Candidates beyond those asked for: a matrix product may order nearly equal scores otherwise than they are."""
_FIRST_BLOCKS = 64
"""Looked at before anything else: their best items tell which other blocks can matter."""
_STRETCH = 1024
"""Blocks that a thread looks at before it takes the next: a quarter of a millisecond of work."""
EMPTY = -1
"""Fills the positions of a list for which no item is left."""

Doubles = npt.NDArray[np.float64]
Coded = tuple[npt.NDArray[Any], ...]
"""What `encode_items` gives."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best items of some users, best first; where there are too few, EMPTY with a score of -inf."""

    first: int
    """The place of the first of them among the users asked for."""
    items: Ints
    """int32[users, n]"""
    scores: Floats
    """float32[users, n]: mean + biases + p.q"""


def best_for_users(
    factors: Factors,
    seen: Seen,
    n: int,
    users: Ints | None = None,
    among: Ints | Tiles | None = None,
    threads: int = 1,
) -> Iterator[Best]:
    """Yield the `n` best items of `users` (all), some users at a time, without those they have seen.

    `among` restricts the items; `Tiles` made of them serve many calls. Memory:
    the factors once more (in order of length), a tile of 2 MB for each thread.
    """
    require_some(n)
    wanted = np.arange(len(factors.users), dtype=np.int32) if users is None else np.asarray(users, np.int32)
    tiles = among if isinstance(among, Tiles) else Tiles.of(factors.items, factors.item_bias, among)
    firsts = range(0, len(wanted), USERS_AT_ONCE)

    def find(first: int) -> Best:
        return _best_of_block(factors, seen, tiles, n, first, wanted[first : first + USERS_AT_ONCE])

    # A product is one thread's: many small ones run at the same time, and BLAS must not split each of them again.
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Best]] = deque()
        try:
            for first in firsts:
                waiting.append(pool.submit(find, first))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


class ItemIndex:
    """Finds the best items for one vector. Built once for a catalogue: about a second for a million items."""

    def __init__(self, items: Floats, bias: Floats, coded: Coded | None = None, threads: int = 1) -> None:
        """Use what `encode_items` made of the same items, or make it."""
        from dray.learners.factorization import top_kernels

        self._kernels = top_kernels
        self._items, self._bias = items, bias
        self._order, self._codes, self._scales, self._lengths, self._slacks, longest = coded or encode_items(
            items, None, threads
        )
        self._longest_code = float(longest[0])
        blocks, block, n = len(self._codes), top_kernels.BLOCK, len(self._order)
        self._sorted_bias = np.full(blocks * block, -np.inf, np.float32)
        self._sorted_bias[:n] = bias[self._order]
        self._top_bias = self._sorted_bias.reshape(blocks, block).max(axis=1).astype(np.float64)
        self._pool = ThreadPoolExecutor(threads)
        self._threads = threads

    def best(self, vector: Floats, n: int, skipped: Ints) -> tuple[Ints, Doubles]:
        """Return the `n` best items (fewer if there are not so many) and bias + p.q, without `skipped` (ascending)."""
        require_some(n)
        n = min(n, len(self._order))
        if n == 0:
            return np.zeros(0, np.int32), np.zeros(0)
        vector = np.ascontiguousarray(vector, np.float32)
        length = float(np.linalg.norm(vector.astype(np.float64)))
        # The sums have 16 bits: |sum| <= |steps| |code|, and rounding makes the steps longer by sqrt(k) / 2 at most.
        room = max(32_700 - self._longest_code * len(vector) ** 0.5 / 2, 1.0)
        step = length * self._longest_code / room or 1.0
        exact = vector.astype(np.float64) / step
        steps = np.zeros(2 * self._codes.shape[1], np.int16)
        steps[: len(vector)] = np.rint(exact)
        error = float(np.linalg.norm(exact - steps[: len(vector)])) * step
        steps[1::2] -= 16 * steps[::2]  # see `scan`
        scores, items = _empty_heaps((n,), np.float64)

        def look(begin: int, end: int, scores: Doubles, items: Ints) -> None:
            blocks = slice(begin, end)
            places = slice(begin * self._kernels.BLOCK, end * self._kernels.BLOCK)
            self._kernels.scan(
                *(self._items, self._bias, self._order[places], self._codes[blocks], self._scales[blocks]),
                *(self._slacks[places], self._lengths[blocks], self._sorted_bias[places], self._top_bias[blocks]),
                *(vector, steps, step, length, error, skipped, scores, items),
            )

        # The longest vectors first, which mostly leaves little to look at: for that no other thread is woken.
        first, end = min(_FIRST_BLOCKS, len(self._codes)), len(self._codes)
        look(0, first, scores, items)
        left = np.count_nonzero(self._top_bias[first:] + length * self._lengths[first:] * (1 + 1e-6) >= scores[0])
        stretches = iter(range(first, end, _STRETCH))  # each takes the next one: none waits for a thread that is slow

        def look_on(scores: Doubles, items: Ints) -> None:
            for begin in stretches:
                look(begin, min(begin + _STRETCH, end), scores, items)

        parts = self._threads if left > 2 * _STRETCH else 1
        heaps = [(scores, items), *((scores.copy(), items.copy()) for _ in range(1, parts))]
        others = [self._pool.submit(look_on, *heap) for heap in heaps[1:]]
        look_on(*heaps[0])
        for other in others:
            if not other.cancel():
                other.result()
        scores, items = (np.concatenate(side) for side in zip(*heaps, strict=True))
        items, places = np.unique(items, return_index=True)  # what was found first is in every heap
        scores = scores[places]
        order = np.lexsort((items, -scores))[:n]
        order = order[items[order] != self._kernels.NO_ITEM]
        return items[order], scores[order]


def encode_items(items: Floats, among: Ints | None, threads: int = 1) -> Coded:
    """Return order, codes, scales and lengths of blocks, errors of items and the longest code: plain arrays to keep."""
    from dray.learners.factorization import top_kernels

    order = _longest_first(items, among)
    blocks = -(-len(order) // top_kernels.BLOCK)
    codes = np.empty((blocks, -(-items.shape[1] // 2), top_kernels.BLOCK), np.int8)
    scales, lengths = np.empty(blocks), np.empty(blocks)
    slacks = np.empty(blocks * top_kernels.BLOCK, np.float32)

    def encode(begin: int, end: int) -> float:
        return float(top_kernels.encode(items, order, codes, scales, slacks, lengths, begin, end))

    edges = np.linspace(0, blocks, threads + 1).astype(np.int64)
    with ThreadPoolExecutor(threads) as pool:
        longest = max([1.0, *pool.map(encode, edges[:-1], edges[1:])])
    return order, codes, scales, lengths, slacks, np.array([longest])


def best_of(scores: npt.NDArray[Any], n: int) -> npt.NDArray[np.int64]:
    """Return the places of the `n` highest scores, highest first, equal ones by place; those of -inf are left out."""
    n = min(n, len(scores))
    if n == 0:
        return np.zeros(0, np.int64)
    worst = np.partition(scores, len(scores) - n)[len(scores) - n]
    places = np.flatnonzero(scores >= worst)
    places = places[np.isfinite(scores[places])]
    best: npt.NDArray[np.int64] = places[np.lexsort((places, -scores[places]))[:n]]
    return best


@dataclass(frozen=True, slots=True)
class Tiles:
    """The items, the longest vectors first, so that a product's rest can be left out when no item of it can matter."""

    names: Ints
    vectors: Floats
    bias: Floats
    edges: Sequence[int]
    lengths: Doubles
    """Of the longest vector of each tile."""
    rest_bias: Doubles
    """The highest bias in a tile and all that follow."""

    @staticmethod
    def of(items: Floats, bias: Floats, among: Ints | None) -> Tiles:
        names = _longest_first(items, among)
        vectors, bias = items[names], bias[names]
        edges = [*range(0, len(names), ITEMS_AT_ONCE), len(names)]
        tops = [bias[begin:end].max() for begin, end in pairwise(edges)]
        lengths = np.linalg.norm(vectors[edges[:-1]].astype(np.float64), axis=1)
        return Tiles(
            names, vectors, bias, edges, lengths, np.maximum.accumulate(np.array(tops[::-1], np.float64))[::-1]
        )


def _best_of_block(factors: Factors, seen: Seen, tiles: Tiles, n: int, first: int, users: Ints) -> Best:
    from dray.learners.factorization import top_kernels

    p = factors.users[users]
    begins, ends = seen.starts[users], seen.starts[users.astype(np.int64) + 1]
    if (begins < 0).any() or (ends < begins).any() or (ends > len(seen.items)).any():
        raise ModelError(
            "The model is damaged: what users have seen does not lie where it says.",
            fix="Put its files back if there is a copy, or train again.",
        )
    lengths = np.linalg.norm(p.astype(np.float64), axis=1) * (1 + 1e-5)
    scores, items = _empty_heaps((len(users), n + SPARE), np.float32)
    limits = scores[:, 0].copy()
    space = np.empty(len(users) * ITEMS_AT_ONCE, np.float32)
    for number, (begin, end) in enumerate(pairwise(tiles.edges)):
        if np.all(lengths * tiles.lengths[number] + tiles.rest_bias[number] < limits):
            break
        tile = space[: len(users) * (end - begin)].reshape(len(users), end - begin)
        np.matmul(p, tiles.vectors[begin:end].T, out=tile)
        top_kernels.keep_best(
            *(tile, tiles.bias[begin:end], tiles.names[begin:end], begins, ends, seen.items, limits, scores, items)
        )
    exact = scores.astype(np.float64)
    top_kernels.settle(p, factors.items, factors.item_bias, exact, items)
    exact += (factors.mean + factors.user_bias[users].astype(np.float64))[:, None]
    items[items == top_kernels.NO_ITEM] = EMPTY
    return Best(first, items[:, :n], exact[:, :n].astype(np.float32))


def _longest_first(items: Floats, among: Ints | None) -> Ints:
    names = np.arange(len(items), dtype=np.int32) if among is None else np.unique(among).astype(np.int32)
    lengths = np.empty(len(names), np.float32)
    for begin in range(0, len(names), 1 << 16):  # squares of all of them at once would be the factors once more
        part = items[names[begin : begin + (1 << 16)]]
        lengths[begin : begin + (1 << 16)] = np.einsum("ij,ij->i", part, part)
    return names[np.argsort(-lengths, kind="stable")]


def _empty_heaps(shape: tuple[int, ...], kind: type[np.floating[Any]]) -> tuple[Any, Ints]:
    from dray.learners.factorization.top_kernels import NO_ITEM

    return np.full(shape, -np.inf, kind), np.full(shape, NO_ITEM, np.int32)
