"""Ids of users and items: strings or 64-bit integers, never both; from an id to its index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.errors import DataError, ModelError
from dray.learners.factorization.factors import Ints

UNKNOWN = -1
_FEW = 256
"""So many are looked up one by one; more by a hash table over all ids."""


def as_ids(values: Any, what: str = "id") -> pa.Array:
    """Return ids of any kind of string or integer as an Arrow array of string or int64.

    1 and "1" are different ids; where both occur, one of them is a mistake.
    """
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        values = _from_python(values, what)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if values.null_count:
        raise DataError(f"{values.null_count:,} of {len(values):,} {what}s are missing.", fix="Filter such rows out.")
    if pa.types.is_string(kind) or pa.types.is_int64(kind):
        return values
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.string())
    if pa.types.is_integer(kind):
        try:
            return values.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise DataError(f"A {what} does not fit 64 bits with a sign: {error}.", fix="Use text for it.") from error
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    raise DataError(f"A {what} cannot be {kind}.", fix="Use text or whole numbers; cast the column first.")


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


def _from_python(values: Any, what: str) -> pa.Array:
    if isinstance(values, str | int):
        values = [values]
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return pa.array(values)
    listed = list(values) if isinstance(values, Iterable) else [values]
    texts = next((value for value in listed if isinstance(value, str)), None)
    numbers = next((v for v in listed if isinstance(v, int | np.integer) and not isinstance(v, bool)), None)
    if texts is not None and numbers is not None:
        raise DataError(
            f"The {what}s {numbers!r} (a number) and {texts!r} (text) occur together: they would be different {what}s.",
            fix=f"Write all {what}s as text, or all as whole numbers.",
        )
    try:
        return pa.array(listed)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise DataError(f"The {what}s cannot be used: {error}.", fix="Use text or whole numbers.") from error


def _word(kind: pa.DataType) -> str:
    return "text" if pa.types.is_string(kind) else "whole numbers"
