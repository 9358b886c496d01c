"""Warnings about a column, from profiles of columns of all kinds: told when they should be, and not otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dray.data.describing.concerns import concerns_about, leak_concerns
from dray.data.describing.figures import ColumnProfile, Concern, Figure, Known
from dray.data.describing.profile import profile_column

NOTHING = Known()


def profiled(values: Any, *, complete: bool = True, kind: pa.DataType | None = None) -> tuple[ColumnProfile, Any]:
    column = pa.chunked_array([pa.array(values, kind)])
    return profile_column("x", column, len(column) * (1 if complete else 10), complete, NOTHING), column


def told(column_values: Any, *, label: bool = False, complete: bool = True, **changes: Any) -> list[tuple[str, str]]:
    profile, column = profiled(column_values, complete=complete)
    return [(found.kind, found.message) for found in concerns_about(replace(profile, **changes), column, label)]


def test_an_ordinary_column_is_not_complained_about() -> None:
    assert told([1.5, 2.5, 1.5, 3.25] * 50) == []
    assert told(["a", "b"] * 100) == []
    assert told([1, 2, None] * 50) == []


def test_a_column_without_a_value_is_empty() -> None:
    assert told(pa.nulls(5, pa.int64())) == [("empty", "no value at all: leave it out")]
    assert told(pa.nulls(5, pa.int64()), complete=False) == [("empty", "no value in the sample: leave it out")]
    almost = Figure(0.9, "sample")
    assert told(pa.nulls(5, pa.int64()), complete=False, missing=almost)[0][0] == "empty"
    assert told(pa.nulls(5, pa.int64()), missing=Figure(0.9, "exact")) == []


def test_a_constant_is_told_with_its_value_and_where() -> None:
    assert told([7] * 5) == [("constant", "the same value in every row: 7")]
    assert told([7] * 5, complete=False) == [("constant", "the same value in every row of the sample: 7")]
    assert told(["a"] * 5, complete=False) == [("constant", "the same value in every row of the sample: 'a'")]
    assert told(["a"] * 5) == [("constant", "the same value in every row: 'a'")]
    assert told([7] * 5, complete=False, low=Figure(7, "exact"), high=Figure(7, "exact")) == [
        ("constant", "the same value in every row: 7")
    ]
    assert told([7] * 5, complete=False, high=Figure(8, "exact")) == []  # the footers know of another value
    assert told([7, None] * 5) == []
    assert told([7] * 5, values=()) == [("constant", "the same value in every row: 7")]


def test_more_than_19_of_20_missing_is_mostly() -> None:
    assert told([1, 2, *[None] * 38]) == []
    assert told([1, 2, *[None] * 39]) == [("mostly-missing", "95.1% missing")]
    assert told([1, 2, *[None] * 39], complete=False) == [("mostly-missing", "about 95.1% missing")]


def test_infinities_are_told_by_their_share_or_by_the_footers() -> None:
    infinite = float("inf")
    assert told([1.5, 2.5, infinite, 3.5]) == [("infinite", "25.00% of the values are infinite: training refuses them")]
    for end in ({"high": Figure("inf", "exact")}, {"low": Figure("-inf", "exact")}):
        assert told([1.5, 2.5] * 2, complete=False, **end) == [
            ("infinite", "some values, by the footers, are infinite: training refuses them")
        ]


def test_a_label_is_complained_about_as_one() -> None:
    assert told([0, 1] * 50, label=True) == []
    assert told([0, 1, None, 1] * 25, label=True) == [("label-missing", "the label is missing in 25.0% of the rows")]
    rare = [0] * 1998 + [1]
    assert told(rare, label=True) == [
        ("label-rare-class", "the class 1 has 0.050% of the rows: hardly enough to learn from")
    ]
    assert told([0] * 999 + [1], label=True) == []
    assert told(range(200), label=True) == []  # an id would be told of any other column
    many = [value for value in range(21) for _ in range(200)] + [99]
    assert told(many, label=True) == []
    texts = [f"t{value}" for value in many[:-1]]
    assert told([*texts, "rare"], label=True) == []  # only the most frequent are known


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (range(100), "a counter: every value is greater than the one before"),
        ([*range(99, -1, -1)], "nearly every value is different"),
        ([float(value) for value in range(100)], "a counter: every value is greater than the one before"),
        ([f"user {value}" for value in range(100)], "nearly every value is different"),
        ([*range(99), 98], "nearly every value is different"),
    ],
)
def test_what_is_new_in_nearly_every_row_is_an_id(values: Any, words: str) -> None:
    assert told(values) == [("id", f"looks like an id ({words}): a model would memorize rows")]


@pytest.mark.parametrize(
    "values",
    [
        range(99),  # few rows differ by chance
        [value + 0.5 for value in range(100)],  # a measure
        [*range(98), 0, 1],
        [float("inf"), float("nan")] * 60,
    ],
)
def test_what_only_looks_like_an_id_is_none(values: Any) -> None:
    assert "id" not in [kind for kind, _ in told(values)]


def test_long_texts_that_never_repeat_are_free_text() -> None:
    prose = [f"{value:064}" + "!" for value in range(100)]
    assert told([f"p{text}" for text in prose]) == [("many-values", "free text: nearly every value is different")]
    assert told([f"{'p' * 60}{value:04}" for value in range(100)])[0][0] == "id"


def test_many_texts_are_many_categories() -> None:
    few = ["a", "b"] * 100
    assert told(few, distinct=Figure(10_000, "exact")) == []
    assert told(few, distinct=Figure(10_001, "exact")) == [
        ("many-values", "10,001 different texts: each becomes a category")
    ]
    assert told(few, distinct=Figure(12_345, "estimate")) == [
        ("many-values", "about 12,345 different texts: each becomes a category")
    ]
    assert told(few, distinct=None) == []
    assert told([1, 2] * 100, distinct=Figure(12_345, "exact")) == []


def test_numbers_kept_as_text_are_told_with_what_is_none() -> None:
    def repeated(*texts: str | None) -> list[str | None]:
        return [*texts] * 30

    assert told(repeated("1", "2.5", "-3e5", " 4% ", ".5", "1,000")) == [
        ("numbers-as-text", "numbers kept as text (6 of 6 different values)")
    ]
    nine = [str(value) for value in range(1, 10)]
    assert told(repeated(*nine, "n/a", None, " ")) == [
        ("numbers-as-text", "numbers kept as text (9 of 10 different values, but not 'n/a')")
    ]
    assert told(repeated(*nine[:8], "n/a")) == []
    assert told(repeated(*nine, "007")) == []  # codes keep their zeros only as text
    assert told(repeated("", " ")) == []
    odd = ["a", "b", "c", "d"]
    many = [str(value) for value in range(1, 61)]
    assert told(repeated(*many, *odd)) == [
        ("numbers-as-text", "numbers kept as text (60 of 64 different values, but not 'a', 'b', 'c')")
    ]


def test_lists_have_no_identity() -> None:
    profile, column = profiled([[value] for value in range(200)])
    assert concerns_about(profile, column) == []


def leaking(label: Any, **columns: Any) -> list[Concern]:
    table = pa.table({"y": label, **columns})
    profiles = [profile_column(name, table[name], table.num_rows, True, NOTHING) for name in table.column_names]
    return leak_concerns(profiles[0], table, profiles)


def test_a_column_that_decides_the_label_is_a_leak_and_another_is_none() -> None:
    classes = [0, 0, 1] * 100
    found = leaking(
        classes,
        same=[value * 2.0 for value in classes],
        text=["no" if value else "yes" for value in classes],
        gap=[None if value else 1.0 for value in classes],
        other=[value % 7 for value in range(300)],
        nothing=pa.nulls(300, pa.float64()),
        lists=[[value] for value in classes],
    )
    assert [(concern.kind, concern.column) for concern in found] == [("leak", name) for name in ("same", "text", "gap")]
    assert found[0].message == (
        'alone predicts "y" (AUC 1.000): a leak? Leave it out if its values are known only after the label'
    )
    numbers = [float(value % 25) for value in range(2500)]
    [leak] = leaking(numbers, same=numbers, other=[value % 7 for value in range(2500)])
    assert (leak.column, "share of the variance of its ranks" in leak.message) == ("same", True)


@pytest.mark.parametrize(
    "label", [["a", "b"] * 100, [True, False] * 100, [0, 1] * 100, [0.0, float("nan"), 1.0, None] * 60]
)
def test_labels_of_few_values_are_classes(label: Any) -> None:
    values = [None if value is None or value != value else str(value) for value in label]
    [leak] = leaking(label, same=values)
    assert "AUC 1.000" in leak.message


@pytest.mark.parametrize("label", [[1] * 200, [0] * 190 + [1] * 10, [[1]] * 200])
def test_a_label_that_cannot_be_judged_is_told(label: Any) -> None:
    [found] = leaking(label, x=list(range(200)))
    assert (found.kind, found.column) == ("leak-unchecked", "y")
    assert found.message == (
        "not checked for leaks: the label has too few rows of a class, or one value only in the sample"
    )
