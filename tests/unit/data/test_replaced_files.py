"""Files that others replace between the footer and the rows: an error that names the file, whoever reads."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import datasets
import dray
from dray.batch.options import Options
from dray.data import describe as describing
from dray.data.open_source import open_source
from dray.data.parquet import Dataset, open_dataset
from dray.data.parquet_rows import read_slices
from dray.data.scan import scan
from dray.data.shards import Slice
from dray.data.stream import Stream
from dray.errors import DataError
from dray.ingesting import task
from dray.ingesting.ingest import ingest
from dray.learners.factorization import rows as factor_rows
from dray.learners.factorization.events import RowRule
from dray.predicting import predict as predicting
from dray.storage import DEFAULT
from s3_server import CACHE_S, S3Server
from small_data import prepare, units, write

CHANGED = r"a\.parquet was changed while dray read it"


def rows(count: int, first: int = 0) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    return {"user": numbers % 7, "item": numbers % 5, "rating": numbers % 3, "x": numbers * 0.5}


OTHERS = {"fewer": rows(50), "more": rows(200), "as many": rows(100, first=1)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(write(tmp_path / "data" / "a.parquet", rows(100)))


@pytest.mark.parametrize("others", OTHERS)
def test_slices_of_another_file_are_not_read(file: Path, others: str) -> None:
    dataset = open_dataset([str(file)], DEFAULT)
    write(file, OTHERS[others])
    with pytest.raises(DataError, match=CHANGED):
        list(read_slices(dataset.row_groups, ["x"], [], DEFAULT))


def test_slices_of_another_object_are_not_read(file: Path, s3_server: S3Server) -> None:
    place = s3_server.directory / "a.parquet"
    shutil.copy(file, place)
    dataset = open_dataset([s3_server.url("a.parquet")], DEFAULT)
    write(place, OTHERS["fewer"])
    os.utime(place, (0, 0))  # so that the server sees another file
    time.sleep(10 * CACHE_S)  # till the server has forgotten what was there
    with pytest.raises(DataError, match=CHANGED):
        list(read_slices(dataset.row_groups, ["x"], [], DEFAULT))


def test_a_copy_of_the_file_in_its_place_is_the_same_file(file: Path, tmp_path: Path) -> None:
    dataset = open_dataset([str(file)], DEFAULT)
    shutil.copy(file, tmp_path / "copy")
    (tmp_path / "copy").replace(file)
    assert sum(batch.num_rows for _, batch in read_slices(dataset.row_groups, ["x"], [], DEFAULT)) == 100


@pytest.mark.parametrize("piece", [(0, 0, 101), (1, 0, 1)])
def test_rows_that_the_file_does_not_have_are_missed_also_where_its_footer_was_not_known(
    file: Path, piece: tuple[int, int, int]
) -> None:
    with pytest.raises(DataError, match=CHANGED):
        list(read_slices([Slice(str(file), *piece, 0)], ["x"], [], DEFAULT))


def streaming(dataset: Dataset) -> Callable[[], object]:
    stream = Stream(tuple(units(dataset)), prepare(dataset, label="x"), "all")
    return lambda: list(stream.batches())


def recommending(dataset: Dataset) -> Callable[[], object]:
    rule = RowRule(user="user", item="item", rating="rating")
    return lambda: factor_rows.scan(dataset.row_groups, rule, DEFAULT)


def scanning(dataset: Dataset) -> Callable[[], object]:
    return lambda: scan(dataset.row_groups, [], "user", DEFAULT)


@pytest.mark.parametrize("reader", [streaming, recommending, scanning])
def test_every_reader_of_a_plan_notices(file: Path, reader: Callable[[Dataset], Callable[[], object]]) -> None:
    read = reader(open_dataset([str(file)], DEFAULT))
    write(file, OTHERS["fewer"])
    with pytest.raises(DataError, match=CHANGED):
        read()


def test_an_ingest_notices(file: Path, tmp_path: Path) -> None:
    source = open_source(str(file))
    write(file, OTHERS["fewer"])
    with pytest.raises(DataError, match=CHANGED):
        ingest(source, str(tmp_path / "out"), options=Options(where="here"))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.arrow"])
def test_an_ingest_notices_a_file_of_the_same_size_in_any_format(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(values: list[int]) -> None:
        file = tmp_path / "new"
        if name == "a.csv":
            file.write_text("x\n" + "".join(f"{value}\n" for value in values))
        elif name == "a.jsonl":
            file.write_text("".join(f'{{"x": {value}}}\n' for value in values))
        else:
            with pa.ipc.new_file(str(file), pa.schema({"x": pa.int64()})) as writer:
                writer.write_table(pa.table({"x": values}))
        file.replace(tmp_path / name)

    call = task.TaskRunner.__call__

    def replaced(self: Any, one: Any) -> Any:
        fill([4, 5, 6])
        return call(self, one)

    fill([1, 2, 3])
    monkeypatch.setattr(task.TaskRunner, "__call__", replaced)
    with pytest.raises(DataError, match=rf"{name} was changed while dray read it"):
        ingest(open_source(str(tmp_path / name)), str(tmp_path / "out"), options=Options(where="here"))


def test_describe_notices(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_footers = describing.read_footers

    def replaced(dataset: Dataset) -> Any:
        found = read_footers(dataset)
        write(file, OTHERS["fewer"])
        return found

    monkeypatch.setattr(describing, "read_footers", replaced)
    with pytest.raises(DataError, match=CHANGED):
        dray.describe(str(file))


def test_a_prediction_notices_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = datasets.binary(200)
    pq.write_table(table, "a.parquet")
    dray.train("a.parquet", label="label", rounds=2, workers=0, threads=1, out="run")
    destinations = predicting.output_files

    def replaced(*arguments: Any, **named: Any) -> Any:
        pq.write_table(table.slice(0, 50), "a.parquet")
        return destinations(*arguments, **named)

    monkeypatch.setattr(predicting, "output_files", replaced)
    with pytest.raises(DataError, match=CHANGED):
        dray.predict("run", "a.parquet", "out", workers=0)
    assert not list(Path("out").rglob("*.parquet"))
