"""What must not travel with a job. Pure.

All users that may list jobs read their entrypoints, environments and metadata, and all that reach the cluster can read
the packages. So no secret goes there: the cluster has its own (an instance's role, a profile, a mounted secret).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dray.errors import ConfigError
from dray.masking import holds_password

_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|PRIVATE|API_?KEY|(?:^|_)(?:KEYS?|AUTH|DSN|SAS|COOKIE)(?:_|$)|_PWD$",
    re.IGNORECASE,
)
_KEY_MATERIAL = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY|\bAKIA[0-9A-Z]{16}\b")
_PLACE_NAME = re.compile(r"_(?:PATH|FILE|DIR|SOCK|MODE)$", re.IGNORECASE)
"""Variables that say where a secret is, or how it is used."""
_SHORTEST = 8
"""Shorter values are words that any text may have."""
_INSTEAD = (
    "Give it to the cluster itself: the environment of its nodes, a role, a profile in ~/.aws there, "
    "or a Kubernetes secret."
)


def is_secret_name(name: str) -> bool:
    return _NAME.search(name) is not None and _PLACE_NAME.search(name) is None


def check_environment(variables: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Refuse variables for a job that are secrets, by their name or by their value."""
    for name, value in variables.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ConfigError(f'"{name}" cannot be the name of a variable.', fix="Write --env NAME=VALUE.")
        if is_secret_name(name):
            raise ConfigError(
                f"{name} looks like a secret, and all users that may list jobs could read it.", fix=_INSTEAD
            )
        if found := _secret_in(value, environment):
            raise ConfigError(f"The value of {name} {found}, and all users that may list jobs could read it.", _INSTEAD)


def check_texts(what: str, texts: Iterable[str], environment: Mapping[str, str]) -> None:
    """Refuse a run file or arguments that hold a secret: they lie in the cluster's packages, for all to read."""
    for text in texts:
        if found := _secret_in(text, environment):
            raise ConfigError(f"{what} {found}, and all users of the cluster could read it.", fix=_INSTEAD)


def texts_in(value: Any) -> Iterable[str]:
    """Yield every text of a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def _secret_in(text: str, environment: Mapping[str, str]) -> str:
    if holds_password(text):
        return "holds an address with a password"
    if _KEY_MATERIAL.search(text):
        return "holds a key"
    for name, value in environment.items():
        if len(value) >= _SHORTEST and is_secret_name(name) and value in text:
            return f"holds the value of the environment variable {name}"
    return ""
