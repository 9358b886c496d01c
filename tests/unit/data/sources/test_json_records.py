"""Records of JSON text: lines, and items of an array."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.data.sources.json_records import Records, items, last_item_end, last_line_end, lines

VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab"\\{}[],\n'), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('a"\\'), max_size=3), inner),
    max_leaves=6,
)


def texts(found: Records) -> list[bytes]:
    return [found.data[start:stop] for start, stop in zip(found.starts, found.stops, strict=True)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"1", [b"1"]),
        (b"1\n", [b"1"]),
        (b"1\n2", [b"1", b"2"]),
        (b"\n \t\r\n{}\n\n", [b"{}"]),
        (b"         \n1", [b"         ", b"1"]),  # long white space is left to the parser
    ],
)
def test_lines_that_are_not_empty(data: bytes, expected: list[bytes]) -> None:
    assert texts(lines(data)) == expected
    assert last_line_end(data) == data.rfind(b"\n") + 1


@pytest.mark.parametrize(
    ("data", "expected", "open_end", "behind"),
    [
        (b"1, 2]", [b"1", b" 2"], False, None),
        (b"1, 2", [b"1", b" 2"], True, None),
        (b"1, ", [b"1"], True, None),
        (b"1,]", [b"1"], False, None),
        (b"]", [], False, None),
        (b"", [], True, None),
        (b"1] x", [b"1"], False, 3),
        (b"1]\n \n", [b"1"], False, None),
        (b'{"a": [1, 2]}, "],"]', [b'{"a": [1, 2]}', b' "],"'], False, None),
        (b'"\\"]", 2]', [b'"\\"]"', b" 2"], False, None),
        (b'"\\\\", 2]', [b'"\\\\"', b" 2"], False, None),
        (b"1], 2, 3]", [b"1"], False, 2),
        (b"1,,2]", [b"1", b"2"], False, None),
    ],
)
def test_items_of_an_array(data: bytes, expected: list[bytes], open_end: bool, behind: int | None) -> None:
    found = items(data)
    assert (texts(found), found.open_end, found.behind, len(found)) == (expected, open_end, behind, len(expected))


@pytest.mark.parametrize(
    ("data", "end"),
    [(b"", 0), (b"1", 0), (b"1,", 2), (b"1, 2", 2), (b"[1, 2], 3", 7), (b'","', 0), (b"1], 2,", 0), (b"1, 2], 3,", 2)],
)
def test_the_last_item_that_a_comma_follows(data: bytes, end: int) -> None:
    assert last_item_end(data) == end


def test_records_are_given_with_white_space_between_them() -> None:
    found = items(b'{"a": 1},{"b": 2},{"c": 3}]')
    assert found.text(0, 3) == b'{"a": 1}\n{"b": 2}\n{"c": 3}'
    assert found.text(1, 2) == b'{"b": 2}'
    assert found.text(1, 3) == b'{"b": 2}\n{"c": 3}'
    assert lines(b"1\n2\n3\n").text(0, 2) == b"1\n2"


@given(st.lists(VALUES, max_size=5), st.sampled_from([None, 1]))
def test_items_are_those_that_were_written(values: list[object], indent: int | None) -> None:
    data = json.dumps(values, indent=indent)[1:].encode()
    found = items(data)
    assert [json.loads(text) for text in texts(found)] == values
    assert not found.open_end
    cut = last_item_end(data)
    assert [json.loads(text) for text in texts(items(data[:cut]))] == values[: max(0, len(values) - 1)]
