"""Ids of users and items, as every recommender has them: text or 64-bit integers, never both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dray.data.features import texts_of
from dray.data.fitting import as_kind, whole_numbers
from dray.errors import DataError


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
            raise DataError(f"One {what} does not fit 64 bits with a sign: {error}.", fix="Use text for it.") from error
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    raise DataError(f"One {what} cannot be {kind}.", fix="Use text or whole numbers; cast the column first.")


def as_model_has(ids: pa.Array, like: pa.Array, side: str) -> pa.Array:
    """Return ids as the model has them: "12" is 12 where the model's are whole numbers."""
    if ids.type == like.type:
        return ids
    if not pa.types.is_int64(like.type):
        raise DataError(
            f"The {side} {ids[0].as_py()} is a whole number, the model's {side} ids are text.",
            fix=f"Write the {side} ids as text, as they were in training: 1 and '1' are different ids.",
        )
    numbers = pc.match_substring_regex(ids, r"^\s*[-+]?[0-9]{1,19}\s*$")
    if not pc.all(numbers, min_count=0).as_py():
        wrong = ids[pc.index(numbers, False).as_py()].as_py()
        raise DataError(
            f'The {side} "{wrong}" is not a whole number, and the model\'s {side} ids are.',
            fix=f"Give whole numbers, such as {like[0].as_py() if len(like) else 1}.",
        )
    try:
        return pc.cast(pc.utf8_trim_whitespace(ids), pa.int64())
    except pa.ArrowInvalid as error:
        raise DataError(f"One {side} id does not fit 64 bits: {error}.", fix="Give ids that the data has.") from error


def ids_like(values: pa.Array, like: pa.DataType) -> tuple[pa.Array, int]:
    """Return ids of any type as the model's own are, by their text, and how many cannot be: they are missing.

    12, 12.0 and "12" are one id here: new data may write them in another way than the data of the training.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    readable, lost = as_kind(values, "category")
    texts = texts_of(readable).cast(pa.string())
    if pa.types.is_string(like):
        return texts, lost
    found, more = whole_numbers(texts)
    return found, lost + more


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
