"""What a run was asked for, and in what listed runs differ."""

from __future__ import annotations

from dray.runs.parameters import differing, parameters


def test_the_seed_of_the_split_is_told_only_where_it_is_another_one() -> None:
    assert parameters({"seed": 1, "split_seed": 1}) == {"seed": 1}
    assert parameters({"seed": 1, "split_seed": 2}) == {"seed": 1, "split_seed": 2}


def test_the_label_has_a_column_of_its_own_and_is_no_difference() -> None:
    assert differing([{"label": "a", "depth": 1}, {"label": "b", "depth": 2}]) == ["depth"]
    assert differing([{"label": "a"}, {"label": "b"}]) == []


def test_what_only_another_learner_has_is_no_difference() -> None:
    trees = [{"model": "xgboost", "rounds": 100, "times": "number"}, {"model": "xgboost", "rounds": 50}]
    lists = [{"model": "factorization", "rounds": 20, "eval_at": [10]}]
    assert differing(trees[:1] + lists) == ["model"]
    assert differing(trees + lists) == ["model", "rounds", "times"]
    assert differing(trees) == ["rounds", "times"]
