"""Labels as they are found: missing, with any two values, with names of any type, with values that are new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import xgboost

import dray
from dray.cli.main import main
from dray.errors import DataError, DrayError
from dray.learners.xgboost.result import TrainResult

ROWS = 1200
RANDOM = np.random.default_rng(7)
X = RANDOM.integers(0, 40, ROWS)
"""Few values: any rows of them give the same cuts."""
HIGH = X + RANDOM.integers(0, 10, ROWS) > 24


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, label: Any, **more: Any) -> str:
    pq.write_table(pa.table({"x": X, "z": X % 7, **more, "y": label}), name, row_group_size=100)
    return name


def train(data: Any, out: str = "run", **settings: Any) -> TrainResult:
    asked: dict[str, Any] = {"label": "y", "rounds": 4, "workers": 0, "threads": 1, "out": out} | settings
    result = dray.train(data, **asked)
    assert isinstance(result, TrainResult)
    return result


def predicted(out: str, data: str, **asked: Any) -> pa.Table:
    place = f"{out}-{asked.get('output', 'probability')}.parquet"
    if not Path(place).exists():
        dray.predict(out, data, place, **asked)
    return pq.read_table(place)


def of(low: Any, high: Any) -> list[Any]:
    return [high if row else low for row in HIGH]


# Two values

TWO = {
    "0 and 1": (of(0, 1), 1, pa.int32()),
    "booleans": (of(False, True), True, pa.bool_()),
    "1 and 2": (of(1, 2), 2, pa.int64()),
    "-1 and 1": (pa.array(of(-1, 1), pa.int8()), 1, pa.int8()),
    "floats": (of(1.0, 2.0), 2.0, pa.float64()),
    "yes and no": (of("no", "yes"), "yes", pa.string()),
    "quoted": (of("'-1'", "'1'"), "'1'", pa.string()),
    "pandas' category of numbers": (pa.array(of(1, 2)).dictionary_encode(), 2, pa.int64()),
}


@pytest.mark.parametrize("case", TWO)
def test_any_two_values_are_binary_and_keep_their_names(case: str) -> None:
    label, positive, arrow = TWO[case]
    plain = train(write("plain.parquet", of(0, 1)), "plain", eval_fraction=0.2)
    result = train(write("a.parquet", label), eval_fraction=0.2)
    assert result.objective == "binary:logistic"
    assert result.positive_class == positive and type(result.positive_class) is type(positive)
    assert result.to_json()["positive_class"] == positive
    assert result.model_digest == plain.model_digest and result.metrics == plain.metrics
    classes = predicted("run", "a.parquet", output="class")["prediction"]
    assert classes.type == arrow
    truth = pa.array(label).dictionary_decode() if case.startswith("pandas") else pa.array(label)
    assert np.mean([one == other for one, other in zip(classes.to_pylist(), truth.to_pylist(), strict=True)]) > 0.8
    high = predicted("run", "a.parquet")["prediction"].to_numpy() > 0.5
    assert [value == positive for value in classes.to_pylist()] == high.tolist()
    assert xgboost.Booster(model_file="run/model.ubj").num_boosted_rounds() == 4


def test_the_positive_class_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    write("a.parquet", of("no", "yes"))
    arguments = ["train", "a.parquet", "--label", "y", "--rounds", "2", "--workers", "0", "--out", "r", "--json"]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert 'positive class: "yes"' in said.err
    assert json.loads(said.out)["positive_class"] == "yes"


def test_two_values_with_an_objective_that_was_asked_for() -> None:
    write("a.parquet", of(-1, 1))
    assert train("a.parquet", "one", objective="binary").positive_class == 1
    assert train("a.parquet", "two", objective="regression").positive_class is None
    write("shares.parquet", of(0.25, 0.75))
    assert train("shares.parquet", "three", objective="binary").loaded.label.kind == "number"


def test_two_values_in_csv_and_json() -> None:
    rows = pa.table({"x": X, "y": of(1, 2)})
    pa.csv.write_csv(rows, "a.csv")
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    assert {train(name, f"from-{name}").positive_class for name in ("a.csv", "a.jsonl")} == {2}


# Several classes


@pytest.mark.parametrize("step, first", [(1, 1), (1, 3), (10, -20)])
def test_whole_numbers_are_classes_with_their_names_when_asked_for(step: int, first: int) -> None:
    grade = X // 8
    plain = train(write("plain.parquet", grade), "plain", objective="multiclass", eval_fraction=0.2)
    write("a.parquet", grade * step + first)
    result = train("a.parquet", objective="multiclass", eval_fraction=0.2)
    assert result.model_digest == plain.model_digest and result.metrics == plain.metrics
    names = [f"prediction_{code * step + first}" for code in range(5)]
    assert predicted("run", "a.parquet").column_names == names
    classes = predicted("run", "a.parquet", output="class")["prediction"]
    assert classes.type == pa.int64() and set(classes.to_pylist()) <= {code * step + first for code in range(5)}


@pytest.mark.parametrize("label", [HIGH, np.where(HIGH, "yes", "no"), np.where(HIGH, 7, 3)])
def test_classes_with_names_have_columns_of_these_names_and_no_others(label: Any) -> None:
    pq.write_table(pa.table({"x": X, "y": label}), "data.parquet")
    dray.train("data.parquet", "y", objective="multiclass", rounds=2, params={"num_class": 2}, out="two")
    dray.predict("two", "data.parquet", "two.parquet")
    names = [str(name).lower() for name in np.unique(label)]
    assert pq.read_schema("two.parquet").names == [f"prediction_{name}" for name in names]
    with pytest.raises(DrayError, match="num_class is 3, but the label has 2 classes"):
        dray.train("data.parquet", "y", objective="multiclass", params={"num_class": 3})


def test_whole_numbers_in_order_are_a_regression_that_tells_the_other_word() -> None:
    train(write("a.parquet", X // 8 + 3))
    [reasons] = [event["reasons"] for event in events("run") if event["kind"] == "decided"]
    assert any("whole numbers from 3 to 7" in told and "--objective multiclass" in told for told in reasons)


def events(out: str) -> list[dict[str, Any]]:
    read = (json.loads(line) for line in Path(out, "events.jsonl").read_text().splitlines())
    return [{"kind": event["kind"]} | event | event.get("data", {}) for event in read]


def test_classes_stay_through_a_run_that_goes_on() -> None:
    write("a.parquet", of(1, 2))
    train("a.parquet", "first", rounds=2)
    assert train("a.parquet", "more", rounds=2, continue_from="first").model_digest == train("a.parquet").model_digest
    write("b.parquet", of(1, 3))
    with pytest.raises(DataError, match='"3" is not one of "1", "2"'):
        train("b.parquet", "refused", continue_from="first")


def test_a_session_fits_any_two_values() -> None:
    write("a.parquet", of(1, 2))
    with dray.session("a.parquet", label="y", workers=0, threads=1) as session:
        assert session.fit(rounds=4).model_digest == train("a.parquet").model_digest
        with pytest.raises(DataError, match="its values are classes: 1, 2"):
            session.fit(objective="regression")


# Labels that are not classes, or that training does not know


def test_text_with_almost_as_many_values_as_rows_is_refused_before_it_is_loaded() -> None:
    with pytest.raises(DataError, match="free text or an id"):
        train(write("a.parquet", [f"note {row}" for row in range(ROWS)]))
    with pytest.raises(DataError, match="decimal comma"):
        train(write("b.parquet", [f"{row},5" for row in X.tolist()]))


def test_labels_of_the_evaluation_data_that_training_does_not_know_are_told() -> None:
    write("a.parquet", of("<=50K", ">50K"))
    write("b.parquet", of("<=50K.", ">50K."))
    with pytest.raises(DataError) as raised:
        train("a.parquet", eval="b.parquet")
    assert "1,200 evaluation rows" in raised.value.what
    assert 'is not one of "<=50K", ">50K"' in raised.value.what and '"<=50K."' in raised.value.what


# Missing labels


def gaps(values: Any, missing: Any) -> pa.Array:
    return pa.array(values, mask=np.asarray(missing))


HOLES = RANDOM.random(ROWS) < 0.1
HOLES[200:300] = True
"""A whole row group has no label."""


@pytest.mark.parametrize("kind", ["nulls", "NaN", "text"])
def test_rows_without_a_label_are_left_out_and_counted(kind: str) -> None:
    label = {
        "nulls": gaps(of(0, 1), HOLES),
        "NaN": np.where(HOLES, np.nan, HIGH),
        "text": gaps(of("a", "b"), HOLES).dictionary_encode(),
    }[kind]
    write("a.parquet", label)
    pq.write_table(pq.read_table("a.parquet").filter(pa.array(~HOLES)), "without.parquet", row_group_size=100)
    result, without = train("a.parquet"), train("without.parquet", "without")
    assert result.model_digest == without.model_digest
    assert (result.rows, result.rows_dropped) == (ROWS - HOLES.sum(), HOLES.sum())
    assert result.to_json()["rows_dropped"] == HOLES.sum() and without.rows_dropped == 0
    [told] = [warning for warning in result.warnings if "no value in the label" in warning]
    assert f"{HOLES.sum()} " in told and 'missing_label="error"' in told


def test_a_split_holds_out_the_same_rows_whether_others_have_a_label_or_not() -> None:
    whole = train(write("whole.parquet", of(0, 1)), "whole", eval_fraction=0.25, stratify=False)
    result = train(write("a.parquet", gaps(of(0, 1), HOLES)), eval_fraction=0.25, stratify=False)
    assert result.eval_rows + result.eval_rows_dropped == whole.eval_rows
    assert result.rows + result.rows_dropped == whole.rows
    assert result.rows_dropped + result.eval_rows_dropped == HOLES.sum()


def test_a_share_of_each_class_is_one_of_the_rows_that_have_a_label() -> None:
    result = train(write("a.parquet", gaps(of(0, 1), HOLES)), eval_fraction=0.25)
    assert (result.eval_rows, result.eval_rows_dropped) == (round(0.25 * (ROWS - HOLES.sum())), 0)
    assert result.rows + result.eval_rows + result.rows_dropped == ROWS


def test_evaluation_data_without_some_labels_is_evaluated_on_the_others() -> None:
    write("a.parquet", of(0, 1))
    write("b.parquet", gaps(of(0, 1), HOLES))
    result = train("a.parquet", eval="b.parquet")
    assert (result.eval_rows, result.eval_rows_dropped, result.rows_dropped) == (ROWS - HOLES.sum(), HOLES.sum(), 0)


@pytest.mark.parametrize("label", [[None] * ROWS, [float("nan")] * ROWS])
def test_evaluation_data_without_any_label_says_so(label: Any) -> None:
    evaluation = write("eval.parquet", pa.array(label, pa.float64()))
    with pytest.raises(DataError, match="nothing to evaluate on"):
        train(write("train.parquet", of(0.0, 1.0)), eval=evaluation)


def test_a_label_that_float32_makes_one_value_says_so() -> None:
    with pytest.raises(DataError, match="in every row as float32"):
        train(write("train.parquet", 2**60 + X))


def test_missing_labels_are_refused_on_request_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    write("a.parquet", gaps(of(0, 1), HOLES))
    with monkeypatch.context() as patch:
        patch.setattr("dray.learners.xgboost.worker.Worker.load", None)
        with pytest.raises(DataError, match=f"{HOLES.sum()} of 1,200 rows have no value") as raised:
            train("a.parquet", missing_label="error")
    assert 'missing_label="drop"' in raised.value.fix
    write("b.parquet", np.where(HOLES, np.nan, HIGH))
    with pytest.raises(DataError, match=f"{HOLES.sum()} of 1,200 rows have no value"):
        train("b.parquet", missing_label="error")


@pytest.mark.parametrize("label", [pa.nulls(ROWS, pa.int64()), np.full(ROWS, np.nan), pa.nulls(ROWS, pa.string())])
def test_a_label_that_is_missing_in_all_rows_is_refused(label: Any) -> None:
    with pytest.raises(DataError, match="label"):
        train(write("a.parquet", label))


def test_data_of_which_no_row_is_left_to_train_on_is_refused() -> None:
    with pytest.raises(DataError, match="No row is left to train on") as raised:
        train(write("a.parquet", of(0, 1)), eval_fraction=1 - 1e-9, stratify=False)
    assert "smaller eval_fraction" in raised.value.fix


def test_an_infinite_label_is_still_an_error() -> None:
    values = HIGH.astype(float)
    values[3] = np.inf
    values[4] = np.nan
    with pytest.raises(DataError, match="infinite"):
        train(write("a.parquet", values))


def test_a_row_without_relevance_leaves_its_group() -> None:
    query = np.arange(ROWS) // 6
    holes = HOLES | (np.arange(ROWS) % 6 == 0)
    write("a.parquet", gaps(X // 14, holes), query=query)
    pq.write_table(pq.read_table("a.parquet").filter(pa.array(~holes)), "without.parquet", row_group_size=100)
    asked = {"group": "query", "objective": "ranking"}
    result, without = train("a.parquet", **asked), train("without.parquet", "without", **asked)
    assert result.model_digest == without.model_digest
    assert result.rows_dropped == holes.sum()


def test_rows_are_chosen_by_position_where_some_have_no_label() -> None:
    chosen = np.arange(ROWS) % 3 != 0
    write("a.parquet", gaps(of(0, 1), HOLES))
    write("b.parquet", gaps(of(0, 1), HOLES | ~chosen))
    with dray.session("a.parquet", label="y", workers=0, threads=1) as session:
        assert session.fit(rows=chosen, rounds=4).model_digest == train("b.parquet").model_digest


# Whole numbers beyond float32

IDS = 2_053_013_552_226_107_603 + 31 * np.arange(60)


@pytest.mark.parametrize("arrow", [pa.int64(), pa.uint64(), pa.decimal128(20, 0)])
def test_ids_that_float32_cannot_tell_apart_are_a_category(arrow: pa.DataType) -> None:
    random = np.random.default_rng(3)
    place, good = random.integers(0, 60, ROWS), random.random(60) < 0.5
    ids = pa.array(IDS[place]).cast(arrow)
    write("a.parquet", good[place].astype(int), id=ids)
    result = train("a.parquet", rounds=10, eval_fraction=0.2)
    assert result.metrics["eval-auc"] > 0.9
    [told] = [warning for warning in result.warnings if '"id"' in warning]
    assert "category" in told and "float32 tells apart 1" in told
    answer = predicted("run", "a.parquet", output="class")["prediction"].to_numpy()
    assert (answer == good[place]).mean() > 0.9
    more = train("a.parquet", "more", rounds=2, continue_from="run")
    assert not [warning for warning in more.warnings if '"id"' in warning]


def test_small_whole_numbers_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.learners.whole_scan.scan_wholes", None)
    monkeypatch.setattr("dray.learners.label_scan.scan_label", None)
    assert train(write("a.parquet", of(0, 1))).rows == ROWS
