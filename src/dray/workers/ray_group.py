"""Workers as Ray actors: started, called, watched and ended from one thread.

A worker that dies is told by Ray at once, through whatever call it was on. One that is frozen or cut off tells nothing:
it is asked for its status twice a second, and silence for `heartbeat_s` counts as death.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayError, RayTaskError

from dray.cluster.cluster import Cluster
from dray.cluster.placement import PLACE_TIMEOUT_S, Places
from dray.errors import DrayError, WorkerError
from dray.learners.xgboost import Standing
from dray.workers.actor import FETCH_LIMIT_S, Promised, WorkerActor
from dray.workers.group import Done, Happening, InputGone, Kept, Lost, Member, Raised, Ready
from dray.workers.roles import Role
from dray.workers.status import Status
from dray.workers.watch import Watch

ASK_EVERY_S = 0.5
START_LIMIT_S = 60.0
"""A worker that has room and does not start for so long is no longer counted on."""
NODES_EVERY_S = 1.0


@dataclass
class _Process:
    """One actor, and what is asked of it."""

    actor: Any
    started_at: float
    heard_at: float
    asked_at: float = 0.0
    question: Any = None
    """The status call that is on its way."""
    member: Member | None = None
    node: str = ""
    status: Status | None = None
    copy_call: Any = None
    calls: dict[Any, int] = field(default_factory=dict)
    unreachable: bool = False
    """It is lost, and so is what it made: its node does not answer."""


class _Shared:
    """A value that is handed over by reference, so that it is sent to a node once and not with every call.

    Ray gets it from any node that has it, and gives one that has just died, or is cut off, 10 s to answer; meanwhile no
    other call gets through to the worker that waits for it. So after a loss it is put anew: only this node has it then.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self._ref: Any = None
        self._losses = -1

    def ref(self, losses: int) -> Any:
        if losses != self._losses:
            self._ref, self._losses = ray.put(self.value), losses
        return self._ref


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
        on_copy: Callable[[Standing], None],
        role: Role = "boosting",
    ) -> None:
        self._role = role
        self._here = str(ray.get_runtime_context().get_node_id())
        self.ring_host = str(ray.util.get_node_ip_address())
        self._cluster = cluster
        self._watch = watch
        self._heartbeat_s = heartbeat_s
        self._on_copy = on_copy
        self._copied_round = 0
        self._losses = 0
        self._places = Places(cluster)
        self._processes: dict[int, _Process] = {}
        self._numbers = itertools.count()
        self._looked_at = 0.0
        self._leaving: dict[int, str] = {}
        self._expected: frozenset[int] = frozenset()
        self._nodes_at = 0.0

    def reserve(self, workers: int, at_least: int, timeout_s: float = PLACE_TIMEOUT_S) -> list[int]:
        """Ask for the places of so many workers; return those who have one, or raise if these are too few."""
        for worker in range(workers):
            self._places.ask(worker)
        return self._places.wait(at_least, timeout_s)

    def start(self, worker: int) -> None:
        self._places.ask(worker)
        options = self._places.options(worker)
        actor = WorkerActor.options(**options).remote(  # type: ignore[attr-defined]
            self._role, worker, self._cluster.threads
        )
        now = time.monotonic()
        process = self._processes[worker] = _Process(actor, now, now)
        self._ask(process)
        self._nodes_at = 0.0  # whether there is room for it is not known yet

    def expected(self) -> frozenset[int]:
        self._look_at_nodes()
        return self._expected & self._starting()

    def leaving(self) -> dict[int, str]:
        self._look_at_nodes()
        return {worker: why for worker, why in self._leaving.items() if worker in self._processes}

    def call(self, worker: int, method: str, *arguments: Any, beside: bool = False) -> int:
        process = self._processes[worker]
        # Not always beside: libgomp keeps a team of threads for each thread that ever used it, and counts them all.
        ask = process.actor.call_beside if beside else process.actor.call
        number = next(self._numbers)
        process.calls[ask.remote(method, *self._given(arguments))] = number
        return number

    def call_keeping(self, worker: int, keeps: int, method: str, *arguments: Any) -> tuple[int, list[Kept]]:
        process = self._processes[worker]
        number = next(self._numbers)
        refs = process.actor.call_keeping.options(num_returns=1 + keeps).remote(method, *self._given(arguments))
        first, *kept = refs if keeps else [refs]
        process.calls[first] = number
        return number, [_Made(Promised(ref), process) for ref in kept]

    def ask_for(self, worker: int, keeps: int, method: str, *arguments: Any) -> list[Kept]:
        process = self._processes[worker]
        refs = process.actor.call_for_kept.options(num_returns=keeps).remote(method, *self._given(arguments))
        listed = [] if keeps == 0 else [refs] if keeps == 1 else refs
        return [_Made(Promised(ref), process) for ref in listed]

    def fetch(self, kept: Sequence[Any]) -> list[Any]:
        try:
            refs = [_still(one).ref for one in kept if isinstance(one, _Made)]
            found = iter(ray.get(refs, timeout=FETCH_LIMIT_S))
        except RayError as error:
            raise InputGone(told(error), fix="") from error
        return [next(found) if isinstance(one, _Made) else one.value for one in kept]

    def _given(self, arguments: Sequence[Any]) -> list[Any]:
        given = (_still(value) if isinstance(value, _Made) else value for value in arguments)
        return [value.ref(self._losses) if isinstance(value, _Shared) else value for value in given]

    def tell(self, worker: int, method: str, *arguments: Any) -> None:
        self._processes[worker].actor.ask.remote(method, *arguments)

    def share(self, value: Any) -> Any:
        return _Shared(value)

    def happenings(self, timeout_s: float) -> list[Happening]:
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
            with suppress(RayError):
                ray.kill(process.actor, no_restart=True)

    def close(self) -> None:
        self._watch.look(self._statuses(), last=True)
        for worker in list(self._processes):
            self.end(worker)
        self._places.close()

    def _collect(self, timeout_s: float) -> list[Happening]:
        refs = [ref for process in self._processes.values() for ref in self._pending(process)]
        if not refs:
            time.sleep(timeout_s)
            return []
        ready, _ = ray.wait(refs, num_returns=1, timeout=timeout_s, fetch_local=False)
        if ready:
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        found: list[Happening] = []
        for worker, process in list(self._processes.items()):
            for ref in self._pending(process):
                if ref in ready and worker in self._processes:
                    found += self._answer(worker, process, ref)
        return found

    @staticmethod
    def _pending(process: _Process) -> list[Any]:
        return [ref for ref in (process.question, process.copy_call, *process.calls) if ref is not None]

    def _answer(self, worker: int, process: _Process, ref: Any) -> list[Happening]:
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
            return [Raised(worker, number, _cause_of(error))]
        except RayError as error:
            process.unreachable = _went_with_node(error)
            return [self._lose(worker, process, told(error), error)]
        process.heard_at = time.monotonic()
        if number is not None:
            return [Done(worker, number, value)]
        if is_copy:
            self._take_copy(value)
        elif isinstance(value, tuple):  # the answer to the first question
            process.node, status = value
            return self._hear(worker, process, status)
        elif isinstance(value, Status):
            return self._hear(worker, process, value)
        return []

    def _hear(self, worker: int, process: _Process, status: Status) -> list[Happening]:
        process.status = status
        if status.copied_round > self._copied_round and process.copy_call is None:
            process.copy_call = process.actor.ask.remote("latest")
        if process.member is not None:
            return []
        process.member = Member(worker, status.usage.host, status.usage.pid, self._cluster.threads)
        return [Ready(process.member)]

    def _take_copy(self, copy: Standing | None) -> None:
        if copy is not None and copy.round > self._copied_round:
            self._copied_round = copy.round
            self._on_copy(copy)

    def _lose(self, worker: int, process: _Process, cause: str, error: Exception | None = None) -> Lost:
        silent = time.monotonic() - process.heard_at
        self._losses += 1
        self.end(worker)
        return Lost(worker, cause, silent, error)

    def _silent(self) -> list[Happening]:
        """Give up on those who have not answered for too long. Who has not started has nothing to answer with."""
        now = time.monotonic()
        silent = [
            (worker, process)
            for worker, process in self._processes.items()
            if process.member is not None and now - process.heard_at > self._heartbeat_s
        ]
        for _, process in silent:  # frozen, or cut off with its node: nobody can tell, unless the node is this one
            process.unreachable = process.node != self._here
        return [
            self._lose(worker, process, f"it has not answered for {now - process.heard_at:.0f} s (frozen or cut off)")
            for worker, process in silent
        ]

    def _ask_all(self) -> None:
        now = time.monotonic()
        for process in self._processes.values():
            if process.question is None and now - process.asked_at >= ASK_EVERY_S:
                self._ask(process)

    def _ask(self, process: _Process) -> None:
        process.asked_at = time.monotonic()
        process.question = (
            process.actor.meet.remote()
            if process.member is None
            else process.actor.ask.remote("status", self._watch.rounds_told)
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
        """Find out who has room to start and whose node is going away; asking the cluster is not free."""
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
        return "its node does not answer (gone, or cut off)"
    if "worker process has died" in text:
        return "its process ended unexpectedly (killed, or crashed)"
    return text[:300] or "its process ended"


def _cause_of(error: RayTaskError) -> Exception:
    """Return what a worker raised; a mistake of the user's as it is, anything else with its traceback as the cause."""
    cause = error.cause
    if isinstance(cause, RayError):  # of what it was promised
        return InputGone(told(cause), fix="")
    if isinstance(cause, DrayError):
        return cause
    reason = f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
    failure = WorkerError(reason, fix="The traceback is in events.jsonl of the run directory.")
    failure.__cause__ = error
    return failure
