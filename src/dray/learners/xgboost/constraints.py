"""Constraints on features, checked and given by position. Pure.

XGBoost takes a monotone constraint on a category, or an interaction that is a flat list of names, and does nothing or
something else without a word. By position, because the booster's names differ where XGBoost refuses a column's name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dray.data.features import Column
from dray.errors import ConfigError, nearest


def by_position(params: Mapping[str, Any], features: Sequence[Column]) -> dict[str, Any]:
    """Return the parameters with their constraints by the features' positions, or say what is wrong with them."""
    placed = dict(params)
    if params.get("monotone_constraints") is not None:
        directions = _directions(params["monotone_constraints"], features)
        placed["monotone_constraints"] = f"({','.join(map(str, directions))})"
    if params.get("interaction_constraints") is not None:
        placed["interaction_constraints"] = json.dumps(_groups(params["interaction_constraints"], features))
    return placed


def _directions(asked: Any, features: Sequence[Column]) -> list[int]:
    names = [feature.name for feature in features]
    if isinstance(asked, Mapping):
        for name in asked:
            _position(name, names)
        values = [asked.get(name, 0) for name in names]
    else:
        values = _listed("monotone_constraints", asked, "{column: 1}")
        if len(values) != len(names):
            raise ConfigError(
                f"monotone_constraints has {len(values)} values, and there are {len(names)} features.",
                fix="Give one for each feature in the order of the columns, or {column: 1} for some of them.",
            )
    for feature, value in zip(features, values, strict=True):
        if isinstance(value, bool) or value not in (-1, 0, 1):
            raise ConfigError(
                f'The monotone constraint on "{feature.name}" is {value!r}.',
                fix="Give 1 (predictions grow with the feature), -1 (they fall) or 0.",
            )
        if value and feature.kind == "category":
            raise ConfigError(
                f'The monotone constraint on "{feature.name}" has no meaning: it is a category, without an order.',
                fix="Leave it out, or give the column as a number.",
            )
    return [int(value) for value in values]


def _groups(asked: Any, features: Sequence[Column]) -> list[list[int]]:
    names = [feature.name for feature in features]
    groups = _listed("interaction_constraints", asked, "[[column, column], [column]]")
    if not groups or not all(isinstance(group, list | tuple) and group for group in groups):
        raise ConfigError(
            f"interaction_constraints is {asked!r}, and must be a list of lists of features.",
            fix="Give such as [[column, column], [column]].",
        )
    return [[_position(name, names) for name in group] for group in groups]


def _position(name: Any, names: Sequence[str]) -> int:
    if isinstance(name, str) and name in names:
        return names.index(name)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(names):
        return name
    raise ConfigError(
        f'A constraint names "{name}", which is not a feature.{nearest(str(name), names)}',
        fix="Name features as the data does.",
    )


def _listed(parameter: str, asked: Any, example: str) -> list[Any]:
    """A list as it is, or written as text: XGBoost's own way to say it."""
    found = asked
    if isinstance(asked, str):
        text = asked.strip()
        try:
            found = json.loads(f"[{text[1:-1]}]" if text.startswith("(") else text)
        except ValueError:
            found = None
    if not isinstance(found, list | tuple):
        raise ConfigError(f"{parameter} is {asked!r}, and must be a list.", fix=f"Give such as {example}.")
    return list(found)
