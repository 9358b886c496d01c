"""Training and predicting on what is not Parquet: through a copy in the cache, to the same model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import datasets
import dray
from dray.errors import ConfigError, DataError
from dray.runs.directory import open_run

COLUMNS = ["one", "gaps", "whole", "colour", "label"]
ROWS = 1500


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return datasets.binary(ROWS).select(COLUMNS)


@pytest.fixture(scope="module")
def expected(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the model on Parquet."""
    root = tmp_path_factory.mktemp("parquet")
    pq.write_table(table, root / "all.parquet", row_group_size=200)
    return train(str(root / "all.parquet"), root / "run").model_digest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dray"


def train(data: Any, out: Path | str = "run", **settings: Any) -> dray.TrainResult:
    return dray.train(data, label="label", rounds=4, workers=0, threads=1, out=str(out), **settings)


def events(run: str, kind: str) -> list[dict[str, Any]]:
    lines = (Path(run) / "events.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def write_csv(table: pa.Table, path: Path) -> str:
    pyarrow.csv.write_csv(table, path)
    return str(path)


def write_json(table: pa.Table, path: Path) -> str:
    # Missing values by their name: without it the columns would stand in another order, and the model would differ.
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), encoding="utf-8")
    return str(path)


def write_arrow(table: pa.Table, path: Path) -> str:
    pyarrow.feather.write_feather(table, path)
    return str(path)


def write_delta(table: pa.Table, path: Path) -> str:
    import deltalake

    deltalake.write_deltalake(str(path), table)
    return str(path)


@pytest.mark.parametrize(
    ("write", "name"),
    [(write_csv, "rows.csv"), (write_json, "rows.jsonl"), (write_arrow, "rows.feather"), (write_delta, "rows")],
)
def test_the_model_is_the_one_of_parquet(write: Any, name: str, table: pa.Table, expected: str, tmp_path: Path) -> None:
    result = train(write(table, tmp_path / name))
    assert result.model_digest == expected
    copied = events("run", "copied")
    assert [(event["made"], event["rows"]) for event in copied] == [(True, ROWS)]
    assert result.seconds.copy > 0
    assert result.seconds.start >= 0


@pytest.mark.parametrize(
    "frame", [lambda table: table, lambda table: table.to_pandas(), pl.from_arrow], ids=["arrow", "pandas", "polars"]
)
def test_tables_of_python_train_too(frame: Any, table: pa.Table, expected: str) -> None:
    assert train(frame(table)).model_digest == expected


def test_a_function_that_connects_is_read_by_its_query(table: pa.Table, expected: str, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "rows.db"
    frame: pd.DataFrame = table.to_pandas()
    with sqlite3.connect(path) as connection:
        frame.to_sql("rows", connection, index=False)

    def connect() -> Any:
        import sqlite3

        return sqlite3.connect(path)

    types = {"one": "double", "gaps": "double"}
    assert train(connect, read={"query": "select * from rows", "types": types}).model_digest == expected


def test_a_second_run_uses_the_copy_and_says_so(table: pa.Table, cache: Path, tmp_path: Path) -> None:
    data = write_csv(table, tmp_path / "rows.csv")
    train(data, "first")
    train(data, "second")
    assert [event["made"] for run in ("first", "second") for event in events(run, "copied")] == [True, False]
    assert len(list(cache.iterdir())) == 1


def test_data_that_changed_is_copied_anew(table: pa.Table, cache: Path, tmp_path: Path) -> None:
    train(write_csv(table, tmp_path / "rows.csv"), "first")
    result = train(write_csv(table.slice(0, 1000), tmp_path / "rows.csv"), "second")
    assert events("second", "copied")[0]["rows"] == 1000 == result.rows
    assert len(list(cache.iterdir())) == 2


def test_how_it_is_read_is_part_of_what_a_copy_is(table: pa.Table, tmp_path: Path) -> None:
    options = pyarrow.csv.WriteOptions(delimiter=";")
    pyarrow.csv.write_csv(table, tmp_path / "rows.txt", options)
    result = train(str(tmp_path / "rows.txt"), format="csv", read={"delimiter": ";"})
    assert result.rows == ROWS
    assert open_run("run").document["config"]["read"] == {"delimiter": ";"}


def test_a_wrong_label_is_refused_before_anything_is_copied(table: pa.Table, cache: Path, tmp_path: Path) -> None:
    data = write_csv(table, tmp_path / "rows.csv")
    with pytest.raises(DataError, match='"labl"'):
        dray.train(data, label="labl", workers=0)
    assert not cache.exists()


def test_rows_that_cannot_be_read_are_told_each_time(table: pa.Table, tmp_path: Path) -> None:
    data = Path(write_csv(table, tmp_path / "rows.csv"))
    with data.open("a", encoding="utf-8") as file:
        file.write("1,2\n")
    first, second = train(str(data), "first"), train(str(data), "second")
    assert first.rows == second.rows == ROWS
    assert any("rows.csv, line 1,502: 2 fields instead of 5" in warning for warning in first.warnings)
    assert any("_rejects.jsonl" in warning for warning in second.warnings)


def test_a_resumed_run_finds_its_copy_again(table: pa.Table, expected: str, tmp_path: Path) -> None:
    data = write_csv(table, tmp_path / "rows.csv")
    whole = train(data, "whole")
    document = json.loads(Path("whole/run.json").read_text(encoding="utf-8"))
    document["status"], document["result"] = "failed", None
    Path("whole/run.json").write_text(json.dumps(document), encoding="utf-8")
    assert dray.resume("whole").model_digest == whole.model_digest == expected


def test_evaluation_data_is_copied_as_well(table: pa.Table, tmp_path: Path) -> None:
    data = write_csv(table, tmp_path / "rows.csv")
    held = write_csv(table.slice(0, 300), tmp_path / "held.csv")
    result = train(data, eval=[held])
    assert [event["rows"] for event in events("run", "copied")] == [ROWS, 300]
    assert any(name.startswith("eval-") for name in result.metrics)


def test_predictions_for_csv_are_those_for_parquet(table: pa.Table, tmp_path: Path) -> None:
    run = train(write_csv(table, tmp_path / "rows.csv")).directory
    pq.write_table(table, tmp_path / "rows.parquet")
    dray.predict(run, str(tmp_path / "rows.csv"), "from_csv", workers=0, keep=["whole"])
    dray.predict(run, str(tmp_path / "rows.parquet"), "from_parquet", workers=0, keep=["whole"])
    assert datasets.read("from_csv").to_pydict() == datasets.read("from_parquet").to_pydict()
    dray.predict(run, table.to_pandas(), "from_pandas", workers=0, keep=["whole"])
    assert datasets.read("from_pandas").num_rows == ROWS


def test_predicting_copies_nothing(table: pa.Table, cache: Path, tmp_path: Path) -> None:
    run = train(table).directory
    copies = set(cache.iterdir())
    data = write_csv(table.drop_columns(["colour"]), tmp_path / "less.csv")
    assert dray.predict(run, data, "out", workers=0).rows == ROWS
    assert set(cache.iterdir()) == copies


def test_a_password_in_the_data_is_refused_and_written_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds a password") as refused:
        train("postgresql://me:hunter2@host/db", read={"table": "rows"})
    assert "hunter2" not in str(refused.value)
    assert not list(tmp_path.rglob("run.json"))


def test_old_copies_go_when_a_new_one_is_made(table: pa.Table, cache: Path, tmp_path: Path) -> None:
    import os

    train(write_csv(table, tmp_path / "old.csv"), "first")
    os.utime(next(cache.glob("*/_ingest.json")), (0, 0))
    train(write_csv(table, tmp_path / "new.csv"), "second")
    assert len(list(cache.iterdir())) == 1
