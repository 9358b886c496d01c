"""Which rows of each class are evaluated on: an exact share of every class, by positions. Pure.

The rows of a class whose hashed positions are the lowest are taken, as many as its share is. Hashes are evenly spread,
so the bound is about the share: a worker picks what lies surely below it, and sends only the few rows around it, from
which the driver takes the lowest. One look at the label is enough, and the answer is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from dray.data.features import texts_of
from dray.data.split import hashed

Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
_DEVIATIONS = 8.0
"""How far from its share the bound of a class is looked for: it lies farther off less than once in 10^14 classes."""


def wanted_of(classes: Mapping[str, int], fraction: float) -> dict[str, int]:
    """Return how many rows of each class are evaluated on: its share within a row, and that of all rows together.

    A class keeps a row for training: one of a single row is not evaluated on.
    """
    shares = {name: fraction * rows for name, rows in classes.items()}
    wanted = {name: min(int(share), classes[name] - 1) for name, share in shares.items()}
    left = round(fraction * sum(classes.values())) - sum(wanted.values())
    by_rest = sorted(shares, key=lambda name: (wanted[name] - shares[name], name))
    for name in [name for name in by_rest if wanted[name] < min(shares[name], classes[name] - 1)][: max(0, left)]:
        wanted[name] += 1
    return wanted


@dataclass(frozen=True, slots=True)
class Near:
    """Rows whose hashes are near the bound of their class, and how many of each class lie below them."""

    below: Ints
    classes: Ints
    keys: Keys
    positions: Ints

    @staticmethod
    def merge(parts: Iterable[Near]) -> Near:
        parts = list(parts)
        return Near(
            np.sum([part.below for part in parts], axis=0),
            np.concatenate([part.classes for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.positions for part in parts]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Stratified:
    """Between which hashes the bound of each class is looked for."""

    column: str
    names: pa.Array
    """The classes, as text."""
    least: Keys
    most: Keys
    seed: int

    @staticmethod
    def of(column: str, classes: Mapping[str, int], wanted: Mapping[str, int], seed: int, *, wide: bool) -> Stratified:
        """`wide` looks among all rows of the classes."""
        names = sorted(classes)
        rows = np.array([classes[name] for name in names], np.float64)
        share = np.array([wanted[name] for name in names]) / rows
        width = 1.0 if wide else _DEVIATIONS * (np.sqrt(share * (1 - share) / rows) + 1 / rows)
        return Stratified(column, pa.array(names, pa.string()), _bound(share - width), _bound(share + width), seed)

    def look(self, labels: pa.Array, position: int) -> tuple[npt.NDArray[np.bool_], Near]:
        """Return which rows are picked for sure, and those that may be; rows without a label are neither."""
        codes = self._codes(labels)
        positions = np.arange(position, position + len(labels), dtype=np.int64)
        keys, known = hashed(positions, self.seed), codes >= 0
        sure = known & (keys < self.least[codes])
        near = known & ~sure & (keys <= self.most[codes])
        below = np.bincount(codes[sure], minlength=len(self.names)).astype(np.int64)
        return sure, Near(below, codes[near], keys[near], positions[near])

    def decided(self, near: Near, wanted: Mapping[str, int]) -> Ints | None:
        """Return the positions of the rows near the bounds that are picked; None if a bound lies elsewhere."""
        order = np.lexsort((near.keys, near.classes))
        classes, positions = near.classes[order], near.positions[order]
        found = np.bincount(classes, minlength=len(self.names))
        missing = np.array([wanted[name] for name in self.names.to_pylist()], np.int64) - near.below
        if ((missing < 0) | (missing > found)).any():
            return None
        rank = np.arange(len(classes)) - (np.cumsum(found) - found)[classes]
        picked: Ints = positions[rank < missing[classes]]
        return picked

    def _codes(self, labels: pa.Array) -> Ints:
        """Return the number of each row's class; -1 without one."""
        if not pt.is_dictionary(labels.type):
            labels = pc.dictionary_encode(labels)
        values = pc.fill_null(pc.index_in(texts_of(labels.dictionary).cast(pa.string()), self.names), -1)
        code_of = np.append(values.to_numpy(zero_copy_only=False), -1).astype(np.int64)
        found: Ints = code_of[pc.fill_null(labels.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)]
        return found


def _bound(share: npt.NDArray[np.float64]) -> Keys:
    whole = [min(int(max(0.0, part) * 2**64), 2**64 - 1) for part in share.tolist()]
    return np.array(whole, np.uint64)
