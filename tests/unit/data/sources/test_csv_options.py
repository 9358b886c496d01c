"""CSV as it is written elsewhere: every option, from a file to its rows."""

from __future__ import annotations

import gzip
import math
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read_all, rows

import dray
from dray.data.open_source import open_source
from dray.data.source import Source
from dray.data.sources.csv_separators import Separators
from dray.data.sources.quotes import Quoting, without_blanks
from dray.errors import ConfigError, DataError


def opened(path: Path, text: str | bytes, **options: Any) -> Source:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return open_source(str(path), **options)


def columns(source: Source) -> dict[str, list[Any]]:
    table, rejects = read_all(source)
    assert not rejects
    found: dict[str, list[Any]] = table.to_pydict()
    return found


def rejected(source: Source) -> list[tuple[int | None, str]]:
    return [(reject.line, reject.reason) for reject in read_all(source)[1]]


class TestNames:
    def test_names_imply_that_there_is_no_header(self, tmp_path: Path) -> None:
        assert columns(opened(tmp_path / "a.csv", "1,2\n3,4\n", names=["x", "y"])) == {"x": [1, 3], "y": [2, 4]}

    def test_names_replace_those_of_a_header_that_is_said_to_be_there(self, tmp_path: Path) -> None:
        source = opened(tmp_path / "a.csv", "a,b\n3,4\n", names=["x", "y"], header=True)
        assert columns(source) == {"x": [3], "y": [4]}

    def test_a_first_row_that_holds_the_names_is_told(self, tmp_path: Path) -> None:
        source = opened(tmp_path / "a.csv", "x,y\na,b\n", names=["x", "y"])
        assert len(rows(source)) == 2
        assert [note.fix for note in source.notes] == ["If it is one, use --read header=true."]


class TestALineThatNamesTheDelimiter:
    ROWS: ClassVar = {"a": [1, 3], "b": ["2,5", "4,5"]}

    @pytest.mark.parametrize("first", ["sep=;\n", '"sep=;"\n', "SEP=;\r\n", "\ufeffsep=;\n"])
    def test_it_is_no_header_and_told(self, first: str, tmp_path: Path) -> None:
        text = first + "a;b\n1;2,5\n3;4,5\n"
        source = opened(tmp_path / "a.csv", text)
        assert columns(source) == self.ROWS
        told = [note for note in source.notes if "begins with the line" in note.what]
        assert len(told) == 1 and "semicolons" in told[0].what and "skip=1" in told[0].fix
        assert columns(opened(tmp_path / "a.csv", text, skip=1, delimiter=";")) == self.ROWS
        assert columns(opened(tmp_path / "a.csv", text, delimiter=";")) == self.ROWS

    def test_the_delimiter_is_the_one_that_it_names(self, tmp_path: Path) -> None:
        for mark in ("|", "\t", ":", ","):
            text = f"sep={mark}\na{mark}b;c\n1{mark}2;3\n"
            assert columns(opened(tmp_path / "a.csv", text)) == {"a": [1], "b;c": ["2;3"]}
        assert columns(opened(tmp_path / "a.tsv", "sep=;\na;b\n1;2\n")) == {"a": [1], "b": [2]}

    def test_each_file_may_have_it_in_any_form(self, tmp_path: Path) -> None:
        text = "sep=;\na;b\n1;2,5\n3;4,5\n"
        (tmp_path / "b.csv").write_text("a;b\n5;6,5\n")
        (tmp_path / "c.csv.gz").write_bytes(gzip.compress(text.encode()))
        (tmp_path / "a.csv").write_bytes(text.encode("utf-16"))
        assert columns(open_source(str(tmp_path)))["a"] == [1, 3, 5, 1, 3]

    def test_the_line_numbers_of_rejects_count_it(self, tmp_path: Path) -> None:
        source = opened(tmp_path / "a.csv", "sep=;\na;b\n1;2\n1;2;3\n")
        assert [line for line, _ in rejected(source)] == [4]

    def test_a_header_and_rows_that_only_look_like_it_stay(self, tmp_path: Path) -> None:
        assert columns(opened(tmp_path / "a.csv", "sep=,b\n1,2\n")) == {"sep=": [1], "b": [2]}
        assert columns(opened(tmp_path / "a.csv", "a\nsep=;\n")) == {"a": ["sep=;"]}

    def test_what_is_told_to_type_reads_the_same(self, tmp_path: Path) -> None:
        data = str(tmp_path / "a.csv")
        Path(data).write_text("sep=;\nx;y\n" + "".join(f"{i};{i % 2}\n" for i in range(50)))
        run = dray.train(data, label="y", rounds=2, workers=0, out=str(tmp_path / "run"), cache=str(tmp_path / "cache"))
        assert (run.rows, run.features) == (50, 1)
        assert any("begins with the line" in warning for warning in run.warnings)
        assert dray.predict(str(tmp_path / "run"), data, str(tmp_path / "out.csv")).rows == 50
        assert dray.ingest(data, str(tmp_path / "copy")).rows_kept == 50


class TestSeparators:
    def test_a_decimal_comma(self, tmp_path: Path) -> None:
        source = opened(tmp_path / "a.csv", "a;b;c\n1,5;2;x,y\n-0,25;;z\n", decimal=",")
        assert columns(source) == {"a": [1.5, -0.25], "b": [2, None], "c": ["x,y", "z"]}

    @pytest.mark.parametrize(
        ("mark", "thousands"), [(".", "."), (" ", " "), ("\u00a0", " "), ("\u202f", "\u00a0"), ("'", "'"), ("’", "'")]
    )
    def test_thousands(self, tmp_path: Path, mark: str, thousands: str) -> None:
        text = f"a;b;c\n1{mark}234,5;1{mark}234{mark}567;a{mark}b\n12,25;7;NA\n;NA;\n"
        source = opened(tmp_path / "a.csv", text, decimal=",", thousands=thousands)
        assert columns(source) == {"a": [1234.5, 12.25, None], "b": [1234567, 7, None], "c": [f"a{mark}b", "NA", None]}
        assert source.schema.types == [pa.float64(), pa.int64(), pa.string()]

    def test_quoted_thousands_between_commas(self, tmp_path: Path) -> None:
        assert columns(opened(tmp_path / "a.csv", 'a,b\n"1,234",1\n5,2\n', thousands=",")) == {
            "a": [1234, 5],
            "b": [1, 2],
        }

    @pytest.mark.parametrize("value", ["0.005", "1.2345", "12.34", "1234.567", ".123", "1,5,6", "1.234.5"])
    def test_a_separator_where_no_thousands_end_rejects_the_row(self, tmp_path: Path, value: str) -> None:
        text = "a;b\n" + "1.234,5;1\n" + f"{value};2\n" + "7;3\n"
        source = opened(tmp_path / "a.csv", text, decimal=",", thousands=".", types={"a": "double"})
        assert rejected(source) == [(3, f"column \"a\": '{value}' is not double")]
        assert read_all(source)[0]["b"].to_pylist() == [1, 3]

    def test_a_row_is_named_rightly_where_another_has_too_few_fields(self, tmp_path: Path) -> None:
        text = "a;b\n1\n1.234;1\n2\n1.23;2\n7;3\n"
        source = opened(tmp_path / "a.csv", text, delimiter=";", thousands=".", types={"a": "int64"})
        assert [line for line, _ in rejected(source)] == [2, 4, 5]

    def test_a_point_is_no_decimal_comma(self, tmp_path: Path) -> None:
        source = opened(tmp_path / "a.csv", "a;b\n1.5;1\n2,5;2\n", decimal=",", types={"a": "double"})
        assert rejected(source) == [(2, "column \"a\": '1.5' is not double")]

    def test_numbers_stay_exact(self, tmp_path: Path) -> None:
        text = "a;b;c;d\n9.007.199.254.740.993;0,5;007;99999999999999999999\n1;9007199254740993,0;1;1\n"
        source = opened(tmp_path / "a.csv", text, decimal=",", thousands=".")
        assert [str(type_) for type_ in source.schema.types] == [
            "int64",
            "decimal128(38, 18)",
            "string",
            "decimal128(38, 0)",
        ]
        found = columns(source)
        assert found["a"] == [9007199254740993, 1] and found["c"] == ["007", "1"]
        assert [str(value.normalize()) for value in found["b"]] == ["0.5", "9007199254740993"]
        assert found["d"][0] == 99999999999999999999

    @pytest.mark.parametrize("options", [{"decimal": ","}, {"decimal": ",", "thousands": "."}])
    def test_a_number_beyond_the_sample_that_a_double_cannot_hold_is_rejected(
        self, tmp_path: Path, options: dict[str, str]
    ) -> None:
        lines = ["1,5"] * 600_000
        lines[200_000], lines[200_001] = "9007199254740993,0", "007"
        source = opened(tmp_path / "a.csv", "x\n" + "\n".join(lines), delimiter=";", **options)
        assert rejected(source) == [
            (200_002, "column \"x\": '9007199254740993.0' has more digits than double can hold"),
            (200_003, "column \"x\": '007' has a leading zero, which double would lose"),
        ]

    @given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12))
    def test_what_python_writes_with_separators_is_read_back(self, number: Any) -> None:
        written = f"{number:,.3f}".translate({ord(","): ".", ord("."): ","})
        rewritten = Separators(",", ".").rewritten(pa.chunked_array([[written]]))
        assert math.isclose(float(rewritten[0].as_py()), float(number), abs_tol=1e-9)

    def test_a_mark_with_two_meanings_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="decimal and thousands are both ','"):
            opened(tmp_path / "a.csv", "a\n1\n", decimal=",", thousands=",")
        with pytest.raises(ConfigError, match="delimiter and thousands"):
            opened(tmp_path / "a.csv", "a\n1\n", quote=None, thousands=",")


class TestEncodings:
    TEXT = "name,n\nMüller,1\nŠimić,2\n"

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1250", "utf-8", "utf-8-sig"])
    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_text_is_decoded(self, tmp_path: Path, encoding: str, suffix: str) -> None:
        text = self.TEXT.encode(encoding)
        path = tmp_path / f"a.csv{suffix}"
        source = opened(path, gzip.compress(text) if suffix else text, encoding=encoding)
        assert columns(source) == {"name": ["Müller", "Šimić"], "n": [1, 2]}

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
    def test_a_byte_order_mark_says_enough(self, tmp_path: Path, encoding: str) -> None:
        assert columns(opened(tmp_path / "a.csv", self.TEXT.encode(encoding)))["name"] == ["Müller", "Šimić"]

    def test_utf_16_without_a_mark_is_told_with_its_option(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="looks like UTF-16-BE") as raised:
            opened(tmp_path / "a.csv", self.TEXT.encode("utf-16-be"))
        assert "--read encoding=utf-16-be" in raised.value.fix

    def test_latin_1_is_told_and_read(self, tmp_path: Path) -> None:
        text = ("name,n\n" + "Müller,1\n" * 3).encode("latin-1")
        source = opened(tmp_path / "a.csv", text)
        assert "--read encoding=cp1252" in source.notes[0].fix
        assert columns(opened(tmp_path / "a.csv", text, encoding="latin-1"))["name"] == ["Müller"] * 3

    def test_a_wrong_encoding_is_told_or_rejects(self, tmp_path: Path) -> None:
        assert "looks like UTF-8" in opened(tmp_path / "a.csv", "a\nMüller\n", encoding="latin-1").notes[0].what
        with pytest.raises(DataError, match="is not utf-16"):
            opened(tmp_path / "a.csv", "a,b\n1,2\n", encoding="utf-16")
        source = opened(tmp_path / "a.csv", b"a,b\nx,1\n\x81,2\ny,3\n", encoding="cp1252")
        assert rejected(source) == [(3, 'column "a": not cp1252 text')]
        with pytest.raises(ConfigError, match='no encoding "utf-17"'):
            opened(tmp_path / "a.csv", "a\n1\n", encoding="utf-17")

    def test_lines_and_places_of_bad_rows_are_those_of_the_file(self, tmp_path: Path) -> None:
        text = "x,y\n" + "".join(f"{'no' if i in (5, 90_000) else i},ü\n" for i in range(100_000))
        source = opened(tmp_path / "a.csv", text.encode("utf-16"), types={"x": "int64"})
        assert [line for line, _ in rejected(source)] == [7, 90_002]
        [piece] = source.pieces(1000)
        table = pa.Table.from_batches(source.read(piece, ["x"], print, in_place=True))
        assert table["x"].to_pylist() == [None if i in (5, 90_000) else i for i in range(100_000)]


class TestLines:
    def test_lines_are_skipped_before_the_header(self, tmp_path: Path) -> None:
        text = 'Report of "today\n\nx,y\n1,2\nno,3\n'
        source = opened(tmp_path / "a.csv", text, skip=2, types={"x": "int64"})
        assert source.schema.names == ["x", "y"] and rejected(source) == [(5, "column \"x\": 'no' is not int64")]
        assert columns(opened(tmp_path / "a.csv", "a\n1,2\n", skip=1, header=False)) == {"f0": [1], "f1": [2]}
        with pytest.raises(DataError, match="There are no rows"):
            opened(tmp_path / "a.csv", text, skip=9)

    def test_comments_are_no_rows(self, tmp_path: Path) -> None:
        text = '# made, "today"\nx,y\n1,#2\n# it\'s, half\n"#3",4\n5\n#'
        source = opened(tmp_path / "a.csv", text, comment="#", types={"x": "string"})
        table, [reject] = read_all(source)
        assert table.to_pydict() == {"x": ["1", "#3"], "y": ["#2", "4"]}
        assert (reject.line, reject.reason) == (6, "1 fields instead of 2")

    def test_a_comment_never_swallows_rows_in_silence(self, tmp_path: Path) -> None:
        text = 'x,y\n1,2\n#a,"b\n3,4\n5,"6"\n7,8\n'
        source = opened(tmp_path / "a.csv", text, comment="#", types={"x": "int64", "y": "int64"})
        table, [reject] = read_all(source)
        assert table["x"].to_pylist() == [1, 7] and reject.line == 3 and "quote=none" in reject.reason
        assert len(rows(opened(tmp_path / "a.csv", text, comment="#", quote=None))) == 4
        in_place = [batch for piece in source.pieces() for batch in source.read(piece, ["x"], print, in_place=True)]
        assert pa.Table.from_batches(in_place)["x"].to_pylist() == [1, None, 7]

    def test_comments_leave_large_files_divisible(self, tmp_path: Path) -> None:
        text = "x,y\n" + "".join(f"# {i}\n{i},a\n" for i in range(20_000))
        source = opened(tmp_path / "a.csv", text, comment="#")
        assert len(source.pieces(20_000)) > 5
        assert read_all(source, target_bytes=20_000)[0]["x"].to_pylist() == list(range(20_000))


class TestBlanks:
    def test_any_number_of_blanks_is_one_delimiter(self, tmp_path: Path) -> None:
        text = '  a b\t c\n1   2.5 "x  y"\n\t3 4 ""\n  \n 5 6 "it ""is"""  \n'
        source = opened(tmp_path / "a.txt", text, format="csv", delimiter="whitespace")
        assert columns(source) == {"a": [1, 3, 5], "b": [2.5, 4, 6], "c": ["x  y", None, 'it "is"']}

    def test_blanks_around_values_are_left_out_on_request(self, tmp_path: Path) -> None:
        text = 'age, work , q\n39, State gov ,"a, b" \n 50, ?,  "c"\n'
        source = opened(tmp_path / "a.csv", text, strip=True, nulls=["?"])
        assert columns(source) == {"age": [39, 50], "work": ["State gov", None], "q": ["a, b", "c"]}

    def test_bad_rows_have_their_lines_and_places(self, tmp_path: Path) -> None:
        text = "x y\n 1  2\n\n 3\n   \nno  4\n 5 6\n"
        source = opened(tmp_path / "a.csv", text, delimiter="whitespace", types={"x": "int64"})
        assert [line for line, _ in rejected(source)] == [4, 6]
        batches = [batch for piece in source.pieces() for batch in source.read(piece, None, print, in_place=True)]
        assert pa.Table.from_batches(batches)["x"].to_pylist() == [1, None, None, 5]

    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.lists(st.sampled_from(["a", "b c", 'd"e', "", " ", "f,g", "\n"]), min_size=2, max_size=4)),
           st.sampled_from([" ", "\t", "  ", " \t "]))  # fmt: skip
    def test_only_what_is_outside_of_quotes_changes(self, table: list[list[str]], gap: str) -> None:
        def text(between: str, around: str) -> bytes:
            quoted = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in table]
            return "".join(around + between.join(row) + around + "\n" for row in quoted).encode()

        assert without_blanks(text(gap, gap), Quoting(32, 34, spaced=True)) == text("\t", "")
        assert without_blanks(text(gap + "," + gap, gap), Quoting(44, 34, spaced=True)) == text(",", "")

    @settings(max_examples=200, deadline=None)
    @given(st.text(st.sampled_from('a" \t\n,'), max_size=40))
    def test_nothing_but_blanks_is_left_out(self, text: str) -> None:
        for quoting in (Quoting(32, 34, spaced=True), Quoting(44, 34, spaced=True), Quoting(9, None, spaced=True)):
            found = without_blanks(text.encode(), quoting).decode()
            assert found.translate({32: None, 9: None}) == text.translate({32: None, 9: None})


class TestArchives:
    @staticmethod
    def archive(path: Path, members: dict[str, str]) -> str:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
            for name, text in members.items():
                out.writestr(name, text)
        return str(path)

    def test_a_zip_archive_of_one_file(self, tmp_path: Path) -> None:
        for name in ("a.csv.zip", "b.zip"):
            source = open_source(self.archive(tmp_path / name, {"a.csv": "x,y\n1,2\nno,3\n"}), types={"x": "int64"})
            table, [reject] = read_all(source)
            assert table.to_pydict() == {"x": [1], "y": [2]} and (reject.line, reject.name) == (
                3,
                f"{tmp_path / name}/a.csv",
            )

    def test_a_zip_archive_of_several_files_of_the_same_form(self, tmp_path: Path) -> None:
        members = {"d/a.csv": "x\n1\n1\n1\n", "d/b.csv": "x\n2\n", "__MACOSX/a.csv": "\0"}
        path = self.archive(tmp_path / "a.zip", members)
        source = open_source(path, format="csv")
        assert columns(source) == {"x": [1, 1, 1, 2]} and source.bytes == (tmp_path / "a.zip").stat().st_size

    @pytest.mark.parametrize("name", ["a.zip", "a.csv.zip"])
    def test_a_zip_archive_needs_no_format_and_is_written_as_parquet(self, tmp_path: Path, name: str) -> None:
        members = {"a.csv": "x;y\n1;2\n", "b.csv": "x;y\n3;4\n", "__MACOSX/._a.csv": "\0", "README.txt": "x"}
        source = open_source(self.archive(tmp_path / name, members))
        assert columns(source) == {"x": [1, 3], "y": [2, 4]}
        assert "README.txt" in source.notes[0].what
        dray.ingest(str(tmp_path / name), str(tmp_path / "out"))
        assert pq.read_table(tmp_path / "out").to_pydict() == {"x": [1, 3], "y": [2, 4]}

    def test_zip_archives_may_be_in_directories_with_values(self, tmp_path: Path) -> None:
        for year in (2023, 2024):
            (tmp_path / f"year={year}").mkdir()
            self.archive(tmp_path / f"year={year}" / "a.zip", {"a.csv": "x\n1\n", "b.csv": "x\n2\n"})
        assert columns(open_source(str(tmp_path))) == {"x": [1, 2, 1, 2], "year": [2023, 2023, 2024, 2024]}

    def test_a_zip_archive_of_one_json_file_may_have_a_readme(self, tmp_path: Path) -> None:
        members = {"a.jsonl": '{"x": 1}\n', "__MACOSX/._a.jsonl": "\0", "README.md": "x"}
        assert columns(open_source(self.archive(tmp_path / "a.zip", members))) == {"x": [1]}

    def test_a_zip_archive_of_files_of_several_formats_or_of_a_workbook_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"several formats: 1 csv \(.*a.zip/a.csv\), 1 json"):
            open_source(self.archive(tmp_path / "a.zip", {"a.csv": "x\n1\n", "a.json": "{}"}))
        with pytest.raises(DataError, match=r"b.zip/a.xlsx is a workbook"):
            open_source(self.archive(tmp_path / "b.zip", {"a.xlsx": "PK"}))

    def test_a_damaged_archive_is_told(self, tmp_path: Path) -> None:
        path = Path(self.archive(tmp_path / "a.csv.zip", {"a.csv": "x\n1\n"}))
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.raises(DataError, match="as a zip archive"):
            open_source(str(path))

    def test_a_workbook_is_told_how_to_read_it(self, tmp_path: Path) -> None:
        for name, options in (("a.xlsx", {}), ("a.xls", {}), ("a.csv", {}), ("a.xlsx", {"format": "csv"})):
            (tmp_path / name).write_bytes(b"PK\x03\x04 and so on")
            with pytest.raises(DataError) as raised:
                open_source(str(tmp_path / name), **options)
            assert "pandas.read_excel" in raised.value.fix
