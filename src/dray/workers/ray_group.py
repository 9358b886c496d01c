"""Workers as Ray actors: one placement group, one actor a bundle, watched from the driver."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from dray.cluster.cluster import Cluster
from dray.cluster.placement import place, remove
from dray.errors import ClusterError, DrayError, WorkerError
from dray.workers.actor import WorkerActor
from dray.workers.group import Member
from dray.workers.watch import Watch
from dray.workers.worker import Status

START_TIMEOUT_S = 120.0
_ASK_EVERY_S = 0.5
_ANSWER_S = 2.0


class RayGroup:
    """Workers on a Ray cluster. The cluster is the caller's; the actors and their placement are the group's."""

    def __init__(self, cluster: Cluster, workers: int) -> None:
        self.ring_host = str(ray.util.get_node_ip_address())
        self._placement = place(cluster, workers, cluster.threads)
        self._actors: list[Any] = []
        try:
            self._actors = [
                WorkerActor.options(  # type: ignore[attr-defined]
                    **cluster.actor_options(self._placement, number)
                ).remote(number, cluster.threads)
                for number in range(workers)
            ]
            self.members: Sequence[Member] = self._meet(cluster.threads)
        except BaseException:
            self.close()
            raise

    def each(self, method: str, arguments: Sequence[Sequence[Any]], watch: Watch) -> list[Any]:
        calls = [actor.call.remote(method, *own) for actor, own in zip(self._actors, arguments, strict=True)]
        pending = list(calls)
        while pending:
            # A death is told by the call itself; asking more often than this costs the workers time.
            done, pending = ray.wait(pending, num_returns=len(pending), timeout=_ASK_EVERY_S)
            failures = [failure for call in done if (failure := self._failure(calls, call))]
            if failures:
                raise self._first_cause(calls, pending, failures)
            watch.look(self._statuses(watch.rounds_told))
        return list(ray.get(calls))

    def close(self) -> None:
        for actor in self._actors:
            with suppress(RayError):
                ray.kill(actor, no_restart=True)
        self._actors = []
        remove(self._placement)

    def _meet(self, threads: int) -> list[Member]:
        asked = [actor.status.remote(0) for actor in self._actors]
        try:
            statuses: list[Status] = ray.get(asked, timeout=START_TIMEOUT_S)
        except ray.exceptions.GetTimeoutError:
            raise ClusterError(
                f"The workers did not start within {START_TIMEOUT_S:.0f} s.",
                fix="Look at the cluster's state with: ray status",
            ) from None
        except RayError as error:
            raise _translate(error, "A worker did not start") from error
        return [Member(n, status.usage.host, status.usage.pid, threads) for n, status in enumerate(statuses)]

    def _statuses(self, after_round: int) -> list[Status | None]:
        asked = [actor.status.remote(after_round) for actor in self._actors]
        ready, _ = ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_S)
        answers: list[Status | None] = []
        for answer in asked:
            answers.append(None)
            if answer in ready:
                with suppress(RayError):  # its death is told by the call that it was working on
                    answers[-1] = ray.get(answer)
        return answers

    def _failure(self, calls: Sequence[Any], call: Any) -> Exception | None:
        try:
            ray.get(call)
        except RayError as error:
            member = self.members[calls.index(call)]
            return _translate(error, f"Worker {member.worker} on {member.host} failed")
        return None

    def _first_cause(self, calls: Sequence[Any], pending: Sequence[Any], failures: list[Exception]) -> Exception:
        """Choose the failure to tell: in a ring, everybody else's is only a consequence of the first."""
        done, _ = ray.wait(list(pending), num_returns=len(pending), timeout=_ANSWER_S) if pending else ([], [])
        failures += [failure for call in done if (failure := self._failure(calls, call))]
        return min(failures, key=_distance)


def _distance(failure: Exception) -> int:
    """How far a failure is from the cause: a told mistake, a process that ended, an error in some worker."""
    if not isinstance(failure, WorkerError):
        return 0
    return 1 if isinstance(failure.__cause__, RayActorError) else 2


def _translate(error: Exception, what: str) -> Exception:
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, DrayError):
        return cause
    if isinstance(error, RayActorError):
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = lines[-1] if lines else "its process ended"
        fix = "If memory ran out, use more workers or fewer features; the cluster's logs tell more."
    else:
        reason = f"{type(cause).__name__}: {next(iter(str(cause).splitlines()), '')}"
        fix = "The traceback is in events.jsonl of the run directory."
    failure = WorkerError(f"{what}: {reason}", fix=fix)
    failure.__cause__ = error
    return failure
