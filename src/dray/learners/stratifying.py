"""Find the rows to evaluate on, the same share of every class: one look at the label before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.data.split import PickedRows
from dray.data.stratified import Near, Stratified, wanted_of
from dray.learners.attempt import Surveyors
from dray.learners.learner import Op
from dray.storage import StorageOptions

Looked = tuple[list[tuple[int, int, npt.NDArray[np.uint8]]], Near]
"""Of each batch: the position of its first row, its rows, one bit a row; and the rows that are not decided yet."""


class Waiting(Protocol):
    """A worker that can look through a column."""

    def on_wait(self, error: Any, wait_s: float) -> None:
        """A store does not answer; it is asked again."""


@dataclass(frozen=True)
class LookAtClasses(Op[..., Looked]):
    """Pick the rows of slices that are evaluated on, as far as they alone can tell."""

    def __call__(self, side: Waiting, *inputs: Any, **_: Any) -> Looked:
        slices, rule, storage = inputs
        picked, none = [], np.zeros(0, np.int64)
        near = [Near(np.zeros(len(rule.names), np.int64), none, none.astype(np.uint64), none)]
        piece, position = None, 0
        for slice_, batch in read_slices(slices, [rule.column], [rule.column], storage, side.on_wait):
            if slice_ is not piece:
                piece, position = slice_, slice_.position
            sure, undecided = rule.look(batch.column(0), position)
            picked.append((position, batch.num_rows, np.packbits(sure)))
            near.append(undecided)
            position += batch.num_rows
        return picked, Near.merge(near)


@dataclass(frozen=True)
class ClassShares:
    """Which share of each class of a label is evaluated on."""

    column: str
    classes: Mapping[str, int]
    """Rows of each."""
    fraction: float
    seed: int


def stratified(
    workers: Surveyors, shares: Sequence[Sequence[Slice]], rows: int, share: ClassShares, storage: StorageOptions
) -> PickedRows | None:
    """Have the workers look through their shares of all rows; None if no class has a row to spare."""
    wanted = wanted_of(share.classes, share.fraction)
    if not any(wanted.values()):
        return None
    for wide in (False, True):
        rule = Stratified.of(share.column, share.classes, wanted, share.seed, wide=wide)
        found = workers.run(LookAtClasses(), [(slices, rule, storage) for slices in shares])
        if (last := rule.decided(Near.merge(near for _, near in found), wanted)) is not None:
            break
    assert last is not None, "the rows of the classes are not those that were counted"
    mask = np.zeros(rows, np.bool_)
    for picked, _ in found:
        for position, count, bits in picked:
            mask[position : position + count] = np.unpackbits(bits, count=count)
    mask[last] = True
    return PickedRows.of(mask)
