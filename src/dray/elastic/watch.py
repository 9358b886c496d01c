"""From the workers' statuses to events, samples and the peak of memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from dray.events.kinds import StepFinished, ThreadsMeasured, Warned, WorkerBusy, WorkerPace, WorkerProgress
from dray.events.sampler import Usage, UsageReader
from dray.events.telemetry import DRIVER, Sample, Telemetry
from dray.learners.checkpoint import Checkpoint, Step
from dray.learners.status import Proof, Status

SAMPLE_S = 1.0


class Watch:
    """Tells the telemetry what has changed since the last look. One thread at a time.

    `shared` says that the one worker lives in the driver's process, whose usage then counts once.
    """

    def __init__(self, telemetry: Telemetry, *, shared: bool, rounds_told: int = 0) -> None:
        self._telemetry = telemetry
        self._own = UsageReader()
        self._shared = shared
        self._rows_told: dict[int, int] = {}
        self._trouble_told: dict[int, str] = {}
        self._doing_told: set[str] = set()
        self._last: dict[int, tuple[float, float]] = {}
        self._sampled_at = 0.0
        self._fit = 1
        self._rounds = 0
        self.rounds_told = rounds_told
        self.proofs: dict[int, Proof] = {}
        self.peak_memory_bytes = 0

    def begin_fit(self, number: int, rounds: int, told: int) -> None:
        """Steps and proofs of cores are those of another fit from now on, of which `told` steps are known."""
        if number != self._fit:
            self.proofs = {}
        self._fit, self._rounds, self.rounds_told = number, rounds, told

    def forget(self, worker: int) -> None:
        """A worker is gone; one that comes in its place starts with nothing."""
        for known in (self._rows_told, self._trouble_told, self._last, self.proofs):
            known.pop(worker, None)

    def look(self, statuses: Mapping[int, Status], *, last: bool = False) -> None:
        """Take in the statuses of workers that have answered; the last time with a sample, or a short run has none."""
        for worker, status in statuses.items():
            self._take_in(worker, status)
        self._measure(statuses, at_once=last)

    def _take_in(self, worker: int, status: Status) -> None:
        if status.rows != self._rows_told.get(worker, 0):
            self._rows_told[worker] = status.rows
            self._telemetry.emit(WorkerProgress(worker, status.rows, status.total_rows))
        if status.fit == self._fit:
            for done in status.rounds:
                self.tell(done)
        if status.trouble != self._trouble_told.get(worker, ""):
            self._trouble_told[worker] = status.trouble
            self._telemetry.emit(
                Warned(
                    f"Worker {worker} on {status.usage.host} had to wait: {status.trouble}",
                    "It tries again for a minute and a half.",
                )
            )
        if status.doing and status.doing not in self._doing_told:  # all workers do the same
            self._doing_told.add(status.doing)
            self._telemetry.emit(WorkerBusy(worker, status.usage.host, status.doing))
        if status.proof is not None and status.fit == self._fit:
            self.prove(worker, status.usage.host, status.proof)

    def tell(
        self,
        done: Step,
        *,
        paces: Sequence[WorkerPace] | None = None,
        learning_rate: float | None = None,
        halvings: int | None = None,
    ) -> None:
        """Report a step unless it was reported. Every worker knows them all; after a failure one may come twice."""
        if done.round > self.rounds_told:
            self.rounds_told = done.round
            seconds = round(done.seconds, 4)
            self._telemetry.emit(
                StepFinished(done.round, self._rounds, seconds, done.metrics, paces, learning_rate, halvings)
            )

    def tell_all(self, checkpoint: Checkpoint) -> None:
        """Report the steps of a checkpoint: on disk it must not be ahead of the events, if the driver is killed."""
        if checkpoint.fit == self._fit:
            for done in checkpoint.rounds:
                self.tell(done)

    def prove(self, worker: int, host: str, proof: Proof) -> None:
        """Tell whether a worker's threads were used, once."""
        if worker in self.proofs:
            return
        self.proofs[worker] = proof
        self._telemetry.emit(ThreadsMeasured(worker, host, proof.decided, round(proof.used, 2), proof.verdict.ok))
        if not proof.verdict.ok:
            self._telemetry.emit(Warned(f"Worker {worker} on {host}: {proof.verdict.cause}", proof.verdict.fix))

    def _measure(self, statuses: Mapping[int, Status], *, at_once: bool) -> None:
        now = time.time()
        usages = {worker: status.usage for worker, status in statuses.items()}
        if not self._shared:
            usages[DRIVER] = self._own.read()
        self.peak_memory_bytes = max(self.peak_memory_bytes, sum(usage.memory_bytes for usage in usages.values()))
        if at_once or now - self._sampled_at >= SAMPLE_S:
            self._telemetry.sample([self._sample(now, worker, usage) for worker, usage in usages.items()])
            self._last = {worker: (now, usage.cpu_seconds) for worker, usage in usages.items()}
            self._sampled_at = now

    def _sample(self, now: float, worker: int, usage: Usage) -> Sample:
        then, before = self._last.get(worker, (now, usage.cpu_seconds))
        cores = (usage.cpu_seconds - before) / (now - then) if now > then else 0.0
        return Sample(
            now,
            worker,
            usage.host,
            max(0.0, cores),
            usage.memory_bytes,
            usage.host_cpu_percent,
            usage.sent_bytes,
            usage.received_bytes,
        )
