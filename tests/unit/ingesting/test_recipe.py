"""What is asked for, and what is refused before anything is read."""

from __future__ import annotations

import pytest

from dray.errors import ConfigError, DataError
from dray.ingesting.limits import Limit
from dray.ingesting.recipe import HashSplit, Recipe, TimeSplit, differences, require_columns


def test_columns_behind_the_filter_are_those_written_and_those_that_decide_where_to() -> None:
    split = HashSplit(share=0.5, columns=("user",))
    recipe = Recipe(columns=("b", "a"), dedup=("k",), sort=("-t", "a"), partition_by=("day",), split=split)
    assert recipe.carried(("a", "b")) == ("b", "a", "k", "t", "user", "day")
    assert Recipe().carried(("a", "b")) == ("a", "b")


@pytest.mark.parametrize("share", [0, 1, -0.1, 20])
def test_a_share_lies_between_0_and_1(share: float) -> None:
    with pytest.raises(ConfigError, match="share of test rows"):
        HashSplit(share=share)


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match='sort names the column "a" twice'):
        Recipe(sort=("a", "-a"))


def test_a_partition_column_whose_directories_nobody_would_see_is_refused() -> None:
    with pytest.raises(ConfigError, match="readers of data skip"):
        Recipe(partition_by=("_day",))


@pytest.mark.parametrize(
    ("recipe", "flag"),
    [
        (Recipe(columns=("prise",)), "--columns"),
        (Recipe(dedup=("prise",)), "--dedup"),
        (Recipe(sort=("-prise",)), "--sort"),
        (Recipe(partition_by=("prise",)), "--partition-by"),
        (Recipe(split=TimeSplit(column="prise", moment="2026-01-01")), "--split-by"),
    ],
)
def test_an_unknown_column_is_told_with_the_nearest_one(recipe: Recipe, flag: str) -> None:
    with pytest.raises(DataError, match='no column "prise" in the source') as raised:
        require_columns(recipe, (), ("price", "day"))
    assert 'Did you mean "price"?' in raised.value.what and flag in raised.value.what
    assert raised.value.fix == "The columns are price, day."


def test_recipes_differ_in_what_changes_the_output_and_the_limit_of_rejects_does_not() -> None:
    before = Recipe(filter="x > 1", max_rejects=Limit(rows=1)).to_json()
    assert differences(before, Recipe(filter="x > 1").to_json()) == []
    assert differences(before, Recipe(filter="x > 2").to_json()) == ['filter was "x > 1" and is "x > 2"']
    assert differences(before, Recipe(filter="x > 1", sort=("x",)).to_json()) == ['sort was [] and is ["x"]']
