from __future__ import annotations

from typing import Any

import pytest

from dray.data.features import Column
from dray.errors import ConfigError
from dray.learners.xgboost.metrics import OBJECTIVES
from dray.learners.xgboost.rehearsal import rehearse

FEATURES = [Column("one", "number"), Column("colour", "category", ())]


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
@pytest.mark.parametrize("objective", [*OBJECTIVES, None])
def test_parameters_that_train_pass(objective: str | None, booster: str) -> None:
    params: dict[str, Any] = {"booster": booster, "max_depth": 0, "subsample": 0.5, "max_bin": 16, "device": "cuda"}
    if objective == "reg:quantileerror":
        params["quantile_alpha"] = [0.1, 0.9]
    rehearse(params, objective, FEATURES, ranking=str(objective).startswith("rank:"))


@pytest.mark.parametrize(
    ("objective", "params"),
    [
        ("reg:quantileerror", {"quantile_alpha": [0.1, 0.5, 0.9], "base_score": 0.4}),
        ("multi:softprob", {"base_score": [0.1, 0.2, 0.3]}),
        ("multi:softprob", {"base_score": 0.3, "num_class": 5}),
    ],
)
def test_a_base_score_of_several_outputs_passes(objective: str, params: dict[str, Any]) -> None:
    rehearse(params, objective, FEATURES, ranking=False)


def test_parameters_of_an_objective_that_the_labels_decide_wait_for_it() -> None:
    rehearse({"num_class": 3, "base_score": 7, "eval_metric": "mlogloss"}, None, FEATURES, ranking=False)
    rehearse({"eval_metric": "ndcg@3", "ndcg_exp_gain": False}, None, FEATURES, ranking=True)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"max_depth": -1}, "max_depth should be greater equal to 0"),
        ({"max_depth": 2.5}, "max_depth expect int"),
        ({"gamma": -1}, "min_split_loss should be greater"),
        ({"subsample": "half"}, "subsample expect float"),
        ({"grow_policy": "x"}, "'depthwise', 'lossguide'"),
        ({"device": "tpu"}, "cpu, cuda"),
        ({"verbosity": 9}, "verbosity exceed bound"),
        ({"booster": "dart", "rate_drop": 2}, "rate_drop exceed bound"),
        ({"num_parallel_tree": 0}, "num_parallel_tree"),
        ({"monotone_constraints": {"colour": 1}}, "it is a category"),
        ({"eval_metric": "merror"}, "does not fit binary:logistic"),
    ],
)
def test_what_xgboost_refuses_is_told_in_a_sentence(params: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        rehearse(params, "binary:logistic", FEATURES, ranking=False)
    assert "Stack trace" not in str(raised.value) and ".cc" not in str(raised.value)


def test_what_multi_output_trees_cannot_do_is_refused() -> None:
    params: dict[str, Any] = {"multi_strategy": "multi_output_tree"}
    with pytest.raises(ConfigError, match="Categorical features support for multi-target tree is not yet implemented"):
        rehearse(params, "multi:softprob", FEATURES, ranking=False)
    with pytest.raises(ConfigError, match="dart support for multi-target tree"):
        rehearse(params | {"booster": "dart"}, "multi:softprob", FEATURES[:1], ranking=False)
    rehearse(params, "multi:softprob", FEATURES[:1], ranking=False)
