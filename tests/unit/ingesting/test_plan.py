"""Tasks and row groups by bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.data.source import Piece
from dray.ingesting.plan import group_bytes, group_rows, make_tasks, part_name, task_bytes

MB = 1 << 20


@pytest.mark.parametrize(
    ("total", "task"), [(1, 8 * MB), (160 * MB, 10 * MB), (2000 * MB, 125 * MB), (10**13, 256 * MB)]
)
def test_a_task_is_a_sixteenth_within_bounds(total: int, task: int) -> None:
    assert task_bytes(total) == task


def test_row_groups_are_many_enough_to_be_dealt_and_small_enough_for_memory() -> None:
    assert 2000 * MB / group_bytes(2000 * MB) == pytest.approx(128, rel=0.01)
    assert group_bytes(10**13) == 24 * MB


@pytest.mark.parametrize(
    ("wanted", "row_bytes", "rows"),
    [
        (0, 100, 50_000),
        (24 * MB, 100, 251_658),
        (24 * MB, 1, 1 << 20),
        (24 * MB, 1_000, 50_000),
        (24 * MB, 64 * 1024, 1024),
        (1, 100 * MB, 1),
    ],
)
def test_a_row_group_has_50_000_rows_at_least_unless_they_are_wide(wanted: int, row_bytes: float, rows: int) -> None:
    assert group_rows(wanted, row_bytes) == rows


@given(st.lists(st.integers(0, 100), max_size=40), st.integers(1, 120))
def test_every_piece_is_in_one_task_in_order_and_tasks_are_no_larger_than_asked(sizes: list[int], target: int) -> None:
    pieces = [Piece("a", index, bytes=size) for index, size in enumerate(sizes)]
    tasks = make_tasks(pieces, target)
    assert [piece for task in tasks for piece in task.pieces] == pieces
    assert [task.index for task in tasks] == list(range(len(tasks)))
    assert all(task.bytes <= target or len([p for p in task.pieces if p.bytes]) == 1 for task in tasks)


def test_a_task_says_what_it_reads() -> None:
    pieces = [Piece("a.csv", 0, 0, 10, 10), Piece("a.csv", 1, 10, 2000, 10), Piece("b.csv", 2, 0, 5, 5)]
    assert repr(make_tasks(pieces[:2], 100)[0]) == "a.csv (0 to 2,000)"
    assert repr(make_tasks(pieces, 100)[0]) == "a.csv to b.csv"


def test_names_are_in_order_however_many_there_are() -> None:
    assert part_name(3, 16) == "part-00003.parquet"
    assert part_name(3, 1_000_000) == "part-000003.parquet"
    assert part_name(3, 1_000_001) == "part-0000003.parquet"
    assert part_name(3, 100_000) == "part-00003.parquet"
