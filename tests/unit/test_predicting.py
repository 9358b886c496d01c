"""Batch prediction in one process: what comes out, in which files and in which order."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import datasets
import dray
from dray.errors import ConfigError, DataError, ModelError, StorageError
from dray.events.kinds import Event, Warned
from dray.predicting.predict import predict
from s3_server import S3Server
from small_data import small_batches

TASKS = ("binary", "multiclass", "regression", "ranking")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For each task its data, and a run trained on it."""
    root = tmp_path_factory.mktemp("predicting")
    for task in TASKS:
        data = datasets.write(root / task / "data", getattr(datasets, task)(1200))
        group = {"group": "query"} if task == "ranking" else {}
        dray.train(
            data, label="label", rounds=5, workers=0, ignore=["id", "weight"], out=str(root / task / "run"), **group
        )
    yield root


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def predicted(root: Path, task: str, **settings: Any) -> pa.Table:
    out = Path("out")
    dray.predict(str(root / task / "run"), str(root / task / "data"), str(out), workers=0, **settings)
    table = datasets.read(out)
    shutil.rmtree(out)
    return table


class Collected:
    """A sink that keeps all events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def sample(self, samples: list[Any]) -> None:
        pass

    def close(self) -> None:
        pass

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def layout(directory: Path) -> dict[str, list[int]]:
    files = {str(path.relative_to(directory)): pq.ParquetFile(path).metadata for path in directory.rglob("*.parquet")}
    return {name: [m.row_group(i).num_rows for i in range(m.num_row_groups)] for name, m in files.items()}


def test_files_row_groups_and_order_are_those_of_the_data(root: Path, tmp_path: Path) -> None:
    result = dray.predict(str(root / "binary/run"), str(root / "binary/data"), "out", keep=["id"], workers=0)
    assert layout(tmp_path / "out") == layout(root / "binary/data")
    assert datasets.read("out")["id"].to_pylist() == list(range(1200))
    assert (result.rows, result.files, result.workers) == (1200, 3, 0)
    assert result.output == str(tmp_path / "out")
    assert result.rows_per_second == pytest.approx(1200 / result.seconds, rel=0.1)
    assert result.peak_memory_bytes > 50e6


def test_directories_below_the_data_are_kept(root: Path, tmp_path: Path) -> None:
    for year in ("2025", "2026"):
        shutil.copytree(root / "binary/data", tmp_path / "data" / f"year={year}")
    dray.predict(str(root / "binary/run"), "data", "out", workers=0)
    assert layout(tmp_path / "out") == layout(tmp_path / "data")
    assert len(layout(tmp_path / "out")) == 6


def test_files_without_rows_get_a_file_without_rows(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "binary/data", tmp_path / "data")
    whole = pq.read_table(tmp_path / "data/part-0.parquet")
    for name in ("empty.parquet", "empty-2.parquet"):
        pq.write_table(whole.slice(0, 0), tmp_path / "data" / name)
    result = dray.predict(str(root / "binary/run"), "data", "out", workers=0, keep=["id"])
    assert sorted(path.name for path in (tmp_path / "out").glob("[!.]*")) == sorted(
        path.name for path in (tmp_path / "data").iterdir()
    )
    assert (result.rows, result.files) == (1200, 5)
    for name in ("empty.parquet", "empty-2.parquet"):
        empty, full = (pq.read_table(tmp_path / "out" / file) for file in (name, "part-0.parquet"))
        assert (empty.num_rows, empty.schema) == (0, full.schema)


def test_one_file_goes_to_one_file(root: Path, tmp_path: Path) -> None:
    source = root / "binary/data/part-1.parquet"
    dray.predict(str(root / "binary/run"), str(source), "deep/predictions.parquet", workers=0)
    assert pq.read_metadata("deep/predictions.parquet").num_rows == pq.read_metadata(source).num_rows
    dray.predict(str(root / "binary/run"), str(source), "directory", workers=0)
    assert [file.name for file in (tmp_path / "directory").glob("[!.]*")] == ["part-1.parquet"]


def test_kept_columns_are_copied_as_they_are(root: Path) -> None:
    keep = ["moment", "label", "colour", "shape", "price", "day", "gaps", "flag"]
    table = predicted(root, "binary", keep=keep)
    source = datasets.read(root / "binary/data")
    assert table.column_names == [*keep, "prediction"]
    for name in keep:
        assert table.schema.field(name).type == source.schema.field(name).type
        # As text, because NaN does not equal itself.
        assert list(map(str, table[name].to_pylist())) == list(map(str, source[name].to_pylist()))


def test_a_binary_model_gives_probabilities_classes_and_margins(root: Path) -> None:
    probability, one, margin = (
        predicted(root, "binary", output=output)["prediction"] for output in ("probability", "class", "margin")
    )
    assert [column.type for column in (probability, one, margin)] == [pa.float32(), pa.int32(), pa.float32()]
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-margin.to_numpy())), rtol=1e-5)
    np.testing.assert_array_equal(one, probability.to_numpy() > 0.5)
    truth = datasets.read(root / "binary/data")["label"].to_numpy()
    assert datasets.auc(truth, probability) > 0.85


def test_several_classes_have_their_names(root: Path) -> None:
    names = [f"prediction_{name}" for name in datasets.CLASSES]
    probability = predicted(root, "multiclass")
    margin = predicted(root, "multiclass", output="margin")
    one = predicted(root, "multiclass", output="class")
    assert probability.column_names == margin.column_names == names
    assert one.schema == pa.schema({"prediction": pa.string()})
    table = np.stack([probability[name].to_numpy() for name in names], axis=1)
    np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-5)
    powers = np.exp(np.stack([margin[name].to_numpy() for name in names], axis=1))
    np.testing.assert_allclose(table, powers / powers.sum(axis=1, keepdims=True), rtol=1e-4)
    assert one["prediction"].to_pylist() == [datasets.CLASSES[index] for index in table.argmax(axis=1)]
    truth = datasets.read(root / "multiclass/data")["label"].to_pylist()
    assert np.mean([a == b for a, b in zip(truth, one["prediction"].to_pylist(), strict=True)]) > 0.6


def test_two_classes_with_names_are_predicted_by_name(tmp_path: Path) -> None:
    table = datasets.binary(600)
    names = ["yes" if label else "no" for label in table["label"].to_pylist()]
    data = datasets.write(tmp_path / "data", datasets.replaced(table, label=names))
    run = dray.train(data, label="label", rounds=3, workers=0).directory
    dray.predict(run, data, "class", output="class", workers=0)
    dray.predict(run, data, "probability", workers=0)
    probability = datasets.read("probability")["prediction"].to_numpy()
    assert datasets.read("class")["prediction"].to_pylist() == ["yes" if p > 0.5 else "no" for p in probability]


@pytest.mark.parametrize("task", ["regression", "ranking"])
def test_a_value_is_a_value_whatever_is_asked_for(root: Path, task: str) -> None:
    value, one, margin = (predicted(root, task, output=output) for output in ("probability", "class", "margin"))
    assert value.schema == pa.schema({"prediction": pa.float32()})
    assert value["prediction"].equals(margin["prediction"])
    np.testing.assert_array_equal(value["prediction"], one["prediction"])


@pytest.mark.parametrize("task", ["binary", "regression", "ranking"])
def test_contributions_add_up_to_the_margin(root: Path, task: str) -> None:
    table = predicted(root, task, output="margin", contributions=True)
    names = [f"contribution_{name}" for name in (*datasets.FEATURES, "bias")]
    assert table.column_names == ["prediction", *names]
    total = np.sum([table[name].to_numpy() for name in names], axis=0)
    np.testing.assert_allclose(total, table["prediction"], rtol=1e-3, atol=1e-4)


def test_contributions_are_given_for_every_class(root: Path) -> None:
    table = predicted(root, "multiclass", output="margin", contributions=True)
    for one in datasets.CLASSES:
        names = [f"contribution_{one}_{name}" for name in (*datasets.FEATURES, "bias")]
        total = np.sum([table[name].to_numpy() for name in names], axis=0)
        np.testing.assert_allclose(total, table[f"prediction_{one}"], rtol=1e-3, atol=1e-4)


def predict_changed(root: Path, table: pa.Table) -> dray.PredictResult:
    shutil.rmtree("changed", ignore_errors=True)
    shutil.rmtree("out", ignore_errors=True)
    return dray.predict(
        str(root / "binary/run"), datasets.write(Path("changed"), table, files=1), "out", workers=0, keep=["id"]
    )


def test_columns_are_matched_by_name_and_extra_ones_ignored(root: Path) -> None:
    table = datasets.read(root / "binary/data")
    expected = predicted(root, "binary")["prediction"]
    backwards = table.select(table.column_names[::-1]).drop_columns(["label", "weight"])
    predict_changed(root, backwards.append_column("extra", pa.array(["?"] * 1200)))
    assert datasets.read("out")["prediction"].to_pylist() == expected.to_pylist()


def test_another_width_of_number_is_the_same_number(root: Path) -> None:
    table = datasets.read(root / "binary/data")
    wider = datasets.replaced(
        table,
        whole=table["whole"].cast(pa.float64()).combine_chunks(),
        flag=table["flag"].cast(pa.int8()).combine_chunks(),
        shape=table["shape"].cast(pa.string()).combine_chunks(),
    )
    expected = predicted(root, "binary")["prediction"].to_pylist()
    predict_changed(root, wider)
    assert datasets.read("out")["prediction"].to_pylist() == expected


def test_a_missing_column_is_missing_in_all_rows_and_told(root: Path) -> None:
    table = datasets.read(root / "binary/data")
    table = table.rename_columns([name.replace("colour", "color") for name in table.column_names])
    data, told = datasets.write(Path("changed"), table, files=1), Collected()
    predict(str(root / "binary/run"), data, "out", workers=0, sinks=[told])
    (warning,) = told.of(Warned)
    assert 'has no column "colour"' in warning.message and 'Did you mean "color"' in warning.message
    assert dray.predict(str(root / "binary/run"), data, "again", workers=0).missing_columns == ["colour"]
    nulls = datasets.replaced(datasets.read(root / "binary/data"), colour=pa.nulls(1200))
    renamed = datasets.read("out")["prediction"].to_pylist()
    predict_changed(root, nulls)
    assert datasets.read("out")["prediction"].to_pylist() == renamed


@pytest.mark.parametrize("columns", [["label", "id"], ["one", "gaps", "id"]])
def test_data_without_most_of_the_columns_is_refused(root: Path, tmp_path: Path, columns: list[str]) -> None:
    with pytest.raises(DataError, match=r"does not have .* of the (\d+ )?columns that the model needs") as caught:
        predict_changed(root, datasets.read(root / "binary/data").select(columns))
    assert "without a header" in caught.value.fix
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "values"),
    [("one", ["a"] * 1200), ("day", list(range(1200))), ("flag", ["perhaps"] * 1200), ("one", [[1.0]] * 1200)],
)
def test_values_of_another_kind_are_missing_and_counted(root: Path, column: str, values: list[Any]) -> None:
    table = datasets.read(root / "binary/data")
    result = predict_changed(root, datasets.replaced(table, **{column: values}))
    assert (result.rows, result.unreadable, result.rows_rejected) == (1200, {column: 1200}, 0)
    strange = datasets.read("out")["prediction"].to_pylist()
    predict_changed(root, datasets.replaced(table, **{column: pa.nulls(1200)}))
    assert datasets.read("out")["prediction"].to_pylist() == strange


def test_unseen_categories_count_as_missing_and_are_counted(root: Path) -> None:
    table = datasets.read(root / "binary/data")
    colours = table["colour"].to_pylist()
    new = datasets.replaced(table, colour=["mauve" if colour == "red" else colour for colour in colours])
    missing = datasets.replaced(table, colour=[None if colour == "red" else colour for colour in colours])
    assert predict_changed(root, new).unseen == {"colour": colours.count("red")}
    as_unseen = datasets.read("out")["prediction"].to_pylist()
    assert predict_changed(root, missing).unseen == {}
    assert datasets.read("out")["prediction"].to_pylist() == as_unseen


def test_infinite_numbers_count_as_missing_and_are_counted(root: Path) -> None:
    table = datasets.read(root / "binary/data")
    ones = table["one"].to_pylist()
    largest = float(np.finfo(np.float32).max)
    beyond = [float("inf"), float("-inf"), 1e300, -1e300, largest]
    new = datasets.replaced(table, one=pa.array([*beyond, -largest, *ones[6:]], pa.float64()))
    assert predict_changed(root, new).infinite == {"one": 5}
    as_infinite = datasets.read("out")["prediction"].to_pylist()
    missing = datasets.replaced(table, one=pa.array([*[None] * 5, -largest, *ones[6:]], pa.float64()))
    assert predict_changed(root, missing).infinite == {}
    assert datasets.read("out")["prediction"].to_pylist() == as_infinite


def test_infinite_numbers_are_counted_over_batches_and_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 50)
    table = datasets.replaced(datasets.read(root / "binary/data"), one=[float("inf")] * 1200)
    data = datasets.write(Path("changed"), table)
    result = dray.predict(str(root / "binary/run"), data, "out", workers=0)
    assert result.infinite == {"one": 1200} and result.unseen == {}


def test_contributions_of_infinite_numbers_add_up_too(root: Path) -> None:
    table = datasets.read(root / "regression/data")
    data = datasets.write(Path("changed"), datasets.replaced(table, one=[float("inf"), *table["one"].to_pylist()[1:]]))
    dray.predict(str(root / "regression/run"), data, "out", output="margin", contributions=True, workers=0)
    written = datasets.read("out")
    total = np.sum([written[name].to_numpy() for name in written.column_names[1:]], axis=0)
    np.testing.assert_allclose(total, written["prediction"], rtol=1e-3, atol=1e-4)


def test_each_quantile_has_a_column(root: Path, tmp_path: Path) -> None:
    data = str(root / "regression/data")
    alphas = {"quantile_alpha": [0.1, 0.5, 0.95]}
    run = dray.train(
        data, label="label", objective="reg:quantileerror", ignore=["id", "weight"], rounds=5, params=alphas, workers=0
    )
    names = ["prediction_q0.1", "prediction_q0.5", "prediction_q0.95"]
    tables = {}
    for output in ("probability", "class", "margin"):
        dray.predict(run.directory, data, output, output=output, contributions=True, workers=0)  # type: ignore[arg-type]
        tables[output] = datasets.read(output)
    assert tables["probability"].column_names[:3] == names
    assert tables["probability"] == tables["class"] == tables["margin"]
    table = tables["margin"]
    for name in names:
        of_features = [f"{name.replace('prediction', 'contribution')}_{one}" for one in (*datasets.FEATURES, "bias")]
        total = np.sum([table[one].to_numpy() for one in of_features], axis=0)
        np.testing.assert_allclose(total, table[name], rtol=1e-3, atol=1e-3)
    label = datasets.read(data)["label"].to_numpy()
    shares = [float(np.mean(label <= table[name].to_numpy())) for name in names]
    assert shares[0] < shares[1] < shares[2]


def test_one_quantile_is_a_prediction_like_any_other(root: Path) -> None:
    data = str(root / "regression/data")
    params = {"quantile_alpha": [0.9]}
    run = dray.train(data, label="label", objective="reg:quantileerror", rounds=2, params=params, workers=0)
    dray.predict(run.directory, data, "out", workers=0)
    assert datasets.read("out").column_names == ["prediction"]


def test_a_softmax_model_gives_classes_margins_and_contributions(root: Path) -> None:
    data = str(root / "multiclass/data")
    run = dray.train(
        data, label="label", objective="multi:softmax", ignore=["id", "weight"], rounds=3, workers=0
    ).directory
    dray.predict(run, data, "classes", output="class", contributions=True, workers=0)
    dray.predict(run, data, "margins", output="margin", workers=0)
    margins = datasets.read("margins")
    assert margins.column_names == [f"prediction_{name}" for name in datasets.CLASSES]
    best = np.stack([margins[name].to_numpy() for name in margins.column_names]).argmax(axis=0)
    table = datasets.read("classes")
    assert table["prediction"].to_pylist() == [datasets.CLASSES[index] for index in best]
    assert f"contribution_{datasets.CLASSES[2]}_bias" in table.column_names


def test_trees_of_several_outputs_have_no_contributions(root: Path, tmp_path: Path) -> None:
    table = datasets.read(root / "multiclass/data").select(["one", "whole", "label"])
    data = datasets.write(tmp_path / "numbers", table)
    params = {"multi_strategy": "multi_output_tree"}
    run = dray.train(data, label="label", rounds=3, params=params, workers=0, out="run").directory
    with pytest.raises(ModelError, match="no contributions"):
        dray.predict(run, data, "out", contributions=True, workers=0)
    dray.predict(run, data, "out", workers=0)
    assert datasets.read("out").column_names == [f"prediction_{name}" for name in datasets.CLASSES]


def test_a_column_of_nulls_is_missing_everywhere(root: Path) -> None:
    table = datasets.replaced(
        datasets.read(root / "binary/data"), **dict.fromkeys(("one", "day", "colour", "flag"), pa.nulls(1200))
    )
    assert predict_changed(root, table).rows == 1200


def test_a_model_file_does_as_well_as_its_run(root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "binary/run/model.ubj", "mine.ubj")
    dray.predict("mine.ubj", str(root / "binary/data"), "out", workers=0)
    assert datasets.read("out")["prediction"].to_pylist() == predicted_again(root).to_pylist()


def predicted_again(root: Path) -> pa.ChunkedArray:
    dray.predict(str(root / "binary/run"), str(root / "binary/data"), "again", workers=0)
    return datasets.read("again")["prediction"]


def test_what_is_no_model_is_refused(root: Path, tmp_path: Path) -> None:
    data = str(root / "binary/data")
    with pytest.raises(ModelError, match="no run or model at nowhere"):
        dray.predict("nowhere", data, "out")
    with pytest.raises(ModelError, match=r"has no run\.json"):
        dray.predict(data, data, "out")
    with pytest.raises(ModelError, match="not an XGBoost model"):
        dray.predict(f"{data}/part-0.parquet", data, "out")
    Path("strange.ubj").write_bytes(native_model())
    with pytest.raises(ModelError, match="not trained by dray"):
        dray.predict("strange.ubj", data, "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["strange.ubj"]


def native_model() -> bytes:
    import xgboost

    booster = xgboost.train({}, xgboost.DMatrix(np.eye(4), label=np.arange(4)), num_boost_round=1)
    return bytes(booster.save_raw("ubj"))


def test_an_output_that_exists_is_not_touched(root: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    with pytest.raises(StorageError, match="exists and is not empty"):
        dray.predict(str(root / "binary/run"), str(root / "binary/data"), "out", workers=0)
    with pytest.raises(StorageError, match="exists"):
        dray.predict(str(root / "binary/run"), str(root / "binary/data/part-0.parquet"), "out/mine", workers=0)
    assert [file.read_text() for file in (tmp_path / "out").iterdir()] == ["precious"]


def test_columns_that_would_stand_twice_are_refused(root: Path, tmp_path: Path) -> None:
    table = datasets.read(root / "binary/data").append_column("prediction", pa.array([0.0] * 1200))
    with pytest.raises(ConfigError, match='two columns "prediction"'):
        dray.predict(
            str(root / "binary/run"),
            datasets.write(tmp_path / "data", table),
            "out",
            keep=["prediction"],
            workers=0,
        )
    with pytest.raises(DataError, match=r'no column "idd" \(keep\).*Did you mean "id"'):
        dray.predict(str(root / "binary/run"), str(root / "binary/data"), "out", keep=["idd"], workers=0)
    assert not (tmp_path / "out").exists()


def test_a_failure_on_the_way_leaves_nothing(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "binary/data", tmp_path / "data")
    file = tmp_path / "data" / "part-2.parquet"
    content = bytearray(file.read_bytes())
    for column in range(9):  # the footer stays as it is
        start = pq.read_metadata(file).row_group(1).column(column).data_page_offset
        content[start : start + 40] = b"\xff" * 40
    file.write_bytes(content)
    (tmp_path / "there").mkdir()
    for out in ("deep/out", "there"):
        with pytest.raises(DataError, match=r"part-2\.parquet"):
            dray.predict(str(root / "binary/run"), "data", out, workers=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "there"]
    assert list((tmp_path / "there").iterdir()) == []
    with pytest.raises(DataError, match=r"part-2\.parquet"):
        dray.predict(str(root / "binary/run"), str(file), "deep/out.parquet", workers=0)
    assert not (tmp_path / "deep").exists()


def test_data_and_predictions_may_be_in_a_bucket(root: Path, s3_server: S3Server) -> None:
    for folder in ("a", "b"):
        shutil.copytree(root / "binary/data", s3_server.directory / "data" / folder)
    shutil.copytree(root / "binary/run", s3_server.directory / "run")
    result = dray.predict(s3_server.url("run"), s3_server.url("data"), s3_server.url("out"), keep=["id"], workers=0)
    assert result.rows == 2400
    assert result.output == s3_server.url("out")
    assert layout(s3_server.directory / "out") == layout(s3_server.directory / "data")
    written = datasets.read(s3_server.directory / "out" / "a")
    assert written["prediction"].to_pylist() == predicted_again(root).to_pylist()
    with pytest.raises(StorageError, match="exists"):
        dray.predict(s3_server.url("run"), s3_server.url("data"), s3_server.url("out"), workers=0)
    one = s3_server.url("one/file.parquet")
    dray.predict(s3_server.url("run"), s3_server.url("data/a/part-0.parquet"), one, workers=0)
    assert (s3_server.directory / "one" / "file.parquet").is_file()


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    columns = {f"x{index}": random.normal(size=40_000).astype(np.float32) for index in range(20)}
    part = pa.table({**columns, "label": columns["x0"] > 0})
    for name, files in (("small", 2), ("large", 20)):
        (tmp_path / name).mkdir()
        for index in range(files):
            pq.write_table(part, tmp_path / name / f"{index:02}.parquet", compression="none", row_group_size=20_000)
    run = dray.train("small", label="label", rounds=2, workers=0).directory
    small, large = (peak_of_predicting(run, name) for name in ("small", "large"))
    # The larger one holds 58 MB more, decoded once.
    assert large - small < 30e6


def peak_of_predicting(run: str, data: str) -> int:
    script = (
        "import sys; from dray.cli.main import main\n"
        "assert main(['predict', *sys.argv[1:], '--quiet', '--workers', '0']) == 0\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    command = [sys.executable, "-c", script, run, data, f"out-{data}"]
    return 1024 * int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
