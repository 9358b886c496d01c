"""Make synthetic training data as Parquet files, as large as asked, in bounded memory.

`synthetic_rows` makes the rows, `synthetic_files` assigns the files to processes. This module checks the arguments,
plans the files, and makes an output directory that appears complete or not at all.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dray.errors import ConfigError, StorageError, nearest

PRESETS: dict[str, tuple[int, int]] = {
    "tiny": (10_000, 20),
    "small": (1_000_000, 100),
    "medium": (10_000_000, 250),
    "medium_large": (30_000_000, 250),
    "large": (100_000_000, 500),
    "xlarge": (500_000_000, 500),
}
"""Rows and features by name."""

_FILE_BYTES = 256 * 2**20
_MOST_FILES = 1024
_GROUP_BYTES = 64 * 2**20
_GROUP_ROWS = 125_000
# Measured: a level takes 4 to 5 bits, and what surrounds a column in a row group about 150 bytes.
_BYTES_PER_LEVEL = 0.6
_BYTES_PER_CHUNK = 150


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The rows of one file: the first one's number in the data set, and the sizes of its row groups."""

    start: int
    groups: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.groups)


@dataclass(frozen=True, slots=True)
class MakeResult:
    """What was written."""

    rows: int
    features: int
    files: int
    bytes: int
    seconds: float
    output: str


def make(
    out: str | os.PathLike[str],
    *,
    rows: int | None = None,
    features: int | None = None,
    preset: str | None = None,
    files: int | None = None,
    seed: int = 0,
    categorical: float = 0.2,
    missing: float = 0.05,
    minority: float = 0.05,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MakeResult:
    """Write a data set for binary classification into the new directory `out`; return what was written.

    The same arguments give the same bytes, whatever the number of `processes` (by default one a core). `rows` and
    `features` override those of the `preset`. `progress` is called in this thread with the rows done and the rows
    in all. On any failure, Ctrl-C included, nothing is left in or beside `out`.
    """
    started = time.perf_counter()
    rows, features = _size(rows, features, preset)
    _check(rows, features, files, seed, categorical, missing, minority, processes)
    files = files if files is not None else default_files(rows, features)
    plan = plan_files(rows, features, files)
    levels = round(categorical * features)
    needed = _estimate_bytes(rows, features, levels, sum(len(file.groups) for file in plan))
    # Loaded here, after the cheap checks: `--help` and a mistyped option need neither numpy nor pyarrow.
    from dray.data.synthetic_files import write_files
    from dray.data.synthetic_rows import table_spec

    spec = table_spec(features, seed=seed, categorical=categorical, missing=missing, minority=minority)
    with _directory(out, needed) as directory:
        done = 0

        def count(written: int) -> None:
            nonlocal done
            done += written
            if progress:
                progress(done, rows)

        write_files(directory, spec, plan, processes or _processes(rows * features, files), count)
        size = sum(file.stat().st_size for file in directory.iterdir())
    return MakeResult(rows, features, files, size, time.perf_counter() - started, os.fspath(out))


def default_files(rows: int, features: int) -> int:
    """A power of two, so that 2, 4, 8, ... workers get equal shards: 4 for little data, 1,024 for the largest."""
    wanted = max(rows * features * 4 / _FILE_BYTES, min(16, rows / 2500), 1)
    return min(_MOST_FILES, 1 << math.ceil(math.log2(wanted)))


def plan_files(rows: int, features: int, files: int) -> list[FilePlan]:
    """Cut the rows into files and these into row groups, each as even as whole rows allow.

    Large row groups are fast to read; many can be assigned evenly. 128 in all suit 2 to 64 workers; data too small
    for that has 32. Beyond that, a row group is as large as memory and even shards allow.
    """
    most = max(1, min(_GROUP_ROWS, _GROUP_BYTES // (4 * features)))
    target = max(1, min(most, math.ceil(max(rows / 128, min(rows / 32, 4000)))))
    plan, start = [], 0
    for in_file in _split(rows, files):
        plan.append(FilePlan(start, tuple(_split(in_file, math.ceil(in_file / target)))))
        start += in_file
    return plan


def _split(total: int, parts: int) -> list[int]:
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def _size(rows: int | None, features: int | None, preset: str | None) -> tuple[int, int]:
    if preset is not None:
        if preset not in PRESETS:
            raise ConfigError(
                f'There is no preset "{preset}".{nearest(preset, PRESETS)}', f"Use one of {', '.join(PRESETS)}."
            )
        rows = PRESETS[preset][0] if rows is None else rows
        features = PRESETS[preset][1] if features is None else features
    if rows is None or features is None:
        lacking = " and ".join(name for name, value in (("rows", rows), ("features", features)) if value is None)
        raise ConfigError(
            f"The number of {lacking} is not given.",
            f"Give --rows and --features, or --preset with one of {', '.join(PRESETS)}.",
        )
    return rows, features


def _check(
    rows: int,
    features: int,
    files: int | None,
    seed: int,
    categorical: float,
    missing: float,
    minority: float,
    processes: int | None,
) -> None:
    for name, number in (("rows", rows), ("features", features), ("files", files), ("processes", processes)):
        if number is not None and number < 1:
            raise ConfigError(f"{name} is {number}.", f"Set --{name} to 1 or more.")
    if seed < 0:
        raise ConfigError(f"seed is {seed}.", "Set --seed to 0 or more.")
    if files is not None and files > rows:
        raise ConfigError(f"{files} files are too many for {rows} rows.", f"Set --files to at most {rows}.")
    if not 0 <= categorical <= 1:
        raise ConfigError(f"categorical is {categorical}.", "Set --categorical to a share from 0 to 1, such as 0.2.")
    if not 0 <= missing < 1:
        raise ConfigError(f"missing is {missing}.", "Set --missing to a share from 0 to below 1, such as 0.05.")
    if not 0 < minority <= 0.5:
        raise ConfigError(
            f"minority is {minority}.", "Set --minority to a share above 0 and at most 0.5, such as 0.05."
        )
    fewest = max(2, math.ceil(0.5 / minority))
    if rows < fewest:
        raise ConfigError(
            f"{rows} rows with a minority share of {minority} hold only one class.",
            f"Set --rows to {fewest} or more, or raise --minority.",
        )


def _estimate_bytes(rows: int, features: int, levels: int, groups: int) -> int:
    values = rows * ((features - levels) * 4 + levels * _BYTES_PER_LEVEL)
    return int(values + groups * features * _BYTES_PER_CHUNK)


def _processes(values: int, files: int) -> int:
    """One per core, but none for work that is done before a process has started."""
    return min(len(os.sched_getaffinity(0)), files) if values > 10_000_000 else 1


@contextmanager
def _directory(out: str | os.PathLike[str], needed: int) -> Iterator[Path]:
    """Yield a hidden directory that becomes `out` when the block succeeds, and is removed when it fails."""
    shown = os.fspath(out)
    if "://" in shown:
        raise StorageError(
            f"{shown} is not a local directory.", "Make the data in a local directory, then copy it there."
        )
    with _translated(shown):
        target = Path(shown).resolve()
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise StorageError(
                f"{shown} exists and is not an empty directory.", "Name another directory, or remove it."
            )
        # Beside the nearest directory that exists: on the same file system, and no parents to remove again.
        # An empty `out` may be a mount point, onto which nothing can be renamed: then inside it.
        near = next(place for place in (target, *target.parents) if place.exists())
        free = shutil.disk_usage(near).free
        if needed > free:
            raise StorageError(
                f"The data needs about {needed / 1e9:,.1f} GB, and {near} has {free / 1e9:,.1f} GB free.",
                "Free some space, name a directory on a larger disk, or make fewer rows or features.",
            )
        hidden = near / f".{target.name}-{secrets.token_hex(4)}.partial"
        hidden.mkdir()
        try:
            yield hidden
            _publish(hidden, target)
        finally:
            shutil.rmtree(hidden, ignore_errors=True)


def _publish(hidden: Path, target: Path) -> None:
    if target.exists():
        for file in sorted(hidden.iterdir()):
            file.rename(target / file.name)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden.rename(target)


@contextmanager
def _translated(shown: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StorageError(
                f"The disk of {shown} is full; what had been written is removed.",
                "Free some space, name a directory on a larger disk, or make fewer rows or features.",
            ) from error
        raise StorageError(
            f"{shown} cannot be written: {error.strerror or error}.", "Check the path and its permissions."
        ) from error
