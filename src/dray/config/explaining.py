"""From what is wrong with a configuration, as pydantic sees it, to an error that names the key and the fix. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from dray.config.run_file import RunConfig, StorageConfig, WorkerRange
from dray.errors import ConfigError, nearest
from dray.masking import masked

_BELOW: dict[str, type[BaseModel]] = {"storage": StorageConfig, "workers": WorkerRange}
_BY_PLACE = frozenset({"data", "storage", "kubernetes"})
"""Keys without a flag of their name."""
_HOW_TO_GIVE = {
    "workers.min": "Give both ends: workers: {min: 2, max: 8}.",
    "workers.max": "Give both ends: workers: {min: 2, max: 8}.",
}


def explain(error: ValidationError, model: type[RunConfig], origin: str, elsewhere: Iterable[str] = ()) -> ConfigError:
    """Return the error to tell. `elsewhere` are keys of other models, which a misspelt key may be meant as."""
    problems = error.errors()
    # A misspelt key leaves the right one missing: tell the first.
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    location = _keys(first["loc"])
    place = ".".join(location)
    if first["type"] == "extra_forbidden":
        below = _BELOW.get(location[0]) if len(location) > 1 else None
        known = list((below or model).model_fields)
        hint = nearest(location[-1], known if below else [*known, *elsewhere])
        return ConfigError(f'Unknown key "{place}" in {origin}.{hint}', fix=f"Known keys: {', '.join(known)}.")
    if first["type"] == "missing" or (first["input"] is None and _is_needed(place, model)):
        return ConfigError(f'"{place}" is missing in {origin}.', fix=_how_to_give(place, model, origin))
    message = first["msg"].removeprefix("Value error, ")
    if not place:
        what, _, fix = message.partition(": ")
        return ConfigError(f"{_sentence(what, model)}.", fix=f"{_sentence(fix, model)}." if fix else "")
    if place == "workers" and first["type"] != "value_error":
        message = "must be a number from 0 on, auto, or a range such as {min: 2, max: 8}"
    flag = "" if place in _BY_PLACE or "." in place else f" ({model.flag(place)})"
    return ConfigError(f'"{place}" in {origin} is {shown(first["input"])}: {message}.', fix=f"Change {place}{flag}.")


def shown(value: Any) -> str:
    """Return a value of the user's without the passwords in it: each text by itself, as it may be a whole address."""
    if isinstance(value, str):
        return repr(masked(value))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{shown(key)}: {shown(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(item) for item in value)}]"
    return masked(repr(value))


def _is_needed(key: str, model: type[RunConfig]) -> bool:
    return key in model.model_fields and model.model_fields[key].is_required()


def _how_to_give(key: str, model: type[RunConfig], origin: str) -> str:
    if key in _HOW_TO_GIVE:
        return _HOW_TO_GIVE[key]
    if key == "data":
        return f"Name it as the first argument{_or_in_file('data: DIR', origin)}."
    field = model.model_fields.get(key)
    value = (field and field.title) or "VALUE"
    return f"Add {model.flag(key)} {value}{_or_in_file(f'{key}: {value}', origin)}."


def _or_in_file(line: str, origin: str) -> str:
    """Return the other way to give a key, where there is a run file."""
    return f", or {line} in the run file" if origin.endswith((".yaml", ".yml")) else ""


def _sentence(words: str, model: type[RunConfig]) -> str:
    """Return words with a capital, unless they begin with a key."""
    first = words.partition(" ")[0].rstrip(",")
    return words if first in model.model_fields else f"{words[:1].upper()}{words[1:]}"


def _keys(location: tuple[int | str, ...]) -> list[str]:
    """Return a place as it is written: pydantic puts the alternative that it took behind "workers"."""
    keys = [str(key) for key in location]
    return keys[:1] + keys[2:] if keys[:1] == ["workers"] else keys
