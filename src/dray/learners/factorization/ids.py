"""From an id to its index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.errors import DataError, ModelError
from dray.learners.factorization.factors import Ints
from dray.learners.ids import as_ids

UNKNOWN = -1
_FEW = 256
"""So many are looked up one by one; more by a hash table over all ids."""


class Lookup:
    """Finds the index of an id. `order` are the indices in ascending order of their ids."""

    def __init__(self, ids: pa.Array, order: Ints, what: str) -> None:
        self.ids, self.order, self.what = ids, order, what

    @staticmethod
    def ordered(ids: pa.Array) -> Ints:
        """Return the order a lookup needs; an id that is there twice is an error."""
        order: Ints = pc.sort_indices(ids).to_numpy().astype(np.int32)
        if len(order) > 1:
            ascending = ids.take(pa.array(order))
            same = pc.equal(ascending.slice(1), ascending.slice(0, len(order) - 1))
            if pc.any(same).as_py():
                double = ascending[pc.index(same, True).as_py()].as_py()
                raise DataError(f"The id {double!r} has two indices.", fix="Give each id once.")
        return order

    def find(self, values: Any) -> Ints:
        """Return the index of each id, UNKNOWN where there is none."""
        if self._are_few_of_ours(values):
            return np.array([self._find_one(value) for value in values], np.int32)
        wanted = as_ids(values, self.what)
        if len(wanted) == 0:
            return np.zeros(0, np.int32)
        if wanted.type != self.ids.type:
            raise ModelError(
                f"The model's {self.what}s are {_word(self.ids.type)}, {wanted[0].as_py()!r} is {_word(wanted.type)}.",
                fix=f"Give {_word(self.ids.type)}: 1 and '1' are different {self.what}s.",
            )
        if len(wanted) <= _FEW:
            return np.array([self._find_one(value) for value in wanted.to_pylist()], np.int32)
        found = pc.index_in(wanted, self.ids)
        return np.asarray(pc.fill_null(found, UNKNOWN).to_numpy(zero_copy_only=False), np.int32)

    def _are_few_of_ours(self, values: Any) -> bool:
        """Whether these need no Arrow array, which imports pandas when it is made of a list: half a second, once."""
        kind: type = str if pa.types.is_string(self.ids.type) else int
        return isinstance(values, list) and 0 < len(values) <= _FEW and all(type(value) is kind for value in values)

    def _find_one(self, value: str | int) -> int:
        try:
            return self._search(value)
        except IndexError as error:
            raise ModelError(
                f"The model is damaged: the order of its {self.what}s names one that is not there.",
                fix="Put its files back if there is a copy, or train again.",
            ) from error

    def _search(self, value: str | int) -> int:
        low, high = 0, len(self.order)
        while low < high:
            middle = (low + high) // 2
            if self.ids[int(self.order[middle])].as_py() < value:  # code points and UTF-8 have the same order
                low = middle + 1
            else:
                high = middle
        if low < len(self.order) and self.ids[int(self.order[low])].as_py() == value:
            return int(self.order[low])
        return UNKNOWN


def _word(kind: pa.DataType) -> str:
    return "text" if pa.types.is_string(kind) else "whole numbers"
