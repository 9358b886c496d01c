"""Ray is configured by environment variables: set them for its start, and leave the user's process as it was."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dray.clusters.ray_private import TESTED, authentication_reader
from dray.errors import ClusterError

# ray.init() sets these by itself and leaves them set.
_SET_BY_RAY = ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED", "RAY_CLIENT_MODE", "PYTHONBREAKPOINT")


@contextmanager
def environment_for_ray(variables: Mapping[str, str]) -> Iterator[None]:
    """Set the variables, tell Ray's own library of them, and put everything back."""
    with kept(*variables, *_SET_BY_RAY):
        os.environ.update(variables)
        yield


@contextmanager
def kept(*names: str) -> Iterator[None]:
    """Put these variables back as they were."""
    before = {name: os.environ.get(name) for name in names}
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
    read = authentication_reader()
    if read is not None:
        read()


def own_token() -> dict[str, str]:
    """Return the variables of a token for one cluster only.

    Ray's way, a token file in the home directory, would later make every `ray start --head` of this user demand it.
    Where Ray cannot be told of a new token, the one that this process was started with does.
    """
    if authentication_reader() is not None:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    if os.environ.get("RAY_AUTH_MODE") == "token" and os.environ.get("RAY_AUTH_TOKEN"):
        return {}
    import ray

    raise ClusterError(
        f"Ray {ray.__version__} reads its token only when it is imported, and this process was started without one.",
        fix="Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to a random text of your own before dray starts, "
        f"or install a version of Ray that dray was tested with: pip install '{TESTED}'.",
    )
