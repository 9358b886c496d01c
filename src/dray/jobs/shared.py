"""Whether a path means the same files here and where a job runs.

A job's driver reads and writes on the head. A local path is of use to both sides only if the head is on this machine
and sees the same file system, or if it lies on a network file system. An endpoint at 127.0.0.1 proves nothing, it may
be a tunnel: what is looked for is a process of that very Ray session, and what it sees at the path.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from pyarrow import fs as pafs

from dray.errors import ConfigError, StorageError
from dray.storage import (
    StorageOptions,
    absolute,
    is_s3,
    join,
    open_storage,
    remove_directory,
    translate_errors,
    write_atomically,
)

_NETWORK = {
    *("nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "glusterfs", "beegfs", "gpfs", "afs", "pvfs2"),
    *("ocfs2", "gfs2", "wekafs", "pnfs"),
}
_FUSE_OF_THE_DESKTOP = ("fuse.gvfsd-fuse", "fuse.portal", "fuse.lxcfs", "fuse.snapfuse", "fuse.fuse-overlayfs")
_WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a cluster, as far as files are concerned."""

    url: str
    pids: tuple[int, ...]
    """Processes of its Ray session on this machine; none when it is elsewhere."""

    @property
    def here(self) -> bool:
        return bool(self.pids)

    def sees(self, path: str) -> bool:
        """Whether one of its processes finds this machine's directory at the path."""
        place = nearest_directory(path)
        for pid in self.pids:
            try:
                if os.path.samestat(place.stat(), Path(f"/proc/{pid}/root{place}").stat()):
                    return True
            except OSError:  # another user's process, or one that ended
                continue
        return False


def find_head(url: str, session: str) -> Head:
    """Look for the processes of a Ray session on this machine."""
    if not session:
        return Head(url, ())
    found = []
    for process in psutil.process_iter(["cmdline", "name"]):
        words = process.info["cmdline"] or ()
        # The server of the session and its node carry its name; other processes may quote it.
        if process.info["name"] in ("gcs_server", "raylet") and any(session in word for word in words):
            found.append(process.pid)
    return Head(url, tuple(found))


def is_network(path: str, mounts: str) -> bool:
    """Whether a path lies on a network file system. Pure: `mounts` is what /proc/mounts says."""
    kind, longest = "", -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1]).rstrip("/")
        # The last of several mounts at one place is the one that is seen.
        if (path == point or path.startswith(f"{point}/")) and len(point) >= longest:
            kind, longest = fields[2], len(point)
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in _FUSE_OF_THE_DESKTOP)


def check_paths(named: Iterable[tuple[str, str]], head: Head, mounts: str | None = None) -> None:
    """Refuse local paths (a name and a location each, absolute) that are something else on the head, or nothing."""
    mounts = _mounts() if mounts is None else mounts
    for name, location in named:
        if is_local(location) and not is_network(os.path.realpath(location), mounts) and not head.sees(location):
            raise ConfigError(
                f"{name} is {location}, a path of this machine, and the command runs at {head.url}.",
                fix="Use s3://bucket/..., or a directory on a network file system that both sides mount.",
            )


def check_output(location: str, storage: StorageOptions) -> None:
    """Refuse an output directory on S3 that is not empty, or that this machine cannot write: no result could be read.

    A local one is checked where the run happens.
    """
    if not is_s3(location):
        return
    filesystem, path = open_storage(location, storage)
    with translate_errors(location):
        if filesystem.get_file_info(path).type == pafs.FileType.File or _names(filesystem, path):
            raise _occupied(location)
    probe = f".dray-{secrets.token_hex(4)}"
    write_atomically(join(location, probe), storage, lambda stream: stream.write(b"dray\n"))
    with translate_errors(location):
        if _names(filesystem, path) - {probe}:  # another process wrote meanwhile: all but the probe is its own
            filesystem.delete_file(f"{path}/{probe}")
            raise _occupied(location)
    remove_directory(location, storage)


def _names(filesystem: pafs.FileSystem, path: str) -> set[str]:
    try:
        return {entry.base_name for entry in filesystem.get_file_info(pafs.FileSelector(path))}
    except FileNotFoundError:
        return set()


def _occupied(location: str) -> StorageError:
    return StorageError(
        f"The output {location} exists and is not empty.",
        fix="Name another directory with --out, or replace a run that is there with --overwrite.",
    )


def is_local(location: str) -> bool:
    return not re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", location) or location.startswith("file://")


def as_absolute(locations: Sequence[str]) -> list[str]:
    """Return local paths as a process elsewhere on this file system finds them; addresses stay."""
    return [absolute(location) if is_local(location) else location for location in locations]


def nearest_directory(path: str) -> Path:
    """Return the path itself, what comes before its first wildcard, or the nearest parent that exists."""
    wildcard = _WILDCARD.search(path)
    place = Path(path if not wildcard or Path(path).exists() else path[: wildcard.start()].rpartition("/")[0] or "/")
    while not place.exists():
        place = place.parent
    return place


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(errors="replace")
    except OSError:  # another system: only what the head itself sees counts
        return ""
