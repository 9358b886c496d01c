"""Copies of data that is not Parquet: made once, used again, and made anew when the data is another."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from dray.data.open_source import open_source
from dray.errors import ConfigError, DataError
from dray.events import kinds
from dray.events.sinks.terminal import PlainLines
from dray.ingesting import copy_files
from dray.ingesting.cache import Reading, as_parquet
from dray.ingesting.ingest import ingest
from dray.ingesting.resuming import stamps
from dray.storage import DEFAULT
from made_events import made_event
from s3_server import CACHE_S, S3Server

Event = dict[str, Any]


class Told(list[Event]):
    def emit(self, event: kinds.Event) -> None:
        if isinstance(event, kinds.SourceConverted):
            self.append(event.data)


def copied(data: Any, cache: Path) -> tuple[list[int], Event]:
    """Return the values of the column x, and what was told of the copy."""
    told = Told()
    (copy,) = as_parquet(data, DEFAULT, Reading(cache=str(cache)), told.emit)
    return pq.read_table(copy)["x"].to_pylist(), told[0]


def write_csv(path: Path, values: list[int]) -> None:
    path.write_text("x,y\n" + "".join(f"{value},0\n" for value in values), encoding="utf-8")


def write_json(path: Path, values: list[int]) -> None:
    path.write_text("".join(json.dumps({"x": value}) + "\n" for value in values), encoding="utf-8")


def write_arrow(path: Path, values: list[int]) -> None:
    feather.write_feather(pa.table({"x": values}), path, compression="uncompressed")


WRITERS = {"data.csv": write_csv, "data.jsonl": write_json, "data.arrow": write_arrow}


def in_place(path: Path, write: Callable[[Path], None]) -> None:
    """As cp -p does: the same file, with the old times."""
    write(path)


def replaced(path: Path, write: Callable[[Path], None]) -> None:
    """As rsync does: another file in its place, with the old times."""
    other = path.with_name("other" + path.suffix)
    write(other)
    other.replace(path)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("way", [in_place, replaced], ids=lambda way: way.__name__)
def test_a_file_with_other_rows_and_the_same_size_and_time_is_copied_anew(name: str, way: Any, tmp_path: Path) -> None:
    path, write = tmp_path / name, WRITERS[name]
    write(path, [1, 2, 3])
    before = path.stat()
    assert copied(str(path), tmp_path / "cache")[0] == [1, 2, 3]
    way(path, lambda place: write(place, [7, 8, 9]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    found, told = copied(str(path), tmp_path / "cache")
    assert found == [7, 8, 9]
    assert told["made"] is True


def test_an_object_with_other_rows_and_the_same_size_and_time_is_copied_anew(
    s3_server: S3Server, tmp_path: Path
) -> None:
    path = s3_server.directory / "data.csv"
    write_csv(path, [1, 2, 3])
    before = path.stat()
    assert copied(s3_server.url("data.csv"), tmp_path / "cache")[0] == [1, 2, 3]
    assert copied(s3_server.url("data.csv"), tmp_path / "cache")[1]["made"] is False
    write_csv(path, [7, 8, 9])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    time.sleep(10 * CACHE_S)  # till the server has forgotten what was there
    assert copied(s3_server.url("data.csv"), tmp_path / "cache")[0] == [7, 8, 9]


def test_a_copy_that_is_used_again_is_told_with_its_place_and_age(tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", [1, 2])
    _, first = copied(str(tmp_path / "data.csv"), tmp_path / "cache")
    _, again = copied(str(tmp_path / "data.csv"), tmp_path / "cache")
    assert (first["made"], again["made"]) == (True, False)
    assert again["copy"] == first["copy"]
    assert again["made_at"] == first["made_at"] == json.loads((Path(first["copy"]) / "_ingest.json").read_text())["at"]


@pytest.mark.parametrize(
    ("made_at", "words"),
    [
        ("2026-01-31T12:05:09+00:00", "its Parquet copy of 2026-01-31 12:05 UTC was made, /c/1 is used, 7 rows"),
        (None, "its Parquet copy was made, /c/1 is used, 7 rows"),
    ],
)
def test_a_person_reads_which_copy_is_used(made_at: str | None, words: str) -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    told = {"source": "a.csv", "format": "csv", "copy": "/c/1", "made": False, "made_at": made_at, "rows": 7}
    lines.event(made_event(0.0, "copied", told))
    lines.event(made_event(0.0, "data", {"rows": 7, "features": 2}))
    first, second = stream.getvalue().splitlines()
    assert first.endswith(f"a.csv is csv: it has not changed since {words}")
    assert second.endswith("a Parquet copy of csv" + (" made 2026-01-31 12:05 UTC" if made_at else ""))


def test_an_unfinished_ingest_of_an_earlier_version_is_not_gone_on_with(tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", [1, 2])
    plan = {"version": 1, "recipe": {}, "source": {"files": [[str(tmp_path / "data.csv"), 1, 2]]}, "tasks": []}
    (tmp_path / "out" / "_ingest").mkdir(parents=True)
    (tmp_path / "out" / "_ingest" / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(ConfigError, match="was started by another version of dray"):
        ingest(open_source(str(tmp_path / "data.csv")), str(tmp_path / "out"))


def test_stamps_tell_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no longer exists"):
        stamps([str(tmp_path / "gone.csv")], DEFAULT)


def test_types_of_arrow_are_part_of_what_a_copy_was_made_from(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [1, 2])
    ways = [Reading(cache=str(tmp_path / "cache"), options={"types": {"x": kind}}) for kind in (pa.int8(), pa.string())]
    told = Told()
    first, second = (as_parquet(str(tmp_path / "a.csv"), DEFAULT, way, told.emit)[0] for way in ways)
    assert pq.read_schema(f"{first}/part-00000.parquet").field("x").type == pa.int8()
    assert pq.read_table(second)["x"].to_pylist() == ["1", "2"]


def aged(path: Path) -> None:
    long_ago = time.time() - (copy_files.KEPT_DAYS + 1) * 86400
    os.utime(path, (long_ago, long_ago))


def test_an_output_beside_the_copies_stays_however_old_it_is(tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", [1, 2, 3])
    ingest(open_source(str(tmp_path / "data.csv")), str(tmp_path / "out"))
    mode = (tmp_path / "out").stat().st_mode
    aged(tmp_path / "out" / "_ingest.json")
    copied(str(tmp_path / "data.csv"), tmp_path)
    assert pq.read_table(tmp_path / "out")["x"].to_pylist() == [1, 2, 3]
    assert (tmp_path / "out").stat().st_mode == mode


def test_a_copy_that_was_never_finished_goes_when_it_is_old(tmp_path: Path) -> None:
    alive = tmp_path / "cache" / "0123456789abcdef0123" / "_ingest" / "alive"
    alive.parent.mkdir(parents=True)
    alive.touch()
    copy_files.remove_old(str(tmp_path / "cache"), DEFAULT)
    assert alive.exists()
    aged(alive)
    copy_files.remove_old(str(tmp_path / "cache"), DEFAULT)
    assert not alive.parent.parent.exists()


@pytest.mark.parametrize("run", ['"\\u0000"', '"\\ud800"', "null", "[]"])
def test_a_copy_whose_run_cannot_be_read_stays_and_hinders_no_other(run: str, tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", [1, 2, 3])
    cache = tmp_path / "cache"
    copied(str(tmp_path / "data.csv"), cache)
    (copy,) = cache.iterdir()
    (copy / "_kept_for.json").write_text(f'{{"run": {run}}}')
    aged(copy / "_ingest.json")
    write_csv(tmp_path / "other.csv", [4, 5, 6])
    assert copied(str(tmp_path / "other.csv"), cache)[0] == [4, 5, 6]
    assert copy.exists()


def test_rows_of_a_query_that_fails_do_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
        return connection

    def fails(*_: Any, **__: Any) -> None:
        raise DataError("The connection was lost.")

    monkeypatch.setattr("dray.ingesting.ingest._Ingest._end", fails)  # all rows are written by then
    with pytest.raises(DataError, match="connection was lost"):
        as_parquet(connect, DEFAULT, Reading("sql", {"table": "t"}, str(tmp_path / "cache")), Told().emit)
    assert not list((tmp_path / "cache").iterdir())
