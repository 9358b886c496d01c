"""Rejected rows that keep their place: as many rows as the file has, in its order."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from reading import LOST, read_in_place

from dray.data.open_source import open_source
from dray.data.source import Source
from dray.data.sources import files

TYPES = {"x": "int64", "t": "string"}


def in_place(source: Source, target_bytes: int = 64 << 20, columns: list[str] | None = None) -> list[Any]:
    """Return `x` of every row in order, and LOST for a rejected one."""
    found, rejects = read_in_place(source, target_bytes, columns)
    assert [row for row in found if row == LOST] == [LOST] * len(rejects)
    return found


def opened(path: Path, text: str | bytes) -> Source:
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return open_source(str(path), types=TYPES)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["1,a", "2,b"], [1, 2]),
        (["no,a", "2,b"], [LOST, 2]),
        (["1,a", "no,b"], [1, LOST]),
        (["1,a", "2", "3,c,c", "no,d", "5,e"], [1, LOST, LOST, LOST, 5]),
        (["no,a", "2", "3,4,5"], [LOST, LOST, LOST]),
        (["1,a", "", "no,b", "", "", "4,d", ""], [1, LOST, 4]),
        (["1,a", '2,"b\nb"', "no,c", '4,"d"'], [1, 2, LOST, 4]),
        (["1,a", "2,\udcff", "3,c"], [1, LOST, 3]),
        (["1,a", "2", '3,"open', "4,d"], [1, LOST, LOST]),
    ],
)
def test_a_rejected_row_keeps_its_place(tmp_path: Path, name: str, lines: list[str], expected: list[Any]) -> None:
    text = "\n".join(["x,t", *lines]).encode(errors="surrogateescape")
    assert in_place(opened(tmp_path / name, text)) == expected
    assert in_place(opened(tmp_path / name, text + b"\n")) == expected


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_rows_keep_their_places_in_all_blocks_and_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 5000)
    expected = [LOST if i % 97 in (0, 5, 6) or i > 19_990 else i for i in range(20_000)]
    kinds = ["{i}", "no,{i}", "{i},1,2"]
    lines = [kinds[i % 3].format(i=i) if value == LOST else f"{i},t" for i, value in enumerate(expected)]
    source = opened(tmp_path / name, "\n".join(["x,t", *lines]))
    assert in_place(source) == expected
    assert in_place(source, target_bytes=10_000) == expected
    assert in_place(source, target_bytes=10_000, columns=["x"]) == expected


def test_a_number_that_its_type_would_change_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 250_000 + "007\n" + "1\n" * 750_000)
    values = in_place(open_source(str(tmp_path / "a.csv")))
    assert len(values) == 1_000_001 and [i for i, value in enumerate(values) if value == LOST] == [250_000]
