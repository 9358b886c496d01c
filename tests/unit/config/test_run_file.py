from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from dray.config.run_file import RunConfig, StorageConfig, WorkerRange, read_run_file
from dray.errors import ConfigError
from dray.events.telemetry import dumps
from dray.learners.configs import make_config
from dray.learners.factorization.config import FactorizationConfig
from dray.learners.xgboost.config import XGBoostConfig

LEAST = {"data": "data/", "label": "y"}
LEAST_EVENTS = {"data": "events/", "model": "factorization", "user": "u", "item": "i"}


def refused(values: dict[str, Any], origin: str = "run.yaml") -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        make_config(values, origin=origin)
    return raised.value


def test_data_and_label_are_enough() -> None:
    config = make_config(LEAST)
    assert config.data == ("data/",)
    assert (config.rounds, config.seed, config.workers, config.cluster) == (100, 0, "auto", "local")


def test_one_location_or_a_list_is_the_same_thing() -> None:
    assert make_config(LEAST | {"data": ["a", "b"]}).data == ("a", "b")
    assert make_config(LEAST | {"ignore": "id", "eval": None}).ignore == ("id",)
    assert make_config(LEAST | {"eval": "held-out/"}).eval == ("held-out/",)


@pytest.mark.parametrize("workers", [0, 3, "auto", "2"])
def test_workers_are_a_number_or_auto(workers: Any) -> None:
    assert make_config(LEAST | {"workers": workers}).workers == (workers if workers == "auto" else int(workers))


@pytest.mark.parametrize(
    ("key", "meant"), [("lable", "label"), ("round", "rounds"), ("early_stopping", "early_stop"), ("worker", "workers")]
)
def test_a_misspelt_key_names_the_nearest(key: str, meant: str) -> None:
    error = refused(LEAST | {key: 1})
    assert error.what == f'Unknown key "{key}" in run.yaml. Did you mean "{meant}"?'
    assert "continue_from" in error.fix


def test_a_misspelt_key_below_storage_names_the_nearest_there() -> None:
    error = refused(LEAST | {"storage": {"endpont": "http://x"}})
    assert error.what == 'Unknown key "storage.endpont" in run.yaml. Did you mean "endpoint"?'
    assert error.fix == "Known keys: endpoint, region, profile, role."


def test_credentials_have_no_place_in_a_run_file() -> None:
    assert 'Unknown key "storage.secret_key"' in refused(LEAST | {"storage": {"secret_key": "x"}}).what
    assert set(StorageConfig.model_fields) == {"endpoint", "region", "profile", "role"}


@pytest.mark.parametrize(("key", "told"), [("label", "--label COLUMN"), ("data", "first argument")])
def test_a_missing_key_says_how_to_give_it(key: str, told: str) -> None:
    error = refused({name: value for name, value in LEAST.items() if name != key}, origin="the command line")
    assert error.what == f'"{key}" is missing in the command line.'
    assert told in error.fix


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rounds", 0),
        ("rounds", "many"),
        ("seed", -1),
        ("seed", 2**31),
        ("split_seed", -1),
        ("eval_fraction", 0),
        ("eval_fraction", 1),
        ("eval_fraction", 1.5),
        ("threads", 0),
        ("early_stop", 0),
        ("on_failure", "never"),
        ("max_failures", -1),
        ("max_failures_in_round", -1),
        ("heartbeat_s", 0.5),
        ("heartbeat_s", float("inf")),
        ("wait_s", -1),
        ("wait_s", float("nan")),
        ("params", {"eta": float("nan")}),
        ("label", ["a", "b"]),
        ("params", "eta=1"),
        ("data", {"path": "x"}),
    ],
)
def test_a_value_out_of_bounds_is_told_with_its_key(key: str, value: Any) -> None:
    error = refused(LEAST | {"eval_fraction": 0.2, key: value})
    assert error.what.startswith(f'"{key}')
    assert key in error.fix


@pytest.mark.parametrize("workers", [{"min": 2, "max": 8}, "2-8", " 2-8 ", WorkerRange(min=2, max=8)])
def test_workers_may_be_a_range(workers: Any) -> None:
    assert make_config(LEAST | {"workers": workers}).workers == WorkerRange(min=2, max=8)


@pytest.mark.parametrize(
    ("workers", "told"),
    [
        ({"min": 2}, '"workers.max" is missing in run.yaml.'),
        ({}, '"workers.min" is missing in run.yaml.'),
        ({"min": 2, "maxi": 3}, 'Unknown key "workers.maxi" in run.yaml. Did you mean "max"?'),
        ({"min": 0, "max": 3}, '"workers.min" in run.yaml is 0: Input should be greater than or equal to 1.'),
        ({"min": "few", "max": 3}, "\"workers.min\" in run.yaml is 'few': Input should be a valid integer"),
        ({"min": 3, "max": 2}, "\"workers\" in run.yaml is {'min': 3, 'max': 2}: min must not be more than max."),
        ("3-2", "\"workers\" in run.yaml is {'min': 3, 'max': 2}: min must not be more than max."),
    ],
)
def test_a_wrong_range_of_workers_says_which_end(workers: Any, told: str) -> None:
    error = refused(LEAST | {"workers": workers})
    assert error.what.startswith(told)
    assert error.fix


@pytest.mark.parametrize("workers", [-1, "some", 1.5, None, [2, 8], "2-", "2-8-9"])
def test_wrong_workers_are_told_in_one_sentence(workers: Any) -> None:
    assert refused(LEAST | {"workers": workers}).what == (
        f'"workers" in run.yaml is {workers!r}: '
        "must be a number from 0 on, auto, or a range such as {min: 2, max: 8}."
    )


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"data": []}, "data is empty."),
        ({"eval": "x", "eval_fraction": 0.2}, "eval (--eval) and eval_fraction (--eval-fraction) exclude each other."),
        ({"early_stop": 5}, "early_stop (--early-stop) needs an evaluation set."),
        ({"group": "y"}, "label, group and weight must be three different columns."),
        ({"group": "g", "weight": "g"}, "label, group and weight must be three different columns."),
    ],
)
def test_keys_that_do_not_fit_together_say_so_and_what_to_do(more: dict[str, Any], what: str) -> None:
    error = refused(LEAST | more)
    assert error.what == what
    assert error.fix


def test_by_default_a_lost_worker_is_replaced() -> None:
    config = make_config(LEAST)
    assert (config.on_failure, config.max_failures, config.max_failures_in_round) == ("elastic", 100, 5)
    assert (config.heartbeat_s, config.wait_s) == (8.0, 300.0)


def test_a_flag_of_another_name_is_named() -> None:
    assert refused(LEAST | {"heartbeat_s": 0}, "the command line").fix == "Change heartbeat_s (--heartbeat)."


def test_a_configuration_does_not_change() -> None:
    with pytest.raises(ValidationError):
        make_config(LEAST).rounds = 3  # type: ignore[misc]


def test_every_key_has_a_docstring() -> None:
    for model in (RunConfig, StorageConfig, WorkerRange, XGBoostConfig, FactorizationConfig):
        source = inspect.getsource(model)
        for key in model.__annotations__.keys() & model.model_fields.keys():
            after = source.partition(f"\n    {key}: ")[2].splitlines()
            assert after[1].startswith('    """'), key


def test_a_configuration_survives_json() -> None:
    config = make_config(LEAST | {"params": {"eta": 0.1}, "storage": {"region": "eu"}, "workers": 2})
    assert XGBoostConfig.model_validate_json(config.model_dump_json()) == config


TREES: dict[str, Any] = {"label": "y", "objective": "ranking", "group": "g", "weight": "w", "ignore": ("id", "day")}
TREES |= {"stratify": False, "missing_label": "error", "times": "parts", "time_form": {"when": "%d.%m.%Y"}}
EVENTS: dict[str, Any] = {
    "model": "factorization",
    "user": "u",
    "item": "i",
    "missing_id": "error",
    "event": "type",
    "event_weights": {"view": 0.5, "buy": 7},
    "time": "t",
    "half_life_days": 30,
    "eval_at": [5, 20],
}
EVERY_KEY: dict[str, Any] = {
    "data": ("a", "b"),
    "rounds": 7,
    "seed": 3,
    "split_seed": 4,
    "params": {"eta": np.float32(0.5), "eval_metric": ("auc", "error"), "monotone_constraints": {"x": np.int64(1)}},
    "eval": ("held-out",),
    "format": "csv",
    "read": {"delimiter": ";", "names": ("a", "b")},
    "cache": "s3://bucket/cache",
    "early_stop": 2,
    "continue_from": "earlier",
    "workers": {"min": 2, "max": 8},
    "threads": 4,
    "cluster": "auto",
    "on_failure": "shrink",
    "max_failures": 9,
    "max_failures_in_round": 2,
    "heartbeat_s": 20.0,
    "wait_s": 0.0,
    "out": "runs/one",
    "overwrite": True,
    "storage": {"endpoint": "http://x:9000", "region": "eu", "profile": "p"},
    "kubernetes": {"name": "first"},
}


def through_run_json(config: RunConfig) -> RunConfig:
    return make_config(json.loads(dumps({"config": config.model_dump(mode="json")}))["config"])


def without(values: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in keys}


def unset(config: RunConfig) -> set[str]:
    fields = type(config).model_fields.items()
    return {name for name, field in fields if getattr(config, name) == field.get_default()}


EITHER_EVAL = {"eval_fraction", "eval_by", "eval_last"}
"""They and eval exclude each other."""


def test_what_run_json_holds_gives_the_same_configuration_back() -> None:
    trees = make_config(EVERY_KEY | TREES)
    assert unset(trees) == {"model", "eval_fraction", "eval_by", "eval_from", "split_by"}
    events = make_config(EVERY_KEY | EVENTS)
    assert unset(events) == {"model", "rating", *EITHER_EVAL}
    elsewise = [
        make_config(without(EVERY_KEY, "eval") | TREES | {"eval_fraction": 0.1}),
        make_config(without(EVERY_KEY, "eval") | EVENTS | {"eval_fraction": 0.1, "eval_by": "time"}),
        make_config(without(EVERY_KEY, "eval") | EVENTS | {"eval_last": 2}),
        make_config(without(EVERY_KEY, "eval") | TREES | {"eval_by": "day", "eval_from": 2024}),
        make_config(without(EVERY_KEY, "eval") | TREES | {"split_by": "customer", "eval_fraction": 0.1}),
        make_config(LEAST),
        make_config(LEAST_EVENTS),
        make_config(LEAST_EVENTS | {"rating": "stars"}),
    ]
    for config in (trees, events, *elsewise):
        assert through_run_json(config) == config


@pytest.mark.parametrize("order", [(1, -1), [1, -1], np.array([1, -1])])
def test_constraints_by_position_are_as_xgboost_and_run_json_both_take_them(order: Any) -> None:
    config = make_config(LEAST | {"params": {"monotone_constraints": order}})
    assert config.params == {"monotone_constraints": "(1,-1)"}
    assert through_run_json(config) == config


@pytest.mark.parametrize("workers", [0, 3, "auto", "2-8"])
def test_every_shape_of_workers_comes_back(workers: Any) -> None:
    config = make_config(LEAST | {"workers": workers})
    assert through_run_json(config) == config


def test_a_run_file_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("data: [a, b]\nlabel: Größe\nparams:\n  eta: 0.1\n", encoding="utf-8")
    assert read_run_file(str(path)) == {"data": ["a", "b"], "label": "Größe", "params": {"eta": 0.1}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"data: [a\nlabel: y\n", "line 2 is not YAML"),
        (b"data: a\n\tlabel: y\n", "line 2 is not YAML"),
        (b"", "does not hold keys and values"),
        (b"- a\n- b\n", "does not hold keys and values"),
        (b"1: a\n", "does not hold keys and values"),
        (b"label: \xff\xfe\n", "is not UTF-8"),
        (b"data: !!python/object:os.system x\n", "is not YAML"),
    ],
)
def test_a_run_file_that_cannot_be_used_says_where_and_why(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=told) as raised:
        read_run_file(str(path))
    assert str(path) in raised.value.what and raised.value.fix


def test_a_run_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cannot read the run file .*none\.yaml: No such file"):
        read_run_file(str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigError, match="Is a directory"):
        read_run_file(str(tmp_path))


def test_a_configuration_has_the_keys_of_its_own_model_only() -> None:
    assert not make_config(LEAST).model_dump().keys() & {"user", "eval_last", "event_weights"}
    assert not make_config(LEAST_EVENTS).model_dump().keys() & {"label", "objective", "ignore"}


@pytest.mark.parametrize("least", [LEAST, LEAST_EVENTS])
def test_the_split_has_the_learners_seed_unless_it_is_given(least: dict[str, Any]) -> None:
    assert make_config(least).split_seed == 0
    assert make_config(least | {"seed": 7}).split_seed == 7
    assert make_config(least | {"seed": 7, "split_seed": 2}).split_seed == 2
