"""Category names inside an XGBoost model, where plain XGBoost looks for them.

dray trains on codes. A model that knows the meaning of the codes predicts the same on any data frame, whatever order
its categories are in. XGBoost takes the names from the training data only, and refuses to go on with a model that has
names on data that has none: so they are put into the finished model, and taken out of one that training starts from.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from dray.data.features import Column
from dray.learners.xgboost.ubjson import span_of

_PLACES = tuple(
    ("learner", "gradient_booster", *inner, "model", "cats")
    for inner in ((), ("gbtree",))  # dart wraps the trees once more
)
_WHOLE = {
    "int8": (9, ">i1", "i"),
    "uint8": (10, ">u1", "U"),
    "int16": (11, ">i2", "I"),
    "int32": (13, ">i4", "l"),
    "int64": (15, ">i8", "L"),
}
"""Of each type of whole numbers that XGBoost can save and read as categories: its number there, how it is written, its
marker. Others it cannot read again; they are text."""


def with_categories(content: bytes, features: Sequence[Column]) -> bytes:
    """Return a saved model that knows the categories of its features."""
    if not any(feature.kind == "category" for feature in features):
        return content
    names = [_names(feature) for feature in features]
    sizes = [len(feature.categories) if feature.kind == "category" else 0 for feature in features]
    orders = [_order(feature) for feature in features if feature.kind == "category"]
    return _replaced(
        content,
        _object(
            enc=b"[#" + _length(len(names)) + b"".join(names),
            feature_segments=_array("l", np.array([0, *accumulate(sizes)], ">i4")),
            sorted_idx=_array("l", np.concatenate(orders).astype(">i4")),
        ),
    )


def without_categories(content: bytes) -> bytes:
    """Return a saved model that trees can be added to, on codes."""
    nothing = np.empty(0, ">i4")
    empty = _object(enc=b"[#" + _length(0), feature_segments=_array("l", nothing), sorted_idx=_array("l", nothing))
    return _replaced(content, empty)


def _replaced(content: bytes, categories: bytes) -> bytes:
    for place in _PLACES:
        if (span := span_of(content, place)) is not None:
            return content[: span[0]] + categories + content[span[1] :]
    return content


def _names(feature: Column) -> bytes:
    if feature.kind == "category" and feature.values in _WHOLE:
        number, shape, marker = _WHOLE[feature.values]
        values = np.array(feature.categories, np.int64).astype(shape)
        return _object(type=b"i" + bytes([number]), values=_array(marker, values))
    texts = [name.encode() for name in feature.categories] if feature.kind == "category" else []
    offsets = [0, *accumulate(map(len, texts))] if feature.kind == "category" else []
    return _object(
        offsets=_array("l", np.array(offsets, ">i4")), values=_array("i", np.frombuffer(b"".join(texts), ">i1"))
    )


def _order(feature: Column) -> npt.NDArray[np.int64]:
    """Return the categories' numbers in the order of their values, by which XGBoost looks them up."""
    if feature.values in _WHOLE:
        return np.argsort(np.array(feature.categories, np.int64), kind="stable")
    # XGBoost compares the bytes as signed characters.
    signed = [np.frombuffer(name.encode(), np.int8).tolist() for name in feature.categories]
    return np.array(sorted(range(len(signed)), key=signed.__getitem__), np.int64)


def _object(**values: bytes) -> bytes:
    return b"{" + b"".join(_key(name) + value for name, value in sorted(values.items())) + b"}"


def _key(name: str) -> bytes:
    return _length(len(name)) + name.encode()


def _array(marker: str, values: npt.NDArray[np.signedinteger]) -> bytes:
    return b"[$" + marker.encode() + b"#" + _length(len(values)) + values.tobytes()


def _length(count: int) -> bytes:
    return b"L" + struct.pack(">q", count)
