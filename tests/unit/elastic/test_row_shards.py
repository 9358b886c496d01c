from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.data.shards import Slice, Unit
from dray.elastic.row_shards import RowShards, assigned
from dray.errors import DataError
from dray.events.telemetry import Telemetry
from dray.learners.layouts import RowSharding
from dray.learners.shard import Shard
from fake_group import make_membership


def made(file: str, sizes: list[int]) -> list[Unit]:
    return [(Slice(file, index, 0, rows, 0),) for index, rows in enumerate(sizes)]


def shards_of(units: list[Unit], evaluation: list[Unit], workers: int, least: int = 1) -> RowShards:
    membership, _, told = make_membership(workers, least=least)
    return RowShards(RowSharding(None, units, evaluation), membership, Telemetry([told]))


def test_the_first_assignment_has_a_shard_for_every_worker_or_for_every_unit() -> None:
    units, evaluation = made("a", [10, 20, 30]), made("b", [5])
    few = shards_of(units, evaluation, 2)
    assert few.shards == (Shard(0, (2,)), Shard(1, (0, 1)))
    assert few.weights == (10, 20, 30)
    assert few.slices(few.shards[0]) == ((units[2],), (evaluation[0],))
    assert few.slices(few.shards[1]) == ((units[0], units[1]), ())
    assert [shard.base for shard in assigned(units, [], 9)[0]] == [0, 1, 2]


def test_evaluation_units_are_spread_over_the_units_of_their_shard_in_order() -> None:
    units, evaluation = made("a", [10] * 4), made("b", [5] * 6)
    shards, belong = assigned(units, evaluation, 2)
    assert [shard.units for shard in shards] == [(0, 2), (1, 3)]
    assert belong == {0: (0, 4), 2: (2,), 1: (1, 5), 3: (3,)}


def test_the_evaluation_units_of_a_shard_come_in_their_own_order() -> None:
    shards = shards_of(made("a", [10] * 2), made("b", [5] * 5), 1)
    assert [unit[0].row_group for unit in shards.slices(Shard(0, (0, 1)))[1]] == [0, 1, 2, 3, 4]


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    evaluation_sizes=st.lists(st.integers(1, 50), max_size=15),
    workers=st.integers(1, 5),
    data=st.data(),
)
def test_evaluation_units_stay_with_their_unit_however_shards_are_split(
    sizes: list[int], evaluation_sizes: list[int], workers: int, data: st.DataObject
) -> None:
    units, evaluation = made("a", sizes), made("b", evaluation_sizes)
    whole = shards_of(units, evaluation, workers)
    together: dict[Unit, frozenset[Unit]] = {}
    for shard in whole.shards:
        holders = data.draw(st.lists(st.integers(0, 2), min_size=len(shard.units), max_size=len(shard.units)))
        pieces = [
            Shard(shard.base, tuple(unit for unit, holder in zip(shard.units, holders, strict=True) if holder == one))
            for one in set(holders)
        ]
        for piece in pieces:
            train, own = whole.slices(piece)
            assert train == tuple(units[unit] for unit in piece.units)
            alone = [whole.slices(Shard(shard.base, (unit,)))[1] for unit in piece.units]
            assert Counter(own) == Counter(one for listed in alone for one in listed)
            for unit, listed in zip(train, alone, strict=True):
                together[unit] = frozenset(listed)
    assert Counter(one for listed in together.values() for one in listed) == Counter(evaluation)
    assert set(together) == set(units)


def test_fewer_units_than_workers_at_least_are_refused() -> None:
    with pytest.raises(DataError):
        shards_of(made("a", [10]), [], 3, least=2)
