from __future__ import annotations

import shlex
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

from dray.data.features import Column
from dray.data.whole_numbers import EXACT, Verdict, Wholes, is_wide, judged, looks_like_times, may_collide
from dray.learners.whole_scan import scan_wholes
from dray.storage import DEFAULT
from small_data import opened, write

COLUMN = Column("id", "number")
IDS = [2_053_013_552_226_107_603 + 31 * number for number in range(434)]


def verdict(values: list[int], rows: int, *, more: bool = False) -> Verdict:
    found = Wholes(frozenset(() if more else values), min(values), max(values), more)
    return judged(COLUMN, pa.int64(), found, rows)


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        *((arrow, True) for arrow in (pa.int64(), pa.uint64(), pa.int32(), pa.uint32(), pa.decimal128(20, 0))),
        *((arrow, False) for arrow in (pa.decimal128(20, 2), pa.int16(), pa.uint8(), pa.float64(), pa.string())),
    ],
)
def test_only_types_of_large_whole_numbers_are_looked_at(arrow: pa.DataType, expected: bool) -> None:
    assert is_wide(arrow) == expected


def test_only_numbers_beyond_those_that_float32_has_all_of_may_collide() -> None:
    assert not any(map(may_collide, [(0, EXACT), (-EXACT, 0)]))
    assert all(map(may_collide, [(0, EXACT + 1), (-EXACT - 1, 0), (0, 2**64 - 1), None]))


def test_names_that_float32_cannot_tell_apart_are_a_category() -> None:
    found = verdict(IDS, rows=5_000)
    assert found.column == Column("id", "category", tuple(map(str, IDS)), "int64")
    assert "434 different whole numbers" in found.message and "category" in found.message
    assert "--ignore id" in found.fix


def test_the_flag_that_keeps_a_number_is_one_that_a_shell_takes_whatever_the_name() -> None:
    found = Wholes(frozenset(IDS), min(IDS), max(IDS))
    fix = judged(Column('user\'s "id"', "number"), pa.int64(), found, 5_000).fix
    [typed] = [word for word in shlex.split(fix) if word.startswith("types=")]
    assert yaml.safe_load(typed.removeprefix("types=").rstrip(");")) == {'user\'s "id"': "double"}


def test_numbers_that_float32_tells_apart_stay_numbers_without_a_word() -> None:
    assert verdict([EXACT + 2 * number for number in range(100)], rows=5_000) == Verdict(COLUMN)
    assert verdict([1, 2, 3], rows=5_000) == Verdict(COLUMN)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (list(range(1_700_000_000_000, 1_700_360_000_000, 60_000)), "times in milliseconds"),
        (list(range(1_700_000_000, 1_700_360_000, 60)), "times in seconds"),
        ([20_240_100 + day for day in range(1, 29)], "dates that are written as one number"),
    ],
)
def test_times_stay_numbers_and_are_told(values: list[int], told: str) -> None:
    found = verdict(values, rows=1_000_000)
    assert found.column == COLUMN
    assert told in found.message and "timestamp" in found.fix


def test_an_id_of_almost_every_row_stays_a_number_and_is_told() -> None:
    for found in (verdict(IDS, rows=500), verdict([0, 10**12], rows=10**6, more=True)):
        assert found.column == COLUMN
        assert '"id"' in found.message and "--ignore id" in found.fix
    assert "multiples of up to 65,536" in verdict([0, 10**12], rows=10**6, more=True).message


def test_ids_of_the_size_of_times_are_not_times() -> None:
    assert looks_like_times(IDS) is None
    assert looks_like_times(range(1_000_000_000, 1_000_005_000)) is None
    assert looks_like_times([0, -1]) is None
    assert looks_like_times([20_241_399, 20_240_101]) is None


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_what_is_found_does_not_depend_on_how_rows_are_divided(tmp_path: Path, parts: int) -> None:
    rng = np.random.default_rng(1)
    table = pa.table({"few": rng.choice(IDS, 200_000), "many": np.arange(200_000) + EXACT})
    groups = opened(write(tmp_path / "a.parquet", table, 20_000)).row_groups
    shares = [scan_wholes(groups[part::parts], {"few": Wholes(), "many": Wholes()}, DEFAULT) for part in range(parts)]
    found = {name: reduce(Wholes.joined, (share[name] for share in shares)) for name in ("few", "many")}
    assert found["few"] == Wholes(frozenset(IDS), IDS[0], IDS[-1])
    assert found["many"] == Wholes(frozenset(), EXACT, EXACT + 199_999, more=True)
