from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dray.data.features import Column
from dray.errors import ConfigError, DataError
from dray.learners.labels import LabelSample, LabelSummary, check_labels, choose_objective, classes_in, full_name

NUMBER = Column("y", "number")
FLAG = Column("y", "boolean")


def text(*categories: str) -> Column:
    return Column("y", "category", categories)


def summary(*labels: float) -> LabelSummary:
    return LabelSummary.of(np.array(labels, dtype=np.float32))


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(-50, 50, width=32) | st.just(np.nan)),
    st.lists(st.integers(0, 60), max_size=4),
)
@example(np.float32([1.5, 0]), [1])
@example(np.float32([np.nan, 3]), [1])
def test_the_summaries_of_parts_add_up_to_that_of_the_whole(labels: np.ndarray, borders: list[int]) -> None:
    parts = np.split(labels, sorted(min(border, len(labels)) for border in borders))
    assert LabelSummary.merge(LabelSummary.of(part) for part in parts) == LabelSummary.of(labels)


def test_a_summary_counts_what_is_missing_and_leaves_it_out_of_the_range() -> None:
    assert summary(np.nan, 3, np.inf, -1) == LabelSummary(4, 2, -1, 3, True, infinite=1)
    assert not summary(0.5, 1).whole


def test_samples_of_labels_come_in_the_order_of_the_data_set() -> None:
    one = LabelSample(np.array([5, 1]), np.float32([50, 10]), np.float32([0.5, 0.1]))
    two = LabelSample(np.array([3]), np.float32([30]), np.float32([0.3]))
    merged = LabelSample.merge([one, two])
    assert merged.positions.tolist() == [1, 3, 5]
    assert merged.labels.tolist() == [10, 30, 50]
    assert merged.weights is not None and merged.weights.tolist() == np.float32([0.1, 0.3, 0.5]).tolist()


@pytest.mark.parametrize(
    ("label", "labels", "ranking", "expected"),
    [
        (NUMBER, [0, 1, 1], False, "binary:logistic"),
        (FLAG, [0, 1], False, "binary:logistic"),
        (text("no", "yes"), [0, 1], False, "binary:logistic"),
        (text("a", "b", "c"), [0, 1, 2], False, "multi:softprob"),
        (NUMBER, [0, 1, 2], False, "reg:squarederror"),
        (NUMBER, [0, 0.5, 1], False, "reg:squarederror"),
        (NUMBER, [1, 2], False, "reg:squarederror"),
        (NUMBER, [0, 1, 1], True, "rank:ndcg"),
    ],
)
def test_the_objective_follows_from_the_label(label: Column, labels: list[float], ranking: bool, expected: str) -> None:
    assert choose_objective(label, summary(*labels), ranking=ranking)[0] == expected


def test_a_label_that_leaves_zero_and_one_late_is_not_binary() -> None:
    """Also when its first many rows hold nothing else."""
    labels = np.append(np.tile(np.float32([0, 1]), 20_000), np.float32([5000]))
    assert choose_objective(NUMBER, LabelSummary.of(labels), ranking=False)[0] == "reg:squarederror"


def test_classes_that_look_like_numbers_get_a_hint() -> None:
    assert "multiclass" in choose_objective(NUMBER, summary(0, 1, 2), ranking=False)[1]
    assert "multiclass" not in choose_objective(NUMBER, summary(0.5, 1), ranking=False)[1]


def test_short_names_stand_for_full_ones() -> None:
    assert full_name("binary") == "binary:logistic"
    assert full_name("count:poisson") == "count:poisson"


FITTING = [
    (NUMBER, [0, 1], "binary:logistic"),
    (NUMBER, [0, 0.3, 1], "reg:logistic"),
    (FLAG, [0, 1], "binary:hinge"),
    (text("no", "yes"), [0, 1], "binary:logistic"),
    (NUMBER, [0, 1, 2], "multi:softprob"),
    (text("a", "b", "c"), [0, 1, 2], "multi:softmax"),
    (NUMBER, [-1.5, 2], "reg:squarederror"),
    (NUMBER, [0, 3], "count:poisson"),
    (NUMBER, [0, 3.5], "reg:tweedie"),
    (NUMBER, [0.1, 3], "reg:gamma"),
    (NUMBER, [-0.5, 3], "reg:squaredlogerror"),
]


@pytest.mark.parametrize(("label", "labels", "objective"), FITTING)
def test_labels_that_fit_pass(label: Column, labels: list[float], objective: str) -> None:
    check_labels(label, summary(*labels), objective, ranking=False)
    check_labels(NUMBER, summary(0, 1, 4), "rank:ndcg", ranking=True)


@pytest.mark.parametrize(
    ("label", "labels", "objective", "what", "fix"),
    [
        (NUMBER, [0, 2], "binary:logistic", "runs from 0 to 2, not from 0 to 1", "multiclass"),
        (NUMBER, [-1, 1], "binary:logistic", "runs from -1 to 1", "0 and 1"),
        (NUMBER, [0, 1.5], "reg:logistic", "not from 0 to 1", "regression"),
        (text("a", "b", "c"), [0, 2], "binary:logistic", "it has 3 classes", "multiclass"),
        (NUMBER, [0, 0.5, 2], "multi:softprob", "classes are 0, 1, 2", "Number the classes"),
        (NUMBER, [-1, 2], "multi:softmax", "runs from -1 to 2", "from 0"),
        (text("a", "b"), [0, 1], "reg:squarederror", "it is text", "binary or multiclass"),
        (NUMBER, [-2, 3], "count:poisson", "must not be negative", "regression"),
        (NUMBER, [-2, 3], "reg:tweedie", "must not be negative", "regression"),
        (NUMBER, [0, 3], "reg:gamma", "must be positive", "regression"),
        (NUMBER, [-1, 3], "reg:squaredlogerror", "greater than -1", "regression"),
    ],
)
def test_labels_that_do_not_fit_are_told_with_their_range_and_a_way_out(
    label: Column, labels: list[float], objective: str, what: str, fix: str
) -> None:
    with pytest.raises(DataError) as raised:
        check_labels(label, summary(*labels), objective, ranking=False)
    assert f'"y" does not fit {objective}' in raised.value.what
    assert what in raised.value.what and fix in raised.value.fix


def test_negative_relevance_does_not_fit_ranking() -> None:
    with pytest.raises(DataError, match="relevance is never negative"):
        check_labels(NUMBER, summary(-1, 2), "rank:ndcg", ranking=True)


@pytest.mark.parametrize(("bad", "told"), [(np.nan, "no value"), (np.inf, "an infinite value")])
@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:squarederror"])
def test_labels_that_are_not_finite_are_counted(bad: float, told: str, objective: str) -> None:
    with pytest.raises(DataError, match=f'1 of 3 rows have {told} in the label "y"'):
        check_labels(NUMBER, summary(0, bad, 1), objective, ranking=False)


def test_labels_that_are_all_missing_are_told_so() -> None:
    with pytest.raises(DataError, match="2 of 2 rows"):
        check_labels(NUMBER, summary(np.nan, np.nan), "reg:squarederror", ranking=False)


@pytest.mark.parametrize(
    ("label", "value", "told"), [(NUMBER, 7, "is 7 in every row"), (text("only"), 0, "is only in every row")]
)
def test_a_constant_label_is_told_with_its_value(label: Column, value: float, told: str) -> None:
    with pytest.raises(DataError, match=told):
        check_labels(label, summary(value, value), "binary:logistic", ranking=False)


def test_groups_and_the_objective_must_agree() -> None:
    with pytest.raises(ConfigError, match="group column is for ranking"):
        check_labels(NUMBER, summary(0, 1), "binary:logistic", ranking=True)
    with pytest.raises(ConfigError, match="needs groups"):
        check_labels(NUMBER, summary(0, 1), "rank:map", ranking=False)


def test_survival_is_refused() -> None:
    with pytest.raises(ConfigError, match="survival:cox is not supported"):
        check_labels(NUMBER, summary(0, 1), "survival:cox", ranking=False)


def test_the_number_of_classes_comes_from_the_names_or_the_largest_number() -> None:
    assert classes_in(text("a", "b", "c", "d"), summary(0, 1), "multi:softprob") == 4
    assert classes_in(NUMBER, summary(0, 2), "multi:softprob") == 3
    assert classes_in(NUMBER, summary(0, 2), "reg:squarederror") == 0
