"""XGBoost's errors in dray's words, at the edge where they come in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import xgboost

from dray.errors import ConfigError, DataError

_REFUSALS = (
    "Invalid Parameter format",
    "for Parameter ",
    "exceed bound",
    "Unknown objective",
    "Unknown metric",
    "Invalid Input",
    "Unknown booster",
    "Found an invalid value",
    "_constraints",
    "Constrained features",
    "not yet implemented",
    "can only be used with",
    "label and prediction size not match",
)


class InfiniteValueError(DataError):
    """XGBoost found an infinity, and does not say where."""


@contextmanager
def translated() -> Iterator[None]:
    """Name the parameter that XGBoost refuses, or what it cannot bin; anything else is passed on as it is."""
    try:
        yield
    except (xgboost.core.XGBoostError, ValueError) as error:
        text = str(error)
        if "contains `inf`" in text or "Input data contains" in text:
            raise InfiniteValueError(
                "A feature holds an infinite value.", fix="Replace infinities by nulls or by a large number."
            ) from error
        if any(refusal in text for refusal in _REFUSALS):
            raise ConfigError(
                f"XGBoost refuses a parameter: {_reason(text)}", fix="Change it under params or with --param."
            ) from error
        raise


def _reason(text: str) -> str:
    """The first sentence, without the time and the place in XGBoost's source."""
    first = next((line for line in text.splitlines() if line.strip()), text)
    return first.rpartition(".cc:")[2].partition(": ")[2] or first
