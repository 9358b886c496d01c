"""Where a run stands, put together from its events. Pure: no clock and no output of its own.

Both terminal views draw from this; `now` is passed in, so that a recorded sequence always gives the same view.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from dray.telemetry.events import DRIVER, Event, Sample

PHASES = ("prepare", "start", "load", "train", "save")
_HIGHER_IS_BETTER = ("auc", "aucpr", "map", "ndcg", "pre", "accuracy", "r2", "gini")
_RECENT_ROUNDS = 30


@dataclass(slots=True)
class WorkerView:
    """What is known of one worker."""

    worker: int
    host: str = ""
    pid: int | None = None
    threads: int | None = None
    rows: int = 0
    total_rows: int | None = None
    loaded: bool = False
    cores: float | None = None
    memory_bytes: int | None = None
    ok: bool = True


@dataclass(slots=True)
class Best:
    """The best value of a metric so far and the round that had it."""

    value: float
    round: int


@dataclass(slots=True)
class Bar:
    """How far the current work has come."""

    done: float
    total: float
    unit: str
    eta_s: float | None
    rate: float | None = None
    """Units a second."""

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0


@dataclass(slots=True)
class Progress:
    """The state of a run after the events that `event` and `sample` were given."""

    run: str = ""
    directory: str = ""
    started: float | None = None
    ended: float | None = None
    phase: str | None = None
    phase_started: float = 0.0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    decided: dict[str, Any] = field(default_factory=dict)
    workers: dict[int, WorkerView] = field(default_factory=dict)
    round: int = 0
    rounds: int | None = None
    round_seconds: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)
    best: dict[str, Best] = field(default_factory=dict)
    counter: tuple[float, float, str] | None = None
    warnings: list[tuple[str, str]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    failure: tuple[str, str] | None = None

    def event(self, event: Event) -> None:
        self.started = event.time if self.started is None else self.started
        handle = getattr(self, f"_on_{event.kind}", None)
        if handle is not None:
            handle(event.time, event.data)

    def sample(self, samples: list[Sample]) -> None:
        for sample in samples:
            worker = self._worker(sample.worker)
            worker.host = worker.host or sample.host
            worker.cores, worker.memory_bytes = sample.cpu_cores, sample.memory_bytes

    def bar(self, now: float) -> Bar | None:
        """Return the bar of the current phase: rounds while training, rows while loading."""
        if self.phase == "train" and self.rounds:
            recent = self.round_seconds
            eta = (self.rounds - self.round) * sum(recent) / len(recent) if recent else None
            return Bar(self.round, self.rounds, "rounds", eta)
        if self.phase == "load" and self.loading_rows[1]:
            return self._paced(*self.loading_rows, "rows", now)
        if self.counter is not None:
            return self._paced(*self.counter, now)
        return None

    @property
    def loading_rows(self) -> tuple[float, float]:
        """Rows loaded and rows to load, over all workers."""
        workers = [worker for worker in self.workers.values() if worker.worker != DRIVER]
        known = sum(worker.total_rows or worker.rows for worker in workers)
        return sum(worker.rows for worker in workers), max(known, self.data.get("rows") or 0)

    @property
    def shown_workers(self) -> list[WorkerView]:
        """The workers in order, then the driver unless it is a worker itself."""
        workers = sorted(self.workers.values(), key=lambda worker: (worker.worker == DRIVER, worker.worker))
        itself = next((w for w in workers if w.worker != DRIVER and w.pid == os.getpid()), None)
        if itself is None:
            return workers
        driver = self.workers.get(DRIVER)
        if driver is not None and itself.cores is None:
            itself.cores, itself.memory_bytes = driver.cores, driver.memory_bytes
        return [worker for worker in workers if worker.worker != DRIVER]

    def elapsed(self, now: float) -> float:
        return 0.0 if self.started is None else (self.ended or now) - self.started

    def seconds_by_phase(self, now: float) -> dict[str, float]:
        """Seconds spent in each phase, the current one up to `now`."""
        seconds = dict(self.phase_seconds)
        if self.phase is not None:
            seconds[self.phase] = seconds.get(self.phase, 0.0) + (self.ended or now) - self.phase_started
        return seconds

    def _paced(self, done: float, total: float, unit: str, now: float) -> Bar:
        started = self.phase_started if self.phase is not None else self.started
        if started is None:
            return Bar(done, total, unit, None)
        rate = done / (now - started) if now > started else 0.0
        return Bar(done, total, unit, (total - done) / rate if rate > 0 else None, rate or None)

    def _worker(self, worker: int) -> WorkerView:
        return self.workers.setdefault(worker, WorkerView(worker))

    def _on_run_started(self, time: float, data: dict[str, Any]) -> None:
        self.started = time
        self.run, self.directory = str(data.get("run") or ""), str(data.get("directory") or "")

    def _on_phase(self, time: float, data: dict[str, Any]) -> None:
        self.phase_seconds = self.seconds_by_phase(time)
        self.phase, self.phase_started = str(data["name"]), time
        self.counter = None

    def _on_data(self, _time: float, data: dict[str, Any]) -> None:
        self.data = data

    def _on_decided(self, _time: float, data: dict[str, Any]) -> None:
        self.decided = data

    def _on_worker_started(self, _time: float, data: dict[str, Any]) -> None:
        # A replacement starts with nothing, whatever its predecessor had.
        self.workers[data["worker"]] = WorkerView(
            data["worker"], str(data.get("host") or ""), data.get("pid"), data.get("threads")
        )

    def _on_worker_progress(self, _time: float, data: dict[str, Any]) -> None:
        worker = self._worker(data["worker"])
        worker.rows, worker.total_rows = data["rows"], data.get("total_rows")

    def _on_worker_loaded(self, _time: float, data: dict[str, Any]) -> None:
        worker = self._worker(data["worker"])
        worker.rows, worker.total_rows, worker.loaded = data["rows"], data["rows"], True

    def _on_round(self, _time: float, data: dict[str, Any]) -> None:
        self.round, self.rounds = data["round"], data.get("rounds")
        if data.get("seconds") is not None:
            self.round_seconds = [*self.round_seconds[1 - _RECENT_ROUNDS :], data["seconds"]]
        self.metrics = data.get("metrics") or {}
        for name, value in self.metrics.items():
            self.history.setdefault(name, []).append(value)
            best = self.best.get(name)
            if best is None or (value > best.value if higher_is_better(name) else value < best.value):
                self.best[name] = Best(value, self.round)

    def _on_threads(self, _time: float, data: dict[str, Any]) -> None:
        worker = self._worker(data["worker"])
        worker.threads, worker.ok = data.get("decided", worker.threads), bool(data.get("ok", True))

    def _on_progress(self, _time: float, data: dict[str, Any]) -> None:
        self.counter = (data["done"], data["total"], str(data.get("unit") or ""))

    def _on_warning(self, _time: float, data: dict[str, Any]) -> None:
        self.warnings.append((str(data.get("message") or ""), str(data.get("fix") or "")))

    def _on_run_finished(self, time: float, data: dict[str, Any]) -> None:
        self.result, self.ended = data.get("result") or {}, time

    def _on_run_failed(self, time: float, data: dict[str, Any]) -> None:
        self.failure, self.ended = (str(data.get("error") or ""), str(data.get("fix") or "")), time


def higher_is_better(metric: str) -> bool:
    """Whether a metric such as "eval-auc" or "eval-ndcg@10" improves upwards."""
    return metric.rstrip("-").rpartition("-")[2].partition("@")[0] in _HIGHER_IS_BETTER
