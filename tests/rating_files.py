"""Ratings and events as files, and the runs of a recommender on them: small, and each a fraction of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dray.learners.factorization.events import UnitRows
from dray.learners.factorization.ratings import Ratings, Triples
from dray.learners.factorization.unit_pairs import SplitRule, unit_pairs
from rating_data import made_ratings

ROWS = 4000
EVENTS = ("view", "add_to_cart", "purchase", "payment_failed")
ROLES = {"model": "factorization", "user": "u", "item": "i", "params": {"factors": 8}, "rounds": 4}
EXPLICIT = ROLES | {"rating": "r"}
IMPLICIT = ROLES | {"event": "e"}


def rated(rows: int = ROWS, n_users: int = 90, n_items: int = 60, *, seed: int = 0, text: bool = True) -> pa.Table:
    """Return rows with a rating, an event type and a time; some pairs occur several times."""
    ratings = made_ratings(rows, n_users, n_items, seed=seed)
    random = np.random.default_rng(seed)
    users = pa.array([f"u{index:03}" for index in ratings.users]) if text else pa.array(ratings.users.astype(np.int64))
    return pa.table(
        {
            "u": users,
            "i": ratings.items.astype(np.int64) * 7,
            "r": ratings.values.clip(0.5, None),
            "e": np.array(EVENTS)[random.choice(len(EVENTS), rows, p=[0.8, 0.12, 0.06, 0.02])],
            "t": random.integers(1_700_000_000, 1_720_000_000, rows),
        }
    )


def write(path: Path, table: pa.Table, row_group_rows: int = 500) -> str:
    """Write one Parquet file and return its location."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_rows)
    return str(path)


def as_ratings(table: pa.Table) -> Ratings:
    """Return what a training on all rows is to learn from: ids in order, one value a pair, the last one."""
    users, items = (_indices(table[name]) for name in ("u", "i"))
    rows = UnitRows(users[1], items[1], table["r"].to_numpy().astype(np.float32))
    pairs: Triples = unit_pairs([rows], "explicit", SplitRule()).train
    return Ratings(pairs.users, pairs.items, pairs.values, pa.array(users[0]), pa.array(items[0]))


def _indices(column: pa.ChunkedArray) -> tuple[Any, Any]:
    ids, places = np.unique(np.array(column.to_pylist()), return_inverse=True)
    return ids, places.astype(np.int32)
