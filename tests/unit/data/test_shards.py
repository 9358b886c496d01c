from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.data.shards import GroupEdges, Slice, Unit, Units, assign, assign_evenly, divided, keep_groups_whole, rows_of
from dray.errors import DataError


def row_groups(sizes: list[int]) -> list[Slice]:
    """Row groups of the given sizes, three a file."""
    slices, position = [], 0
    for index, rows in enumerate(sizes):
        slices.append(Slice(f"file-{index // 3}", index % 3, 0, rows, position))
        position += rows
    return slices


def alone(slices: list[Slice]) -> list[Unit]:
    return [(piece,) for piece in slices]


def positions(shards: list[Units]) -> Counter[int]:
    """How often every row of the data set occurs in the shards."""
    return Counter(
        row
        for shard in shards
        for unit in shard
        for piece in unit
        for row in range(piece.position, piece.position + piece.rows)
    )


@given(st.lists(st.integers(1, 60), min_size=1, max_size=25), st.integers(1, 6))
def test_every_row_is_dealt_exactly_once(sizes: list[int], workers: int) -> None:
    shards = assign(alone(row_groups(sizes)), workers, may_be_empty=True)
    assert len(shards) == workers
    assert positions(shards) == Counter(range(sum(sizes)))


@given(st.lists(st.integers(1, 1000), min_size=6, max_size=40), st.integers(1, 6))
def test_no_worker_is_left_without_rows(sizes: list[int], workers: int) -> None:
    assert all(rows_of(shard) for shard in assign(alone(row_groups(sizes)), workers))


@given(st.integers(1, 8), st.integers(1, 10), st.integers(1, 100_000))
def test_equal_row_groups_that_share_out_evenly_are_shared_evenly(workers: int, each: int, rows: int) -> None:
    shards = assign(alone(row_groups([rows] * workers * each)), workers)
    assert {rows_of(shard) for shard in shards} == {rows * each}


@given(st.lists(st.integers(900, 1100), min_size=120, max_size=200), st.integers(1, 4))
def test_many_row_groups_of_like_size_balance_within_five_percent(sizes: list[int], workers: int) -> None:
    loads = [rows_of(shard) for shard in assign(alone(row_groups(sizes)), workers)]
    assert max(loads) <= 1.05 * min(loads)


def test_large_and_small_row_groups_balance_within_five_percent() -> None:
    loads = [rows_of(shard) for shard in assign(alone(row_groups([1000, 1, 500, 499, 250, 250, 3, 497])), 3)]
    assert max(loads) <= 1.05 * min(loads)


@given(st.lists(st.integers(1, 50), min_size=5, max_size=30))
def test_a_shard_keeps_the_order_of_the_data_set(sizes: list[int]) -> None:
    for shard in assign(alone(row_groups(sizes)), 3):
        starts = [unit[0].position for unit in shard]
        assert starts == sorted(starts)


def test_the_same_input_is_dealt_the_same_way() -> None:
    units = alone(row_groups([5, 5, 5, 4, 4, 9, 1]))
    assert assign(units, 3) == assign(list(units), 3)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("sizes", [[400], [100] * 3, [60, 60, 5], [1, 300, 1], [100] * 17])
def test_row_groups_that_are_few_are_cut_so_that_workers_get_as_many_rows(sizes: list[int], workers: int) -> None:
    groups = row_groups(sizes)
    pieces = divided(groups, workers)
    held = [rows_of(shard) for shard in assign(alone(pieces), workers)]
    assert max(held) <= 1.05 * min(held) + 1
    for group in groups:
        own = [piece for piece in pieces if piece.row_group == group.row_group and piece.file == group.file]
        assert [own[0].start, *(piece.stop for piece in own)] == [*(piece.start for piece in own), group.stop]
    assert [piece.position for piece in pieces] == [0, *np.cumsum([piece.rows for piece in pieces])[:-1]]


@pytest.mark.parametrize(("sizes", "workers"), [([100] * 8, 4), ([100] * 8, 1), ([5, 90], 1), ([7] * 42, 2)])
def test_row_groups_that_can_be_assigned_evenly_stay_whole(sizes: list[int], workers: int) -> None:
    assert divided(row_groups(sizes), workers) == row_groups(sizes)


def test_too_few_row_groups_name_both_numbers_and_the_way_out() -> None:
    with pytest.raises(DataError) as raised:
        assign(alone(row_groups([10, 10])), 3)
    assert raised.value.what == "The rows can be divided among 2 workers at most, not 3."
    assert "--workers 2" in raised.value.fix


def test_one_row_group_is_told_in_the_singular() -> None:
    with pytest.raises(DataError, match="among 1 worker at most, not 2"):
        assign(alone(row_groups([10])), 2)


def test_evaluation_data_may_leave_workers_without_rows() -> None:
    shards = assign(alone(row_groups([7])), 3, may_be_empty=True)
    assert sorted(map(rows_of, shards)) == [0, 0, 7]


def edges_of(slices: list[Slice], group_of_row: list[int]) -> list[GroupEdges]:
    edges = []
    for piece in slices:
        groups = group_of_row[piece.position : piece.position + piece.rows]
        leading = next((row for row, group in enumerate(groups) if group != groups[0]), len(groups))
        edges.append(GroupEdges(groups[0], groups[-1], leading))
    return edges


@st.composite
def grouped(draw: st.DrawFn) -> tuple[list[Slice], list[int]]:
    """Row groups of any size over groups of any size: several groups a row group, several row groups a group."""
    group_sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=20))
    group_of_row = [group for group, size in enumerate(group_sizes) for _ in range(size)]
    rows = len(group_of_row)
    borders = sorted(draw(st.sets(st.integers(1, rows - 1), max_size=12))) if rows > 1 else []
    sizes = [stop - start for start, stop in zip([0, *borders], [*borders, rows], strict=True)]
    return row_groups(sizes), group_of_row


@given(grouped())
def test_no_ranking_group_is_split_and_no_row_is_lost(layout: tuple[list[Slice], list[int]]) -> None:
    slices, group_of_row = layout
    units = keep_groups_whole(slices, edges_of(slices, group_of_row))
    assert positions([tuple(units)]) == Counter(range(len(group_of_row)))
    holder: dict[int, int] = {}
    for index, unit in enumerate(units):
        for row in positions([(unit,)]):
            assert holder.setdefault(group_of_row[row], index) == index


@given(grouped())
def test_the_parts_of_a_unit_follow_each_other_and_lie_within_their_row_groups(
    layout: tuple[list[Slice], list[int]],
) -> None:
    slices, group_of_row = layout
    by_place = {(piece.file, piece.row_group): piece for piece in slices}
    for unit in keep_groups_whole(slices, edges_of(slices, group_of_row)):
        assert all(one.position + one.rows == two.position for one, two in itertools.pairwise(unit))
        for part in unit:
            whole = by_place[part.file, part.row_group]
            assert 0 <= part.start < part.stop <= whole.stop
            assert part.position == whole.position + part.start


def test_groups_that_end_with_their_row_group_need_no_cutting() -> None:
    slices = row_groups([3, 4])
    assert keep_groups_whole(slices, [GroupEdges("a", "b", 2), GroupEdges("c", "c", 4)]) == alone(slices)


def test_one_group_over_all_row_groups_is_one_unit() -> None:
    slices = row_groups([2, 3, 4])
    edges = [GroupEdges("a", "a", piece.rows) for piece in slices]
    assert keep_groups_whole(slices, edges) == [tuple(slices)]


def test_units_may_be_fewer_than_those_they_are_dealt_to() -> None:
    assert assign_evenly([5, 9], 3) == [(1,), (0,), ()]
    assert assign_evenly([], 2) == [(), ()]


@given(st.lists(st.integers(1, 1000), max_size=40), st.integers(1, 8))
def test_every_unit_is_dealt_once_in_order_and_no_two_differ_by_more_than_a_unit(rows: list[int], workers: int) -> None:
    dealt = assign_evenly(rows, workers)
    assert sorted(index for indices in dealt for index in indices) == list(range(len(rows)))
    assert all(list(indices) == sorted(indices) for indices in dealt)
    held = [sum(rows[index] for index in indices) for indices in dealt]
    assert max(held) - min(held) <= max(rows, default=0)
