"""Where records begin and end, by texts that can be read by eye."""

from __future__ import annotations

import pytest

from dray.data.sources.quotes import (
    Effect,
    Quoting,
    effect_of,
    ends_inside,
    first_start,
    first_sure_start,
    last_end,
    records,
    torn_values,
)

QUOTED = Quoting(ord(","), ord('"'))
PLAIN = Quoting(ord(","), None)


@pytest.mark.parametrize("text", [b"", b"a", b"a\nb", b"a\n", b'"a\nb"', b'x"\n"y\n'])
def test_without_a_quote_a_line_is_a_record(text: bytes) -> None:
    assert last_end(text, PLAIN) == text.rfind(b"\n") + 1
    assert effect_of(text, PLAIN) == Effect()
    assert first_sure_start(text, PLAIN) == 0
    assert not ends_inside(text, PLAIN)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"a\nb\nc", 4),
        (b'a\n"b\nc"', 2),
        (b'a\n"b\nc"\nd', 8),
        (b'"a\nb', 0),
        (b'"a""\nb"\n', 8),
        (b"\nx", 1),
        (b'\n"x\n', 1),
    ],
)
def test_the_last_whole_record_ends_outside_of_quotes(text: bytes, end: int) -> None:
    assert last_end(text, QUOTED) == end


@pytest.mark.parametrize(
    ("text", "inside", "start"),
    [
        (b"a\nb", False, 0),
        (b'a\nb",c\nd', True, 7),
        (b'"\nb', True, 2),
        (b"a\nb", True, None),
        (b'a"', True, None),
        (b'a","b\nc"\nd', True, 9),
    ],
)
def test_the_first_record_begins_behind_the_quotes_in_which_a_text_begins(
    text: bytes, inside: bool, start: int | None
) -> None:
    assert first_start(text, QUOTED, inside) == start


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (b"a\nb", None),  # nothing tells whether this is inside
        (b'x"\nb', 3),  # a quote behind a letter closes
        (b'x",y\nb', 5),
        (b'x"', None),
        (b'x","y\n"\nb', 8),
        (b'x"y""', None),
    ],
)
def test_a_start_is_sure_behind_a_quote_that_can_only_close(text: bytes, start: int | None) -> None:
    assert first_sure_start(text, QUOTED) == start


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        (b"a,b", Effect()),
        (b'"a""b"', Effect(sure=True)),
        (b'"",""', Effect()),
        (b'"a', Effect(turns=True)),
        (b'x"', Effect(sure=True)),
        (b'x","', Effect(sure=True, turns=True)),
    ],
)
def test_the_effect_of_a_text(text: bytes, effect: Effect) -> None:
    assert effect_of(text, QUOTED) == effect


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n\nb\r\n\r\nc\rd", [b"a\n", b"b\r\n", b"c\r", b"d"]),
        (b'"a\nb"\nc\n', [b'"a\nb"\n', b"c\n"]),
        (b'"a\r\nb', [b'"a\r\nb']),
        (b"\n", []),
        (b"\r\n", []),
        (b"ab\n", [b"ab\n"]),
        (b"\rx", [b"x"]),
    ],
)
def test_records_are_lines_outside_of_quotes_without_empty_ones(text: bytes, found: list[bytes]) -> None:
    starts, ends = records(text, QUOTED)
    assert [text[start:end] for start, end in zip(starts, ends, strict=True)] == found


def test_records_of_what_is_never_quoted() -> None:
    starts, ends = records(b'"a\nb"\n', PLAIN)
    assert (starts.tolist(), ends.tolist()) == ([0, 3], [3, 6])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'1,"a\n2,"b"\n', [7]),  # the second quote closes what the first one opened
        (b'1,"a\n2,b",c\n', []),
        (b'1,"a"b,c\n', []),  # on one line it costs no other row
        (b'"a\nb"', []),
        (b'"a ""b""\n" ,c\n', [9]),
    ],
)
def test_values_of_several_lines_are_torn_where_text_follows_their_end(text: bytes, found: list[int]) -> None:
    assert torn_values(text, QUOTED).tolist() == found
    assert not torn_values(text, PLAIN).tolist()


def test_blanks_after_a_value_are_no_text_where_they_do_not_belong_to_it() -> None:
    assert not torn_values(b'"a\nb" ,c\n', Quoting(ord(","), ord('"'), spaced=True)).tolist()
