"""Rows that move, compared with the same done to plain Python lists."""

from __future__ import annotations

import _thread
import builtins
import datetime
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.clusters.cluster import Cluster
from dray.errors import ConfigError, DataError, StorageError, WorkerError
from dray.events.kinds import Event, PhaseStarted, Progress
from dray.ingesting.moving import Moved, move
from dray.ingesting.moving_rows import POSITION
from dray.storage import DEFAULT, open_storage
from s3_server import S3Server

Row = dict[str, Any]


@pytest.fixture(scope="module")
def s3(s3_process: S3Server) -> Iterator[S3Server]:
    """A bucket whose keys are known before any worker starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_process.environment.items():
            patch.setenv(name, value)
        yield s3_process


@pytest.fixture(scope="module", autouse=True)
def ray(s3: S3Server, three_cpus: Cluster) -> Cluster:
    return three_cpus


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pieces of single row groups and compare few digests at a time, so that small data moves as large does."""
    monkeypatch.setattr("dray.ingesting.staged.LEAST_PIECE_BYTES", 1)
    monkeypatch.setattr("dray.ingesting.moving.DIGESTS_TOGETHER", 100)


def awkward(rows: int, seed: int = 0) -> pa.Table:
    """Few values of every type, so that there are ties and duplicates, with nulls and NaN among them."""
    random = np.random.default_rng(seed)

    def some(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array([values[at] for at in random.integers(0, len(values), rows)], type=kind)

    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return pa.table(
        {
            "number": some([3, 1, None, -7], pa.int64()),
            "float": some([0.5, float("nan"), -0.0, 0.0, None, float("inf")], pa.float64()),
            "text": some(["a", "", "ab", None, "é", "a" * 40], pa.string()),
            "category": some(["x", "y", None], pa.string()).dictionary_encode(),
            "decimal": some([Decimal("1.10"), Decimal("-2.00"), None], pa.decimal128(20, 2)),
            "date": some([start.date(), datetime.date(1960, 2, 29), None], pa.date32()),
            "moment": some([start, start + datetime.timedelta(microseconds=1), None], pa.timestamp("us", tz="UTC")),
            "flag": some([True, False, None], pa.bool_()),
            "list": some([[1, 2], [], None, [2, 1]], pa.list_(pa.int32())),
            "struct": some([{"a": 1, "b": "x"}, {"a": None, "b": "y"}, None], None),
            "bytes": some([b"\0", b"", b"\0\0", None], pa.binary()),
        }
    )


def stage(table: pa.Table, directory: Path, files: int = 3, row_group_size: int = 50) -> list[str]:
    """Write the table as tasks do, in so many files."""
    places = []
    for task in range(files):
        first, last = task * table.num_rows // files, (task + 1) * table.num_rows // files
        part = table.slice(first, last - first)
        part = part.append_column(POSITION, pa.array((task << 40) + np.arange(last - first)))
        places.append(str(directory / f"staged-{task:05d}.parquet"))
        pq.write_table(part, places[-1], row_group_size=row_group_size)
    return places


def writer(directory: Path) -> Callable[[int, pa.Table], tuple[int, int, str]]:
    def write(index: int, table: pa.Table) -> tuple[int, int, str]:
        import pyarrow.parquet as pq

        place = f"{directory}/out-{index:05d}.parquet"
        pq.write_table(table, place)
        return index, table.num_rows, place

    return write


def silence(_event: Event) -> None:
    pass


def moved(staged: Sequence[str], directory: Path, **how: Any) -> Moved[tuple[int, int, str]]:
    settings: dict[str, Any] = {"dedup": None, "sort": (), "files": 3, "cluster": None, "storage": DEFAULT}
    return move(staged, **{**settings, "write": writer(directory), "emit": silence, **how})


def read_back(result: Moved[tuple[int, int, str]]) -> pa.Table:
    assert [index for index, _, _ in result.written] == list(range(len(result.written)))
    assert sum(rows for _, rows, _ in result.written) == result.rows_out
    return pa.concat_tables([pq.read_table(place) for _, _, place in result.written])


def comparable(value: Any) -> Any:
    """Return the value so that equal ones are equal in Python, which NaN is not."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, dict):
        return tuple((name, comparable(item)) for name, item in value.items())
    return tuple(map(comparable, value)) if isinstance(value, list) else value


def expected(table: pa.Table, dedup: tuple[str, ...] | None, sort: tuple[str, ...]) -> list[Row]:
    rows = [{name: comparable(value) for name, value in row.items()} for row in table.to_pylist()]
    if dedup is not None:
        names = dedup or tuple(table.column_names)
        first: dict[Any, Row] = {}
        for row in rows:
            first.setdefault(tuple(row[name] for name in names), row)
        rows = list(first.values())
    for text in reversed(sort):
        name = text.removeprefix("-")
        plain = [row for row in rows if row[name] not in (None, "nan")]
        plain.sort(key=lambda row: row[name], reverse=text.startswith("-"))
        rows = [*plain, *(row for row in rows if row[name] == "nan"), *(row for row in rows if row[name] is None)]
    return rows


def rows_of(table: pa.Table) -> list[Row]:
    return [{name: comparable(value) for name, value in row.items()} for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("dedup", "sort", "files"),
    [
        (None, ("number",), 5),
        (None, ("-number",), 1),
        (None, ("float", "-text"), 5),
        (None, ("-float", "category", "-flag", "decimal"), 4),
        (None, ("-date", "moment", "bytes"), 3),
        (None, (), 5),
        (("number",), (), 5),
        (("float", "text"), (), 1),
        (("list", "struct", "bytes"), (), 3),
        (("category", "decimal", "date", "flag"), ("-moment",), 5),
        ((), (), 2),
        ((), ("text", "-number"), 5),
    ],
)
def test_rows_are_where_a_plain_loop_puts_them(
    dedup: tuple[str, ...] | None, sort: tuple[str, ...], files: int, tmp_path: Path
) -> None:
    table = awkward(400)
    if dedup == ():
        table = pa.concat_tables([table, table.slice(100, 200), table.slice(0, 50)])
    result = moved(stage(table, tmp_path), tmp_path, dedup=dedup, sort=sort, files=files)
    want = expected(table, dedup, sort)
    assert rows_of(read_back(result)) == want
    assert (result.rows_in, result.rows_out) == (table.num_rows, len(want))
    assert len(result.written) == min(files, len(want))
    sizes = [rows for _, rows, _ in result.written]
    assert max(sizes) - min(sizes) <= 1


def test_types_are_kept(tmp_path: Path) -> None:
    table = awkward(100)
    result = moved(stage(table, tmp_path), tmp_path, dedup=("number", "text"), sort=("category",))
    assert read_back(result).schema.remove_metadata() == table.schema.remove_metadata()


def test_many_rows_make_files_of_about_the_same_size(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 20_000, 60_000)
    table = pa.table({"value": values, "row": np.arange(len(values))})
    staged = stage(table, tmp_path, files=4, row_group_size=5_000)
    result = moved(staged, tmp_path, dedup=("value",), sort=("-value",), files=5)
    found = read_back(result)
    unique, first = np.unique(values, return_index=True)
    assert found.column("value").to_pylist() == unique[::-1].tolist()
    assert found.column("row").to_pylist() == first[::-1].tolist()
    sizes = [rows for _, rows, _ in result.written]
    assert max(sizes) < 1.2 * min(sizes)


def test_a_value_that_is_everywhere_fills_several_files(tmp_path: Path) -> None:
    table = pa.table({"value": ["same"] * 9_000, "row": np.arange(9_000)})
    staged = stage(table, tmp_path, row_group_size=1_000)
    result = moved(staged, tmp_path, sort=("value",), files=4)
    assert read_back(result).column("row").to_pylist() == list(range(9_000))
    assert all(2000 < rows < 2500 for _, rows, _ in result.written)
    single = moved(staged, tmp_path, dedup=("value",), sort=("value",), files=4)
    assert read_back(single).to_pylist() == [{"value": "same", "row": 0}]


def test_files_are_as_many_as_rows_at_most(tmp_path: Path) -> None:
    staged = stage(pa.table({"value": [2, 1]}), tmp_path, files=2)
    result = moved(staged, tmp_path, sort=("value",), files=5)
    assert [rows for _, rows, _ in result.written] == [1, 1]
    assert read_back(result).to_pylist() == [{"value": 1}, {"value": 2}]


def test_without_rows_nothing_is_written(tmp_path: Path) -> None:
    staged = stage(pa.table({"value": pa.array([], pa.int64())}), tmp_path, files=2)
    assert moved(staged, tmp_path, dedup=(), sort=("value",)) == Moved((), 0, 0)


def test_an_empty_file_among_others_is_no_obstacle(tmp_path: Path) -> None:
    table = pa.table({"value": [3, 1, 2]})
    staged = stage(table, tmp_path, files=1)
    empty = str(tmp_path / "empty.parquet")
    pq.write_table(pq.read_table(staged[0]).slice(0, 0), empty)
    result = moved([empty, *staged], tmp_path, sort=("value",), files=1)
    assert read_back(result).to_pylist() == [{"value": 1}, {"value": 2}, {"value": 3}]


def test_the_order_of_the_files_named_is_of_no_account(tmp_path: Path) -> None:
    table = awkward(90)
    staged = stage(table, tmp_path)
    assert rows_of(read_back(moved(staged[::-1], tmp_path, dedup=("text",)))) == expected(table, ("text",), ())


def test_rows_are_read_from_and_written_to_s3(s3: S3Server, tmp_path: Path) -> None:
    table = awkward(200)
    staged = []
    for place in stage(table, tmp_path):
        staged.append(s3.url(f"moving/{Path(place).name}"))
        filesystem, path = open_storage(staged[-1])
        with filesystem.open_output_stream(path) as stream:
            stream.write(Path(place).read_bytes())

    def write(index: int, table: pa.Table) -> tuple[int, int, str]:
        import pyarrow.parquet as pq

        from dray.storage import open_storage

        filesystem, path = open_storage(f"s3://bucket/moved/{index}.parquet")
        pq.write_table(table, path, filesystem=filesystem)
        return index, table.num_rows, path

    result = moved(staged, tmp_path, dedup=("number", "text"), sort=("text",), write=write)
    found = pa.concat_tables([pq.read_table(path, filesystem=filesystem) for _, _, path in result.written])
    assert rows_of(found) == expected(table, ("number", "text"), ("text",))


def test_what_write_raises_is_told(tmp_path: Path) -> None:
    def write(index: int, table: pa.Table) -> int:
        if index == 1:
            raise ValueError("the disk is on fire")
        return index

    staged = stage(awkward(50), tmp_path)
    for sort in (("number",), ()):
        with pytest.raises(WorkerError, match="Output file 1 was not written: ValueError: the disk is on fire"):
            moved(staged, tmp_path, sort=sort, write=write)


def test_an_error_of_ours_comes_back_as_it_is(tmp_path: Path) -> None:
    def write(index: int, table: pa.Table) -> int:
        raise StorageError("No space left on the disk.", fix="Free some.")

    with pytest.raises(StorageError, match=r"No space left on the disk\. Free some\."):
        moved(stage(awkward(50), tmp_path), tmp_path, sort=("number",), write=write)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    staged = stage(awkward(50), tmp_path)
    Path(staged[1]).unlink()
    with pytest.raises(StorageError, match=r"staged-00001.parquet does not exist"):
        moved(staged, tmp_path, sort=("number",))


def test_a_damaged_file_is_named_by_the_worker_that_reads_it(tmp_path: Path) -> None:
    staged = stage(awkward(50), tmp_path)
    content = bytearray(Path(staged[1]).read_bytes())
    content[4:1000] = b"\xff" * 996  # the footer is at the end
    Path(staged[1]).write_bytes(content)
    with pytest.raises(DataError, match=r"Cannot read .*staged-00001.parquet as Parquet"):
        moved(staged, tmp_path, sort=("number",))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sort": ("nubmer",)}, 'no column "nubmer" to sort by. Did you mean "number"'),
        ({"sort": ("-list",)}, 'cannot be sorted by "list", which is list'),
        ({"dedup": ("txt",)}, 'no column "txt" to find duplicates by. Did you mean "text"'),
        ({"dedup": (POSITION,)}, "no column"),
    ],
)
def test_columns_that_cannot_be_are_refused_at_once(how: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        moved(stage(awkward(50), tmp_path), tmp_path, **how)


def test_files_without_positions_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"value": [1]}), tmp_path / "plain.parquet")
    with pytest.raises(DataError, match="it was not staged"):
        moved([str(tmp_path / "plain.parquet")], tmp_path, sort=("value",))


def test_without_ray_data_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = stage(awkward(50), tmp_path)
    real = builtins.__import__

    def no_pandas(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "ray.data":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_pandas)
    with pytest.raises(ConfigError, match=r"lacks pandas.*dray\[data\]"):
        moved(staged, tmp_path, sort=("number",))


def test_progress_is_told_and_the_terminal_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from ray.data import DataContext

    before = {name: value for name, value in vars(DataContext.get_current()).items() if name != "_execution_idx"}
    told: list[Event] = []
    table = awkward(300)
    staged = stage(table, tmp_path)
    result = moved(staged, tmp_path, dedup=("text",), sort=("text",), emit=told.append)
    assert [event.name for event in told if isinstance(event, PhaseStarted)] == ["dedup", "sort"]
    done = [event.data for event in told if isinstance(event, Progress)]
    assert {"done": 300, "total": 300, "unit": "rows"} in done
    assert done[-1] == {"done": result.rows_out, "total": result.rows_out, "unit": "rows"}
    assert capfd.readouterr() == ("", "")
    after = {name: value for name, value in vars(DataContext.get_current()).items() if name != "_execution_idx"}
    assert after == before


def test_an_interrupt_ends_it_soon_and_the_cluster_is_still_good(tmp_path: Path) -> None:
    def write(index: int, table: pa.Table) -> int:
        import time

        time.sleep(6)  # what has begun on a cluster that was joined is not torn from its process
        return index

    staged = stage(awkward(50), tmp_path)
    begun = time.monotonic()
    threading.Timer(3, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        moved(staged, tmp_path, sort=("number",), write=write)
    assert time.monotonic() - begun < 15
    assert moved(staged, tmp_path, sort=("number",)).rows_out == 50


SCRIPT = """
import sys
from dray.ingesting.moving import move
from dray.storage import DEFAULT

def writer(seconds):
    def write(index, table):
        import time
        time.sleep(seconds)
        return table.num_rows
    return write

def emit(event):
    print(event.kind, event.data, flush=True)

if __name__ == "__main__":
    how = dict(dedup=(), sort=("number",), files=2, cluster=None, storage=DEFAULT, emit=emit)
    print(move(sys.argv[2:], write=writer(float(sys.argv[1])), **how))
"""


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_cluster_of_its_own_leaves_nothing_behind(interrupted: bool, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    scratch = Path(tempfile.mkdtemp(prefix="mv-", dir="/tmp"))
    command = [sys.executable, str(tmp_path / "script.py"), "60" if interrupted else "0"]
    process = subprocess.Popen(
        [*command, *stage(awkward(300), tmp_path)],
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        started: list[psutil.Process] = []
        for line in process.stdout:
            lines.append(line)
            if "'name': 'sort'" in line:
                started = psutil.Process(process.pid).children(recursive=True)
                if interrupted:
                    time.sleep(4)
                    process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        if interrupted:
            assert "KeyboardInterrupt" in errors
        else:
            assert (process.returncode, errors) == (0, "")
            assert "rows_in=300" in lines[-1]
        assert started
        assert psutil.wait_procs(started, timeout=5)[1] == []
        assert list(scratch.iterdir()) == []
    finally:
        process.kill()
        shutil.rmtree(scratch, ignore_errors=True)
