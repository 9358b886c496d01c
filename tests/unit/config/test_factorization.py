"""Which keys a recommender's run file may have, and which go together."""

from __future__ import annotations

from typing import Any

import pytest

from dray.errors import ConfigError
from dray.learners.configs import make_config

LEAST = {"data": "events/", "model": "factorization", "user": "u", "item": "i"}
TREES = {"data": "data/", "label": "y"}
EVENTS = LEAST | {"event": "type"}
RATINGS = LEAST | {"rating": "stars"}
REST = {"add_to_cart": 3, "purchase": 5, "payment_failed": -2}


def refused(values: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        make_config(values, origin="run.yaml")
    assert raised.value.fix
    return raised.value


def test_user_and_item_are_enough_and_each_row_is_an_event() -> None:
    config = make_config(LEAST)
    assert (config.kind, config.event, config.rating) == ("implicit", None, None)
    assert (config.eval_by, config.eval_at, config.early_stop) == ("random", (10,), None)


def test_ratings_are_explicit_and_events_are_implicit() -> None:
    assert make_config(RATINGS).kind == "explicit"
    assert make_config(EVENTS).kind == "implicit"


@pytest.mark.parametrize(("values", "rounds"), [(TREES, 100), (RATINGS, 20), (EVENTS, 15), (LEAST, 15)])
def test_rounds_depend_on_the_model_unless_they_are_given(values: dict[str, Any], rounds: int) -> None:
    assert make_config(values).rounds == rounds
    assert make_config(values | {"rounds": 3}).rounds == 3


def test_events_have_weights_by_default_and_what_is_given_replaces_them() -> None:
    assert make_config(EVENTS).event_weights == {"view": 1, "add_to_cart": 3, "purchase": 5, "payment_failed": -2}
    assert make_config(EVENTS | {"event_weights": {"buy": 2, 7: -1}}).event_weights == {"buy": 2.0, "7": -1.0}


def test_one_configuration_does_not_change_the_weights_of_another() -> None:
    make_config(EVENTS).event_weights["view"] = 9
    assert make_config(EVENTS).event_weights["view"] == 1


def test_lists_are_as_long_as_asked_for() -> None:
    assert make_config(LEAST | {"eval_at": 5}).eval_at == (5,)
    assert make_config(LEAST | {"eval_at": [5, 20]}).eval_at == (5, 20)


@pytest.mark.parametrize("key", ["user", "item"])
def test_a_missing_column_says_how_to_give_it(key: str) -> None:
    error = refused({name: value for name, value in LEAST.items() if name != key})
    assert error.what == f'"{key}" is missing in run.yaml.'
    assert error.fix == f"Add --{key} COLUMN, or {key}: COLUMN in the run file."


def test_a_label_is_missing_for_trees_only() -> None:
    assert refused({"data": "x"}).what == '"label" is missing in run.yaml.'
    assert refused({"data": "x", "model": "xgboost"}).what == '"label" is missing in run.yaml.'


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("label", "y"),
        ("objective", "binary"),
        ("group", "g"),
        ("weight", "w"),
        ("ignore", "id"),
    ],
)
def test_what_belongs_to_trees_is_refused_with_a_recommender(key: str, value: Any) -> None:
    error = refused(LEAST | {key: value})
    assert error.what == f"{key} (--{key}) is a key of model xgboost; the model here is factorization."
    assert error.fix == f"Add --model xgboost, or leave {key} (--{key}) out."


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("user", "u"), ("item", "i"), ("rating", "r"), ("event", "e"), ("time", "t"), ("half_life_days", 3)),
        *(("eval_last", 2), ("eval_at", [5]), ("event_weights", {"view": 2})),
    ],
)
def test_what_belongs_to_recommenders_is_refused_with_trees(key: str, value: Any) -> None:
    error = refused(TREES | {key: value})
    flag = {"event_weights": "--event-weight"}.get(key, "--" + key.replace("_", "-"))
    assert error.what == f"{key} ({flag}) is a key of model factorization; the model here is xgboost."
    assert error.fix == f"Add --model factorization, or leave {key} ({flag}) out."


def test_the_forgotten_model_is_told_before_the_missing_label() -> None:
    assert "model factorization" in refused({"data": "x", "user": "u", "item": "i"}).what


def test_a_key_of_the_other_model_that_says_nothing_is_left_out() -> None:
    silent = {"user": None, "eval_at": [10], "eval_by": "random", "event_weights": {"view": 1, **REST}}
    assert make_config(TREES | silent) == make_config(TREES)
    assert make_config(LEAST | {"label": None, "ignore": []}) == make_config(LEAST)


def test_a_key_that_is_misspelt_may_be_meant_as_one_of_another_model() -> None:
    error = refused(TREES | {"half_life": 3})
    assert error.what == 'Unknown key "half_life" in run.yaml. Did you mean "half_life_days"?'
    assert "half_life_days" not in error.fix


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (RATINGS | {"event": "type"}, "rating (--rating) and event (--event) exclude each other."),
        (EVENTS | {"half_life_days": 7}, "half_life_days (--half-life-days) needs time (--time)."),
        (EVENTS | {"eval_last": 1}, "eval_last (--eval-last) needs time (--time)."),
        (EVENTS | {"eval_fraction": 0.2, "eval_by": "time"}, "eval_by time (--eval-by time) needs time (--time)."),
        (
            EVENTS | {"time": "t", "eval_by": "time"},
            "eval_by time (--eval-by time) needs eval_fraction (--eval-fraction).",
        ),
        (
            RATINGS | {"time": "t", "half_life_days": 7},
            "half_life_days (--half-life-days) is for events, not for ratings.",
        ),
        (
            EVENTS | {"time": "t", "eval_fraction": 0.1, "eval_last": 1},
            "eval_fraction (--eval-fraction) and eval_last (--eval-last) exclude each other.",
        ),
        (
            EVENTS | {"time": "t", "eval": "x", "eval_last": 1},
            "eval (--eval) and eval_last (--eval-last) exclude each other.",
        ),
        (
            EVENTS | {"eval": "x", "eval_fraction": 0.1},
            "eval (--eval) and eval_fraction (--eval-fraction) exclude each other.",
        ),
        (EVENTS | {"early_stop": 2}, "early_stop (--early-stop) needs an evaluation set."),
        (LEAST | {"event_weights": {"view": 2}}, "event_weights (--event-weight) needs event (--event)."),
        (RATINGS | {"event_weights": {"view": 2}}, "event_weights (--event-weight) needs event (--event)."),
        (EVENTS | {"event_weights": {}}, "No type of event has a weight above 0."),
        (EVENTS | {"event_weights": {"view": 0, "buy": 0}}, "No type of event has a weight above 0."),
        (LEAST | {"item": "u"}, "user, item, rating, event and time must be different columns."),
        (LEAST | {"rating": "i"}, "user, item, rating, event and time must be different columns."),
        (EVENTS | {"time": "type"}, "user, item, rating, event and time must be different columns."),
    ],
)
def test_keys_that_do_not_fit_together_say_so_and_what_to_do(values: dict[str, Any], what: str) -> None:
    assert refused(values).what == what


def test_the_fix_has_the_flag_too() -> None:
    assert refused(EVENTS | {"eval_last": 1}).fix == "Name the column with the time of an event, --time COLUMN."


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("model", "svd", "there is no such model"),
        ("model", None, "there is no such model"),
        ("half_life_days", 0, "greater than 0"),
        ("half_life_days", float("inf"), "finite"),
        ("eval_by", "user", "'random' or 'time'"),
        ("eval_last", 0, "greater than or equal to 1"),
        ("eval_at", [], "at least 1 item"),
        ("eval_at", [10, 0], "greater than or equal to 1"),
        ("event_weights", {"view": float("nan")}, 'the weight of "view" must be a finite number, not nan'),
        ("event_weights", {"view": "much"}, "the weight of \"view\" must be a finite number, not 'much'"),
        ("event_weights", {"view": True}, "must be a finite number, not True"),
        ("event_weights", ["view"], "must be names with numbers"),
    ],
)
def test_a_value_out_of_bounds_is_told_with_its_key(key: str, value: Any, told: str) -> None:
    error = refused(EVENTS | {"time": "t", "eval_fraction": 0.2, key: value})
    assert error.what.startswith(f'"{key}')
    assert told in error.what
    assert key in error.fix


def test_what_trees_and_recommenders_share_stays_as_it_is() -> None:
    shared = {"seed": 4, "workers": "2-8", "threads": 2, "on_failure": "shrink", "continue_from": "earlier", "out": "o"}
    config = make_config(RATINGS | shared | {"format": "json", "params": {"factors": 8}})
    assert {name: getattr(config, name) for name in ("seed", "threads", "continue_from", "out")} == {
        name: shared[name] for name in ("seed", "threads", "continue_from", "out")
    }


def test_a_configuration_survives_json() -> None:
    config = make_config(EVENTS | {"event_weights": {"view": 0.25}, "time": "t", "half_life_days": 1.5, "eval_last": 2})
    assert type(config).model_validate_json(config.model_dump_json()) == config
