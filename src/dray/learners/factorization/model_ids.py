"""Ids that were given from outside, as the model's own are: text or whole numbers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from dray.errors import DataError


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
            f'The {side} "{wrong}" is no whole number, and the model\'s {side} ids are.',
            fix=f"Give whole numbers, such as {like[0].as_py() if len(like) else 1}.",
        )
    try:
        return pc.cast(pc.utf8_trim_whitespace(ids), pa.int64())
    except pa.ArrowInvalid as error:
        raise DataError(f"A {side} id does not fit 64 bits: {error}.", fix="Give ids that the data has.") from error
