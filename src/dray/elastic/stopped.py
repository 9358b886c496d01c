"""The end of a run that is no failure."""

from __future__ import annotations

from dray.errors import WorkerError


class RunStopped(WorkerError):  # noqa: N818  (not a failure: an end in order)
    """The run ended before its time, with a checkpoint to go on from."""
