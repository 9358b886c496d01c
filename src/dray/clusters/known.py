"""The clusters that dray started: a directory each, with what is needed to reach it again, and its token.

`$DRAY_HOME` (by default ~/.local/state/dray) is readable by its user alone: tokens lie there.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from dray.clusters.providers import KINDS
from dray.clusters.resolve import check_name
from dray.errors import ClusterError, nearest

_FILE = "cluster.json"
_TOKEN = "token"  # noqa: S105  (the name of a file)
_WORD = re.compile(rb"[!-~]+")
_DASHBOARD = re.compile(r"http://[^/]+:\d{1,5}")


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster that was started here."""

    name: str
    kind: str
    """One of `providers.KINDS`."""
    address: str
    """host:port of the head, as the cluster's machines see it."""
    dashboard: str
    """The job server, as the head sees it."""
    details: dict[str, Any] = field(default_factory=dict)
    """What its kind needs to find it again. The variables of a fleet (`env:`) may be secrets."""


def names() -> list[str]:
    root = _root()
    return sorted(path.parent.name for path in root.glob(f"*/{_FILE}")) if root.is_dir() else []


def read(name: str) -> Known:
    try:
        found = json.loads((_root() / name / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = names()
        raise ClusterError(
            f'There is no cluster "{name}".{nearest(name, known)}',
            fix=f"Started here (dray cluster up): {', '.join(known) or 'none'}. Or use local, auto, spark, host:port, "
            "or http://head:8265.",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(name, str(error)) from error
    if problem := _why_damaged(found, name):
        raise damaged(name, problem)
    return Known(**found)


def damaged(name: str, why: str) -> ClusterError:
    return ClusterError(f"What is known of the cluster {name} cannot be read: {why}.", fix=f"Remove {_root() / name}.")


def _why_damaged(found: Any, name: str) -> str:
    """Return what is not as dray writes it."""
    if not isinstance(found, dict) or {*found} != {field.name for field in fields(Known)}:
        return "its keys are not those that dray writes"
    if not all(isinstance(found[key], str) for key in ("name", "kind", "address", "dashboard")):
        return "it holds values that are not text"
    if found["name"] != name:
        return f'its name is "{found["name"]}"'
    kind = KINDS.get(found["kind"])
    if kind is None or not kind.provider:
        return f'its kind is "{found["kind"]}"'
    if not _DASHBOARD.fullmatch(found["dashboard"]):
        return f'its dashboard is "{found["dashboard"]}"'
    details = found["details"]
    if not isinstance(details, dict):
        return "its details are not an object"
    wrong = [key for key, type_ in kind.details.items() if not isinstance(details.get(key), type_)]
    return f"its {wrong[0]} is {details.get(wrong[0])!r:.80}" if wrong else ""


def save(known: Known) -> None:
    """Note a cluster, in a file for its user alone: the variables of a fleet may be secrets."""
    check_name(known.name)
    directory = _directory(known.name)
    scratch = directory / f".{_FILE}.{os.getpid()}"
    scratch.unlink(missing_ok=True)
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(asdict(known), indent=2) + "\n")
    scratch.replace(directory / _FILE)


def remove(name: str) -> None:
    """Forget a cluster, and its token; what else is in its directory stays, and the directory with it."""
    directory = _root() / name
    for path in (directory / _FILE, directory / _TOKEN, *directory.glob(f".{_FILE}.*")):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


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
    found = path.read_bytes().strip()
    if not _WORD.fullmatch(found):
        raise ClusterError(f"The token {path} is damaged.", fix=f"Take the cluster {name} down and up again.")
    return found.decode("ascii")


def token_file(name: str) -> Path:
    path = _root() / name / _TOKEN
    if not path.is_file():
        raise ClusterError(f"The token of the cluster {name} is gone: {path}.", fix="Take it down and up again.")
    return path


def directory_of(name: str) -> Path:
    """Return where what is known of a cluster lies."""
    return _root() / name


def _directory(name: str) -> Path:
    directory = _root() / name
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    return directory


def _root() -> Path:
    home = os.environ.get("DRAY_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state" / "dray") / "clusters"
