"""JSON lines and arrays: nested names, what does not fit, and lines cut in half."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read_all, rows

from dray.data.open_source import open_source
from dray.data.source import ExtraField, Source
from dray.data.sources import json as json_source
from dray.data.sources import json_samples
from dray.data.sources.json_records import items, last_item_end
from dray.data.sources.json_records import lines as json_lines
from dray.data.sources.json_types import Origin, Seen, shape_of
from dray.errors import DataError, DrayError


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def lines(objects: list[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in objects)


OBJECTS = [
    {"id": 1, "user": {"name": "a", "geo": {"lat": 1, "lon": 2.5}}, "tags": ["x"], "at": "2024-01-01T10:00:00Z"},
    {"id": 2, "user": None, "tags": [], "at": "2024-01-02T10:00:00.5Z", "ok": True},
    {"id": 3, "user": {"geo": {"lat": 3.5}}, "extra": None},
]


class TestShape:
    @pytest.mark.parametrize("form", ["lines", "array", "pretty array"])
    def test_nested_fields_become_columns_with_points(self, tmp_path: Path, form: str) -> None:
        text = {"lines": lines(OBJECTS), "array": json.dumps(OBJECTS), "pretty array": json.dumps(OBJECTS, indent=2)}
        source = open_source(write(tmp_path / "a.json", text[form]))
        assert {field.name: str(field.type) for field in source.schema} == {
            "id": "int64", "user.name": "string", "user.geo.lat": "double", "user.geo.lon": "double",
            "tags": "list<item: string>", "at": "timestamp[us, tz=UTC]", "ok": "bool", "extra": "string",
        }  # fmt: skip
        first, second, third = rows(source)
        assert (first["user.geo.lat"], second["user.geo.lat"], third["user.geo.lat"]) == (1.0, None, 3.5)
        assert (first["tags"], second["ok"], third["user.name"]) == (["x"], True, None)

    @pytest.mark.parametrize("form", ["lines", "array"])
    def test_a_first_object_larger_than_the_sample_tells_the_shape_too(self, tmp_path: Path, form: str) -> None:
        objects = [{"n": 1, "text": "long " * 100_000}] * 3
        source = open_source(write(tmp_path / "a.json", lines(objects) if form == "lines" else json.dumps(objects)))
        assert rows(source) == objects

    def test_strings_are_times_only_if_all_are(self, tmp_path: Path) -> None:
        objects = [
            {"a": "2024-01-01", "b": "2024-01-01T10:00", "c": "2024-01-01T10:00Z"},
            {"a": "soon", "b": "2024-01-01 10:00:00.123456789", "c": "2024-01-01T10:00:00+02:00"},
        ]
        source = open_source(write(tmp_path / "a.json", lines(objects)))
        assert [str(type_) for type_ in source.schema.types] == ["string", "timestamp[ns]", "timestamp[us, tz=UTC]"]
        assert len(rows(source)) == 2

    def test_values_that_do_not_go_together_are_told_with_both_files(self, tmp_path: Path) -> None:
        a, b = write(tmp_path / "a.jsonl", '{"u": {"x": 1.5}}\n'), write(tmp_path / "b.jsonl", '{"u": {"x": "many"}}\n')
        with pytest.raises(DataError) as raised:
            open_source(str(tmp_path))
        expected = f'"u.x" has values of two types: float in {a} (line 1) but string in {b} (line 1).'
        assert raised.value.what == expected
        table, [reject] = read_all(open_source(str(tmp_path), types={"u.x": "double"}))
        assert table.to_pylist() == [{"u.x": 1.5}]
        assert (reject.name, reject.reason) == (b, 'column "u.x": "many" is not double')

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("", "There are no rows"),
            (" \n \n", "There are no rows"),
            ("1\n2\n", "No JSON object"),
            ("{}\n", "No JSON object with a field"),
            ('{"a.b": 1, "a": {"b": 2}}\n', 'Two fields become the column "a.b"'),
        ],
    )
    def test_what_has_no_columns_is_told(self, tmp_path: Path, text: str, error: str) -> None:
        with pytest.raises(DrayError, match=error):
            open_source(write(tmp_path / "a.json", text))

    def test_an_empty_file_beside_others_has_no_rows(self, tmp_path: Path) -> None:
        write(tmp_path / "a.json", "")
        write(tmp_path / "b.json", '[{"x": 1}]')
        write(tmp_path / "c.json", "[]")
        assert rows(open_source(str(tmp_path))) == [{"x": 1}]


WITH_NEW = "".join(
    [
        '{"x": 1, "y": {"z": "a"}, "items": [{"a": 1}]}\n' * 60_000,
        '{"x": 2, "new": 1}\n',
        '{"x": 3, "new": "a"}\n',  # of another kind than the one before it
        '{"x": 1, "y": {"z": "a"}, "items": []}\n' * 30_000,
        '{"x": 1, "y": {"z": "b", "new": {"deep": true}}}\n',
        '{"x": 4, "new": 1.5, "items": [{"a": 1, "new": 2}, {"new": 3}, {"a": 1}]}\n',
        '{"x": 1, "y": {"z": "a"}, "items": [{"a": 1}]}\n' * 110_000,
    ]
)


def _in_one(source: Source, told: list[Any]) -> list[pa.RecordBatch]:
    batches = [batch for piece in source.pieces(1 << 30) for batch in source.read(piece, None, told.append)]
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches())


class TestBadRows:
    BAD = (
        ('{"x": 1, "y": {"z": "a', "not JSON: Unterminated string starting at (cut off?)"),
        ('{"x": "one"}', 'column "x": "one" is not int64'),
        ('{"x": 1.5}', "column \"x\": '1.5' is not int64"),
        ('{"x": 1, "y": 2}', 'column "y": 2 is not struct<z: string>'),
        ("[1]", "a list instead of an object"),
        ('{"x": true}', 'column "x": true is not int64'),
        ('{"x": 123456789012345678901234567890}', "column \"x\": '123456789012345678901234567890' is not int64"),
    )

    @pytest.mark.parametrize(("bad", "reason"), BAD)
    def test_a_bad_line_is_told_and_the_others_are_kept(self, tmp_path: Path, bad: str, reason: str) -> None:
        good = [json.dumps({"x": i, "y": {"z": f"ä{i}"}}) for i in range(50_000)]
        source = open_source(write(tmp_path / "a.jsonl", "\n".join([*good[:16_000], bad, "", *good[16_000:]])))
        for target in (1 << 30, 100_000):
            table, [reject] = read_all(source, target_bytes=target)
            assert table["x"].to_pylist() == list(range(50_000))
            assert (reject.line, reject.reason, reject.text) == (16_001, reason, bad)  # no part of the sample

    def test_bytes_that_are_not_utf8_are_told(self, tmp_path: Path) -> None:
        text = b'{"x": "a"}\n{"x": "\xff"}\n{"x": "\xc3\xa4"}\n'
        table, [reject] = read_all(open_source(write(tmp_path / "a.json", text)))
        assert table["x"].to_pylist() == ["a", "ä"]
        assert (reject.line, reject.reason) == (2, "not UTF-8 text")

    def test_fields_that_the_sample_did_not_have_are_left_out_and_counted_in_any_pieces(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", WITH_NEW)
        for target in (1 << 30, 100_000):
            told: list[Any] = []
            source = open_source(path)
            batches = [batch for piece in source.pieces(target) for batch in source.read(piece, None, told.append)]
            table = pa.Table.from_batches(batches)
            assert (table.column_names, table.num_rows) == (["x", "y.z", "items"], 200_004)
            assert all(isinstance(found, ExtraField) and found.name == path for found in told)
            counted = sum((Counter({found.field: found.rows}) for found in told), Counter[str]())
            assert counted == {"new": 3, "y.new.deep": 1, "items[].new": 1}

    def test_fields_that_the_sample_did_not_have_reject_their_rows_on_demand(self, tmp_path: Path) -> None:
        table, rejects = read_all(open_source(write(tmp_path / "a.jsonl", WITH_NEW), extra_fields="reject"))
        assert table.num_rows == 200_000
        assert [reject.reason for reject in rejects] == [
            '"new" is a field that the sample did not have',
            '"new" is a field that the sample did not have',
            '"y.new" is a field that the sample did not have',
            '"new" is a field that the sample did not have',
        ]

    def test_an_extra_field_beside_a_bad_row_is_counted_once(self, tmp_path: Path) -> None:
        source = open_source(write(tmp_path / "a.jsonl", WITH_NEW.replace('"x": 4', '"x": "four"')))
        told: list[Any] = []
        [batch] = [batch.num_rows for batch in _in_one(source, told)]
        extra = [(found.field, found.rows) for found in told if isinstance(found, ExtraField)]
        [reject] = [found for found in told if not isinstance(found, ExtraField)]
        assert reject.reason == 'column "x": "four" is not int64'
        assert (batch, sorted(extra)) == (200_003, [("new", 2), ("y.new.deep", 1)])

    def test_a_field_that_the_sample_did_not_have_is_read_if_its_type_is_given(self, tmp_path: Path) -> None:
        source = open_source(
            write(tmp_path / "a.jsonl", WITH_NEW), types={"new": "string", "y.new.deep": "bool", "xx": "int64"}
        )
        table, rejects = read_all(source)
        assert not rejects
        found = table.filter(pc.is_valid(table["new"])).select(["x", "new"]).to_pylist()
        assert found == [{"x": 2, "new": "1"}, {"x": 3, "new": "a"}, {"x": 4, "new": "1.5"}]
        assert table["y.new.deep"].to_pylist().count(True) == 1
        assert [note.what for note in source.notes][-1] == (
            'types has a column "xx", which the first rows do not have: it is missing there. Did you mean "x"?'
        )

    def test_an_array_tells_its_bad_items_and_its_missing_end(self, tmp_path: Path) -> None:
        text = '[\n{"x": 1},\n{"x": "one"},\n{"x": 2},\n{"x":'
        table, rejects = read_all(open_source(write(tmp_path / "a.json", text), types={"x": "int64"}))
        assert table["x"].to_pylist() == [1, 2]
        assert [(r.line, r.reason) for r in rejects] == [
            (3, 'column "x": "one" is not int64'),
            (5, "not JSON: Expecting value (cut off?)"),
            (5, "the array is not closed: the file was cut off"),
        ]

    def test_text_behind_an_array_is_told(self, tmp_path: Path) -> None:
        table, [reject] = read_all(open_source(write(tmp_path / "a.json", '[{"x": 1}]\n{"x": 2}\n')))
        assert table.num_rows == 1 and (reject.line, reject.reason) == (2, "text after the end of the array")


class TestStreams:
    def test_compressed_lines_and_arrays(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines([{"x": i} for i in range(10)]).encode()))
        (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps([{"x": i} for i in range(10, 20)]).encode()))
        assert [row["x"] for row in rows(open_source(str(tmp_path)), 10)] == list(range(20))

    def test_a_large_array_is_read_in_blocks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        objects = [{"x": i, "s": 'quotes " and [brackets], \\'} for i in range(20_000)]
        source = open_source(write(tmp_path / "a.json", json.dumps(objects)))
        read = json_source.chunks
        monkeypatch.setattr(json_source, "chunks", lambda file, storage, a, b: read(file, storage, a, b, 10_000))
        batches = list(source.read(source.pieces()[0], None, print))
        assert len(batches) > 50
        assert [row for batch in batches for row in batch.to_pylist()] == objects

    @settings(max_examples=50, deadline=None)
    @given(st.integers(1, 200), st.lists(st.text(max_size=20), min_size=1, max_size=30))
    def test_pieces_of_any_size_hold_every_line_once(
        self, tmp_path_factory: pytest.TempPathFactory, target: int, texts: list[str]
    ) -> None:
        objects = [{"t": text} for text in texts]
        path = tmp_path_factory.mktemp("json") / "a.jsonl"
        found, rejects = read_all(open_source(write(path, lines(objects)), types={"t": "string"}), target_bytes=target)
        assert (found.to_pylist(), rejects) == (objects, [])


VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab"\\[]{},')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('a"\\,]}')), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=1, max_size=6), st.sampled_from([None, 2]))
def test_items_of_an_array_are_found_whatever_they_hold(values: list[Any], indent: int | None) -> None:
    text = json.dumps(values, indent=indent).encode()[1:]
    found = items(text)
    assert [json.loads(found.text(i, i + 1)) for i in range(len(found))] == values
    assert not found.open_end and found.behind is None
    end = last_item_end(text)
    assert [json.loads(items(text[end:]).text(0, 1))] == values[-1:]


class TestSamples:
    """pyarrow passes over what fits; what is new must be found all the same."""

    LATER = (
        ({"x": 1}, {"x": 1.5}, "double"),
        ({"x": "2024-01-01"}, {"x": "soon"}, "string"),
        ({"x": "2024-01-01T10:00"}, {"x": "2024-01-01T10:00Z"}, "string"),
        ({"x": "2024-01-01T10:00Z"}, {"x": "2024-01-01"}, "string"),
        ({"x": "2024-01-01T10:00:00"}, {"x": "2024-01-01T10:00:00.123456789"}, "timestamp[ns]"),
        ({"x": ["2024-01-01"]}, {"x": ["soon"]}, "list<item: string>"),
        ({"x": ["2024-01-01"]}, {"x": ["2024-01-01T10:00Z"]}, "list<item: string>"),
        ({"x": None}, {"x": 1}, "int64"),
        ({"x": None}, {"x": "2024-01-01"}, "timestamp[us]"),
        ({"x": []}, {"x": [1]}, "list<item: int64>"),
        ({"x": 1}, {"x": 2**70}, "decimal128(38, 0)"),
        ({"x": 1}, {"x": 2**64 - 1}, "uint64"),
        ({"x": 2**63}, {"x": -1}, "decimal128(38, 0)"),
        ({"x": -1}, {"x": 2**63}, "decimal128(38, 0)"),
        ({"x": 0.5}, {"x": 2**53 + 1}, "decimal128(38, 18)"),
        ({"x": 2**53 + 1}, {"x": 0.5}, "decimal128(38, 18)"),
        ({"x": [0.5]}, {"x": [2**53 + 1]}, "list<item: decimal128(38, 18)>"),
    )

    @pytest.mark.parametrize(("first", "later", "found"), LATER)
    def test_what_comes_late_in_a_sample_is_found(self, tmp_path: Path, first: Any, later: Any, found: str) -> None:
        [field] = open_source(write(tmp_path / "a.jsonl", lines([first] * 2_000 + [later] + [first] * 100))).schema
        assert str(field.type) == found

    @pytest.mark.parametrize("before", [0, 1_500, 20_000])
    @pytest.mark.parametrize("file", [0, 29])
    def test_a_new_field_is_found_in_any_of_many_files(self, tmp_path: Path, file: int, before: int) -> None:
        plain = [{"x": 1, "u": {"y": "a"}}]
        for number in range(30):
            write(tmp_path / f"{number:02}.jsonl", lines(plain * 1_000))
        write(tmp_path / f"{file:02}.jsonl", lines([*plain * before, {"x": 1, "u": {"y": "a", "new": True}}]))
        assert sorted(open_source(str(tmp_path)).schema.names) == ["u.new", "u.y", "x"]

    def test_the_line_of_what_does_not_go_together_is_told(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.jsonl", lines([{"x": 1}] * 3_000 + [{"x": [1]}]))
        with pytest.raises(DataError, match=r"integer in .* \(line 1\) but list in .* \(line 3001\)"):
            open_source(path)

    def test_objects_that_fit_are_not_looked_at_one_by_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[Any] = []
        add = Seen.add
        monkeypatch.setattr(Seen, "add", lambda seen, value, place: (looked.append(value), add(seen, value, place)))
        for number in range(10):
            write(tmp_path / f"{number}.jsonl", lines([{"x": i, "at": "2024-01-01T10:00"} for i in range(5_000)]))
        open_source(str(tmp_path))
        assert sum(isinstance(value, dict) for value in looked) == json_samples.BLOCK_RECORDS


LEAVES = st.sampled_from(
    [
        None,
        True,
        1,
        2**70,
        1.5,
        "a",
        "2024-01-01",
        "2024-01-01T10:00",
        "2024-01-01T10:00Z",
        "2024-01-01 10:00:00.1234567",
    ]
)
FIELDS = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        LEAVES,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(FIELDS, min_size=1, max_size=8))
def test_passing_over_what_fits_finds_what_looking_at_everything_does(objects: list[Any]) -> None:
    def shape(look: Callable[[Seen], None]) -> Any:
        seen = Seen()
        try:
            look(seen)
            return shape_of(seen, {})
        except DataError:  # which of several is told may differ
            return "has values of two types"

    def look_at_all(seen: Seen) -> None:
        for value in objects:
            seen.add(value, Origin("a", 1))

    def look_at_blocks(seen: Seen) -> None:
        json_samples.look(json_lines(lines(objects).encode()), "a", seen, {}, numbered=True)

    for block in (1, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_samples, "BLOCK_RECORDS", block)
            assert shape(look_at_blocks) == shape(look_at_all)


class TestNumbersAmongText:
    def test_a_number_whose_name_ends_like_that_of_a_text_stays_a_number(self, tmp_path: Path) -> None:
        objects = [{"id": "a", 'x"id': 1}, {"id": 7, 'x"id': 2}]
        assert rows(open_source(write(tmp_path / "a.jsonl", lines(objects)))) == [objects[0], {"id": "7", 'x"id': 2}]

    def test_whole_numbers_among_text_ids_are_text(self, tmp_path: Path) -> None:
        text = '{"id": "a7", "n": 1}\n{"id": 17, "n": 2}\n{"id": "17", "n": 3}\n{"id": null, "n": 4}\n'
        source = open_source(write(tmp_path / "a.json", text))
        assert source.schema.field("id").type == pa.string()
        assert [row["id"] for row in rows(source)] == ["a7", "17", "17", None]

    def test_a_number_after_the_sample_is_read_as_its_text(self, tmp_path: Path) -> None:
        lines = [f'{{"id": "x{i}", "u": {{"id": {i}}}, "t": "é"}}' for i in range(60_000)]
        lines[15_000] = '{"id": 12345678901234567890, "u": {"id": 15000}, "t": 18.50}'
        source = open_source(write(tmp_path / "a.json", "\n".join(lines)))
        found = rows(source)
        assert len(found) == 60_000
        assert found[15_000] == {"id": "12345678901234567890", "u.id": 15_000, "t": "18.50"}
        assert found[29_999] == {"id": "x29999", "u.id": 29_999, "t": "é"}

    def test_what_looks_like_a_number_within_a_string_stays(self, tmp_path: Path) -> None:
        inner = json.dumps({"id": 5, 'q"id': 6})
        text = "".join(json.dumps({"id": value, "q": inner}) + "\n" for value in ("a", 7, True))
        source = open_source(write(tmp_path / "a.json", text), types={"id": "string"})
        assert [row["id"] for row in rows(source)] == ["a", "7", "true"]
        assert {row["q"] for row in rows(source)} == {inner}

    def test_numbers_that_are_asked_for_as_text_are_as_written(self, tmp_path: Path) -> None:
        text = '[{"x": 1.50, "l": ["a", 2]}, {"x": -3e7, "l": []}, {"x": false, "l": null}, {"x": [1], "l": ["b"]}]'
        source = open_source(write(tmp_path / "a.json", text), types={"x": "string"})
        table, [reject] = read_all(source)
        assert table["x"].to_pylist() == ["1.50", "-3e7", "false"]
        assert table["l"].to_pylist() == [["a", "2"], [], None]
        assert reject.reason == 'column "x": a list is not string'
