from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xgboost

from dray.config.run_file import RunConfig
from dray.data.cuts import LARGEST
from dray.data.features import Column
from dray.data.scan import Found, scan
from dray.errors import DataError, ModelError
from dray.learners.configs import make_config
from dray.learners.xgboost.model import Model
from dray.storage import DEFAULT
from dray.training.agree import (
    Previous,
    Roles,
    assign_roles,
    check_eval_schema,
    cuts_as_table,
    make_cuts,
    scan_shares,
    units_of,
    with_categories,
)
from small_data import opened, write

SCHEMA = pa.schema(
    {"id": pa.int64(), "x": pa.float32(), "c": pa.string(), "d": pa.date32(), "w": pa.float32(), "y": pa.int8()}
)


def config(**settings: Any) -> RunConfig:
    return make_config({"data": "data", "label": "y", **settings})


def previous(features: tuple[Column, ...], label: Column, cuts: Any = ((0.0,),)) -> Previous:
    """An earlier run, of which only the columns matter here."""
    return Previous(Model(None, features, label, "binary:logistic"), np.float32(cuts), 256, b"", ())


def found(**categories: set[str]) -> Found:
    return Found(categories=categories)


def test_every_column_gets_its_role() -> None:
    roles = assign_roles(config(weight="w", ignore=["id"]), SCHEMA, None)
    assert roles.features == (Column("x", "number"), Column("c", "category"), Column("d", "date"))
    assert (roles.label, roles.weight, roles.group) == (Column("y", "number"), "w", None)
    assert roles.categories == ["c"] and roles.needs_scan


def test_a_text_label_is_scanned_too() -> None:
    roles = assign_roles(config(label="c", ignore=["id"]), SCHEMA, None)
    assert roles.categories == ["c"]


def test_numbers_alone_need_no_scan_but_groups_do() -> None:
    schema = pa.schema({"x": pa.float32(), "q": pa.int64(), "y": pa.int8()})
    assert not assign_roles(config(), schema, None).needs_scan
    assert assign_roles(config(group="q"), schema, None).needs_scan


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
        assign_roles(config(**settings), SCHEMA, None)
    assert told in raised.value.what


def test_weights_are_numbers() -> None:
    with pytest.raises(DataError, match='weight column "c" is text'):
        assign_roles(config(weight="c"), SCHEMA, None)


ROLES = Roles((Column("x", "number"), Column("c", "category")), Column("y", "number"), None, None)


def test_the_evaluation_data_may_have_more_columns_but_not_fewer() -> None:
    check_eval_schema(ROLES, SCHEMA)
    with pytest.raises(DataError, match='no column "c"'):
        check_eval_schema(ROLES, pa.schema({"x": pa.float32(), "y": pa.int8()}))


def test_a_column_that_changes_its_meaning_in_the_evaluation_data_is_refused() -> None:
    with pytest.raises(DataError, match='"x" is a number in the training data but a category'):
        check_eval_schema(ROLES, pa.schema({"x": pa.string(), "c": pa.string(), "y": pa.int8()}))


def test_categories_are_merged_over_everybody_and_sorted() -> None:
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


def test_going_on_takes_the_earlier_runs_order_and_categories() -> None:
    before = (Column("c", "category", ("b", "a")), Column("x", "number"))
    roles = assign_roles(config(ignore=["id", "d", "w"]), SCHEMA, previous(before, Column("y", "number")))
    assert roles.features == before


@pytest.mark.parametrize(
    ("before", "label", "kind", "told"),
    [
        ((Column("x", "number"),), Column("z", "number"), ModelError, 'predicts "z"'),
        ((Column("x", "number"),), Column("y", "category"), ModelError, r'predicts "y" \(category\)'),
        ((Column("x", "date"),), Column("y", "number"), DataError, "a number there"),
        ((Column("gone", "number"),), Column("y", "number"), DataError, "no such feature"),
        ((), Column("y", "number"), DataError, 'did not know: "x"'),
    ],
)
def test_going_on_with_other_columns_is_refused(
    before: tuple[Column, ...], label: Column, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        assign_roles(config(ignore=["id", "c", "d", "w"]), SCHEMA, previous(before, label))


ROLES_WITH_CATEGORY = Roles(
    (Column("x", "number"), Column("c", "category", ("a", "b", "c"))), Column("y", "number"), None, None
)
LOW, HIGH = -LARGEST / 2, LARGEST / 2


def grown(split_at: list[float]) -> bytes:
    """A saved model whose trees compare x with these numbers."""
    table = np.array([[LOW, 0], *([value, 0] for value in split_at), [HIGH, 0]], np.float32)
    rows = xgboost.QuantileDMatrix(table, np.arange(len(table)), feature_types=["q", "c"], enable_categorical=True)
    params = {"max_depth": 12, "min_child_weight": 0, "lambda": 0}
    return bytes(xgboost.train(params, rows, 1).save_raw("ubj"))


def test_cuts_come_from_the_sample() -> None:
    cuts, bins = make_cuts(ROLES_WITH_CATEGORY, [np.float32([1, 2, 3]), np.float32([])], 16, None, None)
    assert (cuts[:, 0].tolist(), bins) == ([LOW, 2, 3, HIGH], 16)
    assert cuts[:3, 1].tolist() == [0, 1, 2] and np.isnan(cuts[3, 1])


def test_cuts_come_from_the_earlier_run_with_all_that_its_trees_split_at() -> None:
    earlier = previous(ROLES_WITH_CATEGORY.features, ROLES_WITH_CATEGORY.label)
    table = [[LOW, 0.0], [7.0, 1.0], [HIGH, np.nan]]
    kept, bins = make_cuts(
        ROLES_WITH_CATEGORY, [], 16, replace(earlier, cuts=np.float32(table), content=grown([7.0])), None
    )
    assert (kept[:, 0].tolist(), kept[:, 1].tolist(), bins) == ([LOW, 7, HIGH], [0, 1, 2], 16)
    old = replace(earlier, cuts=np.float32([[5.0, 0.0], [7.0, 1.0]]), content=grown([7.0, 14.00001]))
    with_last, bins = make_cuts(ROLES_WITH_CATEGORY, [], 2, old, None)
    assert (with_last[:, 0].tolist(), bins) == ([LOW, 7, np.float32(14.00001), HIGH], 4)


def test_cuts_have_all_that_the_trees_of_a_checkpoint_split_at() -> None:
    points = [np.float32([1, 2, 3]), np.float32([])]
    cuts, _ = make_cuts(ROLES_WITH_CATEGORY, points, 16, None, grown([2.0, 6.00001]))
    assert cuts[:, 0].tolist() == [LOW, 2, 3, np.float32(6.00001), HIGH]


def test_a_checkpoint_of_other_columns_is_refused() -> None:
    roles = replace(ROLES_WITH_CATEGORY, features=ROLES_WITH_CATEGORY.features[:1])
    with pytest.raises(ModelError, match="begun with 2 features, and the data has 1 now"):
        make_cuts(roles, [np.float32([1, 2, 3])], 16, None, grown([2.0]))


def test_cuts_survive_their_table() -> None:
    cuts = np.float32([[1, 0], [2, np.nan]])
    table = cuts_as_table([Column("x", "number"), Column("a[b", "category")], cuts, 600)
    assert table.column_names == ["x", "a[b"]
    assert table.schema.metadata == {b"max_bin": b"600"}
    back = np.stack([column.to_numpy() for column in table.columns], axis=1)
    assert np.array_equal(back, cuts, equal_nan=True) and back.dtype == np.float32


def test_without_groups_every_row_group_can_be_dealt(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": range(10), "y": range(10)}, 4))
    assert units_of(dataset, ROLES, []) == [(piece,) for piece in dataset.row_groups]


def test_with_groups_only_whole_groups_can_be_dealt(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"q": [1, 1, 1, 2, 2, 2, 2, 3]}, 2))
    roles = Roles((Column("x", "number"),), Column("y", "number"), None, "q")
    shares = scan_shares(dataset, 3)
    looked = [scan(share, [], "q", DEFAULT) for share in shares]
    sizes = [sum(piece.rows for piece in unit) for unit in units_of(dataset, roles, looked)]
    assert sizes == [3, 4, 1]


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_every_row_group_is_scanned_once(tmp_path: Path, workers: int) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"x": range(20)}, 4))
    shares = scan_shares(dataset, workers)
    assert len(shares) == workers
    assert sorted((piece for share in shares for piece in share), key=lambda piece: piece.position) == list(
        dataset.row_groups
    )
