"""From the workers' statuses to events, samples and the peak of memory."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dray.telemetry.events import DRIVER, Sample, Telemetry
from dray.telemetry.sampler import Usage, UsageReader
from dray.workers.worker import Status

SAMPLE_S = 1.0


class Watch:
    """Tells the telemetry what has changed since the last look. One thread at a time.

    `shared` says that the one worker lives in the driver's process, whose usage then counts once.
    """

    def __init__(self, telemetry: Telemetry, workers: int, *, shared: bool) -> None:
        self._telemetry = telemetry
        self._own = UsageReader()
        self._shared = shared
        self._rounds_told = 0
        self._rows_told = [0] * workers
        self._loaded_told = [False] * workers
        self._proof_told = [False] * workers
        self._last: dict[int, tuple[float, float]] = {}
        self._sampled_at = 0.0
        self.rounds = 0
        self.peak_memory_bytes = 0

    @property
    def rounds_told(self) -> int:
        return self._rounds_told

    def look(self, statuses: Sequence[Status | None]) -> None:
        """Take in one status a worker; None where a worker has not answered."""
        for worker, status in enumerate(statuses):
            if status is not None:
                self._tell(worker, status)
        self._measure(statuses)

    def _tell(self, worker: int, status: Status) -> None:
        if status.rows > self._rows_told[worker]:
            self._rows_told[worker] = status.rows
            self._telemetry.emit("worker_progress", worker=worker, rows=status.rows, total_rows=status.total_rows)
        if status.loaded_s is not None and not self._loaded_told[worker]:
            self._loaded_told[worker] = True
            self._telemetry.emit(
                "worker_loaded", worker=worker, rows=status.total_rows, seconds=round(status.loaded_s, 3)
            )
        if worker == 0:
            for done in status.rounds:
                if done.round <= self._rounds_told:
                    continue
                self._rounds_told = done.round
                self._telemetry.emit(
                    "round",
                    round=done.round,
                    rounds=self.rounds,
                    seconds=round(done.seconds, 4),
                    metrics=done.metrics,
                )
        if status.proof is not None and not self._proof_told[worker]:
            self._proof_told[worker] = True
            proof = status.proof
            self._telemetry.emit(
                "threads",
                worker=worker,
                host=status.usage.host,
                decided=proof.decided,
                used=round(proof.used, 2),
                ok=proof.verdict.ok,
            )
            if not proof.verdict.ok:
                self._telemetry.emit(
                    "warning",
                    message=f"Worker {worker} on {status.usage.host}: {proof.verdict.cause}",
                    fix=proof.verdict.fix,
                )

    def _measure(self, statuses: Sequence[Status | None]) -> None:
        now = time.time()
        usages = {worker: status.usage for worker, status in enumerate(statuses) if status is not None}
        if not self._shared:
            usages[DRIVER] = self._own.read()
        self.peak_memory_bytes = max(self.peak_memory_bytes, sum(usage.memory_bytes for usage in usages.values()))
        if now - self._sampled_at >= SAMPLE_S:
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
