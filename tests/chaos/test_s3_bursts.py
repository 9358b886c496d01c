"""A store that fails for a while in the middle of reading: every row comes once, or the reading ends with a word."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray import retry
from dray.data import parquet_rows
from dray.data.parquet import Dataset, open_dataset
from dray.data.parquet_rows import read_slices
from dray.data.shards import Slice
from dray.errors import DataError, StorageError
from dray.storage import DEFAULT
from faulty_s3 import Fault, FaultyS3, serve_faulty
from s3_server import S3Server

Read = list[tuple[Slice, pa.RecordBatch]]
COLUMNS = ["x", "colour"]


@pytest.fixture
def faulty(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    with serve_faulty(s3_server) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.endpoint)
        yield faulty


@pytest.fixture
def dataset(faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Two files of two row groups, each read in 15 batches, and its numbers (2.4 MB) in several requests."""
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 8 * 20_000)
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        rows = 600_000
        colours = pa.array(random.choice(["red", "green", "blue"], rows)).dictionary_encode()
        table = pa.table({"x": random.normal(size=rows), "colour": colours})
        place = faulty.server.directory / f"data/{name}.parquet"
        place.parent.mkdir(exist_ok=True)
        pq.write_table(table, place, row_group_size=rows // 2, data_page_size=64 << 10, use_dictionary=["colour"])
    found = open_dataset([faulty.server.url("data")], DEFAULT)
    retry_quickly(monkeypatch)
    faulty.forget()
    return found


@pytest.fixture
def small_files(faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """60 files of two row groups of 500 rows: threads read ten at a time, ahead of what is asked for."""
    monkeypatch.setattr(parquet_rows, "BATCH_BYTES", 8 * 20_000)
    place = faulty.server.directory / "small"
    place.mkdir()
    for number in range(60):
        table = pa.table({"x": np.arange(1000.0 * number, 1000.0 * (number + 1)), "colour": ["red", "blue"] * 500})
        pq.write_table(table, place / f"{number:02}.parquet", row_group_size=500)
    found = open_dataset([faulty.server.url("small")], DEFAULT)
    retry_quickly(monkeypatch)
    faulty.forget()
    return found


def retry_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(retry, "MOST_WAIT_S", 0.1)


def undisturbed(dataset: Dataset, faulty: FaultyS3) -> tuple[Read, int]:
    """What is there to read, and the number of requests it takes."""
    read = list(read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT))
    requests = len(faulty.seen)
    faulty.forget()
    return read, requests


def slices_of(dataset: Dataset) -> list[Slice]:
    """All rows, but for some at the edges of a row group: as ranking groups may cut them."""
    first, *others = dataset.row_groups
    begin = first.rows // 10 + 1
    return [Slice(first.file, first.row_group, begin, first.stop - 7, begin), *others]


def require_same(read: Read, expected: Read) -> None:
    assert [piece for piece, _ in read] == [piece for piece, _ in expected]
    assert all(one.equals(other) for (_, one), (_, other) in zip(read, expected, strict=True))


@pytest.mark.parametrize(
    ("fault", "moment"),
    [("slow_down", 0.0), ("slow_down", 0.6), ("internal", 0.3), ("reset", 0.0), ("reset", 0.95), ("cut", 0.4)],
)
def test_a_burst_costs_no_row_and_doubles_none(fault: Fault, moment: float, dataset: Dataset, faulty: FaultyS3) -> None:
    expected, requests = undisturbed(dataset, faulty)
    faulty.fail(fault, requests=8, after=int(moment * requests))
    waits: list[float] = []
    batches = read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT, lambda _, wait_s: waits.append(wait_s))
    require_same(list(batches), expected)
    assert faulty.failed == 8
    assert waits


@pytest.mark.parametrize(("fault", "moment"), [("slow_down", 0.0), ("reset", 0.5), ("cut", 0.8)])
def test_small_files_that_are_read_ahead_come_once_and_in_order_in_a_burst(
    fault: Fault, moment: float, small_files: Dataset, faulty: FaultyS3
) -> None:
    expected, requests = undisturbed(small_files, faulty)
    assert [value for _, batch in expected for value in batch["x"].to_pylist()] == in_order(small_files)
    # The store's client tries a request again by itself: so many that some threads run out of its tries.
    faulty.fail(fault, requests=100, after=int(moment * requests))
    waits: list[float] = []
    batches = read_slices(slices_of(small_files), COLUMNS, ["colour"], DEFAULT, lambda _, wait_s: waits.append(wait_s))
    require_same(list(batches), expected)
    assert faulty.failed == 100
    assert waits


def in_order(dataset: Dataset) -> list[float]:
    """The numbers of the small files, whose rows count from 0."""
    return [float(row) for piece in slices_of(dataset) for row in range(piece.position, piece.position + piece.rows)]


@pytest.mark.parametrize("moment", [0.0, 0.5])
def test_a_closed_port_is_waited_for(moment: float, dataset: Dataset, faulty: FaultyS3) -> None:
    expected, requests = undisturbed(dataset, faulty)
    faulty.fail("refuse", seconds=3, after=int(moment * requests))
    require_same(list(read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT)), expected)
    assert faulty.failed >= 1


def test_a_store_that_does_not_answer_is_asked_again(dataset: Dataset, faulty: FaultyS3) -> None:
    expected, requests = undisturbed(dataset, faulty)
    faulty.fail("silent", requests=3, after=requests // 2)
    require_same(list(read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT)), expected)
    assert faulty.failed == 3


def test_bursts_again_and_again_use_up_no_patience(
    dataset: Dataset, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = undisturbed(dataset, faulty)
    monkeypatch.setattr(retry, "LIMIT_S", 6.0)
    read: Read = []
    stopped_after: set[int] = set()
    for part in read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT, lambda *_: stopped_after.add(len(read))):
        read.append(part)
        if len(read) % 20 == 1:
            faulty.fail("reset", requests=8)
    require_same(read, expected)
    assert any(read[count - 1][0].stop == read[count][0].start for count in stopped_after), "never within a slice"


def test_an_outage_that_stays_ends_in_an_error_that_says_how_long(
    dataset: Dataset, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "LIMIT_S", 2.0)
    batches = read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT)
    next(batches)
    faulty.fail("slow_down")
    with pytest.raises(StorageError, match=r"Tried \d+ times in \d+ s") as raised:
        list(batches)
    assert "SLOW_DOWN" in raised.value.what or "503" in raised.value.what
    assert raised.value.fix


def test_an_outage_that_stays_ends_the_threads_that_read_small_files_ahead(
    small_files: Dataset, faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "LIMIT_S", 2.0)
    faulty.fail("slow_down", after=20)
    with pytest.raises(StorageError, match=r"Tried \d+ times in \d+ s"):
        list(read_slices(slices_of(small_files), COLUMNS, ["colour"], DEFAULT))
    readers = [thread for thread in threading.enumerate() if thread.name.startswith("dray-read")]
    for thread in readers:
        thread.join(30)
    assert not [thread.name for thread in readers if thread.is_alive()]


def test_footers_are_read_through_a_burst(dataset: Dataset, faulty: FaultyS3) -> None:
    faulty.fail("slow_down", requests=8, matching="data/b.parquet", after=1)
    assert open_dataset(dataset.files, DEFAULT).row_groups == dataset.row_groups
    assert faulty.failed == 8


@pytest.mark.parametrize(("fault", "word"), [("denied", "denied"), ("missing", "does not exist")])
def test_what_stays_is_told_at_once(fault: Fault, word: str, dataset: Dataset, faulty: FaultyS3) -> None:
    batches = read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT)
    next(batches)
    faulty.forget()
    faulty.fail(fault)
    with pytest.raises(StorageError, match=word):
        list(batches)
    assert faulty.failed <= len(COLUMNS)


@pytest.mark.parametrize(("fault", "word"), [("denied", "denied"), ("missing", "does not exist")])
def test_a_file_that_may_not_be_opened_is_asked_for_once(
    fault: Fault, word: str, dataset: Dataset, faulty: FaultyS3
) -> None:
    faulty.fail(fault)
    with pytest.raises(StorageError, match=word):
        list(read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT))
    assert len(faulty.seen) == 1


def test_a_truncated_file_is_told_at_once(dataset: Dataset, faulty: FaultyS3) -> None:
    place = faulty.server.directory / "data/a.parquet"
    place.write_bytes(place.read_bytes()[:-20])
    waits: list[float] = []
    with pytest.raises(DataError, match=r"Cannot read .*a\.parquet as Parquet"):
        list(read_slices(dataset.row_groups, ["x"], [], DEFAULT, lambda _, wait_s: waits.append(wait_s)))
    assert not waits


def test_a_file_that_another_took_the_place_of_is_not_read_on(
    dataset: Dataset, faulty: FaultyS3, tmp_path: Path
) -> None:
    place = faulty.server.directory / "data/a.parquet"
    other = tmp_path / "other.parquet"
    pq.write_table(pq.read_table(place).slice(1), other, row_group_size=300_000)
    batches = read_slices(dataset.row_groups, COLUMNS, ["colour"], DEFAULT, lambda *_: shutil.copy(other, place))
    next(batches)
    faulty.fail("reset", requests=8)
    with pytest.raises(DataError, match=r"a\.parquet was changed while dray read it"):
        list(batches)


def test_who_hears_of_a_wait_may_end_the_reading(dataset: Dataset, faulty: FaultyS3) -> None:
    def stop(error: StorageError, wait_s: float) -> None:
        raise KeyboardInterrupt

    faulty.fail("reset")
    with pytest.raises(KeyboardInterrupt):
        list(read_slices(slices_of(dataset), COLUMNS, ["colour"], DEFAULT, stop))
