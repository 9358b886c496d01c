"""Retries of a store's transient errors: which errors are transient, how long to wait, when to give up.

Only for work in the middle of a run. The first accesses (finding the data, claiming the output) are not retried, so
that a wrong endpoint is reported at once. Permanent errors (credentials, a missing or damaged file) never are.
"""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Callable, Hashable

from dray import s3
from dray.errors import StorageError

FIRST_WAIT_S = 0.2
MOST_WAIT_S = 5.0
LIMIT_S = 90.0
"""How long a store may fail without a single success."""

_PASSING_NUMBERS = {errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT,
                    errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, socket.EAI_AGAIN}  # fmt: skip
_given_up: set[Hashable] = set()
"""Stores that failed for LIMIT_S and have not answered since: the end of a run must not wait again for every file."""

OnWait = Callable[[StorageError, float], None]


def no_report(error: StorageError, wait_s: float) -> None:
    """Report nothing."""


def is_transient(error: BaseException) -> bool:
    """Whether the same request may soon succeed. Looks at the error that a StorageError was translated from."""
    if isinstance(error, StorageError):
        return error.__cause__ is not None and is_transient(error.__cause__)
    if not isinstance(error, OSError):
        return False
    number = getattr(error, "errno", None)
    return isinstance(error, TimeoutError) or number in _PASSING_NUMBERS or s3.is_transient(str(error))


class Retrier:
    """Waits between the tries of one operation on `store`. One thread calls.

    `on_wait` gets the error and the seconds before every wait; if it raises, the operation ends.
    """

    def __init__(self, store: Hashable, on_wait: OnWait = no_report) -> None:
        self._store = store
        self._on_wait = on_wait
        self._began: float | None = None
        self._failures = 0

    def succeeded(self) -> None:
        """Reset: the next failure counts as the first."""
        self._began, self._failures = None, 0
        _given_up.discard(self._store)

    def wait_after(self, error: StorageError) -> None:
        """Sleep until the next try; raise `error` if it is permanent, or has lasted for LIMIT_S."""
        given_up = self._store in _given_up  # by another thread, say: what has waited too tells how long
        if not is_transient(error) or (given_up and not self._failures):
            raise error
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        self._failures += 1
        left_s = self._began + LIMIT_S - now
        if given_up or left_s <= 0:
            _given_up.add(self._store)
            what = f"{error.what} Tried {self._failures} times in {now - self._began:.0f} s."
            raise StorageError(what, fix=error.fix) from error
        wait_s = min(left_s, wait_before_try_s(self._failures, random.uniform(0.5, 1.0)))
        self._on_wait(error, wait_s)
        time.sleep(wait_s)


def wait_before_try_s(failures: int, share: float) -> float:
    """Double with every failure up to MOST_WAIT_S, times a random `share`: workers do not retry all at once."""
    return share * min(MOST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(failures - 1, 30))
