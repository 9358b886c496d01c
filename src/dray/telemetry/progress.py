"""Where a run stands, put together from its events. Pure: no clock and no output of its own.

Both terminal views draw from this; `now` is passed in, so that a recorded sequence always gives the same view.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from dray.telemetry.epochs import round_word
from dray.telemetry.events import DRIVER, Event, Sample
from dray.telemetry.metrics import is_better
from dray.telemetry.worker_view import WorkerView

PHASES = ("prepare", "start", "load", "train", "save")
COPY = "copy"
"""Of data that is not Parquet: what an ingest does as a part of "prepare"."""
RECOVER = "recover"
"""Between the loss of a worker and the next round; takes the place of "train" meanwhile."""
_COPYING = ("plan", "ingest")
_RECENT_ROUNDS = 30
_STALE_S = 5.0


@dataclass(slots=True)
class Failures:
    """What the loss of workers has cost so far."""

    lost: int = 0
    seconds: float = 0.0
    """Of recoveries that are over."""
    rows: int = 0
    """Loaded anew."""


@dataclass(slots=True)
class Best:
    """The best value of a metric so far and the round that had it."""

    value: float
    round: int


@dataclass(slots=True)
class Bar:
    """How far the current work has come."""

    done: float
    total: float | None
    """None when nobody knows how much there is."""
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
    word: str = "round"
    """What a round is called: an epoch when a recommender is trained."""
    rows_are: str = "rows"
    """What a recommender is trained on: ratings, or pairs that events came to."""
    started: float | None = None
    ended: float | None = None
    phase: str | None = None
    phase_started: float = 0.0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    copied: dict[str, Any] = field(default_factory=dict)
    """Of what format the data is, and where its Parquet copy lies."""
    decided: dict[str, Any] = field(default_factory=dict)
    workers: dict[int, WorkerView] = field(default_factory=dict)
    round: int = 0
    rounds: int | None = None
    round_seconds: list[float] = field(default_factory=list)
    epoch: dict[str, Any] = field(default_factory=dict)
    """What the last epoch told; empty for trees."""
    events: dict[str, Any] = field(default_factory=dict)
    """What a recommender's rows came to."""
    diverged: list[dict[str, Any]] = field(default_factory=list)
    """Epochs that had to be done again with a smaller step."""
    metrics: dict[str, float] = field(default_factory=dict)
    history: dict[str, dict[int, float]] = field(default_factory=dict)
    """Each metric by round."""
    best: dict[str, Best] = field(default_factory=dict)
    counter: tuple[float, float | None, str] | None = None
    warnings: list[tuple[str, str]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    failure: tuple[str, str] | None = None
    stopped: bool = False
    """Ended on the way, to be resumed."""
    failures: Failures = field(default_factory=Failures)
    resumed_after: int | None = None
    checkpoint: tuple[int, float] | None = None
    """Round of the last one, and when."""
    waiting: str = ""
    """Why nothing happens, while that is so."""

    def event(self, event: Event) -> None:
        self.started = event.time if self.started is None else self.started
        handle = getattr(self, f"_on_{event.kind}", None)
        if handle is not None:
            handle(event.time, event.data)

    def sample(self, samples: list[Sample]) -> None:
        for sample in samples:
            worker = self._worker(sample.worker)
            if worker.state != "lost":  # a last sign of life may come late
                worker.host = worker.host or sample.host
                worker.cores, worker.memory_bytes, worker.sampled = sample.cpu_cores, sample.memory_bytes, sample.time
        now = max((sample.time for sample in samples), default=0.0)
        for worker in self.workers.values():
            if worker.sampled is not None and now - worker.sampled > _STALE_S:
                worker.cores = worker.memory_bytes = worker.sampled = None

    def bar(self, now: float) -> Bar | None:
        """Return the bar of the current phase: rounds while training, rows while loading."""
        if self.phase == RECOVER and self.reloading_rows[1]:
            return self._paced(*self.reloading_rows, "rows", now)
        if self.phase == RECOVER and self.rounds:
            return Bar(self.round, self.rounds, f"{self.word}s", None)
        if self.phase == "train" and self.rounds:
            recent = self.round_seconds
            eta = (self.rounds - self.round) * sum(recent) / len(recent) if recent else None
            return Bar(self.round, self.rounds, f"{self.word}s", eta)
        if self.phase == "load" and self.loading_rows[1]:
            return self._paced(*self.loading_rows, "rows", now)
        if self.counter is not None:
            return self._paced(*self.counter, now)
        return None

    @property
    def loading_rows(self) -> tuple[float, float]:
        """Rows loaded and rows to load, over all workers."""
        workers = [worker for worker in self.workers.values() if worker.worker != DRIVER and worker.state != "lost"]
        known = sum(worker.rows if worker.loaded else worker.total_rows or worker.rows for worker in workers)
        return sum(worker.rows for worker in workers), max(known, self.data.get("rows") or 0)

    @property
    def reloading_rows(self) -> tuple[float, float]:
        """Rows loaded and rows to load of those that the present recovery needs."""
        workers = [worker for worker in self.workers.values() if worker.state in ("reloading", "reloaded")]
        done = sum(round(worker.reloaded * worker.reload_rows) for worker in workers)
        return done, sum(worker.reload_rows for worker in workers)

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

    @property
    def knows_all_rounds(self) -> bool:
        """Whether the best round is the best of all; a resumed run may not have told those before it."""
        first = min((next(iter(values)) for values in self.history.values() if values), default=1)
        return not self.resumed_after or first <= self.resumed_after

    @property
    def alone(self) -> bool:
        """Whether it is known that there are no workers beside this process."""
        return self.decided.get("workers") == 0

    def elapsed(self, now: float) -> float:
        return 0.0 if self.started is None else (self.ended or now) - self.started

    def seconds_by_phase(self, now: float) -> dict[str, float]:
        """Seconds spent in each phase, the current one up to `now`."""
        seconds = dict(self.phase_seconds)
        if self.phase is not None:
            seconds[self.phase] = seconds.get(self.phase, 0.0) + (self.ended or now) - self.phase_started
        return seconds

    def _paced(self, done: float, total: float | None, unit: str, now: float) -> Bar:
        started = self.phase_started if self.phase is not None else self.started
        if started is None:
            return Bar(done, total, unit, None)
        rate = done / (now - started) if now > started else 0.0
        eta_s = (total - done) / rate if rate > 0 and total is not None else None
        return Bar(done, total, unit, eta_s, rate or None)

    def _worker(self, worker: int) -> WorkerView:
        return self.workers.setdefault(worker, WorkerView(worker))

    def _on_run_started(self, time: float, data: dict[str, Any]) -> None:
        self.started = time
        self.run, self.directory = str(data.get("run") or ""), str(data.get("directory") or "")
        config = data.get("config") or {}
        self.rounds = config.get("rounds", self.rounds)
        self.word = round_word(config.get("model"))
        if self.word == "epoch":
            self.rows_are = "pairs" if config.get("rating") is None else "ratings"

    def _on_resumed(self, _time: float, data: dict[str, Any]) -> None:
        self.round = self.resumed_after = data["round"]
        for done in data.get("rounds") or []:
            self._keep(done["round"], done.get("metrics") or {})

    def _on_phase(self, time: float, data: dict[str, Any]) -> None:
        name = str(data["name"])
        self._enter(COPY if name in _COPYING and self.phase in ("prepare", COPY) else name, time)
        self.counter, self.waiting = None, ""

    def _enter(self, phase: str, time: float) -> None:
        self.phase_seconds = self.seconds_by_phase(time)
        self.phase, self.phase_started = phase, time

    def _on_data(self, _time: float, data: dict[str, Any]) -> None:
        self.data = data

    def _on_copied(self, time: float, data: dict[str, Any]) -> None:
        self.copied = self.copied or data  # what is trained on comes first, then what is evaluated on
        if self.phase == COPY:
            self._enter("prepare", time)
            self.counter = None

    def _on_decided(self, _time: float, data: dict[str, Any]) -> None:
        self.decided = data

    def _on_worker_started(self, _time: float, data: dict[str, Any]) -> None:
        # A replacement starts with nothing, whatever its predecessor had.
        self.workers[data["worker"]] = WorkerView(
            data["worker"], str(data.get("host") or ""), data.get("pid"), data.get("threads")
        )
        if data.get("replacement") or self.phase in ("train", RECOVER):
            self.workers[data["worker"]].state = "starting"

    def _on_worker_lost(self, time: float, data: dict[str, Any]) -> None:
        worker = self._worker(data["worker"])
        self.workers[worker.worker] = WorkerView(
            worker.worker, str(data.get("host") or worker.host), data.get("pid") or worker.pid, state="lost"
        )
        self.failures.lost += 1
        if self.phase == "train":
            self._enter(RECOVER, time)

    def _on_reload(self, _time: float, data: dict[str, Any]) -> None:
        worker = self._worker(data["worker"])
        if worker.state != "reloading":
            worker.state, worker.loaded = "reloading", False
            worker.reload_rows, worker.reload_parts, worker.kept_rows = 0, 0, worker.rows
        worker.reload_rows, worker.reload_parts = worker.reload_rows + data["rows"], worker.reload_parts + 1

    def _on_waiting(self, _time: float, data: dict[str, Any]) -> None:
        self.waiting = str(data.get("why") or "").removeprefix("Waiting ")

    def _on_ring(self, _time: float, data: dict[str, Any]) -> None:
        self.round, self.waiting = data["round"], ""
        self._settle()

    def _on_recovered(self, time: float, data: dict[str, Any]) -> None:
        self.failures.seconds += data.get("seconds") or 0.0
        self.failures.rows += data.get("rows_reloaded") or 0
        self.waiting = ""
        self._settle()
        if self.phase == RECOVER:
            self._enter("train", time)

    def _on_joined(self, _time: float, data: dict[str, Any]) -> None:
        worker = self._worker(data["worker"])
        worker.host, worker.state = str(data.get("host") or worker.host), "joined"
        worker.rows = worker.total_rows = worker.loaded_rows = data["rows"]
        worker.loaded = True

    def _settle(self) -> None:
        """Those that have loaded are workers like any other; newcomers may still be loading."""
        for worker in self.workers.values():
            worker.state = "" if worker.state == "reloaded" else worker.state

    def _on_leaving(self, _time: float, data: dict[str, Any]) -> None:
        self._worker(data["worker"]).state = "leaving"

    def _on_left(self, _time: float, data: dict[str, Any]) -> None:
        self.workers.pop(data["worker"], None)

    def _on_checkpoint(self, time: float, data: dict[str, Any]) -> None:
        self.checkpoint = (data["round"], time)

    def _on_worker_progress(self, _time: float, data: dict[str, Any]) -> None:
        worker = self._worker(data["worker"])
        rows, total, before = data["rows"], data.get("total_rows"), worker.total_rows
        if worker.state == "lost":
            return
        if worker.loaded and total and rows >= total:  # loading told it better: without the rows to evaluate on
            worker.loaded_rows = round(worker.loaded_rows * min(1.0, total / (before or total)))  # gave some away
            worker.rows, worker.total_rows = worker.loaded_rows, total
        else:
            worker.rows, worker.total_rows, worker.loaded = rows, total, False

    def _on_worker_loaded(self, _time: float, data: dict[str, Any]) -> None:
        worker = self._worker(data["worker"])
        worker.loaded_rows += data["rows"]
        worker.reload_parts = max(0, worker.reload_parts - 1)
        if worker.reload_parts:
            return
        worker.rows, worker.loaded = worker.loaded_rows, True
        worker.total_rows = max(worker.rows, worker.total_rows or 0)
        worker.state = "reloaded" if worker.state in ("starting", "reloading") else worker.state

    def _on_round(self, time: float, data: dict[str, Any]) -> None:
        if self.phase == RECOVER:  # a round is the surest sign of recovery
            self._enter("train", time)
        self._forget_rounds_from(data["round"])
        self.round, self.rounds, self.waiting = data["round"], data.get("rounds"), ""
        if data.get("seconds") is not None:
            self.round_seconds = [*self.round_seconds[1 - _RECENT_ROUNDS :], data["seconds"]]
        # JSON has no NaN: a metric without a value comes from a job as null.
        self.metrics = {name: value for name, value in (data.get("metrics") or {}).items() if value is not None}
        self._keep(self.round, self.metrics)
        if self.word == "epoch":
            self.epoch = data
            self._keep_rates(data.get("workers") or [])

    def _keep_rates(self, told: list[dict[str, Any]]) -> None:
        rates = {entry["worker"]: entry.get("rows_per_second") for entry in told}
        for worker in self.workers.values():
            worker.rows_per_second = rates.get(worker.worker)

    def _on_events(self, _time: float, data: dict[str, Any]) -> None:
        self.events = data

    def _on_diverged(self, _time: float, data: dict[str, Any]) -> None:
        self.diverged.append(data)

    def _keep(self, round_: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self.history.setdefault(name, {})[round_] = value
            self._see(name, value, round_)

    def _see(self, name: str, value: float, round_: int) -> None:
        best = self.best.get(name)
        if best is None or is_better(name, value, best.value):
            self.best[name] = Best(value, round_)

    def _forget_rounds_from(self, round_: int) -> None:
        """Rounds that are done again count once."""
        if not any(values and next(reversed(values)) >= round_ for values in self.history.values()):
            return
        self.best = {}
        for name, values in self.history.items():
            self.history[name] = {number: value for number, value in values.items() if number < round_}
            for number, value in self.history[name].items():
                self._see(name, value, number)

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
        self.stopped = data.get("status") == "stopped"
