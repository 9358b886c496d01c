"""Read run.json of earlier versions. Pure.

1    without a version; `config` has the keys of both models that there were, and one seed for split and learner
2    `version`; `config` has the keys of its own model only, and split_seed; of trees later also `stratify`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray import __version__
from dray.errors import ModelError

VERSION = 2

_KEYS_OF_VERSION_1 = {
    "xgboost": frozenset(("label", "objective", "group", "weight", "ignore")),
    "factorization": frozenset(
        (
            *("user", "item", "rating", "event", "event_weights", "time", "half_life_days"),
            *("eval_by", "eval_last", "eval_at"),
        )
    ),
}


def migrated(document: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a run.json, read at `path`, as this version has it; refuse one of a later version."""
    version = document.get("version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelError(
            f"{path} is damaged: its version is {str(version)[:40]!r}.",
            fix="Put the file back if there is a copy, or train again.",
        )
    if version > VERSION:
        raise ModelError(
            f"{path} is of version {version}, written by dray {document.get('dray_version', 'of a later version')}: "
            f"dray {__version__} reads versions up to {VERSION}.",
            fix="Use a newer dray: `pip install --upgrade dray`",
        )
    config = document.get("config")
    if version == 1 and config is not None:
        config = {"model": "xgboost"} | own_keys(config)
    if config is not None and config.get("model") == "xgboost":
        config = {"stratify": False} | dict(config)  # earlier runs split by position alone
    return {**document, "version": VERSION, "config": config}


def own_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration of version 1 or 2 as version 2 has it: run.json keeps one, and so does a job's order."""
    if "split_seed" in config:
        return dict(config)
    model = config.get("model", "xgboost")
    foreign = {key for name, keys in _KEYS_OF_VERSION_1.items() if name != model for key in keys}
    own = {key: value for key, value in config.items() if key not in foreign}
    return own | ({"split_seed": config["seed"]} if "seed" in config else {})


def held_out_by(rows: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return how rows were held out, of a data.json of either version: the seed of the split was called seed."""
    return None if rows is None else {"split_seed" if key == "seed" else key: value for key, value in rows.items()}
