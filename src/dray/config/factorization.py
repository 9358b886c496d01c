"""Which keys of a run file go together, for each model. Pure: raises ValueError("what: fix")."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from dray.config.run_file import RunConfig

EVENT_WEIGHTS: Mapping[str, float] = {"view": 1.0, "add_to_cart": 3.0, "purchase": 5.0, "payment_failed": -2.0}
MISSING = "missing_key"
"""Type of the error for a key that only one of the models needs."""
FLAGS = {"heartbeat_s": "--heartbeat", "wait_s": "--wait", "event_weights": "--event-weight"}
"""Those that are not called as their keys are."""

_OF_TREES = ("label", "objective", "group", "weight", "ignore")
_OF_RECOMMENDERS = (
    *("user", "item", "rating", "event", "event_weights", "time", "half_life_days"),
    *("eval_by", "eval_last", "eval_at"),
)


def default_rounds(values: Mapping[str, Any]) -> int:
    """Rounds of trees, epochs over ratings, iterations over events."""
    if values.get("model") != "factorization":
        return 100
    return 20 if values.get("rating") is not None else 15


def as_weights(value: Any) -> Any:
    """Return weights by the event types' names: YAML has numbers for some of them."""
    if not isinstance(value, Mapping):
        raise ValueError("must be names with numbers, such as {view: 1, purchase: 5}")
    for name, weight in value.items():
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not math.isfinite(weight):
            raise ValueError(f'the weight of "{name}" must be a finite number, not {weight!r}')
    return {str(name): float(weight) for name, weight in value.items()}


def check_model(config: RunConfig) -> None:
    """Refuse keys of the other model, and those that are missing or do not fit together."""
    if config.model == "xgboost":
        for key in _given(config, _OF_RECOMMENDERS):
            raise ValueError(
                f"{_both(key)} is for recommenders: add model factorization (--model factorization), or leave {key} out"
            )
        if config.label is None:
            raise _missing("label")
        _refuse_repeated(config, ("label", "group", "weight"), "label, group and weight must be three")
        return
    for key in _given(config, _OF_TREES):
        raise ValueError(f"{_both(key)} is for model xgboost and means nothing to a recommender: leave {key} out")
    for key in ("user", "item"):
        if getattr(config, key) is None:
            raise _missing(key)
    columns = ("user", "item", "rating", "event", "time")
    _refuse_repeated(config, columns, "user, item, rating, event and time must be")
    _check_feedback(config)
    _check_time(config)


def check_evaluation(config: RunConfig) -> None:
    """Refuse two kinds of evaluation data, and to stop early without any."""
    given = {"eval": bool(config.eval)}
    given |= {key: getattr(config, key) is not None for key in ("eval_fraction", "eval_last")}
    names = [_both(key) for key, is_given in given.items() if is_given]
    if len(names) > 1:
        raise ValueError(f"{' and '.join(names)} exclude each other: give one of them")
    if config.early_stop is not None and not names:
        raise ValueError(
            f"{_both('early_stop')} needs an evaluation set: add {_both('eval_fraction')}, 0.2 say, or {_both('eval')}"
        )


def _check_feedback(config: RunConfig) -> None:
    if config.rating is not None and config.event is not None:
        raise ValueError(
            f"{_both('rating')} and {_both('event')} exclude each other: give one, rating for explicit ratings, event "
            "for events"
        )
    if config.event is None and _given(config, ("event_weights",)):
        raise ValueError(
            f"{_both('event_weights')} needs event: name the column with the types of events (--event), or leave the "
            "weights out"
        )
    if config.event is not None and not any(weight > 0 for weight in config.event_weights.values()):
        raise ValueError(
            "no type of event has a weight above 0: give event_weights one, such as {view: 1} (--event-weight view=1)"
        )
    if config.half_life_days is not None and config.rating is not None:
        raise ValueError(
            f"{_both('half_life_days')} is for events, not for ratings: leave half_life_days or rating out"
        )


def _check_time(config: RunConfig) -> None:
    if config.eval_by == "time" and config.eval_fraction is None:
        raise ValueError(
            "eval_by time (--eval-by time) needs eval_fraction: add the share of the events to set aside "
            "(--eval-fraction), 0.2 say"
        )
    needs = [_both(key) for key in ("half_life_days", "eval_last") if getattr(config, key) is not None]
    needs += ["eval_by time (--eval-by time)"] if config.eval_by == "time" else []
    if config.time is None and needs:
        raise ValueError(f"{needs[0]} needs time: name the column with the time of an event (--time)")


def _both(key: str) -> str:
    """Return a key as a run file and as the command line has it."""
    return f"{key} ({FLAGS.get(key, '--' + key.replace('_', '-'))})"


def _given(config: RunConfig, keys: tuple[str, ...]) -> list[str]:
    """Those with another value than by default. That they are set means nothing: run.json sets them all."""
    fields = type(config).model_fields
    return [key for key in keys if getattr(config, key) != fields[key].get_default(call_default_factory=True)]


def _refuse_repeated(config: RunConfig, keys: tuple[str, ...], words: str) -> None:
    columns = list(_columns(config, keys))
    if len(set(columns)) < len(columns):
        raise ValueError(f"{words} different columns: name another")


def _columns(config: RunConfig, keys: tuple[str, ...]) -> Iterator[str]:
    for key in keys:
        if (column := getattr(config, key)) is not None:
            yield column


def _missing(key: str) -> PydanticCustomError:
    return PydanticCustomError(MISSING, "{key} is missing", {"key": key})
