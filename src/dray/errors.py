"""Everything dray raises on purpose.

    DrayError
    ├── ConfigError      a run file, a flag or a parameter is wrong
    ├── DataError        the data cannot be read or does not fit the task
    ├── StorageError     a path, a bucket, credentials, a full disk
    ├── ClusterError     no such cluster, or not enough of it
    ├── ModelError       a run or a model file cannot be used as asked
    ├── WorkerError      a worker failed on the way; not the user's mistake
    └── ItemError        the function failed for one item of a map

Every error says what happened, with the value, and how to fix it. Both are in `args`, so an error
survives pickling from a worker process to the driver. An error may hold an address that the user gave: its password
is removed here, for all errors at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from dray.masking import masked


class DrayError(Exception):
    """Something the user can act on: `what` happened and the `fix`."""

    exit_code = 2

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(masked(what), masked(fix))

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


class ItemError(DrayError):
    """The function failed for one item of a map: raised, or given in place of the result (`on_error=`)."""

    exit_code = 1

    def __init__(
        self, what: str, fix: str = "", index: int = -1, item: str = "", kind: str = "raised", traceback: str = ""
    ) -> None:
        super().__init__(what, fix)
        self.args = (*self.args, index, masked(item), kind, masked(traceback))

    @property
    def index(self) -> int:
        """The item's index, from 0."""
        return int(self.args[2])

    @property
    def item(self) -> str:
        """The item as text, cut to 200 characters."""
        return str(self.args[3])

    @property
    def kind(self) -> str:
        """What happened: raised, time (it took too long), died (its process did), memory, pickle."""
        return str(self.args[4])

    @property
    def traceback(self) -> str:
        """Where the function raised, if it did."""
        return str(self.args[5])


DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What parsing raises for a document of the wrong form."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the known name closest to `name`, or nothing."""
    names = {one.casefold(): one for one in known}
    matches = get_close_matches(name.casefold(), list(names), n=1, cutoff=0.6)
    return f' Did you mean "{names[matches[0]]}"?' if matches else ""
