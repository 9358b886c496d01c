"""The params of a recommender's run file."""

from __future__ import annotations

from typing import Any

import pytest

from dray.errors import ConfigError
from dray.learners.factorization.explicit import ExplicitSettings
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.settings import explicit_settings, implicit_settings


def test_without_params_the_defaults_hold() -> None:
    assert explicit_settings({}, 20, 0) == ExplicitSettings(epochs=20, seed=0)
    assert implicit_settings({}, 7, 3) == ImplicitSettings(iterations=7, seed=3)


def test_every_setting_but_rounds_and_seed_is_a_param() -> None:
    explicit = {"factors": 8, "learning_rate": 0.01, "regularization": 0.0, "init_std": 0.2}
    assert explicit_settings(explicit, 2, 1) == ExplicitSettings(**explicit, epochs=2, seed=1)
    implicit = {"factors": 16, "alpha": 2, "regularization": 0.5, "frequency_power": 0, "init_std": 0.3}
    others = {"solver": "cholesky", "gradient_steps": 5}
    expected = ImplicitSettings(**implicit, **others, iterations=2, seed=1)  # type: ignore[arg-type]
    assert implicit_settings(implicit | others, 2, 1) == expected
    assert {*explicit, "epochs", "seed"} == set(ExplicitSettings.__slots__)
    assert {*implicit, *others, "iterations", "seed"} == set(ImplicitSettings.__slots__)


def test_a_number_that_yaml_takes_for_a_text_is_one() -> None:
    assert explicit_settings({"learning_rate": "1e-3", "factors": "12"}, 1, 0).learning_rate == 0.001


@pytest.mark.parametrize("make", [explicit_settings, implicit_settings])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        *(("factors", value, "a whole number from 1 to 4096") for value in (0, -1, 1.5, True, None, "many", 5000)),
        *(("regularization", value, "a number from 0 on") for value in (-0.1, "none", [1], float("nan"))),
        *(("init_std", value, "a number above 0") for value in (0, -1)),
    ],
)
def test_a_value_that_cannot_be_says_what_can(make: Any, name: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make({name: value}, 1, 0)
    assert raised.value.what == f'The parameter "{name}" is {value!r}.'
    assert raised.value.fix == f"Give {name} {told}."


@pytest.mark.parametrize(
    ("make", "name", "value", "told"),
    [
        (explicit_settings, "learning_rate", 0, "a number above 0"),
        (implicit_settings, "alpha", 0, "a number above 0"),
        (implicit_settings, "frequency_power", -1, "a number from 0 on"),
        (implicit_settings, "gradient_steps", 0, "a whole number from 1 on"),
        (implicit_settings, "solver", "lu", "gradient or cholesky"),
        (implicit_settings, "solver", ["gradient"], "gradient or cholesky"),
    ],
)
def test_so_do_the_values_that_only_one_has(make: Any, name: str, value: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=name) as raised:
        make({name: value}, 1, 0)
    assert told in raised.value.fix


@pytest.mark.parametrize(
    ("name", "meant"), [("factor", "factors"), ("n_factors", "factors"), ("regularisation", "regul")]
)
def test_a_misspelt_param_names_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f'no parameter "{name}".*Did you mean "{meant}') as raised:
        explicit_settings({name: 3}, 1, 0)
    assert "learning_rate" in raised.value.fix


def test_a_param_of_the_other_kind_says_whose_it_is() -> None:
    with pytest.raises(ConfigError, match='"alpha" is for events, and this run learns from explicit ratings'):
        explicit_settings({"alpha": 3}, 1, 0)
    with pytest.raises(ConfigError, match='"learning_rate" is for explicit ratings, and this run learns from events'):
        implicit_settings({"learning_rate": 3}, 1, 0)


@pytest.mark.parametrize(
    ("name", "flag"), [("epochs", "--rounds"), ("iterations", "--rounds"), ("seed", "--seed"), ("n_jobs", "--threads")]
)
def test_what_has_a_key_of_its_own_is_not_a_param(name: str, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        implicit_settings({name: 3}, 1, 0)
