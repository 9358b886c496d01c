from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from dray.data.features import Column
from dray.errors import DataError
from dray.learners.classes import (
    MOST_CLASSES,
    as_classes,
    check_few,
    check_known,
    in_order,
    positive_class,
    type_of,
    with_classes,
)
from dray.learners.label_scan import LabelValues

NUMBER = Column("y", "number")
TEXT = Column("y", "category")


@pytest.mark.parametrize(
    ("values", "positive"),
    [
        ({"yes", "no"}, "yes"),
        ({"Yes", "no"}, "Yes"),
        ({"TRUE", "FALSE"}, "TRUE"),
        ({"pos", "neg"}, "pos"),
        ({"Positive", "Negative"}, "Positive"),
        ({"'1'", "'-1'"}, "'1'"),
        ({"+", "-"}, "+"),
        ({"case", "control"}, "case"),
        ({"-1", "1"}, "1"),
        ({"9", "10"}, "10"),
        ({"<=50K", ">50K"}, ">50K"),
        ({"ham", "spam"}, "spam"),
        ({"bad", "good"}, "good"),
    ],
)
def test_of_two_classes_the_one_that_people_mean_is_the_positive_one(values: set[str], positive: str) -> None:
    assert in_order(values)[-1] == positive
    assert positive_class(with_classes(TEXT, values), "binary:logistic") == positive


def test_numbers_are_in_the_order_of_numbers_and_texts_in_that_of_texts() -> None:
    assert in_order({"10", "9", "-1", "2.5"}) == ("-1", "2.5", "9", "10")
    assert in_order({"b", "a", "10", "9"}) == ("10", "9", "a", "b")


def test_numbers_that_are_codes_already_stay_numbers() -> None:
    assert as_classes(NUMBER, {"0", "1", "2"}, "int64", codes=0) is NUMBER
    assert as_classes(NUMBER, {"0", "2"}, "int64", codes=3) is NUMBER
    assert as_classes(NUMBER, {"3", "10", "9"}, "int64", codes=0) == Column("y", "category", ("3", "9", "10"), "int64")
    assert as_classes(NUMBER, {"0", "2"}, "int64", codes=0).categories == ("0", "2")


@pytest.mark.parametrize(
    ("label", "expected", "arrow"),
    [
        (Column("y", "category", ("1", "2"), "int64"), 2, pa.int64()),
        (Column("y", "category", ("-1", "1"), "int8"), 1, pa.int8()),
        (Column("y", "category", ("1", "2"), "double"), 2.0, pa.float64()),
        (Column("y", "category", ("a", "b")), "b", pa.string()),
        (Column("y", "category", ("2024-01-01", "2024-01-02"), "date32[day]"), "2024-01-02", pa.string()),
    ],
)
def test_a_class_is_told_as_the_labels_own_value(label: Column, expected: Any, arrow: pa.DataType) -> None:
    found = positive_class(label, "binary:logistic")
    assert (found, type(found), type_of(label)) == (expected, type(expected), arrow)


def test_0_and_1_and_booleans_have_their_positive_class_and_other_tasks_none() -> None:
    assert positive_class(NUMBER, "binary:logistic") == 1
    assert positive_class(Column("y", "boolean"), "binary:hinge") is True
    assert positive_class(NUMBER, "reg:squarederror") is None
    assert positive_class(with_classes(TEXT, {"a", "b", "c"}), "multi:softprob") is None


def test_text_with_almost_as_many_values_as_rows_is_not_classes() -> None:
    counts = {f"customer {number}": 1 for number in range(60)}
    with pytest.raises(DataError, match=r"60 different values in 60 rows.*free text or an id"):
        check_few(TEXT, counts, more=False, asked=False)
    check_few(TEXT, counts, more=False, asked=True)
    check_few(TEXT, dict.fromkeys(counts, 2), more=False, asked=False)
    check_few(TEXT, {"a": 1, "b": 1, "c": 1}, more=False, asked=False)


def test_more_values_than_there_can_be_classes_are_refused_also_when_asked_for() -> None:
    with pytest.raises(DataError, match=f"more than {MOST_CLASSES:,} different values"):
        check_few(TEXT, {"a": 1}, more=True, asked=True)


@pytest.mark.parametrize("values", [("3,5", "4,25", "7"), ("1.234,50", "2,5", "-3,1")])
def test_numbers_with_a_decimal_comma_are_told_as_that(values: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match="decimal comma") as raised:
        check_few(TEXT, dict.fromkeys(values, 500), more=False, asked=False)
    assert '--read "decimal=,"' in raised.value.fix
    check_few(TEXT, dict.fromkeys(("a,b", "c"), 500), more=False, asked=False)


def test_labels_that_training_does_not_know_are_told_with_their_numbers() -> None:
    label = with_classes(TEXT, {"<=50K", ">50K"})
    check_known(label, {"<=50K": 3}, of="evaluation rows", fix="?")
    with pytest.raises(DataError) as raised:
        check_known(label, {"<=50K.": 12_435, ">50K.": 3_846, ">50K": 1}, of="evaluation rows", fix="Write them alike.")
    assert "16,281 evaluation rows" in raised.value.what
    assert '"<=50K." is not one of "<=50K", ">50K" (12,435 rows); nor is ">50K." (3,846 rows)' in raised.value.what


def test_two_values_with_a_decimal_comma_are_classes() -> None:
    check_few(Column("y", "category"), {"0,5": 10, "1,5": 12}, more=False, asked=False)


def test_values_that_are_too_many_together_only_are_too_many() -> None:
    parts = [LabelValues(Counter(a=1, b=1)), LabelValues(Counter(b=1, c=1))]
    assert LabelValues.merge(parts, 2).more
    assert not LabelValues.merge(parts, 3).more
