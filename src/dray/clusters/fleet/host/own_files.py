"""Whether a directory may become the cluster's, and the removal of what dray and Ray wrote there, by name.

A directory is opened once, without following a link, and everything below it is reached from there: what is swapped in
later is not followed, and other file systems are not entered.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SESSION = re.compile(r"session_\d{4}-[\d_-]+")
"""The directory of one session of Ray's."""
_OURS = re.compile(r"(state\.json|token|env-\d+)(\.\d+)?")
_LOGS = re.compile(r"start-\d+\.log")
_RAYS = re.compile(rf"{SESSION.pattern}|session_latest|ray_current_cluster|prom_metrics_service_discovery\.json")
_INDEX = re.compile(r"\d+")
_STATE = "state.json"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SEARCH = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""For a directory that may only be passed through, such as /home."""
_SHOWN = 3


def why_not(directory: Path, name: str, owner: str | None) -> str:
    """Return why a directory cannot be that of the cluster `name`; nothing if it can.

    `owner` is the name of the cluster whose mark is in it.
    """
    if directory.is_symlink():
        return f"{directory} is a link to {os.path.realpath(directory)}"
    if not os.path.lexists(directory):
        return ""
    real = os.path.realpath(directory)
    try:
        with _opened(real) as here, _opened(Path(real).parent, _SEARCH) as above:
            found = os.fstat(here)
            if real == "/":
                return f"{directory} is the root of the file system"
            if real in _homes(found.st_uid):
                return f"{directory} is a home directory"
            if _mount(here) != _mount(above):
                return f"{directory} is a mount point"
            entries = _entries(here)
    except OSError as error:
        return f"{directory} cannot be used: {error.strerror}"
    if owner is None and entries:
        return f"{directory} holds files that dray did not write: {_some(entries)}"
    # A mark can be forged: another user could then swap what Ray finds there.
    if found.st_mode & stat.S_IWOTH:
        return f"{directory} can be written by everyone"
    if found.st_uid not in (os.getuid(), 0):
        return f"{directory} belongs to another user of the machine (number {found.st_uid})"
    return "" if owner in (None, name) else f"{directory} belongs to the cluster {owner}"


def remove_nodes(directory: Path, indices: list[str]) -> None:
    """Remove what the Ray of some nodes wrote."""
    with _opened(directory) as root, _below(root, "ray") as ray:
        for index in indices:
            if _INDEX.fullmatch(index):
                _remove_node(ray, index)


def remove_all(directory: Path, *, with_directory: bool) -> str:
    """Remove everything of a cluster, and its directory if dray made it; return what was left there, and why."""
    with _opened(directory) as root:
        with _below(root, "ray") as ray:
            for index in _names(ray, _INDEX):
                _remove_node(ray, index)
        with _below(root, "logs") as logs:
            _unlink(logs, _names(logs, _LOGS))
        _rmdir(root, "ray")
        _rmdir(root, "logs")
        # The mark goes last: as long as it is there, another try can do the rest.
        _unlink(root, sorted(_names(root, _OURS), key=lambda name: name == _STATE))
        left = list(_left(root))
    if left:
        return f"{directory} was kept: it holds what dray did not write or may not remove ({_some(left)})"
    if with_directory:
        with suppress(OSError):
            directory.rmdir()
    return ""


def _left(here: int, above: str = "") -> Iterator[str]:
    """Yield what is in a directory; of dray's own directories in it, what is in those."""
    for name in _entries(here):
        path = f"{above}{name}"
        with _below(here, name) as inner:
            is_own = re.fullmatch(r"logs|ray|ray/\d+", path) is not None
            found = list(_left(inner, f"{path}/")) if inner is not None and is_own else []
        yield from found or [path]


def remove_session(directory: Path, index: str, session: str) -> bool:
    """Remove one session of a node's; return whether it is gone."""
    with _opened(directory) as root, _below(root, "ray") as ray, _below(ray, index) as node:
        if node is not None and SESSION.fullmatch(session):
            _remove(node, [session])
            return session not in _entries(node)
    return False


def sessions(directory: Path) -> list[tuple[str, str, int]]:
    """Return the sessions of all nodes: index, name, bytes. Links are none."""
    found = []
    with _opened(directory) as root, _below(root, "ray") as ray:
        for index in _names(ray, _INDEX):
            with _below(ray, index) as node:
                for name in _names(node, SESSION):
                    with _below(node, name) as session:
                        if session is not None:
                            found.append((index, name, _size(session)))
    return found


def remove_tree(directory: Path) -> None:
    """Remove a directory that dray made, as far as that is possible."""
    with suppress(OSError), _opened(directory.parent, _SEARCH) as parent:
        _remove(parent, [directory.name])


def _remove_node(ray: int | None, index: str) -> None:
    with _below(ray, index) as node:
        _remove(node, _names(node, _RAYS))
    _rmdir(ray, index)


def _remove(parent: int | None, names: list[str]) -> None:
    """Remove entries of an open directory with all that is below them; what cannot be removed stays."""
    for name in names:
        try:
            here = os.open(name, _OPEN, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):  # a file, or a link, whatever it leads to
                with suppress(OSError):
                    os.unlink(name, dir_fd=parent)
            continue
        try:
            if _mount(here) == _mount(parent):
                _remove(here, _entries(here))
        finally:
            os.close(here)
        _rmdir(parent, name)


def _unlink(parent: int | None, names: list[str]) -> None:
    """Remove files and links; a directory of such a name (env-311) is not dray's."""
    for name in names:
        with suppress(OSError):
            os.unlink(name, dir_fd=parent)


def _rmdir(parent: int | None, name: str) -> None:
    if parent is not None:
        with suppress(OSError):
            os.rmdir(name, dir_fd=parent)


def _entries(here: int) -> list[str]:
    with os.scandir(here) as entries:
        return sorted(entry.name for entry in entries)


def _names(parent: int | None, pattern: re.Pattern[str]) -> list[str]:
    return [name for name in _entries(parent) if pattern.fullmatch(name)] if parent is not None else []


@contextmanager
def _opened(directory: Path | str, flags: int = _OPEN) -> Iterator[int]:
    here = os.open(directory, flags)
    try:
        yield here
    finally:
        os.close(here)


@contextmanager
def _below(parent: int | None, name: str) -> Iterator[int | None]:
    """Give a directory in another one; None when it is not there, a link, or another file system."""
    try:
        here = os.open(name, _OPEN, dir_fd=parent) if parent is not None else None
    except OSError:
        here = None
    try:
        yield here if here is not None and _mount(here) == _mount(parent) else None
    finally:
        if here is not None:
            os.close(here)


def _mount(here: int | None) -> str:
    """Return the number of the mount that an open directory is on: a bind mount has the device of what it shows."""
    text = Path(f"/proc/self/fdinfo/{here}").read_text()
    return next(line for line in text.splitlines() if line.startswith("mnt_id:"))


def _homes(owner: int) -> set[str]:
    homes = {str(Path.home())}
    for user in (os.getuid(), owner):
        try:
            homes.add(pwd.getpwuid(user).pw_dir)
        except KeyError:
            continue
    return {os.path.realpath(home) for home in homes}


def _size(directory: int) -> int:
    total = 0
    for _, _, names, here in os.fwalk(".", dir_fd=directory):
        for name in names:
            try:
                total += os.stat(name, dir_fd=here, follow_symlinks=False).st_blocks * 512
            except OSError:
                continue
    return total


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
