"""Copies of data that is not Parquet: made once, used again, and made anew when the data is another."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from dray.config.run_file import make_config
from dray.data.open_source import open_source
from dray.errors import ConfigError, DataError
from dray.ingesting.cache import Reading, as_parquet
from dray.ingesting.ingest import ingest
from dray.ingesting.resuming import stamps
from dray.storage import DEFAULT
from dray.telemetry.run_files import RunFiles
from dray.training.run_steps import reading
from s3_server import CACHE_S, S3Server

Event = dict[str, Any]


class Told(list[Event]):
    def emit(self, kind: str, **data: Any) -> None:
        if kind == "copied":
            self.append(data)


def copied(data: Any, cache: Path, copies: tuple[str, ...] = ()) -> tuple[list[int], Event]:
    """Return the values of the column x, and what was told of the copy."""
    told = Told()
    (copy,) = as_parquet(data, DEFAULT, Reading(cache=str(cache), copies=copies), told.emit)
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


def as_of_an_earlier_version(copy: str, path: Path) -> str:
    """Turn a copy into what earlier versions left: elsewhere, with sizes and times only."""
    old = path.parent / "cache" / "of-an-earlier-version"
    shutil.copytree(copy, old)
    shutil.rmtree(copy)
    document = json.loads((old / "_ingest.json").read_text())
    del document["at"]
    document["source"]["files"] = [stamp[:3] for stamp in document["source"]["files"]]
    (old / "_ingest.json").write_text(json.dumps(document))
    return str(old)


def test_a_run_of_an_earlier_version_goes_on_with_its_copy(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    write_csv(path, [1, 2])
    _, first = copied(str(path), tmp_path / "cache")
    old = as_of_an_earlier_version(first["copy"], path)
    later = (path.stat().st_ctime_ns // 10**9 + 60,) * 2  # begun after the source was written
    for part in Path(old).glob("*.parquet"):
        os.utime(part, later)
    _, told = copied(str(path), tmp_path / "cache", copies=(old,))
    assert (told["copy"], told["made"]) == (old, False)
    assert copied(str(path), tmp_path / "cache")[1]["copy"] != old  # a new run takes a new copy


def test_a_run_of_an_earlier_version_does_not_go_on_with_a_copy_of_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    write_csv(path, [1, 2])
    before = path.stat()
    _, first = copied(str(path), tmp_path / "cache")
    old = as_of_an_earlier_version(first["copy"], path)
    write_csv(path, [8, 9])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    found, told = copied(str(path), tmp_path / "cache", copies=(old,))
    assert found == [8, 9]
    assert told["copy"] != old


def test_a_resumed_run_names_the_copies_that_it_was_begun_on(tmp_path: Path) -> None:
    config = make_config({"data": "data.csv", "label": "y", "cache": "c", "format": "csv"})
    files = RunFiles(str(tmp_path), DEFAULT)
    assert reading(config, files) == Reading("csv", config.read, "c", ())
    contents = {"train": [["/c/one/a.parquet", 1, 2], ["/c/one/b.parquet", 1, 2]], "eval": [["/c/two/a.parquet", 1, 2]]}
    (tmp_path / "data.json").write_text(json.dumps(contents))
    assert reading(config, files).copies == ("/c/one", "/c/two")


def test_a_directory_that_is_gone_is_no_copy(tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", [1, 2])
    _, told = copied(str(tmp_path / "data.csv"), tmp_path / "cache", copies=(str(tmp_path / "gone"), str(tmp_path)))
    assert told["made"] is True


def test_an_unfinished_ingest_of_an_earlier_version_is_not_gone_on_with(tmp_path: Path) -> None:
    write_csv(tmp_path / "data.csv", [1, 2])
    plan = {"version": 1, "recipe": {}, "source": {"files": [[str(tmp_path / "data.csv"), 1, 2]]}, "tasks": []}
    (tmp_path / "out" / "_ingest").mkdir(parents=True)
    (tmp_path / "out" / "_ingest" / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(ConfigError, match="was begun by another version of dray"):
        ingest(open_source(str(tmp_path / "data.csv")), str(tmp_path / "out"))


def test_stamps_tell_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist any more"):
        stamps([str(tmp_path / "gone.csv")], DEFAULT)
