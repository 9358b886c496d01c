"""Everything dray raises on purpose.

    DrayError
    ├── ConfigError      a run file, a flag or a parameter is wrong
    ├── DataError        the data cannot be read or does not fit the task
    ├── StorageError     a path, a bucket, credentials, a full disk
    ├── ClusterError     no such cluster, or not enough of it
    ├── ModelError       a run or a model file cannot be used as asked
    └── WorkerError      a worker failed on the way; not the user's mistake

Every error says what happened, with the value, and how to mend it. Both stand in `args`, so an error
survives the way from a worker process to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class DrayError(Exception):
    """Something the user can act on: `what` happened and the `fix`."""

    exit_code = 2

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what, fix)

    @property
    def what(self) -> str:
        return str(self.args[0])

    @property
    def fix(self) -> str:
        return str(self.args[1])

    def __str__(self) -> str:
        return f"{self.what} {self.fix}".rstrip()


class ConfigError(DrayError):
    """A run file, a flag or a parameter is wrong."""


class DataError(DrayError):
    """The data cannot be read or does not fit the task."""


class StorageError(DrayError):
    """A path, a bucket, credentials, a full disk."""


class ClusterError(DrayError):
    """No such cluster, or not enough of it."""


class ModelError(DrayError):
    """A run or a model file cannot be used as asked."""


class WorkerError(DrayError):
    """A worker failed on the way; not the user's mistake."""

    exit_code = 1


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the known name closest to `name`, or nothing."""
    matches = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f' Did you mean "{matches[0]}"?' if matches else ""
