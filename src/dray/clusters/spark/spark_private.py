"""What Spark's Java side knows and PySpark has no public way to ask: executors, slots, running tasks.

The only place with private parts of PySpark. Where one is missing, an error names the versions that have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dray.errors import ClusterError

TESTED = "pyspark>=3.5,<5"
T = TypeVar("T")


def has_context() -> bool:
    """Whether any thread of this process has begun to use Spark; False where PySpark no longer tells."""
    from pyspark import SparkContext

    return getattr(SparkContext, "_active_spark_context", None) is not None


def executors(context: Any) -> int:
    """Return how many executors there are."""
    return _asked(context, lambda java: int(java.getExecutorMemoryStatus().size()) - 1)  # one of them is the driver


def slots(context: Any) -> int:
    """Return how many tasks can run at the same time."""
    return _asked(
        context, lambda java: int(java.maxNumConcurrentTasks(java.resourceProfileManager().defaultResourceProfile()))
    )


def running_tasks(session: Any) -> int:
    """Return how many tasks Spark runs now."""
    return _asked(
        session.sparkContext,
        lambda java: sum(int(info.numRunningTasks()) for info in java.statusTracker().getExecutorInfos()),
    )


def _asked(context: Any, ask: Callable[[Any], T]) -> T:
    """Ask Spark's own context. A method that is gone is a Py4JError itself; what Java raises is one of its kinds."""
    try:
        return ask(context._jsc.sc())
    except Exception as missing:
        if not isinstance(missing, AttributeError) and type(missing).__name__ != "Py4JError":
            raise
        version = getattr(context, "version", "of an unknown version")
        raise ClusterError(
            f"Spark {version} cannot be asked for its executors as dray does it: {missing}.",
            fix=f"Install a version of PySpark that dray was tested with: pip install '{TESTED}'.",
        ) from missing
