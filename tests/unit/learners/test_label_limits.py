"""Labels at the limits of what an objective takes."""

from __future__ import annotations

import numpy as np
import pytest

from dray.data.features import Column
from dray.errors import DataError
from dray.learners.labels import MOST_CLASSES, LabelSample, LabelSummary, check_labels, choose_objective, classes_in

NUMBER = Column("y", "number")


def span(low: float, high: float, whole: bool = True) -> LabelSummary:
    return LabelSummary(10, 0, low, high, whole)


@pytest.mark.parametrize(
    ("objective", "fits", "does_not"),
    [
        ("binary:logistic", span(0, 1), [span(-0.1, 1), span(0, 1.1)]),
        ("reg:logistic", span(0, 1), [span(-0.1, 1), span(0, 1.1)]),
        ("multi:softprob", span(0, MOST_CLASSES - 1), [span(0, MOST_CLASSES), span(-1, 3), span(0, 3, whole=False)]),
        ("rank:ndcg", span(0, 4), [span(-1, 4)]),
        ("count:poisson", span(0, 4), [span(-1, 4)]),
        ("reg:tweedie", span(0, 4), [span(-1, 4)]),
        ("reg:gamma", span(0.1, 4), [span(0, 4), span(-1, 4)]),
        ("reg:squaredlogerror", span(-0.9, 4), [span(-1, 4)]),
        ("reg:squarederror", span(-1e9, 1e9), []),
    ],
)
def test_an_objective_takes_labels_up_to_its_limits(
    objective: str, fits: LabelSummary, does_not: list[LabelSummary]
) -> None:
    ranking = objective.startswith("rank:")
    check_labels(NUMBER, fits, objective, ranking=ranking)
    for labels in does_not:
        with pytest.raises(DataError, match=f'The label "y" does not fit {objective}: it runs from '):
            check_labels(NUMBER, labels, objective, ranking=ranking)


def test_classes_are_hinted_at_where_whole_numbers_are_few() -> None:
    def hinted(labels: LabelSummary) -> bool:
        objective, why = choose_objective(NUMBER, labels, ranking=False)
        assert objective == "reg:squarederror"
        return "--objective multiclass" in why

    assert all(map(hinted, (span(0, 99), span(3, 9), span(-5, 5))))
    assert not any(map(hinted, (span(0, 100), span(0, 5, whole=False))))


def test_two_values_are_two_classes() -> None:
    def chosen(label: Column, labels: LabelSummary) -> str:
        return choose_objective(label, labels, ranking=False)[0]

    assert chosen(NUMBER, span(0, 1)) == "binary:logistic"
    assert chosen(NUMBER, span(0, 1, whole=False)) == "reg:squarederror"
    assert chosen(Column("y", "category", ("a", "b")), span(0, 1)) == "binary:logistic"
    assert chosen(Column("y", "category", ("a", "b", "c")), span(0, 1)) == "multi:softprob"


def test_classes_are_counted_by_their_names_or_by_the_largest_number() -> None:
    assert classes_in(NUMBER, span(0, 4), "multi:softprob") == 5
    assert classes_in(Column("y", "category", ("a", "b", "c")), span(0, 1), "multi:softmax") == 3
    assert classes_in(NUMBER, span(0, 4), "reg:squarederror") == 0


def test_samples_without_weights_have_none_together() -> None:
    parts = [LabelSample(np.array([place]), np.float32([place]), None) for place in (2, 1)]
    merged = LabelSample.merge(parts)
    assert (merged.positions.tolist(), merged.labels.tolist(), merged.weights) == ([1, 2], [1.0, 2.0], None)


def test_a_label_without_any_value_is_all_missing() -> None:
    assert LabelSummary.of(np.float32([np.nan, np.inf])) == LabelSummary(2, 2, np.inf, -np.inf, True, infinite=1)
    with pytest.raises(DataError, match="1 of 10 rows have no value"):
        check_labels(NUMBER, LabelSummary(10, 1, 0, 1, True), "binary:logistic", ranking=False)


def test_a_label_of_one_value_is_named_by_it() -> None:
    with pytest.raises(DataError, match=r'The label "y" is b in every row'):
        check_labels(Column("y", "category", ("a", "b")), span(1, 1), "binary:logistic", ranking=False)
    with pytest.raises(DataError, match=r'The label "y" is 1\.5 in every row'):
        check_labels(NUMBER, span(1.5, 1.5, whole=False), "reg:squarederror", ranking=False)
