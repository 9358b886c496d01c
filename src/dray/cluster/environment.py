"""Ray is configured by environment variables: set them for its start, and leave the user's process as it was."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# ray.init() sets these by itself and leaves them set.
_SET_BY_RAY = ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED", "RAY_CLIENT_MODE", "PYTHONBREAKPOINT")


@contextmanager
def environment_for_ray(variables: Mapping[str, str]) -> Iterator[None]:
    """Set the variables, tell Ray's own library of them, and put everything back."""
    names = {*variables, *_SET_BY_RAY}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def refresh_authentication() -> None:
    """Let Ray's library read the authentication variables again: it keeps what it read first for ever."""
    try:
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()
    except (ImportError, AttributeError):
        # Another version of Ray, which reads them when it is imported.
        return
