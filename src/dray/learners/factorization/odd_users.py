"""What the numbers of rows of users say against the data: the wrong column, a mark of no user. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

import numpy as np
import pyarrow as pa

from dray.learners.factorization.factors import Longs
from dray.learners.factorization.filter_text import column_in_filter, value_in_filter

MOSTLY_SINGLE = 0.9
"""A share of users with one row above which the column may be another one, such as that of an order."""
CROWDED = 0.05
"""A share of all rows above which one user of many may mean "no user": 0, -1, "unknown"."""
MANY_USERS = 1000
"""With fewer, one of them may well have that share."""


def odd_users(column: str, ids: pa.Array, rows: Longs) -> Iterator[tuple[str, str]]:
    """Return what is odd, each with its fix. `rows`: of each user."""
    single = int(np.count_nonzero(rows == 1))
    if single > MOSTLY_SINGLE * len(ids):
        yield (
            f"{single:,} of {len(ids):,} users have one row only: little can be learned of them.",
            f"Check that --user names the right column: it is {column!r}.",
        )
    total = int(rows.sum())
    if len(ids) >= MANY_USERS and rows.max() > CROWDED * total:
        most = int(rows.argmax())
        user = ids[most].as_py()
        keep = quote(f"{column_in_filter(column)} != {value_in_filter(user)}")
        yield (
            f"One of {len(ids):,} users, {user!r}, has {rows[most]:,} of {total:,} rows ({rows[most] / total:.0%}): "
            'does it mean "no user"?',
            f"If so, leave its rows out: dray data ingest DATA OUT --filter {keep}",
        )
