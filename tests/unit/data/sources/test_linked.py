"""Directories that a link names again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dray
from dray.data.open_source import open_source
from dray.data.sources.files import find_files
from dray.data.sources.linked import each_once
from dray.storage import DEFAULT


def names(root: Path, *locations: str) -> list[str]:
    return [
        file.location.removeprefix(f"{root}/") for file in find_files([str(root / at) for at in locations], DEFAULT)
    ]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "z.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "d" / "sub" / "z.csv").write_text("x,y\n5,6\n")
    return tmp_path


def test_a_link_back_into_its_directory_is_told_and_its_files_are_read_once(data: Path) -> None:
    (data / "d" / "loop").symlink_to("../d")
    assert names(data, "d") == ["d/sub/z.csv", "d/z.csv"]
    assert dray.describe("d").rows.value == 3
    [told] = [note.what for note in open_source("d").notes if "by a link" in note.what]
    assert told.endswith(f"passed over: {data}/d/loop is {data}/d.")


def test_links_of_parquet_are_told_too(data: Path) -> None:
    for name in ("p", "p/sub"):
        Path(name).mkdir()
        pq.write_table(pa.table({"x": range(20), "y": range(20)}), f"{name}/a.parquet")
    Path("p/again").symlink_to("sub")
    result = dray.train("p", label="y", rounds=1, workers=0, out="run")
    assert result.rows == 40
    assert [told for told in result.warnings if f"{data}/p/again is {data}/p/sub." in told]


def test_the_directory_goes_by_its_own_name_and_no_file_is_lost(data: Path) -> None:
    (data / "d" / "again").symlink_to("sub")
    assert names(data, "d") == ["d/sub/z.csv", "d/z.csv"]
    assert names(data, "d/again") == ["d/again/z.csv"]
    (data / "d" / "sub" / "a.csv").write_text("x,y\n")
    assert names(data, "d/again/a*", "d/sub/z*") == ["d/again/a.csv", "d/sub/z.csv"]
    (data / "e").symlink_to("d")
    assert names(data, "d", "e") == ["d/sub/a.csv", "d/sub/z.csv", "d/z.csv"]


def test_links_to_files_and_to_other_places_are_data(data: Path) -> None:
    (data / "d" / "link.csv").symlink_to("z.csv")
    (data / "other").mkdir()
    (data / "other" / "z.csv").write_text("x,y\n7,8\n")
    (data / "d" / "other").symlink_to("../other")
    assert names(data, "d") == ["d/link.csv", "d/other/z.csv", "d/sub/z.csv", "d/z.csv"]
    assert not [note for note in open_source("d").notes if "by a link" in note.what]


def test_a_directory_is_looked_at_once_however_many_files_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(os.path, "realpath", lambda path: looked.append(path) or path)
    files = [*sorted(f"/d/{part}/{number}.csv" for part in "ab" for number in range(1000)), "s3://d/a/1.csv"]
    assert each_once(files) == (files, {})
    assert sorted(looked) == ["/d/a", "/d/b"]
