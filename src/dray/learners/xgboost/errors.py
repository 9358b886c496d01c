"""XGBoost's errors in dray's words, at the edge where they come in."""

from __future__ import annotations

import re
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
                f"XGBoost refuses a parameter: {reason(text)}", fix="Change it under params or with --param."
            ) from error
        raise


def reason(text: str) -> str:
    """XGBoost's first sentence, without the time, the place in its source and the condition that failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [text]
    sentence = _CONDITION.sub("", _PLACE.sub("", lines[0])).strip()
    if sentence.endswith(":"):  # the choices follow, one a line
        sentence += " " + ", ".join(line.removeprefix("- ") for line in lines[1:] if line.startswith("- "))
    return sentence.rstrip(".: ") + "."


_PLACE = re.compile(r"^\[\d+:\d+:\d+\] \S+:\d+: ")
_CONDITION = re.compile(r"^Check failed: .*?: (?=\S)")
