"""What contenders that factorize share: pairs from Parquet files, factors to a file, figures to stdout.

Needs numpy and pyarrow only, as contenders may run in an environment of their own.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def read_pairs(directory: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return users, items and ratings; ids are indices already. 12 bytes a rating, and a file at a time."""
    files = sorted(directory.glob("*.parquet"))
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    rated = "rating" in pq.read_schema(files[0]).names
    users, items = np.empty(rows, np.int32), np.empty(rows, np.int32)
    ratings = np.empty(rows, np.float32) if rated else None
    first = 0
    for file in files:
        table = pq.read_table(file, pre_buffer=False, use_threads=False)
        own = slice(first, first + len(table))
        users[own], items[own] = table["user"].to_numpy(), table["item"].to_numpy()
        if ratings is not None:
            ratings[own] = table["rating"].to_numpy()
        first += len(table)
        del table
        pa.default_memory_pool().release_unused()  # it would keep as much again as the ratings take
    return users, items, ratings


def save_factors(
    path: Path,
    users: np.ndarray,
    items: np.ndarray,
    user_bias: np.ndarray | None = None,
    item_bias: np.ndarray | None = None,
    mean: float = 0.0,
) -> None:
    """Write the factors by index, float32; whoever has no bias has zeros."""
    with path.open("wb") as file:
        np.savez(
            file,
            users=users.astype(np.float32),
            items=items.astype(np.float32),
            user_bias=np.zeros(len(users), np.float32) if user_bias is None else user_bias.astype(np.float32),
            item_bias=np.zeros(len(items), np.float32) if item_bias is None else item_bias.astype(np.float32),
            mean=mean,
        )


def report(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)
