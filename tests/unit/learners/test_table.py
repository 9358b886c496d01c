from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dray.data.features import Column
from dray.data.parquet import open_dataset
from dray.data.scan import Found, scan
from dray.errors import DataError
from dray.learners.configs import make_config
from dray.learners.layouts import ShardReport
from dray.learners.table import (
    Roles,
    TableDriver,
    assign_roles,
    check_eval_schema,
    scan_shares,
    units_of,
    unread,
    with_categories,
)
from dray.learners.table_config import TableConfig
from dray.storage import DEFAULT
from small_data import opened, write

SCHEMA = pa.schema(
    {"id": pa.int64(), "x": pa.float32(), "c": pa.string(), "d": pa.date32(), "w": pa.float32(), "y": pa.int8()}
)


def config(**settings: Any) -> TableConfig:
    made = make_config({"data": "data", "label": "y", **settings})
    assert isinstance(made, TableConfig)
    return made


def found(**categories: set[str]) -> Found:
    return Found(categories=categories)


def test_every_column_gets_its_role() -> None:
    roles = assign_roles(config(weight="w", ignore=["id"]), SCHEMA)
    assert roles.features == (Column("x", "number"), Column("c", "category"), Column("d", "date"))
    assert (roles.label, roles.weight, roles.group) == (Column("y", "number"), "w", None)
    assert roles.categories == ["c"]


def test_a_text_label_is_scanned_too() -> None:
    roles = assign_roles(config(label="c", ignore=["id"]), SCHEMA)
    assert roles.categories == ["c"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"label": "yy"}, '"yy" (--label)'),
        ({"weight": "ww"}, '"ww" (--weight)'),
        ({"group": "q"}, '"q" (--group)'),
        ({"ignore": ["ids"]}, '"ids" (--ignore)'),
    ],
)
def test_a_column_that_is_not_there_is_told_with_its_flag(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError) as raised:
        assign_roles(config(**settings), SCHEMA)
    assert told in raised.value.what


def test_weights_are_numbers() -> None:
    with pytest.raises(DataError, match='weight column "c" is text'):
        assign_roles(config(weight="c"), SCHEMA)


ROLES = Roles((Column("x", "number"), Column("c", "category")), Column("y", "number"), None, None)


def test_the_evaluation_data_may_have_more_columns_but_not_fewer() -> None:
    check_eval_schema(ROLES, SCHEMA)
    with pytest.raises(DataError, match='no column "c"'):
        check_eval_schema(ROLES, pa.schema({"x": pa.float32(), "y": pa.int8()}))


def test_features_of_evaluation_data_may_be_of_other_types_but_not_the_label() -> None:
    check_eval_schema(ROLES, pa.schema({"x": pa.string(), "c": pa.int64(), "y": pa.int8()}))
    with pytest.raises(DataError, match='label "y" is a number in the training data but a category'):
        check_eval_schema(ROLES, pa.schema({"x": pa.int8(), "c": pa.string(), "y": pa.string()}))


def test_categories_are_merged_over_all_workers_and_sorted() -> None:
    roles = with_categories(ROLES, [found(c={"b"}), found(c={"a", "b"}), found(c=set())])
    assert roles.features == (Column("x", "number"), Column("c", "category", ("a", "b")))


def test_categories_of_an_earlier_run_keep_their_numbers_and_new_ones_follow() -> None:
    known = Roles((Column("c", "category", ("m", "b")),), Column("y", "number"), None, None)
    roles = with_categories(known, [found(c={"z", "a", "b"})])
    assert roles.features[0].categories == ("m", "b", "a", "z")


def test_a_class_that_an_earlier_run_did_not_know_is_refused() -> None:
    known = Roles((Column("x", "number"),), Column("y", "category", ("no", "yes")), None, None)
    assert with_categories(known, [found(y={"yes"})]) == known
    with pytest.raises(DataError, match="'maybe'"):
        with_categories(known, [found(y={"maybe", "no"})])


def test_without_groups_every_row_group_can_be_assigned(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": range(10), "y": range(10)}, 4))
    assert units_of(dataset.row_groups, ROLES, []) == [(piece,) for piece in dataset.row_groups]


def test_with_groups_only_whole_groups_can_be_assigned(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"q": [1, 1, 1, 2, 2, 2, 2, 3]}, 2))
    roles = Roles((Column("x", "number"),), Column("y", "number"), None, "q")
    shares = scan_shares(dataset.row_groups, 3)
    looked = [scan(share, [], "q", DEFAULT) for share in shares]
    sizes = [sum(piece.rows for piece in unit) for unit in units_of(dataset.row_groups, roles, looked)]
    assert sizes == [3, 4, 1]


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_every_row_group_is_scanned_once(tmp_path: Path, workers: int) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": range(20)}, 4))
    shares = scan_shares(dataset.row_groups, workers)
    assert len(shares) == workers
    assert sorted((piece for share in shares for piece in share), key=lambda piece: piece.position) == list(
        dataset.row_groups
    )


def test_a_row_group_in_which_no_row_has_a_label_is_no_unit(tmp_path: Path) -> None:
    place = write(tmp_path / "a.parquet", {"x": range(6), "y": [None, None, 1, None, 2, 3]}, 2)
    dataset = open_dataset([place], DEFAULT, statistics=lambda _: True)
    assert unread(dataset, "y", drops=True) == {dataset.row_groups[0]}
    assert unread(dataset, "y", drops=False) == set()
    told: list[Any] = []
    driver = TableDriver(config(data=place), DEFAULT, told.append)
    driver.check_schema(dataset.schema, evaluation=False)
    driver.open(dataset, None)
    assert driver.units(NoWorkers())[0] == [(piece,) for piece in dataset.row_groups[1:]]
    assert "3 of 6 rows" in told[0].message
    assert driver.dropped([ShardReport(3, 0, 0.1, rows_dropped=1)]) == (3, 0)


class NoWorkers:
    count = 0

    def run(self, *_: Any) -> Any:
        raise AssertionError("nothing is to be looked through")
