"""Columns in the names of directories: which names count, what they mean, and that nothing of them is lost."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import dray
from dray.data.describe import describe
from dray.data.open_source import open_source
from dray.data.parquet import open_dataset
from dray.data.parquet_rows import read_slices
from dray.data.partitions import constants_of, kept_types, partitions_of
from dray.errors import DataError
from dray.storage import DEFAULT
from s3_server import S3Server


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_parquet(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def write_csv(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, row.values())) for row in table.to_pylist()]
    path.write_text("\n".join([",".join(table.column_names), *lines, ""]), encoding="utf-8")


def write_json(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), encoding="utf-8")


def write_arrow(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    feather.write_feather(table, path)


WRITERS = {"parquet": write_parquet, "csv": write_csv, "jsonl": write_json, "arrow": write_arrow}


def rows(source: Any, columns: list[str] | None = None) -> list[dict[str, Any]]:
    opened = open_source(source)
    opened = pickle.loads(pickle.dumps(opened))  # as a worker gets it
    found = []
    for piece in opened.pieces():
        for batch in opened.read(piece, columns, lambda reject: pytest.fail(str(reject))):
            expected = [opened.schema.field(name) for name in columns or opened.schema.names]
            assert batch.schema.equals(pa.schema(expected))
            found += batch.to_pylist()
    return found


def parts(locations: list[str], files: list[str]) -> list[dict[str, str | None]]:
    return [dict(found) for found in partitions_of(locations, files)]


@pytest.mark.parametrize("ending", WRITERS)
def test_a_directory_is_a_column_in_every_format(ending: str, tmp_path: Path) -> None:
    for g, x in ((1, 10), (2, 20)):
        WRITERS[ending](tmp_path / "d" / f"g={g}" / "h=a%2Fb" / f"p.{ending}", pa.table({"x": [x, x + 1]}))
    expected = [{"x": x, "g": g, "h": "a/b"} for g, x in ((1, 10), (1, 11), (2, 20), (2, 21))]
    assert rows(str(tmp_path / "d")) == expected
    assert rows(str(tmp_path / "d"), ["g"]) == [{"g": row["g"]} for row in expected]
    assert rows(str(tmp_path / "d"), ["h", "x"]) == [{"h": row["h"], "x": row["x"]} for row in expected]
    assert open_source(str(tmp_path / "d")).schema.field("g").type == pa.int64()


@pytest.mark.parametrize(
    ("texts", "type_", "values"),
    [
        (["1", "-2"], pa.int64(), [1, -2]),
        (["01", "12"], pa.int64(), [1, 12]),
        (["01", "1"], pa.string(), ["01", "1"]),
        (["1", "x"], pa.string(), ["1", "x"]),
        (["1", "1.5"], pa.string(), ["1", "1.5"]),
        (["9223372036854775807", "1"], pa.int64(), [2**63 - 1, 1]),
        (["9223372036854775808", "1"], pa.string(), ["9223372036854775808", "1"]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], pa.int64(), [1, None]),
        (["__HIVE_DEFAULT_PARTITION__"], pa.string(), [None]),
        (["%5F_HIVE_DEFAULT_PARTITION__"], pa.string(), ["__HIVE_DEFAULT_PARTITION__"]),
        (["", "a b", "c%20d=e"], pa.string(), ["", "a b", "c d=e"]),
        (["٣"], pa.string(), ["٣"]),
    ],
    ids=str,
)
def test_whole_numbers_are_numbers_and_anything_else_is_text(
    texts: list[str], type_: pa.DataType, values: list[Any]
) -> None:
    found = constants_of(partitions_of(["/d"], [f"/d/g={text}/p" for text in texts]), {})
    assert [constant.type for (constant,) in found] == [type_] * len(texts)
    assert [constant.array(1, "f")[0].as_py() for (constant,) in found] == values


@pytest.mark.parametrize(
    ("locations", "files", "expected"),
    [
        (["/v=1/d"], ["/v=1/d/g=2/p"], [{"g": "2"}]),
        (["/v=1/d/"], ["/v=1/d/g=2/p"], [{"g": "2"}]),
        (["/v=1/d/g=2"], ["/v=1/d/g=2/p"], [{}]),
        (["/v=1/d/g=2/p"], ["/v=1/d/g=2/p"], [{}]),
        (["/v=1/d/*/p"], ["/v=1/d/g=2/p"], [{"g": "2"}]),
        (["/v=1/d/g=*"], ["/v=1/d/g=2/p"], [{"g": "2"}]),
        (["/v=1/d/g=2/*"], ["/v=1/d/g=2/p"], [{}]),
        (["/v=1/**/p"], ["/v=1/d/g=2/p"], [{"g": "2"}]),
        (["/d/g=1", "/d/g=2"], ["/d/g=1/p", "/d/g=2/p"], [{"g": "1"}, {"g": "2"}]),
        (["/d/g=1/p", "/d/g=2/p"], ["/d/g=1/p", "/d/g=2/p"], [{"g": "1"}, {"g": "2"}]),
        (["/d/g=1/p", "/d/g=1/q"], ["/d/g=1/p", "/d/g=1/q"], [{}, {}]),
        (["/v=1/a", "/b"], ["/v=1/a/p", "/b/p"], [{}, {}]),
        (["/d"], ["/d/plain/g=2/=x/p=3"], [{"g": "2"}]),
        (["s3://b/v=1/d"], ["s3://b/v=1/d/g=2/p"], [{"g": "2"}]),
        (["s3://b/d/g=1", "s3://b/d/g=2/"], ["s3://b/d/g=1/p", "s3://b/d/g=2/p"], [{"g": "1"}, {"g": "2"}]),
        (["s3://b/v=1", "/d"], ["/d/g=1/p", "s3://b/v=1/g=2/p"], [{"g": "1"}, {"g": "2"}]),
        (["/d/a[1]"], ["/d/a[1]/g=2/p"], [{"g": "2"}]),
    ],
    ids=str,
)
def test_only_directories_below_what_was_named_count(
    locations: list[str], files: list[str], expected: list[dict[str, str]]
) -> None:
    assert parts(locations, files) == expected


def test_files_with_and_without_the_directory_do_not_go_together(tmp_path: Path) -> None:
    write_parquet(tmp_path / "d" / "g=1" / "p.parquet", pa.table({"x": [1]}))
    write_parquet(tmp_path / "d" / "p.parquet", pa.table({"x": [1]}))
    with pytest.raises(DataError, match=r'column "g" is a directory of .*g=1/p\.parquet but not of .*/d/p\.parquet'):
        open_dataset([str(tmp_path / "d")], DEFAULT)


def test_a_key_that_is_there_twice_is_refused() -> None:
    with pytest.raises(DataError, match='give a value for "g"'):
        partitions_of(["/d"], ["/d/g=1/g=2/p"])


@pytest.mark.parametrize("ending", WRITERS)
def test_a_column_that_is_in_the_file_too_counts_and_must_agree(ending: str, tmp_path: Path) -> None:
    write = WRITERS[ending]
    write(tmp_path / "d" / "g=1" / f"p.{ending}", pa.table({"g": [1, 1], "x": [1, 2]}))
    assert rows(str(tmp_path / "d")) == [{"g": 1, "x": 1}, {"g": 1, "x": 2}]
    write(tmp_path / "d" / "g=2" / f"p.{ending}", pa.table({"g": [2, 3], "x": [1, 2]}))
    with pytest.raises(DataError, match=r'Column "g" of .* holds 3, but its directory says 2') as caught:
        rows(str(tmp_path / "d"))
    assert "--ignore g" in caught.value.fix
    assert rows(str(tmp_path / "d"), ["x"]) == [{"x": 1}, {"x": 2}, {"x": 1}, {"x": 2}]  # nobody asks for it


def test_the_type_of_a_column_in_the_file_holds_for_directories_too(tmp_path: Path) -> None:
    write_parquet(tmp_path / "d" / "g=1" / "p.parquet", pa.table({"x": [1], "g": pa.array([1.0])}))
    write_parquet(tmp_path / "d" / "g=2" / "p.parquet", pa.table({"x": [2]}))
    assert rows(str(tmp_path / "d")) == [{"x": 1, "g": 1.0}, {"x": 2, "g": 2.0}]
    write_parquet(tmp_path / "d" / "g=x" / "p.parquet", pa.table({"x": [3]}))
    with pytest.raises(DataError, match=r"The directory g=x of .* is not double"):
        rows(str(tmp_path / "d"))


def test_a_missing_value_in_file_and_directory_agrees(tmp_path: Path) -> None:
    place = tmp_path / "d" / "g=__HIVE_DEFAULT_PARTITION__"
    write_parquet(place / "p.parquet", pa.table({"x": [1], "g": pa.nulls(1, pa.int64())}))
    assert rows(str(tmp_path / "d")) == [{"x": 1, "g": None}]
    write_parquet(place / "p.parquet", pa.table({"x": [1], "g": [5]}))
    with pytest.raises(DataError, match="holds 5, but its directory says that it is missing"):
        rows(str(tmp_path / "d"))


def test_the_columns_of_directories_are_found_on_s3(s3_server: S3Server) -> None:
    for g in (1, 2):
        write_parquet(s3_server.directory / "d" / f"g={g}" / "p.parquet", pa.table({"x": [10 * g]}))
    assert rows(s3_server.url("d")) == [{"x": 10, "g": 1}, {"x": 20, "g": 2}]


def test_dictionaries_that_pyarrow_and_polars_write_as_directories_are_read(tmp_path: Path) -> None:
    import polars as pl

    table = pa.table({"x": [1, 2, 3], "g": ["a", "b", None], "n": [1, 1, 2]})
    ds.write_dataset(table, tmp_path / "arrow", format="parquet", partitioning=["g", "n"], partitioning_flavor="hive")
    found = sorted(rows(str(tmp_path / "arrow")), key=lambda row: row["x"])
    assert found == [{"x": row["x"], "g": row["g"], "n": row["n"]} for row in table.to_pylist()]
    pl.from_arrow(table).write_parquet(tmp_path / "polars", partition_by="n")  # type: ignore[union-attr]
    found = sorted(rows(str(tmp_path / "polars")), key=lambda row: row["x"])
    assert [(row["x"], row["g"], row["n"]) for row in found] == [(1, "a", 1), (2, "b", 1), (3, None, 2)]


def test_a_slice_takes_its_columns_along(tmp_path: Path) -> None:
    for g in (1, 2):
        write_parquet(tmp_path / "d" / f"g={g}" / "p.parquet", pa.table({"x": list(range(5))}))
    dataset = open_dataset([str(tmp_path / "d")], DEFAULT)
    slices = pickle.loads(pickle.dumps(dataset.row_groups))
    found = [batch for _, batch in read_slices(slices, ["g", "x"], [], DEFAULT)]
    assert [batch.column("g").to_pylist() for batch in found] == [[1] * 5, [2] * 5]
    assert found[0].schema.names == ["g", "x"]


def test_of_files_of_others_no_types_are_kept() -> None:
    assert kept_types(None) == kept_types({}) == kept_types({b"dray:partitions": b"nothing"}) == {}


@pytest.fixture
def hive(tmp_path: Path) -> str:
    """The label is known by the directories alone."""
    for g in range(4):
        for h in ("a", "b"):
            table = pa.table({"x": [float(i % 3) for i in range(50)], "y": [g % 2 ^ (h == "a")] * 50})
            write_parquet(tmp_path / "hive" / f"g={g}" / f"h={h}" / "p.parquet", table)
    return str(tmp_path / "hive")


def test_a_model_is_trained_on_the_columns_of_directories(hive: str, tmp_path: Path) -> None:
    dray.train(hive, label="y", out=str(tmp_path / "run"), workers=0, rounds=20, eval_fraction=0.2)
    features = {feature.name: feature for feature in dray.load(str(tmp_path / "run")).features}  # type: ignore[union-attr]
    assert [(name, feature.kind) for name, feature in features.items()] == [
        ("x", "number"),
        ("g", "number"),
        ("h", "category"),
    ]
    assert features["h"].categories == ("a", "b")
    dray.predict(str(tmp_path / "run"), hive, str(tmp_path / "out"), workers=0, keep=["y", "g"])
    found = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert found.column_names == ["y", "prediction", "g", "h"]
    assert found["g"].unique().to_pylist() == [0, 1, 2, 3]
    assert [round(value) for value in found["prediction"].to_pylist()] == found["y"].to_pylist()


def test_a_kept_column_is_in_the_file_where_no_directory_tells_it(hive: str, tmp_path: Path) -> None:
    dray.train(hive, label="y", out=str(tmp_path / "run"), workers=0, rounds=2)
    dray.predict(str(tmp_path / "run"), f"{hive}/g=[1]/h=a", str(tmp_path / "o.parquet"), workers=0, keep=["g", "h"])
    kept = pq.read_table(tmp_path / "o.parquet")
    assert (kept["g"].unique().to_pylist(), kept["h"].unique().to_pylist()) == ([1], ["a"])


def test_a_model_is_told_that_the_column_is_missing_when_one_directory_is_named(
    hive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dray.train(hive, label="y", out=str(tmp_path / "run"), workers=0, rounds=2)
    dray.predict(str(tmp_path / "run"), f"{hive}/g=1", str(tmp_path / "out"), workers=0, progress=True)
    assert 'has no column "g"' in capsys.readouterr().err
    dray.predict(str(tmp_path / "run"), f"{hive}/g=*", str(tmp_path / "all"), workers=0, progress=True)
    assert "has no column" not in capsys.readouterr().err


def test_the_columns_of_directories_are_described(hive: str) -> None:
    found = {column.name: column for column in describe(hive, label="y").columns}
    assert list(found) == ["x", "y", "g", "h"]
    assert found["g"].distinct is not None and found["g"].distinct.value == 4


def test_a_recommender_is_trained_on_the_columns_of_directories(tmp_path: Path) -> None:
    for item in range(5):
        table = pa.table({"user": list(range(8)), "stars": [float((user * item) % 5) for user in range(8)]})
        write_parquet(tmp_path / "d" / f"item={item}" / "p.parquet", table)
    settings = {"model": "factorization", "user": "user", "item": "item", "rating": "stars", "workers": 0, "rounds": 2}
    dray.train(str(tmp_path / "d"), out=str(tmp_path / "run"), **settings)
    assert dray.load(str(tmp_path / "run")).item_ids.to_pylist() == [0, 1, 2, 3, 4]  # type: ignore[union-attr]
    result = dray.predict(str(tmp_path / "run"), str(tmp_path / "d"), str(tmp_path / "out"), workers=0)
    assert (result.rows, result.unseen) == (40, {})


def test_text_files_named_alone_and_by_their_directory_have_copies_of_their_own(tmp_path: Path) -> None:
    write_csv(tmp_path / "d" / "g=1" / "p.csv", pa.table({"x": list(range(60)), "y": [0, 1] * 30}))
    for number, data in enumerate((str(tmp_path / "d"), str(tmp_path / "d" / "g=1" / "p.csv"))):
        dray.train(data, label="y", out=str(tmp_path / f"run{number}"), workers=0, rounds=2)
    names = [[f.name for f in dray.load(str(tmp_path / f"run{number}")).features] for number in (0, 1)]  # type: ignore[union-attr]
    assert names == [["x", "g"], ["x"]]
