"""From the `params` of a run file to the settings of a learner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dray.errors import ConfigError, nearest
from dray.learners.factorization.explicit import ExplicitSettings
from dray.learners.factorization.implicit import ImplicitSettings

Kind = Literal["explicit", "implicit"]
_MOST_FACTORS = 4096
"""A system of equations has their square: 64 MB a thread."""


@dataclass(frozen=True, slots=True)
class _Number:
    """What a setting may be."""

    whole: bool = False
    above: float | None = None
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        noun = "whole number" if self.whole else "number"
        if self.most is not None:
            return f"a {noun} from {self.least:g} to {self.most:g}"
        return f"a {noun} above {self.above:g}" if self.above is not None else f"a {noun} from {self.least:g} on"

    def of(self, value: Any) -> int | float | None:
        """Return the value as a number, None if it may not be that. YAML takes 1e-3 for a text."""
        try:
            number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            return None
        if not math.isfinite(number) or (self.whole and number != int(number)):
            return None
        low = self.above is None or number > self.above
        if (
            not low
            or (self.least is not None and number < self.least)
            or (self.most is not None and number > self.most)
        ):
            return None
        return int(number) if self.whole else number


_SOLVERS = ("gradient", "cholesky")
_POSITIVE, _FROM_ZERO = _Number(above=0), _Number(least=0)
_BOTH: dict[str, _Number | tuple[str, ...]] = {
    "factors": _Number(whole=True, least=1, most=_MOST_FACTORS),
    "regularization": _FROM_ZERO,
    "init_std": _POSITIVE,
}
_KNOWN: Mapping[Kind, Mapping[str, _Number | tuple[str, ...]]] = {
    "explicit": _BOTH | {"learning_rate": _POSITIVE},
    "implicit": _BOTH
    | {
        "alpha": _POSITIVE,
        "frequency_power": _FROM_ZERO,
        "solver": _SOLVERS,
        "gradient_steps": _Number(whole=True, least=1),
    },
}
_FEEDBACK: Mapping[Kind, str] = {"explicit": "explicit ratings", "implicit": "events"}
_DRAY_OWN = {
    **dict.fromkeys(("epochs", "n_epochs", "iterations", "n_iterations", "num_epochs"), "Use --rounds."),
    **dict.fromkeys(("seed", "random_state"), "Use --seed."),
    **dict.fromkeys(("threads", "num_threads", "n_jobs", "nthread"), "Use --threads."),
}


def explicit_settings(params: Mapping[str, Any], rounds: int, seed: int) -> ExplicitSettings:
    """Return how to train on ratings, or say what is wrong with the params."""
    return ExplicitSettings(**_checked(params, "explicit"), epochs=rounds, seed=seed)


def implicit_settings(params: Mapping[str, Any], rounds: int, seed: int) -> ImplicitSettings:
    """Return how to train on events, or say what is wrong with the params."""
    return ImplicitSettings(**_checked(params, "implicit"), iterations=rounds, seed=seed)


def _checked(params: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    return {name: _value(name, value, kind) for name, value in params.items()}


def _value(name: str, value: Any, kind: Kind) -> Any:
    allowed = _KNOWN[kind].get(name)
    if allowed is None:
        raise _unknown(name, kind)
    if isinstance(allowed, tuple):
        if value in allowed:
            return value
        raise ConfigError(f'The parameter "{name}" is {value!r}.', fix=f"Use {' or '.join(allowed)}.")
    number = allowed.of(value)
    if number is None:
        raise ConfigError(f'The parameter "{name}" is {value!r}.', fix=f"Give {name} {allowed}.")
    return number


def _unknown(name: str, kind: Kind) -> ConfigError:
    known = _KNOWN[kind]
    if name in _DRAY_OWN:
        return ConfigError(f'The parameter "{name}" has a key of its own.', fix=_DRAY_OWN[name])
    other: Kind = "implicit" if kind == "explicit" else "explicit"
    if name in _KNOWN[other]:
        return ConfigError(
            f'The parameter "{name}" is for {_FEEDBACK[other]}, and this run learns from {_FEEDBACK[kind]}.',
            fix=f"Leave it out. There are: {', '.join(known)}.",
        )
    return ConfigError(
        f'A recommender from {_FEEDBACK[kind]} has no parameter "{name}".{nearest(name, known)}',
        fix=f"There are: {', '.join(known)}.",
    )
