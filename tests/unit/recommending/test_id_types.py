"""Ids of every type of whole number, at the ends of its range: trained, recommended, predicted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
from dray.errors import DataError
from dray.learners.factorization.counts import count_numbers

WIDTHS = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32)},
    "uint64": (0, 2**63 - 1),  # ids are kept with a sign
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def ids_of(name: str) -> list[int]:
    low, high = WIDTHS[name]
    middle = (low + high) // 2
    return sorted({*range(low, low + 5), *range(middle, middle + 5), *range(high - 4, high + 1)})


def pairs(users: list[int], items: list[int], type_: pa.DataType) -> pa.Table:
    """Every user rates every item but the one of its own place."""
    rows = [(user, item) for u, user in enumerate(users) for i, item in enumerate(items) if u != i]
    rating = [float(1 + (users.index(user) * items.index(item)) % 5) for user, item in rows]
    columns = [pa.array([row[side] for row in rows], type_) for side in (0, 1)]
    return pa.table([*columns, pa.array(rating)], ["user", "item", "stars"])


def trained(data: Any, run: Path) -> str:
    dray.train(data, model="factorization", user="user", item="item", rating="stars", out=str(run), workers=0, rounds=2)
    return str(run)


@pytest.mark.parametrize("name", WIDTHS)
def test_ids_at_the_ends_of_their_type_stay_what_they_are(name: str, tmp_path: Path) -> None:
    ids, type_ = ids_of(name), pa.type_for_alias(name)
    table = pairs(ids, ids, type_)
    pq.write_table(table, tmp_path / "rows.parquet")
    run = trained(str(tmp_path / "rows.parquet"), tmp_path / "run")
    assert dray.load(run).user_ids.to_pylist() == dray.load(run).item_ids.to_pylist() == ids
    dray.recommend(run, top=3, out=str(tmp_path / "lists"), workers=0)
    lists = pq.read_table(tmp_path / "lists")
    assert set(lists["user"].to_pylist()) == set(ids)
    for row in lists.to_pylist():  # the only one that was not rated
        assert row["item"] == row["user"]
    result = dray.predict(
        run, str(tmp_path / "rows.parquet"), str(tmp_path / "scores.parquet"), workers=0, keep=["user"]
    )
    assert result.unseen == {}
    scores = pq.read_table(tmp_path / "scores.parquet")
    assert scores["user"].to_pylist() == table["user"].to_pylist()
    assert np.isfinite(scores["score"].to_numpy()).all()


@pytest.mark.parametrize("name", ["int8", "int16", "int64"])
def test_ids_in_a_dictionary_are_the_same_ids(name: str, tmp_path: Path) -> None:
    ids, type_ = ids_of(name), pa.type_for_alias(name)
    table = pairs(ids, ids, type_)
    for column in ("user", "item"):
        place = table.column_names.index(column)
        table = table.set_column(place, column, table[column].dictionary_encode())
    run = trained(table, tmp_path / "run")
    assert dray.load(run).user_ids.to_pylist() == ids


def test_ids_that_span_more_than_half_of_a_narrow_type_are_found(tmp_path: Path) -> None:
    users = list(range(-20000, 20001, 100))
    pq.write_table(pairs(users, [-100, 100, 3], pa.int16()), tmp_path / "rows.parquet")  # one row group
    run = trained(str(tmp_path / "rows.parquet"), tmp_path / "run")
    assert dray.load(run).user_ids.to_pylist() == users


@pytest.mark.parametrize("name", [*WIDTHS, "float64"])
@pytest.mark.parametrize("spread", ["close", "whole"])
def test_numbers_of_any_type_are_counted(name: str, spread: str) -> None:
    low, high = WIDTHS.get(name, (-(2**62), 2**62))
    least = low if spread == "whole" else max(low, high - 250)
    numbers = np.array([least, high, least, least + (high - least) // 2, high], dtype=name)
    found, counts = count_numbers(numbers)
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == {
        value: numbers.tolist().count(value) for value in numbers.tolist()
    }


def test_an_id_above_the_range_of_int64_is_refused_in_training_and_counted_in_prediction(tmp_path: Path) -> None:
    table = pairs([0, 2**63 - 1, 2**63], [1, 2, 3], pa.uint64())
    with pytest.raises(DataError, match=r"One user id does not fit 64 bits with a sign: .*9223372036854775808"):
        trained(table, tmp_path / "run")
    fine = pairs([0, 1, 2], [1, 2, 3], pa.uint64())
    run = trained(fine, tmp_path / "other")
    result = dray.predict(run, table, str(tmp_path / "scores.parquet"), workers=0)
    assert (result.rows, result.unreadable, result.unseen["user"]) == (6, {"user": 2}, 2)


@pytest.mark.parametrize(
    ("value", "type_"),
    [(dt.date(2024, 1, 1), pa.date32()), (Decimal("1"), pa.decimal128(5, 0)), (1.0, pa.float64()), (True, pa.bool_())],
    ids=str,
)
def test_what_is_no_id_is_refused_by_its_type(value: Any, type_: pa.DataType, tmp_path: Path) -> None:
    table = pa.table({"user": pa.array([value, value], type_), "item": [1, 2], "stars": [1.0, 2.0]})
    with pytest.raises(DataError, match=r"The user column \"user\" is .*, which cannot be an id"):
        trained(table, tmp_path / "run")


def test_pairs_of_a_file_without_rows_get_a_file_without_rows(tmp_path: Path) -> None:
    ids = ids_of("int64")
    table = pairs(ids, ids, pa.int64())
    (tmp_path / "data").mkdir()
    for name, rows in (("rows", table), ("empty", table.slice(0, 0))):
        pq.write_table(rows, tmp_path / "data" / f"{name}.parquet")
    run = trained(str(tmp_path / "data"), tmp_path / "run")
    result = dray.predict(run, str(tmp_path / "data"), str(tmp_path / "scores"), workers=0)
    written = {path.stem: pq.read_table(path) for path in (tmp_path / "scores").glob("*.parquet")}
    assert {name: found.num_rows for name, found in written.items()} == {"rows": table.num_rows, "empty": 0}
    assert written["empty"].schema == written["rows"].schema
    assert (result.rows, result.files) == (table.num_rows, 2)
