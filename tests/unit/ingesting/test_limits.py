"""How many rows may be rejected."""

from __future__ import annotations

import pytest

from dray.errors import ConfigError
from dray.ingesting.limits import Limit, parse_limit


@pytest.mark.parametrize(
    ("text", "limit"),
    [("0", Limit(rows=0)), ("100", Limit(rows=100)), ("1%", Limit(share=0.01)), ("0.5 %", Limit(share=0.005))],
)
def test_a_limit_is_a_number_of_rows_or_a_share(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "-1", "many", "0.1", "101%", "%"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="limit of rejects"):
        parse_limit(text)


def test_a_limit_may_be_reached_but_not_exceeded() -> None:
    assert not Limit(rows=3).exceeded(3, 10) and Limit(rows=3).exceeded(4, 10)
    assert not Limit(share=0.1).exceeded(1, 10) and Limit(share=0.1).exceeded(2, 10)
    assert not Limit().exceeded(10, 10)


def test_it_says_what_it_is() -> None:
    assert [str(limit) for limit in (Limit(rows=1000), Limit(share=0.01), Limit())] == ["1,000 rows", "1 %", "none"]
