"""What dray keeps on a machine besides runs and outputs, and what of it may go. Pure but for `tree_of`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dray.errors import ConfigError

Kind = Literal["copy", "kernels", "temporary", "cluster"]
JUST_USED_S = 3600.0
"""A copy that was used so lately may be read at this moment."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Kept:
    """Files that belong together, and go together."""

    kind: Kind
    location: str
    what: str
    """Of a copy: the source of its rows."""
    bytes: int
    used: float
    """When it was last used or written, in seconds since 1970."""
    made: float | None = None
    kept_for: str | None = None
    """Why it stays, whatever its age; None: it may go."""


def clearable(found: Iterable[Kept], older_s: float, now: float) -> list[Kept]:
    """Return what may go: nothing needs it, and it has not been used for so long."""
    return [one for one in found if one.kept_for is None and now - one.used >= older_s]


def parse_age(text: str) -> float:
    """Return the seconds of 30m, 12h or 7d."""
    if not (found := re.fullmatch(r"(\d+)([smhd])", text.strip())):
        raise ConfigError(f'"{text}" is not an age.', fix="Write a number and a unit, such as 7d, 12h or 30m.")
    return float(int(found[1]) * _SECONDS[found[2]])


def tree_of(paths: Iterable[Path]) -> tuple[int, float]:
    """Return the bytes of files and of all below directories, and when the newest was written; no link is followed."""
    size, newest = 0, 0.0
    for path in paths:
        inner = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
        for one in (path, *inner):
            with suppress(OSError):  # it went meanwhile
                found = one.lstat()
                size, newest = size + (0 if one.is_dir() else found.st_size), max(newest, found.st_mtime)
    return size, newest
