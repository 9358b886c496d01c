"""With classes, the same share of each is evaluated on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
from dray.data.split import Split
from dray.errors import ConfigError, DataError
from dray.learners.table import TableDriver

ROWS = 2000


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(1)
    x = rng.normal(size=ROWS)
    rare = (x + rng.normal(size=ROWS) > 2.5).astype(int)
    return pa.table(
        {
            "x": x,
            "rare": rare,
            "flag": rare == 1,
            "kind": np.array(["red", "green", "blue"])[rng.choice(3, ROWS, p=[0.7, 0.27, 0.03])],
            "code": rng.choice(4, ROWS, p=[0.6, 0.3, 0.09, 0.01]),
            "gaps": pa.array([None if row % 9 == 0 else "no" if row % 7 else "yes" for row in range(ROWS)]),
            "share": rng.random(ROWS),
        }
    )


@pytest.fixture
def data(table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for at in range(3):
        pq.write_table(table.slice(at * 700, 700), f"data/{at}.parquet", row_group_size=150)
    return "data"


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return, after a training, which rows were evaluated on."""
    found: list[Any] = []
    find = TableDriver._find_split

    def noted(self: TableDriver, workers: Any) -> Any:
        split = find(self, workers)
        assert split is not None
        found.append(split.picks(np.arange(self.train.rows)))
        return split

    monkeypatch.setattr(TableDriver, "_find_split", noted)
    return found


def train(data: str, label: str = "rare", **settings: Any) -> Any:
    ignore = sorted({"rare", "flag", "kind", "code", "gaps", "share"} - {label})
    common: dict[str, Any] = {"rounds": 2, "workers": 0, "threads": 1, "eval_fraction": 0.2}
    return dray.train(data, label=label, ignore=ignore, **(common | settings))


@pytest.mark.parametrize(
    ("label", "objective"),
    [("rare", None), ("rare", "binary"), ("flag", None), ("kind", None), ("code", "multiclass"), ("gaps", None)],
)
def test_every_class_has_its_share_to_one_row(
    label: str, objective: str | None, data: str, table: pa.Table, held_out: list[Any]
) -> None:
    result = train(data, label, objective=objective, out="run")
    [mask] = held_out
    values = np.array(table[label].to_pylist(), object)
    for value in set(values) - {None}:
        assert abs(mask[values == value].sum() - 0.2 * (values == value).sum()) < 1
    assert not mask[values == None].any()  # noqa: E711
    assert result.eval_rows == mask.sum()
    assert json.loads(Path("run/run.json").read_text())["config"]["stratify"] is True


def test_how_rows_lie_in_files_does_not_matter(data: str, table: pa.Table, held_out: list[Any]) -> None:
    pq.write_table(table, "whole.parquet", row_group_size=10_000)
    pq.write_table(table.set_column(3, "kind", table["kind"].dictionary_encode()), "small.parquet", row_group_size=33)
    digests = {train(where, "kind").model_digest for where in (data, "whole.parquet", "small.parquet")}
    assert len(digests) == 1
    assert (held_out[0] == held_out[1]).all() and (held_out[0] == held_out[2]).all()


@pytest.mark.parametrize(
    ("label", "settings"),
    [
        ("rare", {"stratify": False}),
        ("rare", {"objective": "regression"}),
        ("code", {}),
        ("share", {}),
        ("share", {"objective": "binary"}),
    ],
)
def test_without_it_or_without_classes_the_position_decides(
    label: str, settings: dict[str, Any], data: str, held_out: list[Any]
) -> None:
    train(data, label, **settings)
    assert (held_out[0] == Split(0.2, 0).picks(np.arange(ROWS))).all()


def test_another_split_seed_picks_other_rows(data: str, held_out: list[Any]) -> None:
    for seed in (0, 1):
        train(data, split_seed=seed)
    assert held_out[0].sum() == held_out[1].sum() and (held_out[0] != held_out[1]).any()


def test_a_run_that_goes_on_keeps_the_rows_of_the_first(data: str, held_out: list[Any]) -> None:
    train(data, out="classes")
    train(data, continue_from="classes")
    assert (held_out[0] == held_out[1]).all()
    train(data, stratify=False, out="any")
    train(data, continue_from="any", out="more")
    train(data, continue_from="more")
    assert (held_out[2] == held_out[3]).all() and (held_out[2] == held_out[4]).all()
    assert (held_out[0] != held_out[2]).any()
    with pytest.raises(ConfigError, match="was trained on") as refused:
        train(data, continue_from="classes", stratify=False)
    assert "with eval_fraction=0.2 split_seed=0 stratify;" in refused.value.fix


def test_more_rows_change_the_shares_and_so_are_refused_but_not_without_classes(data: str, table: pa.Table) -> None:
    train(data, out="classes")
    train(data, "share", out="numbers")
    pq.write_table(table, "data/3.parquet")
    with pytest.raises(ConfigError, match="was trained on"):
        train(data, continue_from="classes")
    assert train(data, "share", continue_from="numbers").eval_rows


def test_classes_of_one_row_leave_nothing_to_evaluate_on(data: str) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], "kind": ["a", "b", "c", "d"]}), "four.parquet")
    with pytest.raises(DataError, match="No row went to the evaluation set") as refused:
        dray.train("four.parquet", label="kind", eval_fraction=0.5, workers=0)
    assert "stratify=False takes any rows" in refused.value.fix
    assert dray.train("four.parquet", label="kind", eval_fraction=0.5, workers=0, stratify=False, rounds=1).eval_rows
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0], "kind": ["a", "b", "b"]}), "three.parquet")
    with pytest.raises(DataError) as refused:
        dray.train("three.parquet", label="kind", eval_fraction=0.1, workers=0)
    assert "Use a larger eval_fraction" in refused.value.fix


def test_a_run_of_before_is_read_as_not_stratified(data: str, held_out: list[Any]) -> None:
    train(data, stratify=False, out="run")
    path = Path("run/run.json")
    document = json.loads(path.read_text())
    del document["config"]["stratify"]
    path.write_text(json.dumps(document))
    train(data, continue_from="run")
    assert (held_out[0] == held_out[1]).all()
