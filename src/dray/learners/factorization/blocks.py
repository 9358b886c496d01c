"""All blocks of users and items after an epoch, wherever they are, or as bytes.

Bytes are NumPy's .npz without pickles, and hold all that a training needs to go on: also the best blocks so far.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from dray.errors import ModelError
from dray.learners.factorization.explicit import FactorBlock
from dray.learners.factorization.implicit_share import PartFactors

FactorPart = FactorBlock | PartFactors


@dataclass(frozen=True, slots=True)
class Blocks:
    """All blocks after an epoch, by unit: kept by workers, shared, or None before the first."""

    epoch: int
    users: tuple[Any, ...]
    items: tuple[Any, ...]

    @staticmethod
    def beginning(units: int) -> Blocks:
        return Blocks(0, (None,) * units, (None,) * units)


@dataclass(frozen=True, slots=True)
class WrittenBlocks:
    """Blocks that are at hand, as a checkpoint keeps them."""

    epoch: int
    halvings: int
    best_epoch: int
    """0: there is no best one."""
    users: tuple[FactorPart, ...]
    items: tuple[FactorPart, ...]
    best_users: tuple[FactorPart, ...] = ()
    """Empty if the best epoch is this one, or there is none."""
    best_items: tuple[FactorPart, ...] = ()


_SIDES = ("users", "items", "best_users", "best_items")


def as_bytes(written: WrittenBlocks) -> bytes:
    about = {"epoch": written.epoch, "halvings": written.halvings, "best_epoch": written.best_epoch}
    arrays: dict[str, Any] = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    for side in _SIDES:
        for number, block in enumerate(getattr(written, side)):
            arrays[f"{side}-{number}"] = block.factors
            if isinstance(block, FactorBlock):
                arrays[f"{side}-{number}-bias"] = block.bias
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def from_bytes(content: bytes) -> WrittenBlocks:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            sides = {side: tuple(_blocks(arrays, side)) for side in _SIDES}
            return WrittenBlocks(int(about["epoch"]), int(about["halvings"]), int(about["best_epoch"]), **sides)
    except Exception as error:  # whatever zipfile, zlib and NumPy say of bytes that are not theirs
        raise ModelError(f"The checkpoint is damaged: {error}.", fix="Train again.") from error


def _blocks(arrays: Any, side: str) -> list[FactorPart]:
    blocks: list[FactorPart] = []
    while (name := f"{side}-{len(blocks)}") in arrays:
        factors = arrays[name]
        blocks.append(
            FactorBlock(factors, arrays[f"{name}-bias"]) if f"{name}-bias" in arrays else PartFactors.of(factors)
        )
    return blocks
