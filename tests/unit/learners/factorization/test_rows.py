"""From Parquet to indices and values, the same whichever worker reads which rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dray.data.parquet import Dataset
from dray.errors import DataError
from dray.learners.factorization import known, rows
from dray.learners.factorization.events import RowRule, UnitRows
from dray.learners.factorization.known import Found, Ids, Known, found_before, merge
from dray.learners.factorization.rows import by_unit, scan
from dray.storage import DEFAULT
from small_data import opened, small_batches, write

WEIGHTS = {"view": 1.0, "buy": 5.0, "fail": -2.0}
RATED = RowRule(user="user", item="item", rating="rating")
EVENTS = RowRule(user="user", item="item", event="type", time="at", weights=WEIGHTS)
Make = Callable[[Any], pa.Array]

ID_KINDS: dict[str, Make] = {
    "text": lambda values: pa.array([f"id {value}" for value in values]),
    "large text": lambda values: pa.array([f"id {value}" for value in values], pa.large_string()),
    "dictionary": lambda values: pa.array([f"id {value}" for value in values]).dictionary_encode(),
    "int16": lambda values: pa.array(values, pa.int16()),
    "far apart": lambda values: pa.array([value * 10**12 - 7 for value in values], pa.int64()),
    "unsigned": lambda values: pa.array(values, pa.uint64()),
}


def events(count: int, ids: Make = ID_KINDS["text"], seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        "user": ids(random.integers(0, 40, count)),
        "item": ids(random.integers(0, 25, count)),
        "rating": pa.array(random.integers(1, 6, count)),
        "type": pa.array(random.choice(list(WEIGHTS), count)),
        "at": pa.array(random.integers(0, 10**6, count), pa.timestamp("s")),
        "other": pa.array(random.random(count)),
    }


def look(dataset: Dataset, rule: RowRule, parts: int = 1, test: bool = False) -> list[Found]:
    """Scan as so many workers would, the last one first."""
    shares = [dataset.row_groups[index::parts] for index in range(parts)]
    found = [scan(share, rule, DEFAULT, test=test) for share in reversed(shares)]
    return [pickle.loads(pickle.dumps(part)) for part in found]


def same(one: Known, other: Known) -> bool:
    return (
        one.user_ids.equals(other.user_ids)
        and one.item_ids.equals(other.item_ids)
        and np.array_equal(one.user_counts, other.user_counts)
        and np.array_equal(one.item_counts, other.item_counts)
        and (one.rows, one.events, one.latest) == (other.rows, other.events, other.latest)
        and list(one.events) == list(other.events)
    )


def refused(tmp_path: Path, columns: dict[str, Any], rule: RowRule = RATED, parts: int = 1) -> DataError:
    dataset = opened(write(tmp_path / "bad.parquet", columns, 2))
    with pytest.raises(DataError) as raised:
        merge(look(dataset, rule, parts))
    return raised.value


@pytest.mark.parametrize("kind", ID_KINDS)
def test_ids_are_sorted_and_counted_whoever_saw_what(tmp_path: Path, kind: str) -> None:
    table = events(500, ID_KINDS[kind])
    write(tmp_path / "a.parquet", {name: column.slice(0, 300) for name, column in table.items()}, 70)
    write(tmp_path / "b.parquet", {name: column.slice(300) for name, column in table.items()}, 50)
    whole = merge(look(opened(tmp_path), EVENTS))
    users = table["user"].dictionary_decode() if kind == "dictionary" else table["user"]
    expected = sorted(set(users.to_pylist()))
    assert whole.user_ids.to_pylist() == expected
    assert whole.user_ids.type in (pa.string(), pa.int64())
    assert whole.user_counts.tolist() == [users.to_pylist().count(one) for one in expected]
    assert whole.rows == whole.item_counts.sum() == sum(whole.events.values()) == 500
    assert whole.latest == max(table["at"].cast(pa.int64()).to_pylist())
    for parts in (2, 5):
        assert same(merge(look(opened(tmp_path), EVENTS, parts)), whole)


def test_ids_are_merged_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = opened(write(tmp_path / "a.parquet", events(500), 40))
    whole = merge(look(dataset, RATED))
    monkeypatch.setattr(known, "_PIECES_ROWS", 10)
    small_batches(monkeypatch, 7)
    assert same(merge(look(dataset, RATED, 2)), whole)


def listed(read: UnitRows) -> list[tuple[Any, ...]]:
    assert read.times is not None
    columns = (read.users, read.items, read.values, read.times)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def unit_rows(parts: Sequence[Sequence[Sequence[UnitRows]]], blocks: int) -> list[list[tuple[Any, ...]]]:
    """The rows of each block, as they come one reader after another."""
    return [[row for part in parts for piece in part[block] for row in listed(piece)] for block in range(blocks)]


@pytest.mark.parametrize("kind", ID_KINDS)
def test_rows_are_sorted_by_unit_in_the_order_of_the_data(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = events(600, ID_KINDS[kind])
    dataset = opened(write(tmp_path / "a.parquet", table, 45))
    all_known = merge(look(dataset, EVENTS))
    block_of_user = np.arange(len(all_known.user_ids)) % 3
    users, items = all_known.user_ids.to_pylist(), all_known.item_ids.to_pylist()
    expected: list[list[tuple[Any, ...]]] = [[], [], [], []]
    columns = [table["user"], table["item"], table["type"], table["at"].cast(pa.int64())]
    for user, item, kind_of_event, at in zip(*(column.to_pylist() for column in columns), strict=True):
        row = (users.index(user), items.index(item), WEIGHTS[kind_of_event], at)
        expected[block_of_user[row[0]]].append(row)
    whole = by_unit(dataset.row_groups, EVENTS, all_known.ids, block_of_user, 4, DEFAULT)
    assert unit_rows([whole], 4) == expected
    pieces = [piece for held in whole for piece in held]
    assert all(part.users.dtype == part.items.dtype == np.int32 and part.values.dtype == np.float32 for part in pieces)
    monkeypatch.setattr(rows, "_LEAST_ROWS", 1)
    small_batches(monkeypatch, 16)
    halves = (dataset.row_groups[:5], dataset.row_groups[5:])
    parts = [by_unit(half, EVENTS, all_known.ids, block_of_user, 4, DEFAULT) for half in halves]
    assert unit_rows(parts, 4) == expected


def test_a_row_is_worth_its_rating_or_one(tmp_path: Path) -> None:
    table = events(50)
    dataset = opened(write(tmp_path / "a.parquet", table))
    ids = merge(look(dataset, RATED)).ids
    block_of_user = np.zeros(len(ids.user_ids), np.int32)
    ((rated,),) = by_unit(dataset.row_groups, RATED, ids, block_of_user, 1, DEFAULT)
    assert rated.values.tolist() == table["rating"].to_pylist() and rated.times is None
    ((plain,),) = by_unit(
        dataset.row_groups, RowRule(user="user", item="item"), ids, block_of_user, 1, DEFAULT, test=True
    )
    assert set(plain.values.tolist()) == {1.0} and plain.test


def test_every_row_that_was_read_is_told(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", events(100), 30))
    told: list[int] = []
    ids = merge([scan(dataset.row_groups, RATED, DEFAULT, told.append)]).ids
    assert sum(told) == 100
    by_unit(dataset.row_groups, RATED, ids, np.zeros(len(ids.user_ids), np.int32), 1, DEFAULT, told.append)
    assert sum(told) == 200


def test_ids_of_the_test_data_join_but_do_not_count(tmp_path: Path) -> None:
    train = opened(write(tmp_path / "a.parquet", {"user": ["b", "c"], "item": [1, 2], "rating": [1, 2]}))
    test = opened(write(tmp_path / "b.parquet", {"user": ["a", "b"], "item": [2, 9], "rating": [3, 4]}))
    found = merge([*look(test, RATED, test=True), *look(train, RATED)])
    assert found.user_ids.to_pylist() == ["a", "b", "c"] and found.user_counts.tolist() == [0, 1, 1]
    assert found.item_ids.to_pylist() == [1, 2, 9] and found.item_counts.tolist() == [1, 1, 0]
    assert (found.rows, found.test_rows, found.test_users, found.test_items) == (2, 2, 1, 1)


def test_ids_of_an_earlier_model_join_and_count(tmp_path: Path) -> None:
    new = opened(write(tmp_path / "a.parquet", {"user": ["b"], "item": [1], "rating": [1]}))
    before = found_before(pa.array(["z", "b"]), np.array([3, 4]), pa.array([5]), np.array([7]))
    found = merge([before, *look(new, RATED)])
    assert found.user_ids.to_pylist() == ["b", "z"] and found.user_counts.tolist() == [5, 3]
    assert found.item_ids.to_pylist() == [1, 5] and found.rows == 1


def test_the_moment_of_a_split_by_time_is_that_of_the_training_rows(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", events(400), 50))
    one, several = merge(look(dataset, EVENTS)), merge(look(dataset, EVENTS, 3))
    assert one.moment(0.25) == several.moment(0.25)
    assert one.moment(0.25) == merge([*look(dataset, EVENTS), *look(dataset, EVENTS, test=True)]).moment(0.25)
    with pytest.raises(DataError, match="no time"):
        merge(look(dataset, RATED)).moment(0.25)


@pytest.mark.parametrize("parts", [1, 2])
def test_rows_without_an_id_are_refused_with_their_number_in_all_the_data(tmp_path: Path, parts: int) -> None:
    for users in (["a", None, "b", "c", None], pa.array([1, None, 2, 3, None])):
        error = refused(tmp_path, {"user": users, "item": [1, 2, 3, 4, 5], "rating": [1] * 5}, parts=parts)
        assert '2 of 5 rows have no user in "user"' in error.what and "bad.parquet" in error.what
        assert "dray data ingest" in error.fix and "'user is not None'" in error.fix


def test_a_column_of_nothing_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, {"user": pa.nulls(3), "item": [1, 2, 3], "rating": [1] * 3})
    assert "3 of 3 rows have no user" in error.what


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    "ratings, what, fix",
    [
        ([1.0, None, float("nan"), 2.0], '2 of 4 rows have no rating in "rating"', "rating >= 0"),
        ([1.0, 2.0, 3.0, float("inf")], '1 of 4 rows have a rating in "rating" that is infinite', "< 1e30"),
        (
            [1.0, 2.0, -0.5, -3.0],
            '2 of 4 rows have a negative rating in "rating", such as "-0.5" in ',
            "Shift the scale",
        ),
        (["1", "2", "n/a", "?"], 'is text, and 2 of 4 rows hold no number, such as "n/a" in ', "numbers"),
        (["1", "2", "n/a", "inf"], 'is text, and 1 of 4 rows hold no number, such as "n/a" in ', "numbers"),
        (["1", "2", "inf", "-Infinity"], 'is text, and 2 of 4 rows are infinite, such as "inf" in ', "numbers"),
        (["1", "2", "3", "4"], 'is text, though it looks like numbers, such as "1" in ', "numbers"),
    ],
)
def test_ratings_that_cannot_be_used_are_refused_with_the_first(
    tmp_path: Path, ratings: list[Any], what: str, fix: str, parts: int
) -> None:
    error = refused(tmp_path, {"user": [1, 2, 3, 4], "item": [1, 2, 3, 4], "rating": ratings}, parts=parts)
    assert what in error.what and "bad.parquet" in error.what and fix in error.fix


def test_rows_without_a_time_are_refused(tmp_path: Path) -> None:
    for at in (pa.array([1, None], pa.timestamp("s")), pa.array([1.0, float("nan")])):
        error = refused(tmp_path, {"user": [1, 2], "item": [1, 2], "type": ["view", "buy"], "at": at}, EVENTS)
        assert '1 of 2 rows have no time in "at"' in error.what


def test_event_types_without_a_weight_are_counted_over_all_the_data(tmp_path: Path) -> None:
    columns = {"user": [1, 2, 3], "item": [1, 2, 3], "type": ["share", "view", "share"], "at": [1, 2, 3]}
    error = refused(tmp_path, columns, EVENTS, parts=2)
    assert '"share" (2 rows)' in error.what and "--event-weight share=1" in error.fix


def test_a_column_that_is_not_there_is_refused_with_the_columns_that_are(tmp_path: Path) -> None:
    error = refused(tmp_path, {"usr": [1], "item": [1], "rating": [1]})
    assert 'no column "user" (--user) in the data. Did you mean "usr"?' in error.what
    assert "Columns: usr, item, rating." in error.fix


def test_one_and_the_text_one_are_different_ids(tmp_path: Path) -> None:
    a = opened(write(tmp_path / "a.parquet", {"user": [1, 2], "item": [1, 2], "rating": [1, 1]}))
    b = opened(write(tmp_path / "b.parquet", {"user": ["1", "2"], "item": [1, 2], "rating": [1, 1]}))
    for attempt in (
        lambda: merge([*look(a, RATED), *look(b, RATED, test=True)]),
        lambda: scan([*a.row_groups, *b.row_groups], RATED, DEFAULT),
        lambda: scan([*b.row_groups, *a.row_groups], RATED, DEFAULT),
    ):
        with pytest.raises(DataError, match=r"are text in .*b.parquet and whole numbers in .*a.parquet"):
            attempt()


@pytest.mark.parametrize("side", ["user", "item"])
def test_one_user_or_item_alone_is_refused(tmp_path: Path, side: str) -> None:
    error = refused(tmp_path, {"user": [1, 2], "item": [1, 2], "rating": [1, 1]} | {side: [5, 5]})
    assert f"There is one {side} only" in error.what and f"--{side}" in error.fix


def test_test_rows_alone_are_nothing_to_train_on(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", events(10)))
    with pytest.raises(DataError, match="no row to train on"):
        merge(look(dataset, RATED, test=True))


@pytest.mark.parametrize("kind", ["text", "int16", "far apart"])
def test_data_that_changed_between_the_two_readings_is_refused(tmp_path: Path, kind: str) -> None:
    dataset = opened(write(tmp_path / "a.parquet", events(100, ID_KINDS[kind])))
    ids = merge(look(dataset, RATED)).ids
    fewer = Ids(ids.user_ids.slice(0, 10), ids.item_ids)
    with pytest.raises(DataError, match="changed while it was read"):
        by_unit(dataset.row_groups, RATED, fewer, np.zeros(10, np.int32), 1, DEFAULT)
