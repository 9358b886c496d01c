"""What a run of trees takes over from an earlier run: its columns and its cuts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xgboost

from dray.data.cuts import LARGEST
from dray.data.features import Column
from dray.errors import DataError, ModelError
from dray.learners.configs import make_config
from dray.learners.table import Roles, assign_roles
from dray.learners.table_config import TableConfig
from dray.learners.xgboost.model import Model
from dray.learners.xgboost.previous import Previous, as_before, cuts_as_table, make_cuts, texts_as_begun

SCHEMA = pa.schema(
    {"id": pa.int64(), "x": pa.float32(), "c": pa.string(), "d": pa.date32(), "w": pa.float32(), "y": pa.int8()}
)


def roles_of(*ignore: str) -> Roles:
    config = make_config({"data": "data", "label": "y", "ignore": list(ignore)})
    assert isinstance(config, TableConfig)
    return assign_roles(config, SCHEMA)


def previous(features: tuple[Column, ...], label: Column, cuts: Any = ((0.0,),)) -> Previous:
    """An earlier run, of which only the columns matter here."""
    return Previous(Model(None, features, label, "binary:logistic"), np.float32(cuts), 256, b"", ())


def test_going_on_takes_the_earlier_runs_order_and_categories() -> None:
    before = (Column("c", "category", ("b", "a")), Column("x", "number"))
    roles = as_before(roles_of("id", "d", "w"), SCHEMA, previous(before, Column("y", "number")))
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
        as_before(roles_of("id", "c", "d", "w"), SCHEMA, previous(before, label))


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


def test_text_of_times_stays_a_category_where_trees_were_grown_on_it_as_one() -> None:
    now = (Column("x", "number"), Column("t", "timestamp", form="iso"), Column("u", "timestamp", form="iso"))
    assert texts_as_begun(now, [False, True, False]) == (now[0], Column("t", "category"), now[2])
    assert texts_as_begun(now, []) == now
