from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

from dray.errors import ConfigError
from dray.learners.xgboost.outputs import Outputs, going_on, has_vector_leaves


def trained(objective: str, **params: Any) -> xgboost.Booster:
    rows = xgboost.QuantileDMatrix(np.arange(12, dtype=np.float32)[:, None], label=np.arange(12) % 3)
    booster = xgboost.Booster({"objective": objective, "verbosity": 0} | params, cache=[rows])
    booster.update(rows, 0)
    return xgboost.Booster(model_file=booster.save_raw("ubj"))


def test_a_model_knows_its_classes_and_quantiles() -> None:
    assert Outputs.of(trained("reg:squarederror")) == Outputs()
    assert Outputs.of(trained("multi:softmax", num_class=3)).classes == 3
    assert Outputs.of(trained("reg:quantileerror", quantile_alpha=[0.1, 0.95])).quantiles == (0.1, 0.95)
    assert Outputs.of(trained("reg:quantileerror", quantile_alpha=0.3)).quantiles == (0.3,)


def test_trees_with_vector_leaves_are_told_from_others() -> None:
    assert has_vector_leaves(trained("multi:softprob", num_class=3, multi_strategy="multi_output_tree"))
    assert not has_vector_leaves(trained("multi:softprob", num_class=3))
    assert not has_vector_leaves(trained("multi:softprob", num_class=3, booster="dart"))


def kept(now: dict[str, Any], objective: str, **before: Any) -> dict[str, Any]:
    params = going_on(now, trained(objective, **before))
    assert params.pop("booster") == before.get("booster", "gbtree")
    return params


def test_a_run_that_goes_on_keeps_what_its_predictions_consist_of() -> None:
    assert kept({"eta": 0.1}, "multi:softprob", num_class=3) == {"eta": 0.1, "num_class": 3}
    assert kept({}, "multi:softprob", num_class=3, booster="dart") == {"num_class": 3}
    for now in ({}, {"quantile_alpha": "0.1,0.95"}, {"quantile_alpha": [0.1, 0.95]}):
        assert kept(now, "reg:quantileerror", quantile_alpha=[0.1, 0.95]) == {"quantile_alpha": [0.1, 0.95]}
    vectors = kept({}, "multi:softprob", num_class=3, multi_strategy="multi_output_tree")
    assert vectors["multi_strategy"] == "multi_output_tree"


def test_a_run_that_goes_on_has_the_metric_of_the_earlier_one() -> None:
    assert kept({}, "reg:tweedie", tweedie_variance_power=1.2) == {"tweedie_variance_power": "1.2"}
    assert kept({}, "reg:pseudohubererror", huber_slope=0.3) == {"huber_slope": "0.3"}
    assert kept({"huber_slope": 2}, "reg:pseudohubererror", huber_slope=0.3) == {"huber_slope": 2}


@pytest.mark.parametrize(
    ("objective", "before", "now", "words"),
    [
        ("multi:softprob", {"num_class": 3}, {"num_class": 4}, "num_class is 4, and the earlier run has 3"),
        ("multi:softprob", {"num_class": 3}, {"multi_strategy": "multi_output_tree"}, "has one_output_per_tree"),
        ("reg:quantileerror", {"quantile_alpha": [0.1, 0.9]}, {"quantile_alpha": [0.1]}, "earlier run has"),
        ("reg:squarederror", {}, {"base_score": 5}, "base_score cannot change"),
    ],
)
def test_a_run_that_goes_on_cannot_predict_something_else(
    objective: str, before: dict[str, Any], now: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        going_on(now, trained(objective, **before))
    assert "Leave" in raised.value.fix
