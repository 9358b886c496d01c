"""The files that travel with a job (`selecting.py` says which): packed how, and whether the endpoint takes them.

The zip has no dates, so that the same files are uploaded once.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from dray.errors import ConfigError
from dray.events.format import size

LIMIT_BYTES = 100 << 20
"""What the job server takes in one request, measured; Ray's documentation says 512 MiB."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class File:
    """A file to pack, or one that is packed."""

    name: str
    """Its path below the directory, with slashes."""
    size_bytes: int


def pack(target: Path, root: Path | None, files: Sequence[File], more: Mapping[str, bytes]) -> list[File]:
    """Write the zip and return what each file takes in it; beyond the limit it stops, and tells the sizes on disk."""
    packed: list[File] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in more.items():
            archive.writestr(_entry(name, 0o644), content, zipfile.ZIP_DEFLATED)
            packed.append(File(name, archive.getinfo(name).compress_size))
        for file in files:
            if root is None or target.stat().st_size > LIMIT_BYTES:
                packed.append(file)
                continue
            with _open(root, file.name) as source:
                entry = _entry(file.name, stat.S_IMODE(os.fstat(source.fileno()).st_mode))
                entry.file_size = file.size_bytes  # tells zipfile whether it needs its format for large files
                with archive.open(entry, "w") as sink:
                    while block := source.read(1 << 20):
                        sink.write(block)
            packed.append(File(file.name, entry.compress_size))
    return packed


def refuse_large(files: Sequence[File], total_bytes: int, limit_bytes: int = LIMIT_BYTES) -> None:
    """Refuse a package that the endpoint would, and name what makes it large."""
    if total_bytes <= limit_bytes:
        return
    largest = sorted(files, key=lambda file: (-file.size_bytes, file.name))[:_SHOWN]
    names = ", ".join(f"{file.name} ({size(file.size_bytes)})" for file in largest if file.size_bytes)
    raise ConfigError(
        f"The working directory is too large to upload: more than {limit_bytes >> 20} MiB when packed. "
        f"The largest: {names}.",
        fix=f"Leave them out (--exclude '{largest[0].name}'), and read them from storage that the cluster sees.",
    )


def _open(root: Path, name: str) -> BinaryIO:
    """Open a file that was chosen, if it is still there and still in the directory."""
    place = Path(os.path.realpath(root / name))
    try:
        if place.is_relative_to(os.path.realpath(root)):
            return os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW), "rb")
        reason = "it is a link that leads out of the working directory"
    except OSError as error:
        reason = error.strerror or str(error)
    raise ConfigError(f"The file {name} cannot be packed: {reason}.", fix=f"Leave it out: --exclude '{name}'")


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # of 1980: the same files make the same zip
    entry.external_attr = (stat.S_IFREG | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
