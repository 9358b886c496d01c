"""What is said about CSV that is not read as its author meant it; and silence about data that is fine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reading import rows

from dray.data.open_source import open_source
from dray.data.source import Source
from dray.errors import DataError


def opened(path: Path, lines: list[str], name: str = "a.csv", **options: Any) -> Source:
    (path / name).write_text("\n".join(lines) + "\n")
    return open_source(str(path / name), **options)


def table(count: int, *columns: str) -> list[str]:
    """Return rows with `{i}` filled in."""
    return [",".join(columns).format(i=i, h=i / 2, s="MF"[i % 2]) for i in range(count)]


NUMBERS = [f"{i * 37 % 11}" for i in range(60)]


@pytest.mark.parametrize(
    ("lines", "fixes"),
    [
        (["0.23,5.07,'-1'", "0.15,-0.16,'-1'", "-0.78,0.44,'1'"], ["--read header=false", '--read "quote=\'"']),
        (["M,0.455,15", "F,0.35,7", "M,0.53,9"], ["--read header=false"]),
        (["7,3,a", "6,3,b", "8,4,a"], ["--read header=false"]),
        (["# of May", "# by shop, in order", "a,b", "1,2", "3,4"], ["--read comment=#"]),
        (["# by shop, in order", "# of May, old", "a,b", "x,y", "z,w"], ["--read comment=#"]),
        (["a,b", *("x;y;z,1",) * 3], []),
        (["text", *("I came; I saw", "no; yes; no", "a;b") * 2], []),
        (["a b;c", "x y;z", "x;u;v", "y;z;w", "o;i;z"], ['--read "delimiter=;"']),
        (["id 5 name", "1 6 x", "2 7 y", "3 8 z"], ['--read "delimiter=whitespace"']),
        (["age, work", "39, Private", "40, State gov", "41, Private"], ["--read strip=true"]),
        (["a,b", "1,x", "?,y", "3,z"], ['--read "nulls=?"']),
        (["a,b", "1,NA", "-,3", "3,4", "NA,2"], ['--read "nulls=-,NA"']),
        (["a,b", *(f"{n},{'-999' if i % 9 == 0 else n}" for i, n in enumerate(NUMBERS))], ['--read "nulls=-999"']),
        (["t", *("-999" if i % 9 == 0 else f"{i % 50 - 18}.5" for i in range(99))], ['--read "nulls=-999"']),
        (["a;b", "1,5;x", "2;y", "3,25;z"], ["commas", '--read "decimal=,".']),
        (["a;b", "1.234,5;x", "2;y"], ["commas", '--read "decimal=," --read "thousands=.".']),
        (["a,b", '"1,234.5",x', "2,y"], ['--read "thousands=,".']),
        (["a;b", "1,234.50;x", "887.89;y", "9;z"], ["semicolons", '--read "thousands=,".']),
        (["a,b", '"1,234",x', "2,y"], ['--read "thousands=,"']),
        (["a;b", "1 234,5;x", "2;y"], ["commas", '--read "thousands= " --read "decimal=,"']),
    ],
)
def test_what_looks_wrong_is_told_with_its_option(tmp_path: Path, lines: list[str], fixes: list[str]) -> None:
    notes = opened(tmp_path, lines).notes
    assert len(notes) == len(fixes), notes
    for note, fix in zip(notes, fixes, strict=True):
        assert fix in note.fix or fix in note.what + note.fix


@pytest.mark.parametrize(
    "lines",
    [
        ["country,2019,2020,2021", "DE,1,2,3", "FR,4,5,6"],
        ["0,1,2,3", "5,3,2,8", "7,7,7,7"],
        ["#chrom,start", "x,1", "y,7"],
        ["#color", "#ff0000", "#00ff00", "red"],
        ["x,y", "1,2", "3,4"],
        ["a,b", "x,y", "z,w"],
        ["note,n", "one; two,1", "three; four,2", "five; six,3"],
        ["name", "Hans Meier", "Eva Braun", "Jo Black"],
        ["name", "Hans von Meier", "Eva zu Braun", "Jo de Black"],
        ["a", *("-999",) * 50],
        ["n", "-999", "-999", *NUMBERS],
        ["a b", "1 2", "3 4,5", "5 6"],
        ["t", *(f"{-i}" for i in range(1990, 2010)), "-999"],
        ["delta", *(f"{i - 999}" for i in range(60))],
        ["wide", *("-999" if i % 9 == 0 else f"{i * 8 - 400}" for i in range(99))],
        ["answer", "yes", "no", "?", "unknown"],
        ["word", "'tis", "it's", "dogs'"],
        ["place", "52,5", "x"],
        ["range", "1-2", "3-4", "-"],
        ["version", "1.2.3", "1.2.4"],
        ["ip", "10.0.0.1", "10.0.0.2"],
        ["note", "a", " b", "c", "d"],
        ["day,n", "2024-01-01,1", "2024-01-02,2"],
        ["n,x", *(f"{i},{i * 1.5}" for i in range(50))],
        ["code", "A1", "007", "12"],
        ["flag,n", "true,1", "false,2"],
    ],
)
def test_data_that_is_fine_is_not_suspected(tmp_path: Path, lines: list[str]) -> None:
    assert opened(tmp_path, lines).notes == ()


def test_what_is_said_is_not_told_again(tmp_path: Path) -> None:
    assert opened(tmp_path, ["1.5,2", "3.5,4", "5.5,1"], header=True).notes == ()
    assert opened(tmp_path, ["a,b", "1,x", "?,y"], nulls=["?"]).notes == ()
    assert opened(tmp_path, ["a, b", "1, x", "2, y", "2, y"], strip=False).notes == ()


def test_two_columns_of_a_first_line_that_is_data_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        opened(tmp_path, ["1,0,0,7", "2,1,0,8"])
    assert "--read header=false" in raised.value.fix and "f0 to f3" in raised.value.fix


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a;b", "1;x, y", "2;z"], {"a": 1, "b": "x, y"}),
        (["a\tb", "1\t2"], {"a": 1, "b": 2}),
        (["a|b", "1|x;y", "2|z"], {"a": 1, "b": "x;y"}),
        (['"a";"b"', '"x;y";"z"', '"u";"v"'], {"a": "x;y", "b": "z"}),
        (["u i r", "0 8 1", "1 9 2"], {"u": 0, "i": 8, "r": 1}),
        (["  u   i", "  0  81", " 10   9"], {"u": 0, "i": 81}),
    ],
)
def test_a_delimiter_that_leaves_no_doubt_is_used_and_told(
    tmp_path: Path, lines: list[str], expected: dict[str, Any]
) -> None:
    for name in ("a.csv", "a.txt"):  # a name that says nothing is known by its rows
        source = opened(tmp_path, lines, name)
        assert rows(source)[0] == expected
        assert len(source.notes) == 1 and "are divided by" in source.notes[0].what
        typed = source.notes[0].fix.partition('--read "delimiter=')[2].partition('"')[0]
        from dray.data.read_options import parse_option

        again = opened(tmp_path, lines, name, format="csv", delimiter=parse_option("delimiter", typed))
        assert rows(again)[0] == expected and again.notes == ()


@pytest.mark.parametrize("lines", [["a,b", "x;y,z;w"], ["a", "1", "2"], ["one two", "three four"], ["a;b|c", "d;e|f"]])
def test_the_comma_stays_where_there_is_a_doubt(tmp_path: Path, lines: list[str]) -> None:
    source = opened(tmp_path, lines)
    assert source.schema.names == lines[0].split(",")


def test_a_delimiter_that_is_given_is_used(tmp_path: Path) -> None:
    assert opened(tmp_path, ["a;b", "1;2"], delimiter=",").schema.names == ["a;b"]


def test_text_that_is_no_table_has_no_format(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"format of .* is not known"):
        opened(tmp_path, ["Dear reader,", "this is", "a letter."], "a.txt")
