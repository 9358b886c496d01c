"""Pieces of a CSV file begin where records do, whatever the text: together they are what pyarrow reads at once."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reading import read_all

from dray.data.source import Piece
from dray.data.sources import csv_split, csv_text, files, quotes, record_blocks
from dray.data.sources.csv import open_csv
from dray.data.sources.quotes import Effect, Quoting, effect_of, first_sure_start, last_end, records
from dray.storage import StorageOptions

QUOTING = Quoting(ord(","), ord('"'))
TEXT = st.text(st.sampled_from('ab,"\n'), max_size=60).map(str.encode)
MESSY = st.lists(
    st.sampled_from(["a", "b", ",", '"', '""', "\n", "\r\n", "\r", "\n\n", 'x"y', '"a\nb"', ',"', '",', "é"]),
    max_size=60,
).map(lambda parts: "".join(parts).encode())


def states(text: bytes) -> list[bool]:
    """Return for every byte whether the text before it leaves a value open: the rules written out, byte by byte."""
    found, inside, start, position = [], False, True, 0
    while position < len(text):
        found.append(inside)
        byte = text[position : position + 1]
        if inside and byte == b'"':
            if text[position + 1 : position + 2] == b'"':
                found.append(True)
                position += 1
            else:
                inside = False
        elif not inside and byte == b'"' and start:
            inside = True
        start = byte in b",\n\r" and not inside
        position += 1
    return [*found, inside]


def starts_of(text: bytes) -> set[int]:
    inside = states(text)
    return {0} | {i + 1 for i, byte in enumerate(text) if byte in b"\n" and not inside[i]}


@given(TEXT)
def test_the_effect_of_a_text_is_what_its_bytes_do_one_by_one(text: bytes) -> None:
    assert effect_of(text, QUOTING).after(False) == states(text)[-1]


@given(st.lists(st.text(st.sampled_from('ab,"'), max_size=12).map(lambda line: line.encode() + b"\n"), max_size=8))
def test_effects_of_parts_add_up(lines: list[bytes]) -> None:
    effect = Effect()
    for line in lines:
        effect = effect.then(effect_of(line, QUOTING))
    assert effect.after(False) == states(b"".join(lines))[-1]


@given(TEXT, TEXT)
def test_a_sure_start_is_one_whatever_was_before(before: bytes, text: bytes) -> None:
    found = first_sure_start(text, QUOTING)
    if found is not None:
        whole = before + b"\n" + text
        assert len(before) + 1 + found in starts_of(whole)


@given(TEXT, st.integers(1, 8))
def test_the_last_end_is_the_last_start(text: bytes, tail: int) -> None:
    kept, quotes.TAIL_BYTES = quotes.TAIL_BYTES, tail
    try:
        assert last_end(text, QUOTING) == max(starts_of(text))
    finally:
        quotes.TAIL_BYTES = kept


def test_records_leave_out_empty_lines_and_keep_line_ends_within_quotes() -> None:
    text = b'\n1,"a\n\nb"\r\n\r\n\r2\r3\n\n'
    starts, ends = records(text, QUOTING)
    found = [text[start:stop] for start, stop in zip(starts, ends, strict=True)]
    assert found == [b'1,"a\n\nb"\r\n', b"2\r", b"3\n"]


def pyarrow_reads(text: bytes, names: list[str]) -> list[dict[str, object]]:
    if not text.strip(b"\r\n"):
        return []
    table = pacsv.read_csv(
        pa.BufferReader(text),
        pacsv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1000),
        pacsv.ParseOptions(invalid_row_handler=lambda row: "skip"),
        pacsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    return table.to_pylist()


@settings(max_examples=300, deadline=None)
@given(text=MESSY, piece=st.integers(1, 40), chunk=st.integers(1, 50), window=st.integers(1, 20), bom=st.booleans())
@example(b'a,"b\nc"\nd,e\n', 1, 3, 1, True)
@example(b'"\n\n\n",x\n' * 5, 3, 2, 2, False)
def test_pieces_of_any_size_hold_the_rows_of_the_whole(
    text: bytes, piece: int, chunk: int, window: int, bom: bool
) -> None:
    text = (b"\xef\xbb\xbf" if bom else b"") + b"x,y\n" + text
    with tempfile.TemporaryDirectory() as directory, small(chunk, window):
        (Path(directory) / "a.csv").write_bytes(text)
        source = open_csv([directory], StorageOptions(), types={"x": "string", "y": "string"})
        table, rejects = read_all(source, target_bytes=piece)
        whole, rejects_of_whole = read_all(source)
    assert table.equals(whole) and rejects == rejects_of_whole
    if not any(reject.reason.startswith("a quote") for reject in rejects):
        plain = text.removeprefix(b"\xef\xbb\xbf")
        expected = [{k: v or None for k, v in row.items()} for row in pyarrow_reads(plain, ["x", "y"])[1:]]
        assert table.to_pylist() == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["1,a", "2,b", "x,c", "3", "4,d,e", "", '5,"p\nq"', '"6",', "y", "7,\udcff", "z,\udcff"]))
)
def test_exactly_those_rows_are_rejected_that_cannot_be_read_alone(records: list[str]) -> None:
    def read(lines: list[str]) -> tuple[list[object], list[str]]:
        with tempfile.TemporaryDirectory() as directory:
            text = "\n".join(["n,s", "0,first", *lines]).encode(errors="surrogateescape")
            (Path(directory) / "a.csv").write_bytes(text)
            source = open_csv([directory], StorageOptions(), types={"n": "int64", "s": "string"})
            table, rejects = read_all(source)
            return table.to_pylist()[1:], [f"{reject.reason}: {reject.text}" for reject in rejects]

    alone = [read([record]) for record in records]
    kept = [row for found, _ in alone for row in found]
    assert read(records) == (kept, [reason for _, reasons in alone for reason in reasons])


@contextlib.contextmanager
def small(chunk: int, window: int):  # type: ignore[no-untyped-def]
    """Make everything that is done in steps take small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_split, "WINDOW_BYTES", window)
        patch.setattr(quotes, "TAIL_BYTES", window)
        read = files.chunks
        sized = lambda file, storage, start=0, stop=None, size=0: read(file, storage, start, stop, chunk)  # noqa: E731
        patch.setattr(csv_text, "chunks", sized)
        patch.setattr(csv_split, "chunks", sized)
        yield


def test_a_file_without_quotes_is_divided_evenly(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x,y\n" + b"1,2\n" * 10_000)
    pieces = open_csv([str(tmp_path)], StorageOptions()).pieces(4_000)
    assert [piece.bytes for piece in pieces] == [4_000] * 10


def test_a_quoted_value_longer_than_a_piece_is_not_divided(tmp_path: Path) -> None:
    text = "lines\n" * 200_000  # nothing in it, for 1.2 MB, tells that it is within quotes
    (tmp_path / "a.csv").write_text(f'x,y\n1,"{text}"\n' + "2,b\n" * 10)
    source = open_csv([str(tmp_path)], StorageOptions())
    table, rejects = read_all(source, target_bytes=100_000)
    assert not rejects
    assert table.column("y").to_pylist() == [text, *"b" * 10]


def test_a_quote_that_swallows_the_file_is_an_error_that_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_blocks, "MOST_RECORD_BYTES", 1 << 20)
    (tmp_path / "a.csv").write_text('x,y\n1,a\n2,"b\n' + "3,c\n" * 2_000_000)
    source = open_csv([str(tmp_path)], StorageOptions())
    with pytest.raises(record_blocks.DataError, match="record of more than 1 MB, beginning at byte 8"):
        read_all(source)


def test_pieces_are_the_same_for_files_beside_each_other(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x\n1\n2\n")
    pieces = open_csv([str(tmp_path)], StorageOptions()).pieces()
    assert pieces == [Piece(str(tmp_path / f"{name}.csv"), i, 2, 6, 4) for i, name in enumerate("ab")]
