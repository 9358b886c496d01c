"""Data by its name as the items of a map: its files, or its rows piece by piece.

A piece is read by the process that runs the function over it; no row passes through the driver on the way there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dray.batch.pieces import OverPieces
from dray.data.open_source import open_source
from dray.storage import StorageOptions, expand

PIECE_BYTES = 32 << 20


def batches_of(
    function: Callable[[Any], Any], data: Any, storage: StorageOptions, **options: Any
) -> tuple[Callable[[Any], Any], Iterable[Any]]:
    """Return the function of a piece, and the pieces of the data."""
    source = open_source(data, storage, **options)
    return OverPieces(function, source), source.pieces(PIECE_BYTES)


def files_of(
    function: Callable[[Any], Any], locations: Sequence[str], storage: StorageOptions
) -> tuple[Callable[[Any], Any], Iterable[Any]]:
    """Return the function as it is, and the names of the files."""
    return function, expand(locations, storage)
