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

from dray.errors import ConfigError
from dray.learners.factorization.factors import Factors, Floats, Ints, Seen

USERS_AT_ONCE = 256
ITEMS_AT_ONCE = 2048
SPARE = 8
"""Candidates beyond those asked for: a matrix product may order nearly equal scores otherwise than they are."""
NOBODY = -1
"""The item in a place that no item is left for."""

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Best:
    """The best items of some users, best first; where there are too few, NOBODY with a score of -inf."""

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
    among: Ints | None = None,
    threads: int = 1,
) -> Iterator[Best]:
    """Yield the `n` best items of `users` (all), some users at a time, without those they have seen.

    `among` restricts the items. Memory: the factors once more (in order of length), a tile of 2 MB for each thread.
    """
    require_some(n)
    wanted = np.arange(len(factors.users), dtype=np.int32) if users is None else np.asarray(users, np.int32)
    tiles = _Tiles.of(factors.items, factors.item_bias, among)
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

    def __init__(self, items: Floats, bias: Floats, among: Ints | None = None, threads: int = 1) -> None:
        from dray.learners.factorization import top_kernels

        self._kernels = top_kernels
        self._items, self._bias = items, bias
        block = top_kernels.BLOCK
        self._order = _longest_first(items, among)
        n, k = len(self._order), items.shape[1]
        blocks = -(-n // block)
        self._codes = np.empty((blocks, -(-k // 2), block), np.int8)
        self._scales, self._lengths = np.empty(blocks), np.empty(blocks)
        self._slacks = np.empty(blocks * block, np.float32)
        edges = np.linspace(0, blocks, threads + 1).astype(np.int64)
        with ThreadPoolExecutor(threads) as pool:
            longest = list(pool.map(self._encode, edges[:-1], edges[1:]))
        self._longest_code = max([1.0, *longest])
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
        parts = self._threads if len(self._codes) >= 1024 else 1

        def look(part: int) -> tuple[Doubles, Ints]:
            scores, items = _empty_heaps((n,), np.float64)
            self._kernels.scan(
                *(self._items, self._bias, self._order, self._codes, self._scales, self._slacks, self._lengths),
                *(self._sorted_bias, self._top_bias, vector, steps, step, length, error, skipped),
                *(part, parts, scores, items),
            )
            return scores, items

        others = [self._pool.submit(look, part) for part in range(1, parts)]
        found = [look(0), *(other.result() for other in others)]
        scores, items = (np.concatenate(side) for side in zip(*found, strict=True))
        order = np.lexsort((items, -scores))[:n]
        order = order[items[order] != self._kernels.NO_ITEM]
        return items[order], scores[order]

    def _encode(self, begin: int, end: int) -> float:
        return float(
            self._kernels.encode(
                *(self._items, self._order, self._codes, self._scales, self._slacks, self._lengths, begin, end)
            )
        )


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
class _Tiles:
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
    def of(items: Floats, bias: Floats, among: Ints | None) -> _Tiles:
        names = _longest_first(items, among)
        vectors, bias = items[names], bias[names]
        edges = [*range(0, len(names), ITEMS_AT_ONCE), len(names)]
        tops = [bias[begin:end].max() for begin, end in pairwise(edges)]
        lengths = np.linalg.norm(vectors[edges[:-1]].astype(np.float64), axis=1)
        return _Tiles(
            names, vectors, bias, edges, lengths, np.maximum.accumulate(np.array(tops[::-1], np.float64))[::-1]
        )


def _best_of_block(factors: Factors, seen: Seen, tiles: _Tiles, n: int, first: int, users: Ints) -> Best:
    from dray.learners.factorization import top_kernels

    p = factors.users[users]
    begins, ends = seen.starts[users], seen.starts[users.astype(np.int64) + 1]
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
    items[items == top_kernels.NO_ITEM] = NOBODY
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


def require_some(n: int) -> None:
    if n < 1:
        raise ConfigError(f"{n} items were asked for.", fix="Ask for at least one.")
