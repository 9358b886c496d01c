from __future__ import annotations

import gc
import platform
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from dray.data import stream as streaming
from dray.data.features import Column
from dray.data.parquet import Dataset
from dray.data.shards import Units, assign
from dray.data.split import Split
from dray.data.stream import Batch, Stream, ahead, give_memory_back
from dray.errors import DataError
from dray.learners.xgboost.matrix import BinnedPreparation
from s3_server import S3Server
from small_data import mixed_rows, opened, prepare, query_ids, small_batches, units, write

ROWS = 3000


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    columns = mixed_rows(ROWS) | {"query": pa.array(query_ids(ROWS)), "row": pa.array(range(ROWS))}
    table = pa.table(columns)
    write(tmp_path / "data" / "a.parquet", table.slice(0, 1300), 400)
    write(tmp_path / "data" / "b.parquet", table.slice(1300), 500)
    return opened(tmp_path / "data")


def prepared(dataset: Dataset, **settings: Any) -> BinnedPreparation:
    return prepare(dataset, label="row", weight="weight", ignore=["label", "value", "query"], **settings)


def ranked(dataset: Dataset, split: Split | None = None) -> BinnedPreparation:
    return prepare(dataset, label="row", group="query", ignore=["label", "value", "weight"], split=split)


def whole(dataset: Dataset, group: str | None = None) -> Units:
    return assign(units(dataset, group), 1)[0]


def joined(batches: list[Batch]) -> Batch:
    """The batches as one."""
    weights = [batch.weight for batch in batches if batch.weight is not None]
    starts = [batch.group_starts for batch in batches if batch.group_starts is not None]
    return Batch(
        np.concatenate([batch.features for batch in batches]),
        np.concatenate([batch.label for batch in batches]),
        np.concatenate(weights) if weights else None,
        np.concatenate(starts) if starts else None,
        np.concatenate([batch.positions for batch in batches]),
    )


def first_pass(shard: Units, preparation: BinnedPreparation, part: Any = "all") -> Batch:
    return joined(list(Stream(shard, preparation, part).batches()))


@pytest.mark.parametrize("rows", [1, 61, 399, 5000])
@pytest.mark.parametrize("part", ["all", "train", "eval"])
def test_the_same_rows_come_whatever_the_batch_size(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, rows: int, part: str
) -> None:
    if rows == 1:
        dataset = replace(dataset, row_groups=dataset.row_groups[:1])
    preparation = prepared(dataset, split=Split(0.3, 1))
    expected = first_pass(whole(dataset), preparation, part)
    small_batches(monkeypatch, rows)
    found = first_pass(whole(dataset), preparation, part)
    assert np.array_equal(found.features, expected.features, equal_nan=True)
    assert np.array_equal(found.label, expected.label)
    assert found.weight is not None and np.array_equal(found.weight, expected.weight)
    assert np.array_equal(found.positions, expected.positions)


def test_features_label_and_weight_stand_in_the_row_they_came_in(dataset: Dataset) -> None:
    batch = first_pass(whole(dataset), prepared(dataset))
    columns = mixed_rows(ROWS)
    assert np.array_equal(batch.label, np.arange(ROWS))
    assert np.array_equal(batch.positions, np.arange(ROWS))
    assert np.array_equal(batch.weight, columns["weight"].to_numpy())
    assert np.array_equal(batch.features[:, 0], columns["one"].to_numpy(), equal_nan=True)
    assert np.array_equal(batch.features[:, 2], columns["flag"].to_numpy(zero_copy_only=False))
    assert [sorted(set(columns["colour"].to_pylist()))[int(code)] for code in batch.features[:9, 3]] == columns[
        "colour"
    ].to_pylist()[:9]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_train_and_eval_rows_are_disjoint_complete_and_independent_of_the_workers(
    dataset: Dataset, workers: int
) -> None:
    preparation = prepared(dataset, split=Split(0.25, 3))
    picked = np.flatnonzero(Split(0.25, 3).picks(np.arange(ROWS)))
    shards = assign(units(dataset), workers)
    train = np.concatenate([first_pass(shard, preparation, "train").label for shard in shards])
    evaluation = np.concatenate([first_pass(shard, preparation, "eval").label for shard in shards])
    assert sorted(evaluation) == picked.tolist()
    assert sorted([*train, *evaluation]) == list(range(ROWS))


@pytest.mark.parametrize("part", ["all", "train", "eval"])
@pytest.mark.parametrize("remote", [False, True])
def test_later_passes_give_the_features_of_the_first(
    dataset: Dataset, part: Any, remote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "is_s3", lambda file: remote)
    stream = Stream(whole(dataset), prepared(dataset, split=Split(0.4, 9)), part)
    first = joined(list(stream.batches())).features
    for _ in range(2):
        assert np.array_equal(np.concatenate(list(stream.matrices())), first, equal_nan=True)
    stream.close()


def test_a_pass_that_was_left_half_way_does_not_disturb_the_next(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "is_s3", lambda file: True)
    stream = Stream(whole(dataset), prepared(dataset), "all")
    first = joined(list(stream.batches())).features
    later = stream.matrices()
    next(later)
    assert np.array_equal(np.concatenate(list(stream.matrices())), first, equal_nan=True)
    stream.close()


def test_from_an_object_store_rows_are_read_once(
    dataset: Dataset, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in dataset.files:
        (s3_server.directory / Path(file).name).write_bytes(Path(file).read_bytes())
    remote = opened(s3_server.url())
    assert next(piece.file for piece in remote.row_groups) == s3_server.url("a.parquet")
    stream = Stream(whole(remote), prepared(remote), "all")
    first = joined(list(stream.batches()))
    assert np.array_equal(first.label, np.arange(ROWS))
    for file in s3_server.directory.iterdir():
        file.unlink()
    assert np.array_equal(np.concatenate(list(stream.matrices())), first.features, equal_nan=True)
    stream.close()


@pytest.mark.parametrize("rows", [17, 5000])
def test_a_ranking_group_starts_once_wherever_batches_and_row_groups_end(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    small_batches(monkeypatch, rows)
    batch = first_pass(whole(dataset, "query"), ranked(dataset))
    ids = query_ids(ROWS)
    assert batch.group_starts is not None
    assert np.array_equal(batch.group_starts, np.append(True, np.diff(ids) != 0))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("rows", [17, 5000])
def test_a_ranking_group_is_whole_in_one_part(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, rows: int, workers: int
) -> None:
    small_batches(monkeypatch, rows)
    ids = query_ids(ROWS)
    preparation = ranked(dataset, Split(0.3, 2))
    held: dict[str, set[int]] = {}
    rows_seen: list[int] = []
    for part in ("train", "eval"):
        for shard in assign(units(dataset, "query"), workers):
            batch = first_pass(shard, preparation, part)
            groups = ids[batch.label.astype(int)]
            assert batch.group_starts is not None
            assert np.array_equal(batch.group_starts, np.append(True, np.diff(groups) != 0))
            assert not held.setdefault(part, set()) & set(groups.tolist())
            held[part] |= set(groups.tolist())
            rows_seen += batch.label.astype(int).tolist()
    assert not held["train"] & held["eval"]
    assert sorted(rows_seen) == list(range(ROWS))
    assert 0.2 < len(held["eval"]) / (ids[-1] + 1) < 0.4


@pytest.mark.parametrize("spooled", [False, True])
def test_every_pass_tells_every_row_read(dataset: Dataset, spooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "are_small", lambda slices: spooled)
    small_batches(monkeypatch, 61)
    told: list[int] = []
    stream = Stream(whole(dataset), prepared(dataset, split=Split(0.1, 0)), "eval", told.append)
    list(stream.batches())
    assert sum(told) == ROWS
    for passes in (2, 3):
        list(stream.matrices())
        assert sum(told) == passes * ROWS
    stream.close()


def test_a_row_without_a_group_is_refused(tmp_path: Path) -> None:
    dataset = opened(write(tmp_path / "a.parquet", {"row": [1, 2], "query": [1, 2], "x": [0.5, 1.5]}))
    preparation = prepare(dataset, label="row", group="query")
    other = opened(write(tmp_path / "b.parquet", {"row": [1, 2], "query": pa.array([1, None]), "x": [0.5, 1.5]}))
    with pytest.raises(DataError, match="no value in the group column"):
        list(Stream(whole(other), preparation, "all").batches())


@pytest.mark.parametrize("remote", [False, True])
def test_unseen_categories_are_counted_once_however_many_passes(
    tmp_path: Path, remote: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "is_s3", lambda file: remote)
    dataset = opened(write(tmp_path / "a.parquet", {"row": [1, 2, 3], "x": ["a", "new", "new"]}))
    preparation = replace(prepare(dataset, label="row"), features=(Column("x", "category", ("a",)),))
    stream = Stream(whole(dataset), preparation, "all")
    list(stream.batches())
    for _ in range(2):
        list(stream.matrices())
    assert stream.encoder.unseen == {"x": 2}
    stream.close()


def test_items_made_ahead_come_in_order() -> None:
    assert list(ahead(iter(range(100)))) == list(range(100))
    assert list(ahead(iter(()))) == []


def test_the_next_item_is_made_while_one_is_used() -> None:
    made = threading.Event()

    def items() -> Any:
        yield 1
        made.set()
        yield 2

    iterator = ahead(items())
    assert next(iterator) == 1
    assert made.wait(10)
    assert list(iterator) == [2]


def test_an_error_ahead_comes_after_the_items_before_it() -> None:
    def items() -> Any:
        yield 1
        raise DataError("broken")

    iterator = ahead(items())
    assert next(iterator) == 1
    with pytest.raises(DataError, match="broken"):
        next(iterator)


def test_no_thread_is_left_when_the_consumer_stops_early() -> None:
    before = set(threading.enumerate())
    iterator = ahead(iter(range(10)))
    next(iterator)
    own = set(threading.enumerate()) - before
    iterator.close()
    for thread in own:
        thread.join(10)
    assert own
    assert not any(thread.is_alive() for thread in own)


def test_a_reader_that_says_what_to_do_when_abandoned_leaves_no_thread() -> None:
    abandoned = threading.Event()

    def items() -> Any:
        yield 1
        assert abandoned.wait(10)
        yield 2

    before = threading.active_count()
    iterator = ahead(items(), abandoned.set)
    next(iterator)
    iterator.close()
    assert abandoned.is_set()
    assert threading.active_count() == before


def test_the_garbage_collector_waits_for_no_thread() -> None:
    """It may run in a thread that holds a lock that the item needs: the lock of all pools, in `submit`."""
    collected = threading.Event()

    def items() -> Any:
        yield 1
        assert collected.wait(60)
        yield 2

    iterator = ahead(items())
    next(iterator)
    cycle: list[Any] = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    began = time.monotonic()
    gc.collect()
    assert time.monotonic() - began < 30
    collected.set()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are not asked")
def test_memory_of_arrays_that_are_gone_goes_back_to_the_system() -> None:
    process = psutil.Process()
    kept = [np.ones(12_000) for _ in range(500)][-1]  # above the others in the heap: they cannot go by themselves
    before = process.memory_info().rss
    give_memory_back()
    assert process.memory_info().rss < before - 24_000_000
    assert kept.all()


@pytest.mark.parametrize("rows", [1, 7, 5000])
def test_rows_without_a_label_leave_their_groups_whatever_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    query = query_ids(400)
    holes = np.random.default_rng(2).random(400) < 0.5
    holes[query == query[100]] = True
    table = pa.table({"row": pa.array(np.arange(400.0), mask=holes), "x": range(400), "query": query})
    dataset = opened(write(tmp_path / "ranked" / "a.parquet", table, 90))
    preparation = prepare(dataset, label="row", group="query")
    small_batches(monkeypatch, rows)
    stream = Stream(whole(dataset, "query"), preparation, "all")
    found, left = joined(list(stream.batches())), np.flatnonzero(~holes)
    assert found.label.tolist() == found.positions.tolist() == left.tolist()
    assert stream.dropped.tolist() == np.flatnonzero(holes).tolist()
    assert found.group_starts is not None
    assert np.flatnonzero(found.group_starts).tolist() == np.unique(query[left], return_index=True)[1].tolist()
    assert np.concatenate(list(stream.matrices())).ravel().tolist() == left.tolist()


def test_rows_without_a_label_are_left_out_of_their_own_subset(dataset: Dataset, tmp_path: Path) -> None:
    holes = np.arange(ROWS) % 5 == 0
    table = pa.table({"row": np.where(holes, np.nan, np.arange(ROWS)), "x": range(ROWS)})
    data = opened(write(tmp_path / "gaps" / "a.parquet", table, 500))
    split = Split(0.3, 1)
    preparation = prepare(data, label="row", split=split)
    for part, chosen in (("eval", split.picks(np.arange(ROWS))), ("train", ~split.picks(np.arange(ROWS)))):
        stream = Stream(whole(data), preparation, part)  # type: ignore[arg-type]
        assert joined(list(stream.batches())).label.tolist() == np.flatnonzero(chosen & ~holes).tolist()
        assert stream.dropped.tolist() == np.flatnonzero(chosen & holes).tolist()
    kept = first_pass(whole(data), replace(preparation, missing_label="error", split=None))
    assert np.isnan(kept.label).sum() == holes.sum()
