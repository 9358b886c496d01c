"""The Ray actor around a worker.

It imports next to nothing: the threads are set before numpy and the learner's library are loaded, so a process that
the cluster had ready, with whatever environment, does as well as a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray

from dray.learners.xgboost_loading import load_lean
from dray.threads.apply import set_environment
from dray.workers.roles import Role, RoleWorker, make_worker

if TYPE_CHECKING:
    from dray.workers.status import Status


FETCH_LIMIT_S = 60.0
"""A node that was cut off with what is fetched tells nothing."""


@dataclass(frozen=True, slots=True)
class Promised:
    """Something that another worker makes, or has made.

    Not a plain reference, for which Ray would wait before it calls: it sends calls in order, so that no question after
    the worker's health would get through either, and whoever waits for a frozen worker would look frozen too.
    """

    ref: Any

    def get(self) -> Any:
        """Wait for it."""
        return ray.get(self.ref, timeout=FETCH_LIMIT_S)


def _there(worker: RoleWorker, method: str, arguments: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments, after waiting for those that were promised, unless the worker wants to do that itself."""
    if method in worker.waits_itself:
        return arguments
    found = iter(ray.get([one.ref for one in arguments if isinstance(one, Promised)], timeout=FETCH_LIMIT_S))
    return [next(found) if isinstance(one, Promised) else one for one in arguments]


@ray.remote(max_restarts=0, concurrency_groups={"watch": 1, "beside": 1})
class WorkerActor:
    """A worker that answers in the middle of a round, in a thread of its own, and loads rows meanwhile in another."""

    def __init__(self, role: Role, number: int, threads: int) -> None:
        set_environment(threads)
        load_lean()
        self._worker = make_worker(role, number, threads)

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._worker, method)(*_there(self._worker, method, arguments))

    def call_keeping(self, method: str, *arguments: Any) -> Any:
        """As `call`, for a method that returns a tuple: Ray takes one of one value for a value."""
        value = self.call(method, *arguments)
        return value if len(value) > 1 else value[0]

    def call_for_kept(self, method: str, *arguments: Any) -> Any:
        """As `call_keeping`, without the first value."""
        _, *kept = self.call(method, *arguments)
        return kept[0] if len(kept) == 1 else tuple(kept) or None

    @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
    def ask(self, method: str, *arguments: Any) -> Any:
        return getattr(self._worker, method)(*arguments)

    @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
    def meet(self) -> tuple[str, Status]:
        """Tell the node that this is, and how it is doing."""
        return str(ray.get_runtime_context().get_node_id()), self._worker.status(0)

    @ray.method(concurrency_group="beside")  # type: ignore[untyped-decorator]
    def call_beside(self, method: str, *arguments: Any) -> Any:
        return getattr(self._worker, method)(*arguments)
