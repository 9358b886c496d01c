from __future__ import annotations

from typing import Any

import pytest

from dray.data.features import Column
from dray.errors import ConfigError
from dray.learners.xgboost.constraints import by_position

FEATURES = [Column("one", "number"), Column("a<b", "number"), Column("colour", "category", ("red", "blue"))]


@pytest.mark.parametrize("given", [{"a<b": -1}, [0, -1, 0], (0, -1, 0), "(0,-1,0)", "[0, -1, 0]"])
def test_monotone_constraints_are_given_by_position_however_they_are_written(given: Any) -> None:
    assert by_position({"monotone_constraints": given}, FEATURES) == {"monotone_constraints": "(0,-1,0)"}


@pytest.mark.parametrize("given", [[["one", "a<b"], ["colour"]], [[0, 1], [2]], '[["one", 1], [2]]'])
def test_interaction_constraints_are_given_by_position_however_they_are_written(given: Any) -> None:
    assert by_position({"interaction_constraints": given}, FEATURES) == {"interaction_constraints": "[[0, 1], [2]]"}


def test_other_parameters_stay_as_they_are() -> None:
    assert by_position({"eta": 0.1, "monotone_constraints": None}, FEATURES) == {
        "eta": 0.1,
        "monotone_constraints": None,
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1], "1 values, and there are 3 features"),
        ([1, 0, 0, 0], "4 values"),
        ("(1,0)", "2 values"),
        ({"colour": 1}, '"colour" has no meaning: it is a category'),
        ([0, 0, 1], '"colour" has no meaning'),
        ({"one": 5}, '"one" is 5'),
        ({"one": "up"}, "\"one\" is 'up'"),
        ({"one": True}, '"one" is True'),
        ({"onee": 1}, 'names "onee", which is not a feature. Did you mean "one"'),
        ("abc", "must be a list"),
        (5, "must be a list"),
    ],
)
def test_monotone_constraints_that_cannot_be(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        by_position({"monotone_constraints": given}, FEATURES)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["one", "colour"], "list of lists"),  # XGBoost takes it for something else
        ([], "list of lists"),
        ([[]], "list of lists"),
        ({"one": 1}, "must be a list"),
        ("abc", "must be a list"),
        ([[0, 7]], 'names "7"'),
        ([[-1]], 'names "-1"'),
        ([[0.5]], 'names "0.5"'),
        ([["onee"]], 'Did you mean "one"'),
    ],
)
def test_interaction_constraints_that_cannot_be(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        by_position({"interaction_constraints": given}, FEATURES)
