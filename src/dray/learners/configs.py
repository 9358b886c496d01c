"""From the keys of a run file to the configuration of its model, whose class the registry knows.

Here and not in `config/`, which is below the learners and knows none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from dray.config.explaining import explain, shown
from dray.config.run_file import RunConfig, as_json
from dray.errors import ConfigError, nearest
from dray.learners.learner import Learner
from dray.learners.registry import DEFAULT, available, find, names


def make_config(values: Mapping[str, Any], *, origin: str = "the command line") -> RunConfig:
    """Return the checked configuration, of the class of its model, or a ConfigError that names the key and the fix."""
    learner = _learner_of(values, origin)
    own = learner.Config
    others = _keys_of_others(learner) if values.keys() - own.model_fields.keys() else {}
    for key in [key for key in values if key in others and _is_given(key, values[key], others[key])]:
        models = [other.name for other in others[key]]
        with_flag = others[key][0].Config.named(key)
        raise ConfigError(
            f"{with_flag} is a key of model {' and '.join(models)}; the model here is {learner.name}.",
            fix=f"Add --model {models[0]}, or leave {with_flag} out.",
        )
    try:
        return own.model_validate({key: value for key, value in values.items() if key not in others})
    except ValidationError as error:
        raise explain(error, own, origin, others) from None


def _learner_of(values: Mapping[str, Any], origin: str) -> Learner:
    name = values.get("model", DEFAULT)
    if not isinstance(name, str) or name not in names():
        hint = nearest(name, names()) if isinstance(name, str) else ""
        raise ConfigError(
            f'"model" in {origin} is {shown(name)}: there is no such model.{hint}',
            fix=f"Change model (--model): known are {', '.join(names())}.",
        )
    return find(name)


def _keys_of_others(own: Learner) -> dict[str, list[Learner]]:
    """Return the keys that other learners have and this one has not, with those learners."""
    found: dict[str, list[Learner]] = {}
    for other in available():
        for key in other.Config.model_fields.keys() - own.Config.model_fields.keys():
            found.setdefault(key, []).append(other)
    return found


def _is_given(key: str, value: Any, learners: list[Learner]) -> bool:
    """Whether a key says something: nothing at all, or what holds by default, does not."""
    fields = [learner.Config.model_fields[key] for learner in learners]
    defaults = [as_json(field.get_default(call_default_factory=True, validated_data={})) for field in fields]
    try:
        return value is not None and as_json(value) not in defaults
    except ValueError:  # NaN or infinity
        return True
