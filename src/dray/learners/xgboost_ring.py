"""The ring of XGBoost workers: a tracker that brings them together and what they say to each other.

A ring is cheap and disposable. Never reuse a tracker: a second start on a running group tells workers on other
hosts to exit (facts measured with XGBoost 3.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from xgboost import collective
from xgboost.tracker import RabitTracker

RingAddress = dict[str, str | int]

TIMEOUT_S = 300
"""For meeting; a round may take as long as it takes."""


class Tracker:
    """Brings `workers` together once."""

    def __init__(self, workers: int, host: str) -> None:
        self._tracker = RabitTracker(n_workers=workers, host_ip=host, sortby="task", timeout=TIMEOUT_S)
        self._tracker.start()
        self.address: RingAddress = self._tracker.worker_args()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Free the tracker after a ring that ended well.

        Freeing waits for every worker to say goodbye, and a worker that is gone never will: the tracker of a broken
        ring is left to itself. It ends with the process, or after its timeout.
        """
        if kind is None:
            self._tracker.free()
        else:
            del self._tracker.handle


@contextmanager
def joined(address: RingAddress | None, worker: int) -> Iterator[None]:
    """Be a member of the ring, in this thread; alone when there is no ring."""
    if address is None:
        yield
        return
    # Ranks follow the text of the task id: pad it, or worker 10 comes before worker 2.
    with collective.CommunicatorContext(**address, dmlc_task_id=f"{worker:06d}"):
        yield


def rank() -> int:
    return int(collective.get_rank())


def gather(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return everyone's arrays, one after another by rank; the first axis may differ in length.

    Each member ORs its bits into a zeroed vector: exact for every value, NaN and -0.0 included.
    """
    world = int(collective.get_world_size())
    if world == 1:
        return part
    lengths = np.zeros(world, dtype=np.int64)
    lengths[rank()] = len(part)
    lengths = collective.allreduce(lengths, collective.Op.SUM)
    whole = np.zeros((int(lengths.sum()), *part.shape[1:]), dtype=part.dtype)
    start = int(lengths[: rank()].sum())
    whole[start : start + len(part)] = part
    bits = whole.view(np.uint32 if part.dtype.itemsize == 4 else np.uint64).reshape(-1)
    merged = collective.allreduce(bits, collective.Op.BITWISE_OR)
    return np.asarray(merged).view(part.dtype).reshape(whole.shape)


def tell_all(value: Any) -> Any:
    """Return what the first member says, to every member."""
    return value if int(collective.get_world_size()) == 1 else collective.broadcast(value, 0)
