"""`dray data ingest` as people run it: a command, its processes, S3, Ray; killed in the middle and gone on with."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.batch.options import Options
from dray.clusters.cluster import Cluster
from dray.data.open_source import open_source
from dray.ingesting.ingest import ingest
from dray.ingesting.recipe import Recipe
from dray_process import DRAY
from faulty_s3 import serve_faulty
from s3_server import S3Server

FILES = 6
FILE_ROWS = 200_000
FILE_BYTES = 9 << 20
"""More than the least bytes of a task, so that each file is one."""
MODULE = '''
import time
from pathlib import Path

import pyarrow.compute as pc

def gate(batch):
    """Stand still at the last file till somebody opens."""
    while batch["x"][0].as_py() >= 1_000_000 and not Path("open").exists():
        time.sleep(0.02)
    return batch

def fails(batch):
    if pc.max(batch["x"]).as_py() >= 700_000:
        raise ValueError("no such row")
    return batch

def talks(batch):
    print("hello from the transform")
    return batch.select(["x"])
'''


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six CSV files of 200,000 rows, a task each."""
    directory = tmp_path_factory.mktemp("data")
    filler = "f" * (FILE_BYTES // FILE_ROWS - 12)
    for file in range(FILES):
        first = file * FILE_ROWS
        lines = [f"{x},{x % 7},{filler}\n" for x in range(first, first + FILE_ROWS)]
        (directory / f"{file}.csv").write_text("x,k,text\n" + "".join(lines))
    return directory


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "features.py").write_text(MODULE)
    return tmp_path


class Command:
    """`dray data ingest` on its way."""

    def __init__(self, work: Path, *arguments: str | Path, env: Mapping[str, str] | None = None) -> None:
        command = [DRAY, "data", "ingest", *map(str, arguments), "--json"]
        self.process = subprocess.Popen(
            command,
            cwd=work,
            env=os.environ | dict(env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, timeout_s: float = 120) -> tuple[int, Any, str]:
        """Return the exit code, the document on stdout and the words on stderr."""
        out, words = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, json.loads(out) if out else None, words

    def finish(self) -> dict[str, Any]:
        code, document, words = self.end()
        assert code == 0, words
        return dict(document)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def done(out: Path) -> int:
    return len(list(out.glob("_ingest/task-*.json")))


def rows(out: Path) -> list[int]:
    files = sorted(out.glob("**/part-*.parquet"))
    return [x for file in files for x in pq.read_table(file, columns=["x"], partitioning=None)["x"].to_pylist()]


def test_files_become_parquet_in_processes(data: Path, work: Path) -> None:
    code, result, words = Command(work, data, "out", "--filter", "k != 3", "--columns", "k,x").end()
    assert code == 0, words
    assert (result["rows_read"], result["files"], result["resumed"]) == (1_200_000, FILES, 0)
    assert result["rows_kept"] + result["rows_filtered"] == 1_200_000
    assert rows(work / "out") == [x for x in range(1_200_000) if x % 7 != 3]
    assert pq.read_schema(work / "out" / "part-00000.parquet").names == ["k", "x"]
    assert f"{work}/out: 1,028,571 rows in 6 files" in words and "171,429 filtered" in words


def test_one_that_is_killed_is_gone_on_with_and_leaves_no_process(data: Path, work: Path) -> None:
    arguments = (data, "out", "--transform", "features:gate", "--workers", "2")
    first = Command(work, *arguments)
    wait_until(lambda: done(work / "out") == FILES - 1)
    children = psutil.Process(first.process.pid).children(recursive=True)
    assert children
    first.process.send_signal(signal.SIGKILL)
    first.process.communicate()
    psutil.wait_procs(children, timeout=10)
    assert not any(child.is_running() for child in children)
    before = {path.name: path.stat().st_mtime_ns for path in (work / "out").glob("part-*")}
    assert len(before) == FILES - 1
    (work / "open").touch()
    code, result, words = Command(work, *arguments).end()
    assert code == 0, words
    assert result["resumed"] == FILES - 1 and result["rows_read"] == result["rows_kept"] == 1_200_000
    assert "Continuing: 5 of 6 tasks are already done." in words
    assert rows(work / "out") == list(range(1_200_000))
    assert {name: (work / "out" / name).stat().st_mtime_ns for name in before} == before
    assert sorted(path.name for path in (work / "out").iterdir())[0] == "_ingest.json"


def test_a_second_one_is_refused_and_ctrl_c_ends_in_order(data: Path, work: Path) -> None:
    arguments = (data, "out", "--transform", "features:gate", "--workers", "2")
    first = Command(work, *arguments)
    wait_until(lambda: done(work / "out") == FILES - 1)
    code, document, _ = Command(work, *arguments).end()
    assert code == 2
    assert document["error"]["what"].startswith(f"Another dray data ingest is writing to {work}/out (process")
    first.process.send_signal(signal.SIGINT)
    code, document, words = first.end()
    assert code == 130 and document["error"]["type"] == "Interrupted"
    assert "What is done stays: the same command goes on." in words
    (work / "open").touch()
    assert Command(work, *arguments).finish()["resumed"] == FILES - 1


def test_a_transform_that_raises_is_told_with_its_traceback(data: Path, work: Path) -> None:
    code, document, words = Command(work, data, "out", "--transform", "features:fails").end()
    assert code == 1
    assert document["error"]["what"].startswith(f"The transform features:fails failed at {data}/")
    assert 'raise ValueError("no such row")' in words


def test_what_a_transform_prints_is_not_in_the_result(data: Path, work: Path) -> None:
    code, result, words = Command(work, data / "0.csv", "out", "--transform", "features:talks").end()
    assert code == 0 and result["rows_kept"] == FILE_ROWS
    assert "hello from the transform" in words


def test_from_s3_to_s3_with_rejects_killed_in_the_middle(data: Path, work: Path, s3_server: S3Server) -> None:
    source = s3_server.directory / "raw"
    source.mkdir()
    for file in range(1, FILES):
        (source / f"{file}.csv").write_bytes((data / f"{file}.csv").read_bytes())
    text = (data / "0.csv").read_text().replace("\n4711,", "\nno number,", 1)
    (source / "0.csv.gz").write_bytes(gzip.compress(text.encode(), 1))
    places = (s3_server.url("raw"), s3_server.url("out"))
    more = ("--read", "types={x: int64}", "--transform", "features:gate", "--test", "0.25", "--split-by", "k")
    first = Command(work, *places, *more, env=s3_server.environment)
    out = s3_server.directory / "out"
    wait_until(lambda: done(out) >= 1)
    first.process.send_signal(signal.SIGKILL)
    first.process.communicate()
    (work / "open").touch()
    result = Command(work, *places, *more, env=s3_server.environment).finish()
    assert result["rows_read"] == 1_200_000 and result["rows_rejected"] == 1
    assert sorted(rows(out)) == [x for x in range(1_200_000) if x != 4711]
    (reject,) = [json.loads(line) for line in (out / "_rejects.jsonl").read_text().splitlines()]
    assert (reject["file"], reject["line"]) == (s3_server.url("raw/0.csv.gz"), 4713)
    parts = [set(pq.read_table(out / part, columns=["k"])["k"].to_pylist()) for part in ("train", "test")]
    assert not parts[0] & parts[1] and sum(result["parts"].values()) == result["rows_kept"]
    assert not (out / "_ingest").exists() or not list((out / "_ingest").iterdir())
    train = open_source(s3_server.url("out/train"))
    assert train.rows == result["parts"]["train"]


def test_a_store_that_fails_for_a_moment_is_waited_for(data: Path, work: Path, s3_server: S3Server) -> None:
    with serve_faulty(s3_server) as faulty:
        faulty.fail("slow_down", requests=4, matching="part-")
        result = Command(work, data / "0.csv", s3_server.url("out"), env=faulty.reached.environment).finish()
        assert faulty.failed == 4
    assert result["rows_kept"] == FILE_ROWS
    assert rows(s3_server.directory / "out") == list(range(FILE_ROWS))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", place], check=False).returncode:
        pytest.skip("may not mount a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_is_told_and_with_more_room_it_goes_on(data: Path, work: Path, small_disk: Path) -> None:
    arguments = (data, small_disk / "out", "--columns", "x", "--workers", "1")
    code, document, _ = Command(work, *arguments).end()
    assert code == 2, document
    assert "No space left on the disk while writing" in document["error"]["what"]
    kept = done(small_disk / "out")
    assert kept
    subprocess.run(["mount", "-o", "remount,size=30m", small_disk], check=True)
    assert Command(work, *arguments).finish()["resumed"] >= kept
    assert rows(small_disk / "out") == list(range(1_200_000))


def test_tasks_run_on_a_cluster_too(data: Path, work: Path, three_cpus: Cluster) -> None:
    options = Options(where="cluster")
    result = ingest(open_source(str(data)), str(work / "out"), Recipe(filter="x < 500000"), options=options)
    assert result.rows_kept == 500_000 and rows(work / "out") == list(range(500_000))


def test_duplicates_go_and_rows_are_sorted(work: Path) -> None:
    table = pa.table({"user": [i % 1000 for i in range(5000)], "x": list(range(5000))})
    pq.write_table(table, work / "a.parquet", row_group_size=500)
    arguments = ("a.parquet", "out", "--dedup", "user", "--sort", "-x", "--filter", "x >= 100", "--test", "0.3")
    result = Command(work, *arguments).finish()
    assert (result["rows_read"], result["rows_filtered"]) == (5000, 100)
    assert (result["rows_kept"], result["rows_duplicate"]) == (1000, 3900)
    assert sum(result["parts"].values()) == 1000
    for part in ("train", "test"):
        found = rows(work / "out" / part)
        assert found == sorted(found, reverse=True)
    assert sorted(rows(work / "out")) == list(range(100, 1100))
    assert pq.read_schema(next((work / "out").glob("train/*.parquet"))).names == ["user", "x"]


def test_whole_rows_that_come_twice_stay_once_in_the_order_of_the_source(work: Path) -> None:
    pq.write_table(pa.table({"x": [3, 1, 3, 2, 1], "y": [1, 1, 1, 1, 1]}), work / "a.parquet")
    result = Command(work, "a.parquet", "out", "--dedup", "all", "--columns", "x").finish()
    assert result["rows_duplicate"] == 2 and rows(work / "out") == [3, 1, 2]
