"""What a worker may be: the learner decides which class serves it. Importing this imports no learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from dray.workers.status import Status

Role = Literal["boosting", "factorization"]


class RoleWorker(Protocol):
    """What every worker can be asked from any thread; the rest is between it and whoever leads the training."""

    waits_itself: ClassVar[frozenset[str]]
    """Methods that take what was promised as it is, to get it (`get`) when they need it."""

    def status(self, after_round: int) -> Status: ...

    def latest(self) -> Any: ...

    def stop(self) -> None: ...


def make_worker(role: Role, number: int, threads: int) -> RoleWorker:
    if role == "factorization":
        from dray.workers.factor_worker import FactorWorker

        return FactorWorker(threads)
    from dray.workers.worker import Worker

    return Worker(number, threads)
