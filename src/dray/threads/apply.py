"""Give a process the threads that were decided for it, over anything in its environment.

Three layers, because each has a gap: the environment counts only for libraries loaded afterwards; OpenMP's
setting counts only in the thread that makes it; and XGBoost has a setting of its own, which its learner makes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# OMP_THREAD_LIMIT is the one that no later call can raise, so it must not stay at a smaller value.
_VARIABLES = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(threads: int) -> dict[str, str]:
    """Return the variables that a process of that many threads should start with."""
    return dict.fromkeys(_VARIABLES, str(threads))


def set_environment(threads: int) -> None:
    """Set them in this process: for a worker's first line, before it loads numpy or a learner's library.

    So no fresh process is needed: a process that the cluster has already started can be used.
    """
    os.environ.update(environment(threads))


@contextmanager
def apply(threads: int) -> Iterator[None]:
    """Let OpenMP use that many threads in regions started by the calling thread.

    Enter it after the learner's library is loaded (a library that is not loaded yet is not seen) and in the
    thread that trains (OpenMP keeps the number by thread).
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=threads, user_api="openmp"):
        yield
