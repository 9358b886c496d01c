"""What a run was asked for, as flat keys, and where runs differ. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_OF_THE_MACHINE = frozenset(
    (
        *("workers", "threads", "cluster", "on_failure", "max_failures", "max_failures_in_round", "heartbeat_s"),
        *("wait_s", "out", "overwrite", "storage", "kubernetes", "cache"),
    )
)
"""Keys that do not change the model."""


def parameters(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the keys that a model depends on: those of params by their own names, others as in a run file.

    What was not given is left out.
    """
    flat: dict[str, Any] = {}
    for key, value in (config or {}).items():
        if key in _OF_THE_MACHINE:
            continue
        if isinstance(value, Mapping):
            flat |= {name if key == "params" else f"{key}.{name}": item for name, item in value.items()}
        elif value not in (None, [], ()):
            flat[key] = value
    if flat.get("split_seed") == flat.get("seed"):
        flat.pop("split_seed", None)
    if "eval_fraction" not in flat:  # there is no share to take of each class
        flat.pop("stratify", None)
    return flat


def label_of(config: Mapping[str, Any] | None) -> str | None:
    """Return what a model predicts, or what it recommends, for which users."""
    config = config or {}
    if isinstance(label := config.get("label"), str):
        return label
    item, user = config.get("item"), config.get("user")
    return f"{item} for {user}" if isinstance(item, str) and isinstance(user, str) else None


def differing(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys that two of the runs have with different values, or only some have; but for the label.

    Only runs of one learner are compared: others have other keys, and of those that they share other defaults.
    """
    first: dict[Any, Mapping[str, Any]] = {}
    keys = dict.fromkeys(key for run in runs for key in run if key != "label")
    pairs = [(run, first.setdefault(run.get("model"), run)) for run in runs]
    several = ["model"] if len(first) > 1 else []
    return several + [key for key in keys if any(run.get(key) != other.get(key) for run, other in pairs)]


def short(value: Any) -> str:
    """Return a value in few words: of locations the last part."""
    if isinstance(value, list | tuple):
        first = short(value[0]) if value else "none"
        return first if len(value) < 2 else f"{first} and {len(value) - 1} more"
    if isinstance(value, float):
        return f"{value:g}"
    return value.rstrip("/").rpartition("/")[2] if isinstance(value, str) else str(value)
