"""What dray keeps on this machine for clusters and processes: temporary files, compiled kernels, known clusters."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dray
from dray.clusters import known
from dray.clusters.scratch import LOCK
from dray.runs.kept import Kept, tree_of

SHORT = Path("/tmp")  # noqa: S108
"""Where embedded clusters are if the temporary directory has too long a path for their sockets."""
_IDLE_S = 24 * 3600.0
"""A temporary file without a lock that was written so lately may be in use."""
_RANDOM = "[a-z0-9_]" * 8
_FILES = (f"dray-traceback-{_RANDOM}.txt", f"dray-map-{_RANDOM}.memory")
"""Single files, as `tempfile` names them. Directories are known by their lock: others of such names are the user's."""


def leftovers(now: float) -> list[Kept]:
    return [*_temporary(now), *_kernels(), *_clusters()]


def remove_leftover(found: Kept) -> None:
    """Remove what `leftovers` has found; what went meanwhile is gone."""
    paths = _kernel_files() if found.kind == "kernels" else [Path(found.location)]
    for path in paths:
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _temporary(now: float) -> Iterator[Kept]:
    """Yield the files and directories of this user that dray's processes make while they run."""
    for place in sorted({Path(tempfile.gettempdir()), SHORT}):
        found = {path for name in _FILES for path in place.glob(name) if path.is_file()}
        found |= {lock.parent for lock in place.glob(f"dray-*/{LOCK}")}
        for path in sorted(found):
            with suppress(OSError):
                if path.is_symlink() or path.lstat().st_uid != os.getuid():
                    continue
                size, used = tree_of([path])
                yield Kept("temporary", str(path), _words(path), size, used, kept_for=_in_use(path, used, now))


def _words(path: Path) -> str:
    if path.name.startswith("dray-traceback-"):
        return "traceback of an unexpected error"
    is_of_command = path.name.startswith(("dray-map-", "dray-job-"))
    return "files of a command" if is_of_command else "embedded Ray cluster"


def _in_use(path: Path, used: float, now: float) -> str | None:
    if path.name.startswith("dray-traceback-"):
        return None
    if path.is_dir():
        return "a process that runs" if _is_locked(path / LOCK) else None
    return "a process that may run" if now - used < _IDLE_S else None


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _kernels() -> Iterator[Kept]:
    if files := _kernel_files():
        size, used = tree_of(files)
        what = f"compiled kernels, {len(files)} files; they are compiled again when they are needed"
        yield Kept("kernels", str(Path(dray.__file__).parent / "learners"), what, size, used)


def _kernel_files() -> list[Path]:
    return sorted(Path(dray.__file__).parent.glob("learners/*/__pycache__/*.nb[ic]"))


def _clusters() -> Iterator[Kept]:
    for name in known.names():
        place = known.directory_of(name)
        size, used = tree_of([place])
        yield Kept(
            "cluster",
            str(place),
            f"address and token of the cluster {name}",
            size,
            used,
            kept_for=f"the cluster {name}",
        )
    if (place := Path.home() / ".dray").is_dir():
        size, used = tree_of([place])
        yield Kept("cluster", str(place), "a fleet's files on its host", size, used, kept_for="the fleet that made it")
