"""What the numbers of rows of users are told to be odd about, and that the hint can be followed."""

from __future__ import annotations

from shlex import split

import numpy as np
import pyarrow as pa
import pytest

from dray.ingesting.expression import compile_filter
from dray.learners.factorization.odd_users import odd_users


def told(ids: list[object], rows: list[int], column: str = "user") -> list[tuple[str, str]]:
    return list(odd_users(column, pa.array(ids), np.array(rows, np.int64)))


def test_a_user_with_far_more_rows_than_a_user_has_may_be_none() -> None:
    [(what, fix)] = told([0, *range(12_000, 13_999)], [2000, *[2] * 1999])
    assert what == 'One of 2,000 users, 0, has 2,000 of 5,998 rows (33%): does it mean "no user"?'
    assert fix == "If so, leave its rows out: dray data ingest DATA OUT --filter 'user != 0'"


@pytest.mark.parametrize(("users", "most"), [(999, 2000), (1000, 105)])
def test_few_users_and_small_shares_are_not_odd(users: int, most: int) -> None:
    """1,000 users with 2 rows each, but for one that has just 5 % of all."""
    rows = [most, *[2] * (users - 1)]
    assert users < 1000 or most <= 0.05 * sum(rows) < most + 1
    assert told(list(range(users)), rows) == []


def test_users_with_one_row_each_are_another_column_perhaps() -> None:
    assert told(list(range(10)), [2, *[1] * 9]) == []
    [(what, fix)] = told(list(range(11)), [2, *[1] * 10], "order")
    assert what.startswith("10 of 11 users have one row only")
    assert "'order'" in fix


@pytest.mark.parametrize("column", ["user", "the user", 'a "b"', "class", "it's", "ﬁt"])
@pytest.mark.parametrize("user", [-1, "", "unknown", 'a "q"', "o'neill", "é\n"])
def test_the_rows_are_left_out_by_the_filter_that_is_named(column: str, user: object) -> None:
    ids = [user, *[f"u{i}" if isinstance(user, str) else i for i in range(1999)]]
    [(_, fix)] = told(ids, [2000, *[2] * 1999], column)
    rows = pa.record_batch({column: pa.array([user, ids[5]])})
    kept = compile_filter(split(fix)[-1], rows.schema).mask(rows)
    assert kept.to_pylist() == [False, True]
