"""From the workers' statuses to events, samples and the peak of memory."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from dray.events.sampler import Usage, UsageReader
from dray.events.telemetry import DRIVER, Sample, Telemetry
from dray.learners.checkpoint import Step
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
        self._last: dict[int, tuple[float, float]] = {}
        self._sampled_at = 0.0
        self.rounds = 0
        self.rounds_told = rounds_told
        self.proofs: dict[int, Proof] = {}
        self.peak_memory_bytes = 0

    def forget(self, worker: int) -> None:
        """A worker is gone; who comes in its place starts with nothing."""
        for known in (self._rows_told, self._trouble_told, self._last, self.proofs):
            known.pop(worker, None)

    def look(self, statuses: Mapping[int, Status], *, last: bool = False) -> None:
        """Take in the statuses of those who have answered; the last time with a sample, or a short run has none."""
        for worker, status in statuses.items():
            self._tell(worker, status)
        self._measure(statuses, at_once=last)

    def _tell(self, worker: int, status: Status) -> None:
        if status.rows != self._rows_told.get(worker, 0):
            self._rows_told[worker] = status.rows
            self._telemetry.emit("worker_progress", worker=worker, rows=status.rows, total_rows=status.total_rows)
        self.tell_rounds(status.rounds)
        if status.trouble != self._trouble_told.get(worker, ""):
            self._trouble_told[worker] = status.trouble
            self._telemetry.emit(
                "warning",
                message=f"Worker {worker} on {status.usage.host} had to wait: {status.trouble}",
                fix="It tries again for a minute and a half.",
            )
        if status.proof is not None:
            self.prove(worker, status.usage.host, status.proof)

    def tell_rounds(self, rounds: Iterable[Step]) -> None:
        """Tell of rounds that were not told yet. Every worker knows them all; after a failure one may come twice."""
        for done in rounds:
            if done.round > self.rounds_told:
                self.rounds_told = done.round
                self._telemetry.emit(
                    "round", round=done.round, rounds=self.rounds, seconds=round(done.seconds, 4), metrics=done.metrics
                )

    def prove(self, worker: int, host: str, proof: Proof) -> None:
        """Tell whether a worker's threads were used, once."""
        if worker in self.proofs:
            return
        self.proofs[worker] = proof
        self._telemetry.emit(
            "threads",
            worker=worker,
            host=host,
            decided=proof.decided,
            used=round(proof.used, 2),
            ok=proof.verdict.ok,
        )
        if not proof.verdict.ok:
            self._telemetry.emit(
                "warning",
                message=f"Worker {worker} on {host}: {proof.verdict.cause}",
                fix=proof.verdict.fix,
            )

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
