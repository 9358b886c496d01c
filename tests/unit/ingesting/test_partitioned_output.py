"""What --partition-by writes: read back by pyarrow, pandas, polars and dray, the same rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import dray
from dray.data.open_source import open_source
from dray.errors import ConfigError, DataError
from dray.ingesting.ingest import ingest
from dray.ingesting.recipe import HashSplit, Recipe


def written(table: pa.Table, out: Path, *by: str, **recipe: Any) -> str:
    ingest(open_source(table), str(out), Recipe(partition_by=by, **recipe))
    return str(out)


def by_row(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({name: row[name] for name in sorted(row)} for row in rows), key=lambda row: row["row"])


def of_dray(out: str) -> list[dict[str, Any]]:
    source = open_source(out)
    batches = [batch for piece in source.pieces() for batch in source.read(piece, None, lambda _: None)]
    return by_row([row for batch in batches for row in batch.to_pylist()])


TABLE = pa.table(
    {
        "g": [1, 2, 1, -3, 2, 1],
        "row": [0, 1, 2, 3, 4, 5],
        "the name": ["a/b", "ü", "a/b", "50 %", "", "x=y"],
        "x": [0.5, None, 1.5, 2.5, 3.5, 4.5],
    }
)


def test_others_read_the_same_rows(tmp_path: Path) -> None:
    out = written(TABLE, tmp_path / "out", "g", "the name")
    expected = by_row(TABLE.to_pylist())
    assert by_row(ds.dataset(out, format="parquet", partitioning="hive").to_table().to_pylist()) == expected
    assert by_row(pq.read_table(out).to_pylist()) == expected
    assert by_row(pl.read_parquet(f"{out}/**/*.parquet", hive_partitioning=True).to_dicts()) == expected
    assert of_dray(out) == expected
    frame = pd.read_parquet(out).astype({"g": "int64", "the name": "str"}).sort_values("row").reset_index(drop=True)
    pd.testing.assert_frame_equal(frame[TABLE.column_names], TABLE.to_pandas(), check_dtype=False)


def test_the_column_of_a_directory_is_not_in_the_files_again(tmp_path: Path) -> None:
    out = written(TABLE, tmp_path / "out", "g")
    for file in Path(out).rglob("*.parquet"):
        assert pq.read_schema(file).names == ["row", "the name", "x"]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, -2, None], pa.int8()),
        pa.array([1, 2**64 - 1, None], pa.uint64()),
        pa.array(["01", "1", None]),
        pa.array(["1", "2", "3"]),
        pa.array(["", "__HIVE_DEFAULT_PARTITION__", None], pa.large_string()),
        pa.array([True, False, None]),
        pa.array([0.1, float("nan"), None], pa.float32()),
        pa.array([0.1, 1e300, None]),
        pa.array([Decimal("1.50"), Decimal("-2.00"), None], pa.decimal128(9, 2)),
        pa.array([dt.date(2024, 1, 1), dt.date(1969, 12, 31), None]),
        pa.array([1, 10**18, None], pa.timestamp("ns")),
        pa.array([dt.datetime(2024, 1, 1, 12, 30), dt.datetime(2024, 1, 2, 0, 0, 0, 5), None], pa.timestamp("us")),
        pa.array([0, 1_720_000_000, None], pa.timestamp("s", "Europe/Berlin")),
        pa.array([0, 1_720_000_000_000_000, None], pa.timestamp("us", "UTC")),
        pa.array([5, 7, None]).dictionary_encode(),
        pa.array(["b", "a", None]).dictionary_encode(),
        pa.nulls(3),
    ],
    ids=lambda values: str(values.type),
)
def test_dray_reads_back_what_the_column_was(values: pa.Array, tmp_path: Path) -> None:
    table = pa.table({"v": values, "row": [0, 1, 2]})
    out = written(table, tmp_path / "out", "v")
    found, expected = of_dray(out), by_row(table.to_pylist())
    assert str(found) == str(expected)  # NaN is not itself
    type_ = open_source(out).schema.field("v").type
    kept = {pa.null(): pa.string()}.get(values.type, values.type)
    assert type_ == kept


@pytest.mark.parametrize(
    "values",
    [
        pa.array([b"a", b"b"]),
        pa.array([[1], [2]]),
        pa.array([1, 2], pa.duration("s")),
        pa.array([dt.time(1, 2, 3), dt.time(23, 59)]),
    ],
    ids=lambda values: str(values.type),
)
def test_what_no_directory_can_tell_is_refused(values: pa.Array, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be the name of a directory") as caught:
        written(pa.table({"v": values, "row": [0, 1]}), tmp_path / "out", "v")
    assert "text, numbers or dates" in caught.value.fix
    assert not (tmp_path / "out").exists()


def test_a_column_is_left_for_the_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none is left for the files"):
        written(TABLE.select(["g", "row"]), tmp_path / "out", "g", "row")


def test_parts_and_directories_go_together_and_the_split_is_that_of_all_columns(tmp_path: Path) -> None:
    table = pa.table({"g": [i % 3 for i in range(300)], "row": list(range(300))})
    split = HashSplit(share=0.3)
    out = written(table, tmp_path / "out", "g", split=split)
    plain = str(tmp_path / "plain")
    ingest(open_source(table), plain, Recipe(split=split))
    for part in ("train", "test"):
        assert of_dray(f"{out}/{part}") == of_dray(f"{plain}/{part}")


def test_what_is_partitioned_again_keeps_its_rows(tmp_path: Path) -> None:
    out = written(TABLE, tmp_path / "out", "g")
    again = str(tmp_path / "again")
    ingest(open_source(out), again, Recipe(filter="g > 0", partition_by=("the name",)))
    assert of_dray(again) == [row for row in by_row(TABLE.to_pylist()) if row["g"] > 0]


def test_output_of_an_earlier_version_with_the_column_in_the_files_is_read(tmp_path: Path) -> None:
    for g in (1, 2):
        (tmp_path / "out" / f"g={g}").mkdir(parents=True)
        pq.write_table(TABLE.filter(pa.compute.equal(TABLE["g"], g)), tmp_path / "out" / f"g={g}" / "p.parquet")
    assert of_dray(str(tmp_path / "out")) == [row for row in by_row(TABLE.to_pylist()) if row["g"] > 0]
    (tmp_path / "times" / "t=01:02:03").mkdir(parents=True)
    times = pa.table({"t": [dt.time(1, 2, 3)], "row": [0]})
    pq.write_table(times, tmp_path / "times" / "t=01:02:03" / "p.parquet")
    assert of_dray(str(tmp_path / "times")) == [{"row": 0, "t": dt.time(1, 2, 3)}]


def test_a_model_is_the_same_on_partitioned_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = 400
    table = pa.table(
        {"day": [dt.date(2024, 1, 1 + i % 4) for i in range(rows)], "y": [float(i % 4) for i in range(rows)]}
    ).append_column("row", pa.array(range(rows)))
    out = written(table, tmp_path / "out", "day")
    dray.train(out, label="y", ignore=["row"], out=str(tmp_path / "run"), workers=0, rounds=30)
    model = dray.load(str(tmp_path / "run"))
    assert [(f.name, f.kind) for f in model.features] == [("day", "date")]  # type: ignore[union-attr]
    pq.write_table(table, tmp_path / "plain.parquet")
    dray.predict(str(tmp_path / "run"), str(tmp_path / "plain.parquet"), str(tmp_path / "p.parquet"), workers=0)
    found = pq.read_table(tmp_path / "p.parquet")["prediction"].to_pylist()
    assert [round(value) for value in found] == table["y"].to_pylist()
