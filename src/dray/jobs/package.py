"""The files that travel with a job: which of a directory, packed how, and whether the endpoint takes them.

The choice and the verdict are pure. The zip has no dates, so that the same files are uploaded once.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dray.errors import ConfigError
from dray.telemetry.format import size

LIMIT_BYTES = 100 << 20
"""What the job server takes in one request, measured; Ray's documentation says 512 MiB."""
MOST_FILES = 20_000
ALWAYS_LEFT_OUT = (
    *(".git/", ".hg/", ".svn/", "__pycache__/", "*.pyc", ".venv/", "venv/", ".tox/", ".nox/", "node_modules/"),
    *(".mypy_cache/", ".ruff_cache/", ".pytest_cache/", ".ipynb_checkpoints/", ".DS_Store", "/runs/"),
    # Secrets: what is packed can be read by everybody on the cluster.
    *(".env", ".env.*", ".netrc", ".aws/", ".ssh/", ".kube/", "*.pem", "id_rsa", "id_ed25519"),
)
"""Patterns as in a .gitignore."""
IGNORE_FILES = (".gitignore", ".rayignore")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class File:
    """A file to pack, or one that is packed."""

    name: str
    """Its path below the directory, with slashes."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a directory is packed, and what is left out by name."""

    files: tuple[File, ...]
    left_out: tuple[str, ...]


class Ignore:
    """Patterns as in a .gitignore: the last one that fits decides, `!` takes in again, a slash at the end means a
    directory, one elsewhere the whole path."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._rules = [rule for pattern in patterns if (rule := _rule(pattern)) is not None]

    def __call__(self, name: str, directory: bool) -> bool:
        ignored = False
        for expression, directories_only, again in self._rules:
            if (directory or not directories_only) and expression.fullmatch(name):
                ignored = not again
        return ignored


def select(root: Path, excludes: Sequence[str] = (), most: int = MOST_FILES) -> Selection:
    """Return the files below `root` to pack: not those that its .gitignore names, nor `excludes`, nor caches."""
    patterns = [*ALWAYS_LEFT_OUT]
    for name in IGNORE_FILES:
        with suppress(FileNotFoundError):
            patterns += (root / name).read_text(encoding="utf-8", errors="replace").splitlines()
    ignored = Ignore([*patterns, *excludes])
    files: list[File] = []
    left_out: list[str] = []
    for place, directories, names in os.walk(root):
        below = PurePosixPath(Path(place).relative_to(root).as_posix())
        gone = [name for name in directories if ignored(str(below / name), directory=True)]
        left_out += [f"{below / name}/" for name in gone]
        directories[:] = sorted(set(directories) - set(gone))
        for name in sorted(names):
            path = str(below / name)
            if ignored(path, directory=False):
                left_out.append(path)
                continue
            with suppress(OSError):  # a link to nowhere
                found = (root / path).stat()
                if stat.S_ISREG(found.st_mode):
                    files.append(File(path, found.st_size))
        if len(files) > most:
            raise ConfigError(
                f"The working directory {root} has more than {most:,} files.",
                fix="Name a smaller one with --working-dir, or leave some out with --exclude PATTERN.",
            )
    return Selection(tuple(files), tuple(sorted(left_out)))


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
            path = root / file.name
            entry = _entry(file.name, stat.S_IMODE(path.stat().st_mode))
            entry.file_size = file.size_bytes  # tells zipfile whether it needs its format for large files
            with path.open("rb") as source, archive.open(entry, "w") as sink:
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


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # of 1980: the same files make the same zip
    entry.external_attr = (stat.S_IFREG | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _rule(pattern: str) -> tuple[re.Pattern[str], bool, bool] | None:
    pattern = pattern.rstrip()
    if not pattern or pattern.startswith("#"):
        return None
    again = pattern.startswith("!")
    pattern = pattern[again:].removeprefix("./")
    directories_only = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    anchored = "/" in pattern
    expression = "" if anchored else "(?:.*/)?"
    for piece in re.split(r"(\*\*/|/\*\*$|\*\*|\*|\?|\[[^\]]+\])", pattern.removeprefix("/")):
        match piece:
            case "**/":
                expression += "(?:.*/)?"
            case "/**":
                expression += "/.+"
            case "**" | "*":
                expression += "[^/]*"
            case "?":
                expression += "[^/]"
            case _ if piece.startswith("[") and piece.endswith("]"):
                inner = piece[1:-1].replace("\\", "\\\\")
                expression += f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
            case _:
                expression += re.escape(piece)
    return re.compile(expression), directories_only, again
