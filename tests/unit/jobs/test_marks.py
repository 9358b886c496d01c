"""Marked lines: found among all else, whole, however they arrive."""

from __future__ import annotations

import pytest

from dray.jobs import start
from dray.jobs.marks import MARK, Reader, mark

LOG = "one\n" + mark({"events": [{"kind": "round"}]}) + "half a line" + mark({"result": {"rows": 3}}) + "\nlast"
PARTS = ["one", {"events": [{"kind": "round"}]}, "half a line", {"result": {"rows": 3}}, "", "last"]


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_a_log_means_the_same_in_whatever_pieces_it_comes(step: int) -> None:
    reader = Reader()
    parts = [part for at in range(0, len(LOG), step) for part in reader.feed(LOG[at : at + step])]
    assert [*parts, *reader.rest()] == PARTS


def test_a_line_that_was_cut_off_is_shown_as_it_is() -> None:
    line = mark({"result": {}})[:-5]
    assert list(Reader().feed(f"{line}\n")) == [line]


def test_of_two_signs_in_a_line_the_first_counts() -> None:
    line = f'before{MARK}{{"a": "{MARK[1:]}"}}'
    assert list(Reader().feed(f"{line}\n")) == ["before", {"a": MARK[1:]}]
    broken = f"{MARK}{{{MARK}{{}}"
    assert list(Reader().feed(f"{broken}\n")) == [broken]
    assert list(Reader().feed(f"{MARK}[1]\n")) == [f"{MARK}[1]"]


def test_a_text_with_the_sign_in_it_stays_within_its_document() -> None:
    document = {"warning": f"{MARK} and a line\nend"}
    [part] = Reader().feed(mark(document))
    assert part == document


def test_what_begins_a_job_marks_as_the_rest_does() -> None:
    assert start.MARK == MARK
