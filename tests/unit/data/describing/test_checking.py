"""What a training is told of its data before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dray
from dray.data.describing import checking
from dray.data.describing.checking import check
from dray.data.parquet import Dataset
from dray.data.split import Split
from small_data import opened, write

ROWS = 3000


def columns(rows: int = ROWS) -> dict[str, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=rows)
    return {"x": x, "z": random.normal(size=rows), "y": (x + random.normal(size=rows) > 0).astype(np.int64)}


def told(data: Dataset, split: Split | None = None, evaluation: Dataset | None = None) -> dict[str, str]:
    features = [name for name in data.schema.names if name != "y"]
    return {note.what: note.fix for note in check(data, evaluation, features, "y").notes(split)}


def test_columns_that_help_nobody_are_named_with_the_flag_that_leaves_them_out(tmp_path: Path) -> None:
    made = columns() | {"row": np.arange(ROWS), "same": np.ones(ROWS), "the same": ["a"] * ROWS, "none": [None] * ROWS}
    assert told(opened(write(tmp_path / "a.parquet", made))) == {
        'Column "none" holds no value.': "Leave it out: --ignore none",
        'Columns "same", "the same" hold one value only.': "Leave them out: --ignore same --ignore 'the same'",
        'Column "row" looks like an id, which a model memorizes.': "Leave it out: --ignore row",
    }


def test_a_column_that_alone_predicts_the_label_is_named(tmp_path: Path) -> None:
    made = columns()
    found = told(opened(write(tmp_path / "a.parquet", made | {"later": made["y"] * 3.0 + made["z"] / 100})))
    assert found == {
        'Column "later" alone predicts "y" (AUC 1.000).':
            "If it is known only after the label, leave it out: --ignore later"
    }  # fmt: skip


def test_many_numbers_kept_as_text_are_told_but_not_a_few_codes(tmp_path: Path) -> None:
    made = columns()
    made |= {"price": [f"{value:.1f}" for value in made["z"] * 100], "zone": [str(i % 9) for i in range(ROWS)]}
    [what] = told(opened(write(tmp_path / "a.parquet", made)))
    assert what.startswith('Column "price": numbers kept as text')


def test_evaluation_rows_that_training_has_are_counted_whatever_their_id(tmp_path: Path) -> None:
    made = {name: np.tile(values[: ROWS // 2], 2) for name, values in columns().items()} | {"row": np.arange(ROWS)}
    found = told(opened(write(tmp_path / "a.parquet", made)), Split(0.2, 0))
    [what] = [what for what in found if "evaluation rows equal a training row" in what]
    assert found[what].endswith("--dedup all")
    assert not list(told(opened(write(tmp_path / "b.parquet", columns())), Split(0.2, 0)))


def test_evaluation_data_of_its_own_is_compared_too(tmp_path: Path) -> None:
    train = opened(write(tmp_path / "a.parquet", columns()))
    same = opened(write(tmp_path / "b.parquet", {name: values[:200] for name, values in columns().items()}))
    [(what, fix)] = told(train, evaluation=same).items()
    assert what.startswith("200 of 200 evaluation rows equal")
    assert fix == "Leave these rows out of the training data or of the evaluation data."  # of one file they are not


def test_rows_without_a_label_equal_none(tmp_path: Path) -> None:
    made = {name: values[:200] for name, values in columns().items()} | {"y": [None] * 100 + [1] * 100}
    train = opened(write(tmp_path / "a.parquet", columns()))
    [what] = told(train, evaluation=opened(write(tmp_path / "b.parquet", made)))
    assert what.startswith("100 of 100 evaluation rows equal")


def test_of_large_data_the_rows_that_were_looked_at_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "ROWS", 1000)
    train = opened(write(tmp_path / "a.parquet", columns()))
    same = opened(write(tmp_path / "b.parquet", {name: values[:200] for name, values in columns().items()}))
    [what] = told(train, evaluation=same)
    assert what.startswith("200 of 200 evaluation rows that were looked at equal")


@pytest.mark.parametrize(
    "held_out",
    [{"eval_fraction": 0.2}, {"eval_by": "t", "eval_fraction": 0.2}, {"eval_by": "t", "eval_from": "2000"}],
)
def test_the_rows_that_are_evaluated_on_are_the_ones_compared(tmp_path: Path, held_out: dict[str, Any]) -> None:
    made = {name: np.tile(values[:1500], 2) for name, values in columns().items()} | {"t": np.arange(ROWS)}
    result = dray.train(write(tmp_path / "a.parquet", made), "y", rounds=2, out=str(tmp_path / "run"), **held_out)
    [told] = [warning for warning in result.warnings if "evaluation rows equal" in warning]
    assert f"of {result.eval_rows:,} evaluation rows equal" in told


def test_groups_that_stay_together_have_no_rows_in_both(tmp_path: Path) -> None:
    made = {name: np.tile(values[:1500], 2) for name, values in columns().items()} | {"g": np.tile(np.arange(1500), 2)}
    data = write(tmp_path / "a.parquet", made)
    result = dray.train(data, "y", rounds=2, out=str(tmp_path / "run"), eval_fraction=0.2, split_by="g")
    assert not [warning for warning in result.warnings if "evaluation rows equal" in warning]


@pytest.mark.parametrize("row_group_rows", [1_000_000, 37])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_ranking_group_is_evaluated_on_as_a_whole_and_so_are_its_rows_compared(
    tmp_path: Path, row_group_rows: int, share: float
) -> None:
    made = {name: np.repeat(values[:1500], 2) for name, values in columns().items()}  # twins are next to each other
    groups = {"q": np.repeat([f"q{number}" for number in range(150)], 20)}
    how: Any = {"label": "y", "group": "q", "objective": "rank:ndcg", "rounds": 2, "workers": 0, "eval_fraction": share}
    result = dray.train(write(tmp_path / "a", made | groups, row_group_rows), **how, out=str(tmp_path / "run"))
    assert not [warning for warning in result.warnings if "evaluation rows equal" in warning]
    far = {name: np.tile(values[:1500], 2) for name, values in columns().items()}  # twins are in other groups
    result = dray.train(write(tmp_path / "b", far | groups, row_group_rows), **how, out=str(tmp_path / "other"))
    [told] = [warning for warning in result.warnings if "evaluation rows equal" in warning]
    assert f"of {result.eval_rows:,} evaluation rows equal" in told


def test_a_group_that_may_begin_before_the_rows_that_are_read_is_left_out() -> None:
    positions = np.array([0, 1, 2, 10, 11, 12, 13, 20, 21])
    groups = pa.chunked_array([["a", "a", "b", "b"], ["b", "c", "c", "c", "d"]])
    assert checking.group_starts(groups, positions).tolist() == [0, 0, 2, -1, -1, 12, 12, -1, 21]


def test_rows_of_few_values_are_alike_by_chance(tmp_path: Path) -> None:
    made = {"a": np.arange(ROWS) % 3, "b": np.arange(ROWS) % 5, "y": np.arange(ROWS) % 2}
    assert not told(opened(write(tmp_path / "a.parquet", made)), Split(0.2, 0))


def test_of_large_data_a_few_rows_are_read_and_the_footers_tell_a_rare_value_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "ROWS", 400)
    monkeypatch.setattr(checking, "LEAST_ROWS", 400)
    rare = np.zeros(ROWS)
    rare[500] = 1  # in none of the rows that are read
    made = columns() | {"rare": rare, "same": np.ones(ROWS), "none": np.full(ROWS, None), "text": ["a"] * ROWS}
    data = opened(write(tmp_path / "a.parquet", made, 500))
    rows, positions = checking.take_rows(data, ["x"])
    assert rows.num_rows == len(positions) == 400
    assert rows["x"].to_pylist() == made["x"][positions].tolist()
    assert list(told(data)) == ['Column "none" holds no value.', 'Column "same" holds one value only.']


def test_more_columns_than_fit_a_line_are_counted(tmp_path: Path) -> None:
    made = columns() | {f"same{i}": np.ones(ROWS) for i in range(8)}
    [(what, fix)] = told(opened(write(tmp_path / "a.parquet", made))).items()
    assert "and 3 more hold one value only" in what
    assert fix.endswith("...; dray data describe DATA --label y names all")


def test_a_run_tells_it_once_in_its_events_and_its_result(tmp_path: Path) -> None:
    data = write(tmp_path / "a.parquet", columns() | {"row": np.arange(ROWS)})
    result = dray.train(data, "y", rounds=2, out=str(tmp_path / "run"))
    assert len([warning for warning in result.warnings if '"row" looks like an id' in warning]) == 1
    events = (tmp_path / "run" / "events.jsonl").read_text()
    assert events.count("looks like an id") == 2  # as a warning, and in the result


def test_what_cannot_be_looked_at_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(checking, "check", broken)
    result = dray.train(write(tmp_path / "a.parquet", columns()), "y", rounds=2, out=str(tmp_path / "run"))
    assert "The columns could not be checked before training: broken" in result.warnings


@pytest.mark.filterwarnings("error")
def test_ids_that_pandas_made_doubles_are_told_where_float32_joins_them(tmp_path: Path) -> None:
    numbers = np.arange(ROWS) % 300
    made = columns() | {
        "big id": np.where(numbers == 7, np.nan, numbers + 2.0**40),
        "small id": numbers * 1.0,
        "every second": numbers * 2.0 + 2**24,
        "amount": numbers + 2**40 + 0.5,
        "empty": np.full(ROWS, np.nan),
        "beyond": (numbers + 1) * 1e305,
    }
    made["infinite"] = np.where(numbers == 7, np.inf, numbers)
    found = told(opened(write(tmp_path / "a.parquet", made)))
    [what] = [what for what in found if "float32" in what]
    assert what.startswith('Column "big id" is a double, but holds whole numbers: of 299 different ones')
    assert what.endswith("tells apart 1.")
    assert found[what].endswith("leave it out: --ignore 'big id'.")
