"""The clusters that dray started: a directory each, with what is needed to reach it again, and its token.

`$DRAY_HOME` (by default ~/.local/state/dray) is readable by its user alone: tokens lie there.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dray.clusters.words import check_name
from dray.errors import ClusterError, nearest

_FILE = "cluster.json"
_TOKEN = "token"  # noqa: S105  (the name of a file)


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster that was started here."""

    name: str
    kind: Literal["fleet", "kubernetes"]
    address: str
    """host:port of the head, as the cluster's machines see it."""
    dashboard: str
    """The job server, as the head sees it."""
    details: dict[str, Any] = field(default_factory=dict)
    """What its kind needs to find it again; no secret."""


def names() -> list[str]:
    root = _root()
    return sorted(path.parent.name for path in root.glob(f"*/{_FILE}")) if root.is_dir() else []


def read(name: str) -> Known:
    try:
        return Known(**json.loads((_root() / name / _FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        known = names()
        raise ClusterError(
            f'There is no cluster "{name}".{nearest(name, known)}',
            fix=f"Started here (dray cluster up): {', '.join(known) or 'none'}. Or use local, auto, spark, host:port, "
            "or http://head:8265.",
        ) from None
    except (ValueError, TypeError) as error:
        raise ClusterError(
            f"What is known of the cluster {name} cannot be read: {error}.", fix=f"Remove {_root() / name}."
        ) from error


def save(known: Known) -> None:
    check_name(known.name)
    directory = _directory(known.name)
    scratch = directory / f".{_FILE}.{os.getpid()}"
    scratch.write_text(json.dumps(asdict(known), indent=2) + "\n", encoding="utf-8")
    scratch.replace(directory / _FILE)


def remove(name: str) -> None:
    """Forget a cluster, and its token."""
    shutil.rmtree(_root() / name, ignore_errors=True)


def make_token(name: str) -> str:
    """Return the cluster's token; the first call makes it."""
    check_name(name)
    path = _directory(name) / _TOKEN
    try:
        # Made with its mode: between a plain write and a chmod others could read it.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
    except FileExistsError:
        pass
    return token(name)


def token(name: str) -> str:
    path = token_file(name)
    if path.stat().st_mode & 0o077:
        raise ClusterError(f"The token {path} can be read by others.", fix=f"chmod 600 {path}, or make a new cluster.")
    return path.read_text(encoding="ascii").strip()


def token_file(name: str) -> Path:
    path = _root() / name / _TOKEN
    if not path.is_file():
        raise ClusterError(f"The token of the cluster {name} is gone: {path}.", fix="Take it down and up again.")
    return path


def _directory(name: str) -> Path:
    directory = _root() / name
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _root() -> Path:
    home = os.environ.get("DRAY_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state" / "dray") / "clusters"
