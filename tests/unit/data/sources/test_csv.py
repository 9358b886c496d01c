"""What CSV files may look like, and what is said about rows that cannot be read."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from reading import read_all, rows

from dray.data.open_source import open_source
from dray.data.sources import files
from dray.errors import ConfigError, DataError, DrayError, StorageError


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def compress(path: Path, text: bytes) -> str:
    codec = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}[path.suffix]
    with pa.output_stream(path, compression=codec) as stream:
        stream.write(text)
    return str(path)


class TestTypes:
    def test_types_are_guessed(self, tmp_path: Path) -> None:
        text = "i,f,s,d,t,b,n\n1,1.5,x,2024-01-01,2024-01-01 10:00:00,true,\n,NA,,NULL,null,n/a,NaN\n"
        source = open_source(write(tmp_path / "a.csv", text))
        assert [str(type_) for type_ in source.schema.types] == [
            "int64", "double", "string", "date32[day]", "timestamp[us]", "bool", "string",
        ]  # fmt: skip
        first, second = rows(source)
        assert first["t"] == dt.datetime(2024, 1, 1, 10)
        assert second == dict.fromkeys("ifsdtb") | {"n": "NaN"}

    def test_in_text_only_the_empty_cell_is_missing(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", 'country,n\nNA,1\nDE,2\n,3\n"",4\n'))
        assert [row["country"] for row in rows(source)] == ["NA", "DE", None, None]

    def test_missing_values_can_be_named(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", 'a,b\n-,-\n1,"-"\n'), nulls=["-"])
        assert rows(source) == [{"a": None, "b": None}, {"a": 1, "b": "-"}]

    def test_the_middle_and_the_end_of_a_large_file_count_too(self, tmp_path: Path) -> None:
        lines = ["1,1"] * 1_000_000
        lines[500_000], lines[-1] = "1.5,1", "1,x"
        source = open_source(write(tmp_path / "a.csv", "a,b\n" + "\n".join(lines)))
        assert source.schema.types == [pa.float64(), pa.string()]

    def test_types_can_be_said(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", "zip,n\n01234,1\n"), types={"zip": "string", "n": pa.int8()})
        assert rows(source) == [{"zip": "01234", "n": 1}]
        with pytest.raises(ConfigError, match=r'types has a column "zap".*Did you mean "zip"'):
            open_source(str(tmp_path), types={"zap": "string"})
        with pytest.raises(ConfigError, match='types has "number" for column "n"'):
            open_source(str(tmp_path), types={"n": "number"})

    def test_an_integer_here_and_a_float_there_is_a_float(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", "x\n1\n")
        write(tmp_path / "b.csv", "x\n1.5\n")
        assert rows(open_source(str(tmp_path))) == [{"x": 1.0}, {"x": 1.5}]

    def test_an_integer_here_and_text_there_is_an_error_that_names_both_where_it_is_used(self, tmp_path: Path) -> None:
        a, b = write(tmp_path / "a.csv", "k,x\n1,1\n"), write(tmp_path / "b.csv", "k,x\n1,many\n")
        assert rows(open_source(str(tmp_path))) == [{"k": 1}, {"k": 1}]
        with pytest.raises(DataError) as raised:
            list((source := open_source(str(tmp_path))).read(source.pieces()[0], ["k", "x"], lambda _: None))
        assert raised.value.what == f'The files differ: column "x" is int64 in {a} but string in {b}.'
        assert rows(open_source(str(tmp_path), types={"x": "string"}))[0]["x"] == "1"
        _, [reject] = read_all(open_source(str(tmp_path), types={"x": "int64"}))
        assert (reject.name, reject.line, reject.reason) == (b, 2, "column \"x\": 'many' is not int64")

    def test_columns_are_found_by_name_and_a_missing_one_is_null_with_a_note(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv", "x,y\n1,2\n")
        write(tmp_path / "b.csv", "y,x\n4,3\n")
        assert rows(open_source(str(tmp_path))) == [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
        write(tmp_path / "c.csv", "x,z\n4,3\n")
        source = open_source(str(tmp_path))
        assert rows(source)[2] == {"x": 4, "y": None, "z": 3}
        assert [row["x"] for row in read_all(source, ["z", "x"])[0].to_pylist()] == [1, 3, 4]
        assert read_all(source, ["z"])[0]["z"].to_pylist() == [None, None, 3]
        assert 'olumn "y" is missing in 1 of 3 files' in source.notes[0].what
        with pytest.raises(DataError, match='column "y" is missing in 1 of 3 files'):
            open_source(str(tmp_path), columns="same")

    def test_a_first_row_larger_than_the_sample_tells_its_types_too(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", f"n,text\n1,{'long ' * 100_000}\n2,short\n"))
        assert source.schema.types == [pa.int64(), pa.string()]


class TestForms:
    @pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
    def test_compressed_files_are_one_piece(self, tmp_path: Path, suffix: str) -> None:
        text = b"x,y\n" + b"".join(b'%d,"a\nb"\n' % i for i in range(1000)) + b"oops\n"
        source = open_source(compress(tmp_path / f"a.csv{suffix}", text))
        assert len(source.pieces(100)) == 1
        table, [reject] = read_all(source, target_bytes=100)
        assert table["x"].to_pylist() == list(range(1000))
        assert (reject.line, reject.reason) == (2002, "1 fields instead of 2")

    def test_files_compressed_in_parts_are_read_whole(self, tmp_path: Path) -> None:
        write(tmp_path / "a.csv.gz", gzip.compress(b"x\n1\n") + gzip.compress(b"2\n"))
        write(tmp_path / "b.csv.bz2", bz2.compress(b"x\n3\n") + bz2.compress(b"4\n"))
        assert [row["x"] for row in rows(open_source(str(tmp_path)))] == [1, 2, 3, 4]

    def test_a_compressed_file_that_was_cut_off_is_an_error(self, tmp_path: Path) -> None:
        text = b"x\n" + b"".join(b"%d\n" % (i * 7919) for i in range(300_000))
        whole = gzip.compress(text)
        write(tmp_path / "a.csv.gz", whole[: len(whole) // 2])
        with pytest.raises(DataError, match=r"Cannot read .*a\.csv\.gz as gzip data: Truncated"):
            read_all(open_source(str(tmp_path)))

    def test_delimiters_quotes_and_headers_can_be_other(self, tmp_path: Path) -> None:
        write(tmp_path / "a.txt", "1;'a;b'\n2;\"\n")
        source = open_source(str(tmp_path), format="csv", delimiter=";", quote="'", header=False)
        assert rows(source) == [{"f0": 1, "f1": "a;b"}, {"f0": 2, "f1": '"'}]
        named = open_source(str(tmp_path), format="csv", delimiter=";", quote="'", header=False, names=["n", "s"])
        assert named.schema.names == ["n", "s"]

    def test_tabs_are_known_by_the_ending(self, tmp_path: Path) -> None:
        assert rows(open_source(write(tmp_path / "a.tsv", "x\ty\n1\t2\n"))) == [{"x": 1, "y": 2}]

    def test_without_quoting_a_quote_is_a_character(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", 'x,y\n"a,1\nb,2"\n'), quote=None)
        assert rows(source, 4) == [{"x": '"a', "y": "1"}, {"x": "b", "y": '2"'}]

    @pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
    def test_any_line_end_will_do(self, tmp_path: Path, newline: str) -> None:
        text = newline.join(["", "x,y", *(f'{i},"a{newline}b"' for i in range(100)), "", "bad"])
        table, [reject] = read_all(open_source(write(tmp_path / "a.csv", text)), target_bytes=50)
        assert table["x"].to_pylist() == list(range(100))
        assert set(table["y"].to_pylist()) == {f"a{newline}b"}
        assert reject.line == 204

    def test_columns_are_chosen_in_the_order_asked_for(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", "x,y,z\n1,2,3\n"))
        assert read_all(source, ["z", "x"])[0].to_pydict() == {"z": [3], "x": [1]}
        [batch] = source.read(source.pieces()[0], [], print)
        assert (batch.num_rows, batch.num_columns) == (1, 0)
        with pytest.raises(DataError, match='There is no column "w"'):
            read_all(source, ["x"])
            list(source.read(source.pieces()[0], ["w"], print))

    def test_a_header_alone_or_an_empty_file_beside_others_has_no_rows(self, tmp_path: Path) -> None:
        for name, text in (("a", ""), ("b", "x,y\n"), ("c", "x,y\n1,2\n"), ("d", "\n\n")):
            write(tmp_path / f"{name}.csv", text)
        assert rows(open_source(str(tmp_path))) == [{"x": 1, "y": 2}]

    def test_a_wide_file_is_read(self, tmp_path: Path) -> None:
        names = [f"column_with_a_long_name_{i}" for i in range(20_000)]
        source = open_source(write(tmp_path / "a.csv", ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n"))
        assert source.schema.names == names
        assert len(rows(source)) == 1

    @pytest.mark.parametrize(
        ("text", "options", "error"),
        [
            ("", {}, "There are no rows"),
            ("x,x\n1,2\n", {}, 'has two columns "x"'),
            (b"x,\xff\n1,2\n", {}, "first line of .* is not UTF-8"),
            ("x\n1\n", {"delimiter": ",,"}, "delimiter is ',,'"),
            ("x\n1\n", {"delimiter": '"'}, "both '\"'"),
            ("x\n1\n", {"delimeter": ";"}, 'no option "delimeter". Did you mean "delimiter"'),
            ("x\n1\n", {"names": ["a", "b"]}, "has 1 columns, but 2 names"),
        ],
    )
    def test_what_cannot_be_read_is_told(
        self, tmp_path: Path, text: str | bytes, options: dict[str, Any], error: str
    ) -> None:
        with pytest.raises(DrayError, match=error):
            open_source(write(tmp_path / "a.csv", text), **options)


class TestBadRows:
    def test_bad_rows_are_told_with_their_line_and_the_others_kept(self, tmp_path: Path) -> None:
        lines = ["x,y,s", *(f'{i},{i}.5,"t\n{i}"' for i in range(20_000))]
        lines[5_001] = "5,5"
        lines[5_002] = 'not a number,1.5,"t"'
        lines[12_000] = '12,1.5,"t",more'
        text = "\n".join(lines).encode().replace(b'\n15000"', b'\n\xff\xfe15000"')
        source = open_source(write(tmp_path / "a.csv", text), types={"x": "int64"})
        for target in (1 << 30, 10_000):
            table, rejects = read_all(source, target_bytes=target)
            assert table.num_rows == 20_000 - 4
            assert [(reject.line, reject.reason) for reject in rejects] == [
                (10_002, "2 fields instead of 3"),
                (10_003, "column \"x\": 'not a number' is not int64"),
                (23_998, "4 fields instead of 3"),
                (29_999, 'column "s": not UTF-8 text'),
            ]
        assert rejects[0].text == "5,5"

    def test_a_line_of_a_large_file_is_known_in_whatever_piece_it_is(self, tmp_path: Path) -> None:
        text = b"x,y\n" + b"1,2\n" * 5_000_001 + b"3\n" + b"1,2\n" * 10
        source = open_source(write(tmp_path / "a.csv", text))
        pieces = source.pieces(8 << 20)
        rejects: list[Any] = []
        kept = sum(batch.num_rows for batch in source.read(pieces[-1], ["x"], rejects.append))
        assert [reject.line for reject in rejects] == [5_000_003]
        assert kept < 5_000_000

    def test_many_bad_rows_are_all_told(self, tmp_path: Path) -> None:
        text = "x,y\n" + "".join(f"{'?' if i % 3 == 0 else i},y\n" for i in range(3_000))
        table, rejects = read_all(open_source(write(tmp_path / "a.csv", text), types={"x": "int64"}))
        assert table["x"].to_pylist() == [i for i in range(3_000) if i % 3]
        assert [reject.line for reject in rejects] == [i + 2 for i in range(0, 3_000, 3)]

    def test_a_column_that_nobody_asked_for_makes_no_reject(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", b"x,y\n1,\xff\n2,a\n3\n"), types={"y": "string"})
        table, [reject] = read_all(source, ["x"])
        assert table["x"].to_pylist() == [1, 2] and reject.line == 4

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_a_quote_that_is_never_closed_rejects_its_line_alone(self, end: str, tmp_path: Path) -> None:
        text = end.join(["x,y,z", "1,a,", '2,"b,', "3,c,", "4", "5,e,", "6,f,", ""])
        table, rejects = read_all(open_source(write(tmp_path / "a.csv", text)))
        assert table["x"].to_pylist() == [1, 3, 5, 6]
        assert [(reject.line, reject.text) for reject in rejects] == [(3, '2,"b,'), (5, "4")]
        assert rejects[0].reason == "a quote is opened and never closed"

    @pytest.mark.parametrize("opened", [['2,"b,'], ['"2,b,'], ['2,b,"'], ['2,"b,', "no row"]])
    def test_a_quote_that_is_never_closed_ends_before_the_next_value_in_quotes(
        self, opened: list[str], tmp_path: Path
    ) -> None:
        lines = ["x,y,z", "1,a,", *opened, "3,c,", "4,d,", '5,"e,e",', *opened, "6,f,", '7,"g, g",', '8,"h\nh",']
        source = open_source(write(tmp_path / "a.csv", "\n".join(lines) + "\n"), types={"x": "int64"})
        table, rejects = read_all(source)
        assert table["x"].to_pylist() == [1, 3, 4, 5, 6, 7, 8]
        assert table["y"].to_pylist() == ["a", "c", "d", "e,e", "f", "g, g", "h\nh"]
        bad = [3 + i for i in range(len(opened))] + [6 + len(opened) + i for i in range(len(opened))]
        assert [reject.line for reject in rejects] == bad and rejects[0].text == opened[0]

    def test_a_value_of_several_lines_in_a_bad_row_is_one_reject(self, tmp_path: Path) -> None:
        text = 'x,y,z\n1,a,\n2,"b\nand, so\non",,,\n3,c,\n'
        table, [reject] = read_all(open_source(write(tmp_path / "a.csv", text)))
        assert table["x"].to_pylist() == [1, 3] and (reject.line, reject.reason) == (3, "5 fields instead of 3")

    @pytest.mark.parametrize(
        "text",
        [
            'x,y,z\n1,a,\n2,"b\nand, so\non, and, on\n',  # what follows are no rows
            'x,y\n1,a\n2,"b\nno, yes\nmore, less\n',  # with two columns a text may look like rows
        ],
    )
    def test_a_text_of_several_lines_that_is_cut_off_is_one_reject(self, text: str, tmp_path: Path) -> None:
        table, [reject] = read_all(open_source(write(tmp_path / "a.csv", text), types={"x": "string"}))
        assert table["x"].to_pylist() == ["1"]
        assert (reject.line, reject.reason) == (3, "a quote is opened and never closed")

    def test_the_text_of_a_reject_is_cut(self, tmp_path: Path) -> None:
        _, [reject] = read_all(open_source(write(tmp_path / "a.csv", "x,y\n1,2\n" + "long" * 1000 + "\n")))
        assert len(reject.text) == 1000


class TestFilesThatChange:
    def test_a_file_that_is_gone_is_told_by_name(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", "x\n1\n"))
        pieces = source.pieces()
        (tmp_path / "a.csv").unlink()
        with pytest.raises(StorageError, match=r"a\.csv does not exist"):
            list(source.read(pieces[0], None, print))

    def test_a_file_that_grew_or_shrank_is_told(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.csv", "x\n1\n"))
        write(tmp_path / "a.csv", "x\n1\n2\n")
        with pytest.raises(DataError, match=r"a\.csv was changed while dray read it: it had 4 bytes and now has 6"):
            read_all(source)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    source = open_source(write(tmp_path / "a.csv", b"x,y\n" + b"1234567,text of some length\n" * 1_500_000))
    [piece] = source.pieces(1 << 30)
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    for _ in source.read(piece, None, print):
        most = max(most, pool.bytes_allocated() - before)
    assert most < 12 * files.CHUNK_BYTES < source.bytes * 1.5
