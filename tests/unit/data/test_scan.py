from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.data import scan as scanning
from dray.data.parquet import Dataset
from dray.data.scan import Found, merge_categories, require_groups_together, run_starts, scan
from dray.data.shards import GroupEdges
from dray.errors import DataError
from dray.storage import DEFAULT
from small_data import opened, small_batches, write


def look(dataset: Dataset, categories: list[str], group: str | None = None, parts: int = 1) -> list[Found]:
    """Scan as so many workers would, the last one first."""
    shares = [dataset.row_groups[index::parts] for index in range(parts)]
    return [scan(share, categories, group, DEFAULT) for share in reversed(shares)]


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_categories_are_sorted_and_do_not_depend_on_who_saw_what(tmp_path: Path, parts: int) -> None:
    write(tmp_path / "a.parquet", {"x": ["pear", "apple", None, "fig"]}, 2)
    write(tmp_path / "b.parquet", {"x": pa.array(["lime", None, "apple"]).dictionary_encode()}, 1)
    found = look(opened(tmp_path), ["x"], parts=parts)
    assert merge_categories(found, "x") == ("apple", "fig", "lime", "pear")


def test_the_empty_string_is_a_category_and_null_is_none(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": ["", None, "a"]}))
    assert merge_categories(look(dataset, ["x"]), "x") == ("", "a")


def test_a_column_of_nulls_has_no_category(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": pa.array([None, None], pa.string())}))
    assert merge_categories(look(dataset, ["x"]), "x") == ()


def test_a_column_with_too_many_values_is_no_category(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "MOST_CATEGORIES", 10)
    dataset = opened(write(tmp_path / "a.parquet", {"comment": [f"text {index}" for index in range(11)]}))
    with pytest.raises(DataError, match='"comment" has more than 10 different values') as raised:
        look(dataset, ["comment"])
    assert "--ignore comment" in raised.value.fix


def test_too_many_values_are_also_seen_when_each_worker_saw_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "MOST_CATEGORIES", 10)
    dataset = opened(write(tmp_path / "a.parquet", {"x": [str(index) for index in range(16)]}, 8))
    with pytest.raises(DataError, match="more than 10"):
        merge_categories(look(dataset, ["x"], parts=2), "x")


def edges(dataset: Dataset, parts: int = 1) -> list[GroupEdges]:
    return require_groups_together(dataset.row_groups, look(dataset, [], "query", parts), "query")


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_edges_of_every_row_group_are_found_in_order(tmp_path: Path, parts: int) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"query": [7, 7, 7, 7, 7, 3, 3, 9]}, 3))
    assert edges(dataset, parts) == [GroupEdges(7, 7, 3), GroupEdges(7, 3, 2), GroupEdges(3, 9, 1)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), row_group=st.integers(1, 12), batch=st.integers(1, 5))
def test_the_leading_rows_are_counted_over_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], row_group: int, batch: int
) -> None:
    small_batches(monkeypatch, batch)
    rows = [group for group, size in enumerate(sizes) for _ in range(size)]
    dataset = opened(write(tmp_path / "a.parquet", {"query": rows}, row_group))
    for piece, edge in zip(dataset.row_groups, edges(dataset), strict=True):
        own = rows[piece.position : piece.position + piece.rows]
        assert edge == GroupEdges(own[0], own[-1], own.count(own[0]))


@pytest.mark.parametrize(
    "values",
    [
        ["a", "a", "b"],
        pa.array(["a", "a", "b"]).dictionary_encode(),
        pa.array(["a", "a", "b"], pa.large_string()),
        pa.array([1, 1, 2], pa.int32()),
        pa.array([1, 1, 2]).cast(pa.timestamp("us", "UTC")),
    ],
    ids=lambda values: str(getattr(values, "type", "list"))[:20],
)
def test_a_group_may_be_named_by_any_scalar(tmp_path: Path, values: Any) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"query": values}, 2))
    first, second = edges(dataset)
    assert (first.leading_rows, second.leading_rows) == (2, 1)
    assert first.last != second.first


@pytest.mark.parametrize("rows", [[1, 2, 1], [1, 1, 2, 2, 1, 1], [1, 2, 3, 3, 2]])
@pytest.mark.parametrize("row_group", [1, 2, 10])
def test_a_group_that_comes_back_after_others_is_refused(tmp_path: Path, rows: list[int], row_group: int) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"query": rows}, row_group))
    with pytest.raises(DataError, match='a value of "query" appears again') as raised:
        edges(dataset)
    assert 'Sort the data by "query"' in raised.value.fix


def test_a_group_may_go_on_in_the_next_file(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", {"query": [1, 2]})
    write(tmp_path / "b.parquet", {"query": [2, 3]})
    assert edges(opened(tmp_path)) == [GroupEdges(1, 2, 1), GroupEdges(2, 3, 1)]


@pytest.mark.parametrize("values", [[1, None, 2], [1.0, float("nan"), 2.0]])
def test_rows_without_a_group_are_refused(tmp_path: Path, values: list[Any]) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"query": values}))
    with pytest.raises(DataError, match='1 rows have no value in the group column "query"'):
        edges(dataset)


def test_a_run_starts_where_the_value_changes() -> None:
    assert run_starts(pa.array([5, 5, 4, 4, 5])).tolist() == [True, False, True, False, True]
    assert run_starts(pa.array(["x"])).tolist() == [True]
    assert run_starts(pa.array([], pa.int64())).tolist() == []
