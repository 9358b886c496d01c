"""The class of a configuration is the learner's, also of one that another package registers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from pydantic import Field

from dray.config.run_file import Column, RunConfig
from dray.errors import ConfigError
from dray.learners import registry
from dray.learners.configs import make_config
from dray.learners.learner import Flag


class RidgeConfig(RunConfig):
    model: Literal["ridge"] = "ridge"
    label: Column
    penalty: float = Field(default=1.0, ge=0)


class Ridge:
    name = "ridge"
    Config = RidgeConfig
    flags = (Flag("penalty", "How much.", type=float),)


class Entry:
    def __init__(self, name: str, learner: Any) -> None:
        self.name, self.value, self._learner = name, f"some.package:{name}", learner

    def load(self) -> Any:
        if self._learner is None:
            raise ImportError("no module named some")
        return self._learner


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    entries = [Entry("ridge", Ridge()), Entry("torn", None)]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    registry.find.cache_clear()
    yield
    registry.find.cache_clear()


def test_a_learner_of_another_package_has_keys_of_its_own() -> None:
    config = make_config({"data": "d", "model": "ridge", "label": "y", "penalty": 2, "seed": 3})
    assert isinstance(config, RidgeConfig)
    assert (config.penalty, config.split_seed) == (2.0, 3)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (
            {"label": "y", "penalty": 2},
            "penalty (--penalty) is a key of model ridge; the model here is xgboost.",
        ),
        (
            {"model": "factorization", "user": "u", "item": "i", "label": "y"},
            "label (--label) is a key of model xgboost and ridge; the model here is factorization.",
        ),
        ({"model": "ridge", "label": "y", "penaly": 2}, 'Unknown key "penaly" in f. Did you mean "penalty"?'),
        ({"model": "ridge"}, '"label" is missing in f.'),
        ({"model": "rigde", "label": "y"}, '"model" in f is \'rigde\': there is no such model. Did you mean "ridge"?'),
    ],
)
def test_its_keys_are_told_as_those_of_dray(values: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_config({"data": "d", **values}, origin="f")
    assert raised.value.what == what


def test_one_that_cannot_be_loaded_disturbs_no_other() -> None:
    assert [learner.name for learner in registry.available()] == ["xgboost", "factorization", "ridge"]
    with pytest.raises(ConfigError, match="is a key of"):
        make_config({"data": "d", "label": "y", "user": "u"})
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_config({"data": "d", "model": "torn"})
