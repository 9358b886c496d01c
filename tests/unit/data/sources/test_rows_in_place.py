"""Rejected rows of JSON files and databases that keep their place: as many rows as were written, in their order."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from reading import LOST, read_in_place

from dray.data.open_source import open_source
from dray.data.source import Source
from dray.data.sources import files


def in_place(source: Source, target_bytes: int = 64 << 20, columns: list[str] | None = None) -> list[Any]:
    """Return `x` of every row in order, and LOST for a rejected one."""
    found, rejects = read_in_place(source, target_bytes, columns)
    assert len(rejects) >= found.count(LOST)
    return found


def opened(path: Path, text: str) -> Source:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return open_source(str(path), types={"x": "int64"})


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['{"x": 1}', '{"x": 2}'], [1, 2]),
        (['{"x": 1}', '{"x": "no"}', "", '{"x": 3}'], [1, LOST, 3]),
        (["no", '{"x": 2}', '{"x": '], [LOST, 2, LOST]),
        (['{"x": 1}', "[1]", "17", '{"x": true}', '{"x": 5}'], [1, LOST, LOST, LOST, 5]),
        (['{"x": 1} {"x": 2}', "no", '{"x": 4}{"x": 5}', "no", '{"x": 7}'], [1, 2, LOST, 4, 5, LOST, 7]),
    ],
)
def test_a_rejected_line_keeps_its_place(tmp_path: Path, name: str, lines: list[str], expected: list[Any]) -> None:
    assert in_place(opened(tmp_path / name, "\n".join(lines))) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"x": 1}, {"x": 2}]', [1, 2]),
        ('[{"x": 1},\n{"x": "no"}, 4, {"x": 3}]', [1, LOST, LOST, 3]),
        ('[{"x": 1}, {"x": 2},', [1, 2]),
        ('[{"x": 1}, {"x": 2', [1, LOST]),
        ('[{"x": "no"}, {"x": 2}] and more', [LOST, 2]),
    ],
)
def test_a_rejected_item_of_an_array_keeps_its_place(tmp_path: Path, text: str, expected: list[Any]) -> None:
    assert in_place(opened(tmp_path / "a.json", text)) == expected


def test_lines_keep_their_places_in_all_blocks_and_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 5000)
    expected = [LOST if i % 97 in (0, 5, 6) or i > 9_990 else i for i in range(10_000)]
    text = "\n".join("no" if value == LOST else f'{{"x": {value}, "t": "a"}}' for value in expected)
    source = opened(tmp_path / "a.json", text)
    assert in_place(source) == expected
    assert in_place(source, target_bytes=10_000, columns=["x"]) == expected


def loose() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE loose (x INTEGER, t TEXT)")
    values = [(str(i) + "!" if i in (0, 3, 10_500) else i, "a") for i in range(25_000)]
    connection.executemany("INSERT INTO loose VALUES (?, ?)", values)
    return connection


def test_a_rejected_row_of_a_database_keeps_its_place() -> None:
    source = open_source(loose, table="loose", types={"x": "int64"})
    expected = [LOST if i in (0, 3, 10_500) else i for i in range(25_000)]
    assert in_place(source) == expected
    assert in_place(source, columns=["x"]) == expected
