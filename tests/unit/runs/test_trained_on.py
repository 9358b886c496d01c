from __future__ import annotations

import pytest

from dray.errors import ConfigError
from dray.runs.trained_on import HeldOut, TrainedOn, held_out, require_held_out

A, B, C = ("a.parquet", 100, 1000), ("b.parquet", 50, 500), ("c.parquet", 10, 100)
SPLIT = {"eval_fraction": 0.2, "split_seed": 0}


def earlier(*files: tuple[str, int, int], split: HeldOut | None = None) -> TrainedOn:
    return TrainedOn("first", files, split)


def test_the_same_rows_held_out_of_the_same_files_are_new_to_the_model() -> None:
    assert require_held_out([earlier(A, B, split=SPLIT)], [A, B], SPLIT, [])


def test_further_files_behind_the_known_ones_are_not_known() -> None:
    assert not require_held_out([earlier(A, B, split=SPLIT)], [A, B, C], SPLIT, [])


def test_other_files_are_not_known() -> None:
    assert not require_held_out([earlier(A)], [B], SPLIT, [])
    assert not require_held_out([earlier(A)], [A], None, [B])


@pytest.mark.parametrize(
    ("before", "train", "split", "told"),
    [
        (earlier(A), [A], SPLIT, "trained on all of it"),
        (earlier(A, split=SPLIT | {"split_seed": 1}), [A], SPLIT, "--eval-fraction 0.2 --split-seed 1"),
        (earlier(A, split=SPLIT | {"eval_fraction": 0.3}), [A], SPLIT, "--eval-fraction 0.3 --split-seed 0"),
        (earlier(A, B, split=SPLIT), [B, A], SPLIT, "b.parquet is to be evaluated on"),
        (earlier(A, B, split=SPLIT), [B], SPLIT, "most of it"),
    ],
)
def test_rows_that_were_trained_on_are_refused(
    before: TrainedOn, train: list[tuple[str, int, int]], split: HeldOut, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        require_held_out([before], train, split, [])


def test_files_that_were_trained_on_are_refused_as_evaluation_data() -> None:
    with pytest.raises(ConfigError, match="other data with --eval"):
        require_held_out([earlier(A, split=SPLIT)], [B], None, [C, A])


def test_every_run_that_the_model_comes_from_counts() -> None:
    with pytest.raises(ConfigError, match=r"a\.parquet"):
        require_held_out([earlier(A), earlier(B, split=SPLIT)], [A], SPLIT, [])


def test_a_run_in_between_on_other_files_makes_it_unknown() -> None:
    assert not require_held_out([earlier(A, split=SPLIT), earlier(B)], [A], SPLIT, [])
    assert require_held_out([earlier(A, split=SPLIT), earlier(A, B, split=SPLIT)], [A, B], SPLIT, [])


def test_a_file_that_has_changed_is_another_one() -> None:
    assert not require_held_out([earlier(A)], [("a.parquet", 100, 1001)], SPLIT, [])


@pytest.mark.parametrize("split", [None, SPLIT])
def test_what_is_kept_comes_back(split: HeldOut | None) -> None:
    run = earlier(A, B, split=split)
    assert TrainedOn.from_json(run.to_json()) == run


@pytest.mark.parametrize(
    ("config", "how"),
    [
        ({"eval_fraction": None, "split_seed": 3}, None),
        ({"eval_fraction": 0.2, "split_seed": 3}, {"eval_fraction": 0.2, "split_seed": 3}),
        ({"eval_fraction": 0.2, "eval_by": "random", "split_seed": 3}, {"eval_fraction": 0.2, "split_seed": 3}),
        ({"eval_fraction": 0.2, "eval_by": "time", "split_seed": 3}, {"eval_fraction": 0.2, "eval_by": "time"}),
        ({"eval_last": 2, "eval_fraction": None, "split_seed": 3}, {"eval_last": 2}),
    ],
)
def test_only_what_decides_which_rows_are_held_out_counts(config: dict[str, object], how: HeldOut | None) -> None:
    assert held_out(config) == how
