"""The Ray actor around a worker.

It imports next to nothing: the threads are set before numpy and the learner's library are loaded, so a process that
the cluster had ready, with whatever environment, does as well as a new one.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dray.elastic.group import NodeGone
from dray.elastic.inputs import Inputs, Maker, Promised, Shared, connects
from dray.learners.learner import InputGone
from dray.learners.registry import find
from dray.threads.apply import set_environment

if TYPE_CHECKING:
    from dray.learners.learner import Op
    from dray.learners.status import Status


WAY_BACK_S = 15.0
"""How long a task on another node may take, the start of its process included."""


def object_manager(node: str) -> tuple[str, int]:
    """Return where a node hands out what is in its store; port 0 if that is not known."""
    entries = (entry for entry in ray.nodes() if entry["NodeID"] == node)
    return next(((entry["NodeManagerAddress"], int(entry.get("ObjectManagerPort", 0))) for entry in entries), ("", 0))


def is_reached_from(maker: Maker) -> bool:
    """Whether the maker's node can connect to this one: a task there tries it. No answer says nothing against it."""
    try:
        address, port = object_manager(str(ray.get_runtime_context().get_node_id()))
        there = NodeAffinitySchedulingStrategy(maker.node, soft=False)
        task = ray.remote(connects).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        ready, _ = ray.wait([task.remote(address, port)], timeout=WAY_BACK_S)
        return not port or not ready or bool(ray.get(ready[0]))
    except RayError:
        return True


class RayStore:
    """References of Ray. One that was waited for is brought here even if the wait was too short."""

    def arrived(self, refs: Sequence[Any], timeout_s: float) -> list[Any]:
        with _asking_the_node():
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=timeout_s)
        return list(ready)

    def made(self, refs: Sequence[Any]) -> list[Any]:
        with _asking_the_node():
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        return list(ready)

    def get(self, refs: Sequence[Any]) -> list[Any]:
        with _asking_the_node():
            try:
                return list(ray.get(refs))
            except RayTaskError as error:  # of the worker that was to make it, which reports it itself
                raise failed_input(error) from error


def failed_input(error: RayTaskError) -> InputGone:
    """Return why an input was not made, as the first worker in a chain of them reports it."""
    first: BaseException = error
    while isinstance(first, RayTaskError):
        first = first.cause
    if isinstance(first, InputGone):
        return first
    return InputGone(f"The call that was to make it failed: {type(first).__name__}: {first}", fix="")


@contextmanager
def _asking_the_node() -> Iterator[None]:
    """Tell a node that has gone from an input whose making failed.

    A process lives for some tenths of a second longer than its node, and Ray then raises OSError in it.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, RayError):  # what the maker of an input raised
            raise
        raise NodeGone(f"Ray does not answer on {socket.gethostname()}: {error}", fix="") from error


@dataclass(frozen=True, slots=True)
class Awaited:
    """A promise, for a method that waits for it when it needs it."""

    promise: Promised
    inputs: Inputs

    def get(self) -> Any:
        return self.inputs.get([self.promise])[0]


def given(op: Op[..., Any], inputs: Sequence[Any], waiting: Inputs) -> list[Any]:
    """Return the inputs, after waiting for those that are shared, and those promised unless the op does that itself."""
    awaited = [Awaited(one, waiting) if op.lazy and isinstance(one, Promised) else one for one in inputs]
    promises = [one.promise if isinstance(one, Shared) else one for one in awaited]
    found = iter(waiting.get([one for one in promises if isinstance(one, Promised)]))
    return [next(found) if isinstance(one, Promised) else one for one in promises]


@ray.remote(max_restarts=0, concurrency_groups={"watch": 1, "beside": 1})
class WorkerActor:
    """A worker that answers in the middle of a round, in a thread of its own, and loads rows meanwhile in another."""

    def __init__(self, learner: str, number: int, threads: int, heartbeat_s: float) -> None:
        set_environment(threads)
        self._worker = find(learner).worker_side(number, threads)
        self._node = str(ray.get_runtime_context().get_node_id())
        self._inputs = Inputs(
            RayStore(),
            f"worker {number} on {socket.gethostname()}",
            self._node,
            heartbeat_s,
            is_reached_from=is_reached_from,
        )

    def call(self, op: Op[..., Any], *inputs: Any) -> Any:
        return op(self._worker, *given(op, inputs, self._inputs))

    def post(self, op: Op[..., Any], *inputs: Any) -> Any:
        """As `call`, without the first value: Ray takes a tuple of one value for a value."""
        value: tuple[Any, ...] = self.call(op, *inputs)
        kept = value[1:] if op.keeps else ()
        return kept[0] if len(kept) == 1 else kept or None

    @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
    def ask(self, op: Op[..., Any], *inputs: Any) -> Any:
        return op(self._worker, *inputs)

    @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
    def status(self, after_round: int) -> Status:
        return self._worker.status(after_round)

    @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
    def latest(self) -> Any:
        return self._worker.latest()

    @ray.method(concurrency_group="watch")  # type: ignore[untyped-decorator]
    def meet(self) -> tuple[str, Status]:
        """Tell the node that this is, and how it is doing."""
        return self._node, self._worker.status(0)

    @ray.method(concurrency_group="beside")  # type: ignore[untyped-decorator]
    def call_beside(self, op: Op[..., Any], *inputs: Any) -> Any:
        return self.call(op, *inputs)
