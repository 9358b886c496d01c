"""Kernels are compiled beside the reading of rows: once on each machine for each version of dray, numba and Python.

numba keeps what it has compiled on disk, so the next process only loads it. The workers of a machine take turns:
the first one compiles, the others find the result.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

WORTH_TELLING_S = 1.0
"""To load kernels from disk takes less."""
LONGEST_TURN_S = 60.0
LOCKED = __file__
TOLD = "kernels are compiled: once on a machine for each version of dray, about 15 s, while the rows are read"
_FACTORS = 4


class Warming:
    """Compiles the kernels of a kind of training in a thread. `wait` before the first use: two would compile both."""

    def __init__(self, kind: Literal["explicit", "implicit"]) -> None:
        self._began = time.monotonic()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(kind,), name="compile-kernels", daemon=True)
        self._thread.start()

    @property
    def doing(self) -> str:
        """What takes so long that it is worth telling; empty otherwise."""
        long = self._thread.is_alive() and time.monotonic() - self._began > WORTH_TELLING_S
        return TOLD if long else ""

    def wait(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, kind: Literal["explicit", "implicit"]) -> None:
        try:
            with _alone_on_this_machine():
                (_descent if kind == "explicit" else _alternation)()
                _ranking()
        except Exception as error:
            self._error = error


@contextmanager
def _alone_on_this_machine() -> Iterator[None]:
    """Wait until no other process compiles. The lock is on this file, and goes with its process, however that ends.

    It only saves work: after a minute, or where there can be no lock, every process compiles for itself.
    """
    held = os.open(LOCKED, os.O_RDONLY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LONGEST_TURN_S
        while not _locked(held) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield
    finally:
        os.close(held)


def _locked(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _descent() -> None:
    """Call the kernels of explicit ratings on one rating, with the types of a training."""
    from dray.learners.factorization import kernels

    one, edges, slot = _ints(0), _ints(0, 1), np.zeros(1, np.int64)
    value, counts = np.ones(1, np.float32), np.zeros(2, np.int64)
    kernels.count_cells(one, one, one, one, slot, 1, 1, counts)
    users, items = np.zeros(1, np.uint16), np.zeros(1, np.uint16)
    kernels.place_in_cells(one, one, value, one, one, one, one, slot, 1, 1, counts[:-1].copy(), users, items, value)
    offsets = np.array([0, 1])
    kernels.sort_cells(offsets, users, items, value, 1, 1)
    p, bias, rate = np.zeros((1, _FACTORS), np.float32), np.zeros(1, np.float32), np.float32(0)
    squares = np.zeros((1, 1))
    kernels.descend(
        *(users, items, value, offsets, edges, edges, p, p.copy(), bias, bias.copy()),
        *(rate, rate, rate, rate, (0, 1), (0, 1), squares),
    )


def _alternation() -> None:
    """Call the kernels of events on one event."""
    from dray.learners.factorization import als_kernels

    one, value, starts = _ints(0), np.ones(1, np.float32), np.zeros(2, np.int64)
    als_kernels.count_rows(one, 0, starts)
    columns, weights = one.copy(), value.copy()
    als_kernels.place_in_rows(one, one, value, 0, starts[:-1].copy(), columns, weights)
    als_kernels.sort_rows(starts, columns, weights, 0, 1)
    factors, total = np.ones((1, _FACTORS), np.float32), np.empty((_FACTORS, _FACTORS))
    als_kernels.gram(factors, total)
    rate, matrix = np.float32(1), np.eye(_FACTORS, dtype=np.float32)
    given = (starts, columns, weights, factors, matrix, rate, rate, rate)
    als_kernels.solve_by_gradients(*given, 1, 0, 1, factors.copy())


def _ranking() -> None:
    """Call what evaluates: scores of pairs, and the lists of users."""
    from dray.learners.factorization import top_kernels

    one, factors, bias = _ints(0), np.ones((1, _FACTORS), np.float32), np.zeros(1, np.float32)
    scores = np.zeros(1)
    top_kernels.score_pairs(factors, factors, bias, bias, 0.0, one, one, scores)
    top_kernels.error_sums(scores, bias, 0.0, 1.0)
    begins = np.zeros(1, np.int64)
    held, items = np.zeros((1, 2), np.float32), np.full((1, 2), top_kernels.NO_ITEM, np.int32)
    tile = np.ones((1, 1), np.float32)
    top_kernels.keep_best(tile, bias, one, begins, begins, one, held[:, 0].copy(), held, items)
    top_kernels.settle(factors, factors, bias, held.astype(np.float64), items)


def _ints(*values: int) -> Any:
    return np.array(values, np.int32)
