"""XGBoost's own errors, as it raises them, in dray's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

from dray.errors import ConfigError, DataError
from dray.learners.xgboost.errors import InfiniteValueError, reason, translated


def update(params: dict[str, Any], value: float = 1.0) -> None:
    rows = xgboost.DMatrix(np.array([[0.0], [value]], np.float32), label=[0, 1])
    xgboost.Booster({"verbosity": 0} | params, cache=[rows]).update(rows, 0)


def said(params: dict[str, Any]) -> str:
    with pytest.raises(xgboost.core.XGBoostError) as raised:
        update(params)
    return reason(str(raised.value))


def test_the_reason_has_neither_the_time_nor_the_place_in_the_source_nor_the_stack() -> None:
    assert said({"max_depth": -1}) == "value -1 for Parameter max_depth should be greater equal to 0."
    assert (
        said({"objective": "binary:logistic", "base_score": 2}) == "base_score must be in (0,1) for the logistic loss."
    )
    assert said({"objective": "reg:nonsense"}) == "Unknown objective function: `reg:nonsense`."
    assert said({"objective": "reg:pseudohubererror", "huber_slope": 0}) == "slope for pseudo huber cannot be 0."


def test_choices_that_stand_on_lines_of_their_own_belong_to_the_reason() -> None:
    told = said({"device": "tpu"})
    assert told.startswith("Invalid argument for `device`. Expected to be one of the following: cpu, cuda")
    assert "Stack" not in told and "\n" not in told


def test_a_condition_without_words_is_the_reason_itself() -> None:
    assert reason("[12:00:00] /src/a.cc:5: Check failed: x > 0: \nStack trace:\n  [bt] (0)") == "Check failed: x > 0."
    assert reason("") == "."


def test_a_refused_parameter_is_the_users_mistake() -> None:
    with (
        pytest.raises(ConfigError, match="XGBoost refuses a parameter: value -1 for Parameter max_depth") as raised,
        translated(),
    ):
        update({"max_depth": -1})
    assert "--param" in raised.value.fix and "Stack trace" not in str(raised.value)


def test_an_infinity_is_an_error_of_the_data() -> None:
    with pytest.raises(InfiniteValueError) as raised, translated():
        update({}, value=float("inf"))
    assert isinstance(raised.value, DataError)


def test_what_is_nobodys_mistake_is_passed_on_as_it_is() -> None:
    with pytest.raises(ValueError, match="a socket"), translated():
        raise ValueError("a socket was closed")
