"""Workers as Ray actors: started, called, watched and ended from one thread.

A worker that dies is told by Ray at once, through whatever call it was on. One that is frozen or cut off tells nothing:
it is asked for its status twice a second, and a question without an answer for `heartbeat_s` counts as death.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayError, RayTaskError

from dray.clusters.cluster import Cluster
from dray.clusters.placement import PLACE_TIMEOUT_S, Placements
from dray.elastic.actor import RayStore, WorkerActor, failed_input, is_reached_from, object_manager
from dray.elastic.group import Call, GroupEvent, Lost, Member, NodeGone, Raised, Ready, Returned
from dray.elastic.inputs import Inputs, Maker, Promised, Shared
from dray.elastic.silence import AwakeClock, Silence
from dray.elastic.watch import Watch
from dray.errors import DrayError, WorkerError
from dray.learners.checkpoint import Checkpoint
from dray.learners.learner import InputGone, Op
from dray.learners.status import Status

ASK_EVERY_S = 0.5
START_LIMIT_S = 60.0
"""A worker that has room and does not start for so long is no longer counted on."""
NODES_EVERY_S = 1.0
NODE_GONE = "its node does not answer (gone, or cut off)"


@dataclass
class _Process:
    """One actor, and what is asked of it."""

    actor: Any
    started_at: float
    heard_at: float
    silence: Silence
    asked_at: float = 0.0
    question: Any = None
    """The status call that is on its way."""
    member: Member | None = None
    node: str = ""
    maker: Maker | None = None
    """How others reach what it makes; found out when it is first to make something."""
    status: Status | None = None
    copy_call: Any = None
    calls: dict[Any, int] = field(default_factory=dict)
    unreachable: bool = False
    """It is lost, and so is what it made: its node does not answer."""


class _Shared:
    """A value that is handed over by reference, so that it is sent to a node once and not with every call.

    Ray gets it from any node that has it, and gives one that has just died, or is cut off, 10 s to answer, then 20 and
    more. So once a worker has ended, for whatever reason, it is put anew and for each node apart: no node gets it from
    another one than this.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self._refs: dict[str, Any] = {}
        self._ends = 0

    def ref(self, ends: int, node: str) -> Any:
        """Return a reference for a node that was put after so many workers had ended."""
        if ends != self._ends:
            self._refs, self._ends = {}, ends
        place = node if ends else "any"
        if place not in self._refs:
            self._refs[place] = ray.put(self.value)
        return self._refs[place]


@dataclass(frozen=True, slots=True)
class _Made:
    """A result that stays in the store of its maker's node. This process owns it, so that it outlives its maker."""

    promise: Promised
    maker: _Process


class RayGroup:
    """Workers on a Ray cluster. The cluster is the caller's; the actors and their places are the group's."""

    def __init__(
        self,
        cluster: Cluster,
        watch: Watch,
        *,
        heartbeat_s: float,
        on_copy: Callable[[Checkpoint], None],
        learner: str,
    ) -> None:
        self._learner = learner
        self._here = str(ray.get_runtime_context().get_node_id())
        self.ring_host = str(ray.util.get_node_ip_address())
        self._driver = Maker(None, socket.gethostname(), self._here, *object_manager(self._here))
        self._inputs = Inputs(RayStore(), str(self._driver), self._here, heartbeat_s, is_reached_from=is_reached_from)
        self._cluster = cluster
        self._watch = watch
        self._heartbeat_s = heartbeat_s
        self._awake = AwakeClock(min(2 * ASK_EVERY_S, heartbeat_s / 2))
        self._on_copy = on_copy
        self._copied = (0, 0)
        """Fit and step of the newest checkpoint."""
        self._ends = 0
        """Workers that have ended: lost, or ended from here."""
        self._places = Placements(cluster)
        self._processes: dict[int, _Process] = {}
        self._numbers = itertools.count()
        self._looked_at = 0.0
        self._leaving: dict[int, str] = {}
        self._expected: frozenset[int] = frozenset()
        self._nodes_at = 0.0

    def reserve(self, workers: int, at_least: int, timeout_s: float = PLACE_TIMEOUT_S) -> list[int]:
        """Ask for placements for so many workers; return those that have one, or raise if these are too few."""
        for worker in range(workers):
            self._places.ask(worker)
        return self._places.wait(at_least, timeout_s)

    def start(self, worker: int) -> None:
        self._places.ask(worker)
        options = self._places.options(worker)
        actor = WorkerActor.options(**options).remote(  # type: ignore[attr-defined]
            self._learner, worker, self._cluster.threads, self._heartbeat_s
        )
        now = time.monotonic()
        process = self._processes[worker] = _Process(actor, now, now, Silence(self._awake))
        self._ask(process)
        self._nodes_at = 0.0  # whether there is room for it is not known yet

    def expected(self) -> frozenset[int]:
        self._look_at_nodes()
        return self._expected & self._starting()

    def leaving(self) -> dict[int, str]:
        self._look_at_nodes()
        return {worker: why for worker, why in self._leaving.items() if worker in self._processes}

    def call(self, worker: int, op: Op[..., Any], *inputs: Any, **_: Any) -> Call:
        process = self._processes[worker]
        # Not always beside: libgomp keeps a team of threads for each thread that ever used it, and counts them all.
        ask = process.actor.call_beside if op.lane == "beside" else process.actor.call
        number = next(self._numbers)
        ask = ask.options(num_returns=1 + op.keeps) if op.keeps else ask
        refs = ask.remote(op, *self._given(process, inputs))
        first, *kept = refs if op.keeps else [refs]
        process.calls[first] = number
        return Call(number, self._promised(process, kept))

    def post(self, worker: int, op: Op[..., Any], *inputs: Any, **_: Any) -> list[Any]:
        process = self._processes[worker]
        refs = process.actor.post.options(num_returns=op.keeps).remote(op, *self._given(process, inputs))
        listed = [] if op.keeps == 0 else [refs] if op.keeps == 1 else refs
        return self._promised(process, listed)

    def _promised(self, process: _Process, refs: Sequence[Any]) -> list[Any]:
        if not refs:
            return []
        if process.maker is None:
            assert process.member is not None
            address, port = object_manager(process.node)
            process.maker = Maker(process.member.worker, process.member.host, process.node, address, port)
        return [_Made(Promised(ref, process.maker), process) for ref in refs]

    def fetch(self, kept: Sequence[Any]) -> list[Any]:
        try:
            found = iter(self._inputs.get([_still(one) for one in kept if isinstance(one, _Made)]))
        except RayError as error:
            raise _gone(error) from error
        return [next(found) if isinstance(one, _Made) else one.value for one in kept]

    def _given(self, process: _Process, inputs: Sequence[Any]) -> list[Any]:
        return [self._promise(process, value) for value in inputs]

    def _promise(self, process: _Process, value: Any) -> Any:
        if isinstance(value, _Made):
            return _still(value)
        if isinstance(value, _Shared):
            return Shared(Promised(value.ref(self._ends, process.node), self._driver))
        return value

    def tell(self, worker: int, op: Op[..., Any], *inputs: Any, **_: Any) -> None:
        self._processes[worker].actor.ask.remote(op, *inputs)

    def share(self, value: Any) -> Any:
        return _Shared(value)

    def poll(self, timeout_s: float) -> list[GroupEvent]:
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._collect(min(ASK_EVERY_S, max(0.0, deadline - time.monotonic())))
            found += self._silent()
            self._ask_all()
            self._look()
            if found or time.monotonic() >= deadline:
                return found

    def end(self, worker: int) -> None:
        process = self._processes.pop(worker, None)
        self._watch.forget(worker)
        if process is not None:
            self._ends += 1
            with suppress(RayError):
                ray.kill(process.actor, no_restart=True)

    def close(self) -> None:
        self._watch.look(self._statuses(), last=True)
        for worker in list(self._processes):
            self.end(worker)
        self._places.close()

    def _collect(self, timeout_s: float) -> list[GroupEvent]:
        refs = [ref for process in self._processes.values() for ref in self._pending(process)]
        if not refs:
            time.sleep(timeout_s)
            return []
        ready, _ = ray.wait(refs, num_returns=1, timeout=timeout_s, fetch_local=False)
        if ready:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        found: list[GroupEvent] = []
        for worker, process in list(self._processes.items()):
            for ref in self._pending(process):
                if ref in ready and worker in self._processes:
                    found += self._answer(worker, process, ref)
        return found

    @staticmethod
    def _pending(process: _Process) -> list[Any]:
        return [ref for ref in (process.question, process.copy_call, *process.calls) if ref is not None]

    def _answer(self, worker: int, process: _Process, ref: Any) -> list[GroupEvent]:
        number = process.calls.pop(ref, None)
        is_copy = ref is process.copy_call
        if ref is process.question:
            process.question = None
        if is_copy:  # even one that fails: the next status says whether there is still one to fetch
            process.copy_call = None
        try:
            value = ray.get(ref)
        except RayTaskError as error:
            if number is None:  # a status that fails is not an answer
                return []
            if _lost_its_node(error):
                process.unreachable = True
                return [self._lose(worker, process, NODE_GONE, error)]
            return [Raised(worker, number, _cause_of(error))]
        except RayError as error:
            process.unreachable = _went_with_node(error)
            return [self._lose(worker, process, told(error), error)]
        process.heard_at = time.monotonic()
        process.silence.hear(still_asked=process.question is not None)
        if number is not None:
            return [Returned(worker, number, value)]
        if is_copy:
            self._take_copy(value)
        elif isinstance(value, tuple):  # the answer to the first question
            process.node, status = value
            return self._hear(worker, process, status)
        elif isinstance(value, Status):
            return self._hear(worker, process, value)
        return []

    def _hear(self, worker: int, process: _Process, status: Status) -> list[GroupEvent]:
        process.status = status
        if status.copied_round and (status.fit, status.copied_round) > self._copied and process.copy_call is None:
            process.copy_call = process.actor.latest.remote()
        if process.member is not None:
            return []
        process.member = Member(worker, status.usage.host, status.usage.pid, self._cluster.threads)
        return [Ready(process.member)]

    def _take_copy(self, copy: Checkpoint | None) -> None:
        if copy is not None and (copy.fit, copy.round) > self._copied:
            self._copied = copy.fit, copy.round
            self._watch.tell_all(copy)
            self._on_copy(copy)

    def _lose(self, worker: int, process: _Process, cause: str, error: Exception | None = None) -> Lost:
        silent = time.monotonic() - process.heard_at
        self.end(worker)
        return Lost(worker, cause, silent, error)

    def _silent(self) -> list[GroupEvent]:
        """Give up on workers that have not answered for too long. One that has not started cannot answer."""
        self._awake.tick()
        silent = [
            (worker, process)
            for worker, process in self._processes.items()
            if process.member is not None and process.silence.seconds > self._heartbeat_s
        ]
        for _, process in silent:  # frozen, or cut off with its node: it cannot be told, unless the node is this one
            process.unreachable = process.node != self._here
        return [
            self._lose(worker, process, f"it has not answered for {process.silence.seconds:.0f} s (frozen or cut off)")
            for worker, process in silent
        ]

    def _ask_all(self) -> None:
        now = time.monotonic()
        for process in self._processes.values():
            if process.question is None and now - process.asked_at >= ASK_EVERY_S:
                self._ask(process)

    def _ask(self, process: _Process) -> None:
        process.asked_at = time.monotonic()
        process.silence.ask()
        process.question = (
            process.actor.meet.remote()
            if process.member is None
            else process.actor.status.remote(self._watch.rounds_told)
        )

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= ASK_EVERY_S:
            self._looked_at = now
            self._watch.look(self._statuses())

    def _statuses(self) -> dict[int, Status]:
        return {worker: process.status for worker, process in self._processes.items() if process.status}

    def _starting(self) -> frozenset[int]:
        return frozenset(worker for worker, process in self._processes.items() if process.member is None)

    def _look_at_nodes(self) -> None:
        """Find out which workers have room to start and which nodes are going away; asking the cluster is not free."""
        now = time.monotonic()
        if now - self._nodes_at < NODES_EVERY_S:
            return
        self._nodes_at = now
        waiting = [
            worker for worker in sorted(self._starting()) if now - self._processes[worker].started_at < START_LIMIT_S
        ]
        self._expected = self._places.with_room(waiting)
        nodes = {worker: process.node for worker, process in self._processes.items() if process.member}
        self._leaving = self._places.leaving(nodes)


def _still(made: _Made) -> Promised:
    """Return what to ask for; for what went with its node Ray would look for half a minute."""
    if made.maker.unreachable:
        raise InputGone("It went with its node.", fix="")
    return made.promise


def _went_with_node(error: Exception) -> bool:
    return isinstance(error, ActorUnavailableError) or "its node has died" in " ".join(str(error).split())


def _lost_its_node(error: RayTaskError) -> bool:
    """Whether the worker itself found its node gone, and not one that was to make an input for it."""
    return isinstance(error.cause, NodeGone) and not isinstance(error.cause, RayError)


def told(error: Exception) -> str:
    """Say in one line why Ray thinks that an actor is gone."""
    text = " ".join(str(error).split())
    if (
        isinstance(error, OutOfMemoryError)
        or "memory monitor" in text
        or "due to the node running low on memory" in text
    ):
        return "Ray's memory monitor ended its process: the node ran low on memory"
    if _went_with_node(error):
        return NODE_GONE
    if "worker process has died" in text:
        return "its process ended unexpectedly (killed, or crashed)"
    return text[:300] or "its process ended"


def _gone(error: RayError) -> InputGone:
    """Return why an input cannot be had."""
    return failed_input(error) if isinstance(error, RayTaskError) else InputGone(told(error), fix="")


def _cause_of(error: RayTaskError) -> Exception:
    """Return what a worker raised; a mistake of the user's as it is, anything else with its traceback as the cause."""
    cause = error.cause
    if isinstance(cause, RayError):  # of what it was promised
        return _gone(cause)
    if isinstance(cause, DrayError):
        return cause
    reason = f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
    failure = WorkerError(reason, fix="The traceback is in events.jsonl of the run directory.")
    failure.__cause__ = error
    return failure
