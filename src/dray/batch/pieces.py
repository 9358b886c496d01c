"""A function over the record batches of a piece of data. Loads neither Arrow nor any format by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dray.errors import DataError

if TYPE_CHECKING:
    from dray.data.source import ExtraField, Piece, Reject, Source

_TABLES = {"pandas": ("DataFrame",), "polars": ("DataFrame", "LazyFrame"), "pyarrow": ("Table",)}


class OverPieces:
    """The function of a piece: the results for all its record batches, in order."""

    def __init__(self, function: Callable[[Any], Any], source: Source) -> None:
        self.func = function
        self._source = source

    def __call__(self, piece: Piece) -> list[Any]:
        return [self.func(batch) for batch in self._source.read(piece, None, _refuse)]


def is_data(items: Any) -> bool:
    """Whether these items are a table: to go through it row by row, or by its columns, is hardly what is meant."""
    for library, names in _TABLES.items():
        module = sys.modules.get(library)
        if module is not None and isinstance(items, tuple(getattr(module, name) for name in names)):
            return True
    return False


def _refuse(reject: Reject | ExtraField) -> None:
    """A bad row fails its piece: left out, it would be missing from the results without a word."""
    from dray.data.source import Reject

    if not isinstance(reject, Reject):
        return
    line = f", line {reject.line}" if reject.line is not None else ""
    raise DataError(
        f"{reject.name}{line}: {reject.reason}: {reject.text[:200]!r}",
        fix="dray data ingest puts such rows aside, with the reason.",
    )
