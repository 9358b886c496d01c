"""Which files of a directory travel with a job, and why the others do not.

Left out are, unless --exclude '!PATTERN' takes them in: names of secrets, what a .gitignore or .rayignore in any
directory names, caches. Never packed are links that lead out of the directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dray.errors import ConfigError
from dray.jobs.ignoring import Ignore, Layer
from dray.jobs.package import File
from dray.jobs.secret_names import is_secret

MOST_FILES = 20_000
IGNORE_FILES = (".gitignore", ".rayignore")
_HISTORY = (".git", ".hg/", ".svn/")
_IS_HISTORY = Ignore(_HISTORY)
_CACHES = Ignore(
    (
        *_HISTORY,
        *("__pycache__/", "*.pyc", ".venv/", "venv/", ".tox/", ".nox/", "node_modules/"),
        *(".mypy_cache/", ".ruff_cache/", ".pytest_cache/", ".ipynb_checkpoints/", ".DS_Store", "/runs/"),
    )
)
_LARGEST_IGNORE_FILE = 1 << 20

_SHOWN = 20

Why = Literal["secret", "link", "unreadable", "ignored", "cache", "excluded"]
_TAKE_IN = "--exclude '!NAME' includes one"
_WORDS: dict[Why, tuple[str, str]] = {
    "secret": ("named like a secret", _TAKE_IN),
    "link": ("links that lead out of the directory, or around in it", "put the files themselves there to include them"),
    "unreadable": ("not readable, or not a file", "change that to include them"),
    "ignored": ("named in a .gitignore or .rayignore", _TAKE_IN),
    "cache": ("caches, runs and version control", _TAKE_IN),
    "excluded": ("by --exclude", ""),
}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or a directory (with a slash at the end) that is not packed."""

    name: str
    why: Why


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a directory is packed, and what is left out."""

    files: tuple[File, ...]
    left_out: tuple[LeftOut, ...]


def select(root: Path, excludes: Sequence[str] = (), most: int = MOST_FILES) -> Selection:
    """Return the files below `root` to pack."""
    walk = _Walk(Path(os.path.realpath(root)), excludes, most)
    walk.directory(walk.root, "", walk.layers_above, ())
    return Selection(tuple(walk.files), tuple(sorted(walk.left_out, key=lambda out: out.name)))


def describe(left_out: Sequence[LeftOut]) -> list[str]:
    """Say what was left out, a line for each reason, with how to take it in. Pure."""
    lines = []
    for why, (words, fix) in _WORDS.items():
        names = [out.name for out in left_out if out.why == why]
        if names:
            more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
            hint = f" ({fix})" if fix else ""
            lines.append(f"Left out, {words}: {len(names):,}: {', '.join(names[:_SHOWN])}{more}{hint}")
    return lines


class _Walk:
    def __init__(self, root: Path, excludes: Sequence[str], most: int) -> None:
        self.root = root
        self.files: list[File] = []
        self.left_out: list[LeftOut] = []
        self.layers_above = tuple(_layers_above(root))
        self._excludes = Ignore(excludes)
        self._most = most
        self._directories = 0

    def directory(self, place: Path, below: str, layers: tuple[Layer, ...], above: tuple[Path, ...]) -> None:
        """Take in a directory that is found at `place`, under the name `below`; `above` are those that it is in."""
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            self.left_out.append(LeftOut(below or "./", "unreadable"))
            return
        self._directories += 1
        self._refuse_many(self._directories, "directories")
        layers += tuple(_layers_of(place, below))
        directories: list[tuple[Path, str]] = []
        for entry in entries:
            name = f"{below}{entry.name}"
            target = Path(os.path.realpath(entry.path))
            directory = target.is_dir()
            if why := self._verdict(name, directory, layers) or self._problem(entry, name, target, (*above, place)):
                self.left_out.append(LeftOut(f"{name}/" if directory else name, why))
            elif directory:
                directories.append((target, f"{name}/"))
            else:
                self._take(target, name)
        for target, name in directories:
            self.directory(target, name, layers, (*above, place))

    def _take(self, target: Path, name: str) -> None:
        self.files.append(File(name, target.stat().st_size))
        self._refuse_many(len(self.files), "files")

    def _refuse_many(self, count: int, what: str) -> None:
        if count > self._most:
            raise ConfigError(
                f"The working directory {self.root} has more than {self._most:,} {what}.",
                fix="Name a smaller one with --working-dir, or leave some out with --exclude PATTERN.",
            )

    def _verdict(self, name: str, directory: bool, layers: tuple[Layer, ...]) -> Why | None:
        if (asked := self._excludes.verdict(name, directory)) is not None:
            return "excluded" if asked else None
        if is_secret(name, directory):
            return "secret"
        if _IS_HISTORY.verdict(name, directory):  # as for git, whatever a .gitignore takes in again
            return "cache"
        for layer in reversed(layers):
            if (ignored := layer.verdict(name, directory)) is not None:
                return "ignored" if ignored else None
        return "cache" if _CACHES.verdict(name, directory) else None

    def _problem(self, entry: os.DirEntry[str], name: str, target: Path, above: tuple[Path, ...]) -> Why | None:
        """Why a file cannot be packed, whatever its name is."""
        if entry.is_symlink() and (not target.is_relative_to(self.root) or target in above):
            return "link"
        inside = target.relative_to(self.root)
        if inside.as_posix() != name and (why := self._why_left_out(inside, target.is_dir())):
            return why
        try:
            entry.name.encode()
            mode = target.stat().st_mode
        except (OSError, UnicodeEncodeError):  # a link to nowhere, or a name that no zip takes
            return "unreadable"
        usable = stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and os.access(target, os.R_OK))
        return None if usable else "unreadable"

    def _why_left_out(self, inside: Path, directory: bool) -> Why | None:
        """Why a file that a link leads to is not packed under its own name: a link must not bring it in."""
        layers, place = self.layers_above, self.root
        for count, part in enumerate(inside.parts, start=1):
            below = Path(*inside.parts[: count - 1]).as_posix()
            layers += tuple(_layers_of(place, "" if below == "." else f"{below}/"))
            name = Path(*inside.parts[:count]).as_posix()
            if why := self._verdict(name, directory or count < len(inside.parts), layers):
                return why
            place /= part
        return None


def _layers_of(place: Path, below: str) -> Iterator[Layer]:
    for name in IGNORE_FILES:
        if lines := _lines(place / name):
            yield Layer(Ignore(lines), below=below)


def _layers_above(root: Path) -> Iterator[Layer]:
    """The patterns of the repository that the root is part of, the farthest first."""
    top = next((place for place in (root, *root.parents) if (place / ".git").exists()), None)
    if top is None:
        return
    between = [place for place in reversed((root, *root.parents)) if place.is_relative_to(top)]
    files = [(top, top / ".git" / "info" / "exclude"), *((place, place / ".gitignore") for place in between[:-1])]
    for place, file in files:
        if lines := _lines(file):
            inside = root.relative_to(place).as_posix()
            yield Layer(Ignore(lines), above="" if inside == "." else f"{inside}/")


def _lines(file: Path) -> list[str]:
    """The lines of a file of patterns; as for git, one that is a link holds none."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            return []
        with file.open("rb") as opened:
            text = opened.read(_LARGEST_IGNORE_FILE).decode("utf-8-sig", "replace")  # some editors begin it with a mark
    except OSError:
        return []
    return [line.removesuffix("\r") for line in text.split("\n")]
