"""The state of a run, put together from its events. Pure: no clock and no output of its own.

Both terminal views draw from this; `now` is passed in, so that a recorded sequence always gives the same view.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

from dray.events import kinds
from dray.events.figures import Bar, Best, Failures
from dray.events.metrics import is_better
from dray.events.telemetry import DRIVER, Sample
from dray.events.worker_view import WorkerView

PHASES = ("prepare", "start", "load", "train", "save")
COPY = "copy"
"""Of data that is not Parquet: what an ingest does as a part of "prepare"."""
RECOVER = "recover"
"""Between the loss of a worker and the next round; takes the place of "train" meanwhile."""
_COPYING = ("plan", "ingest")
_RECENT_ROUNDS = 30
_STALE_S = 5.0


@dataclass(slots=True)
class RunView:
    """The state of a run after the events that `event` and `sample` were given."""

    run: str = ""
    directory: str = ""
    word: str = "round"
    """What a step is called: "round" or "epoch"."""
    rows_are: str = "rows"
    """What a recommender is trained on: "ratings" or "pairs"."""
    started: float | None = None
    ended: float | None = None
    phase: str | None = None
    phase_started: float = 0.0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    data: kinds.DataFound | None = None
    converted: kinds.SourceConverted | None = None
    """Of what is trained on, if it is not Parquet."""
    decided: kinds.Decided | None = None
    workers: dict[int, WorkerView] = field(default_factory=dict)
    round: int = 0
    rounds: int | None = None
    round_seconds: list[float] = field(default_factory=list)
    epoch: kinds.StepFinished | None = None
    """The last step, if it told the pace of each worker; trees do not."""
    pairs: kinds.PairsFound | None = None
    repeated: kinds.StepRepeated | None = None
    """The last step that was done again."""
    unknown: kinds.UnknownEvent | None = None
    """The last event that this version of dray does not know."""
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
    doing: str = ""
    """What a worker does beside that takes long, until training begins."""
    waiting: str = ""
    """Why nothing happens, while that is so."""
    starts_alone: bool = False
    """No worker is started: this process trains."""

    def event(self, event: kinds.Event) -> None:
        self.started = event.time if self.started is None else self.started
        self._take(event)

    @singledispatchmethod
    def _take(self, _event: kinds.Event) -> None:
        """Nothing of it is shown."""

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
        return sum(worker.rows for worker in workers), max(known, 0 if self.data is None else self.data.rows)

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
        return self.starts_alone or (self.decided is not None and self.decided.workers == 0)

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

    @_take.register
    def _run_started(self, event: kinds.RunStarted) -> None:
        self.started = event.time
        self.run, self.directory, self.word = event.run, event.directory, event.step
        self.rounds = event.config.get("rounds", self.rounds)

    @_take.register
    def _run_resumed(self, event: kinds.RunResumed) -> None:
        self.round = self.resumed_after = event.round
        for done in event.rounds:
            self._keep(done.round, done.metrics)

    @_take.register
    def _phase_started(self, event: kinds.PhaseStarted) -> None:
        copies = event.name in _COPYING and self.phase in ("prepare", COPY)
        self._enter(COPY if copies else event.name, event.time)
        self.counter, self.waiting = None, ""
        self.starts_alone |= event.alone is True

    def _enter(self, phase: str, time: float) -> None:
        self.phase_seconds = self.seconds_by_phase(time)
        self.phase, self.phase_started = phase, time

    @_take.register
    def _data_found(self, event: kinds.DataFound) -> None:
        self.data = event

    @_take.register
    def _source_converted(self, event: kinds.SourceConverted) -> None:
        self.converted = self.converted or event  # what is trained on comes first, then what is evaluated on
        if self.phase == COPY:
            self._enter("prepare", event.time)
            self.counter = None

    @_take.register
    def _decided(self, event: kinds.Decided) -> None:
        self.decided = event

    @_take.register
    def _worker_started(self, event: kinds.WorkerStarted) -> None:
        # A replacement starts with nothing, whatever its predecessor had.
        self.workers[event.worker] = WorkerView(event.worker, event.host, event.pid, event.threads)
        if event.replacement or self.phase in ("train", RECOVER):
            self.workers[event.worker].state = "starting"

    @_take.register
    def _worker_busy(self, event: kinds.WorkerBusy) -> None:
        self.doing = event.doing

    @_take.register
    def _worker_lost(self, event: kinds.WorkerLost) -> None:
        worker = self._worker(event.worker)
        self.workers[worker.worker] = WorkerView(
            worker.worker, event.host or worker.host, event.pid or worker.pid, state="lost"
        )
        self.failures.lost += 1
        if self.phase == "train":
            self._enter(RECOVER, event.time)

    @_take.register
    def _shard_loading(self, event: kinds.ShardLoading) -> None:
        worker = self._worker(event.worker)
        if worker.state != "reloading":
            worker.state, worker.loaded = "reloading", False
            worker.reload_rows, worker.reload_shards, worker.kept_rows = 0, 0, worker.rows
        worker.reload_rows, worker.reload_shards = worker.reload_rows + event.rows, worker.reload_shards + 1

    @_take.register
    def _waiting(self, event: kinds.Waiting) -> None:
        self.waiting = event.why.removeprefix("Waiting ")

    @_take.register
    def _attempt_started(self, event: kinds.AttemptStarted) -> None:
        self.round, self.waiting, self.doing = event.round, "", ""
        self._settle()

    @_take.register
    def _recovered(self, event: kinds.Recovered) -> None:
        self.failures.seconds += event.seconds
        self.failures.rows += event.rows_reloaded
        self.waiting = ""
        self._settle()
        if self.phase == RECOVER:
            self._enter("train", event.time)

    @_take.register
    def _worker_joined(self, event: kinds.WorkerJoined) -> None:
        worker = self._worker(event.worker)
        worker.host, worker.state = event.host or worker.host, "joined"
        worker.rows = worker.total_rows = worker.loaded_rows = event.rows
        worker.loaded = True

    def _settle(self) -> None:
        """Those that have loaded are workers like any other; joining ones may still be loading."""
        for worker in self.workers.values():
            worker.state = "" if worker.state == "reloaded" else worker.state

    @_take.register
    def _worker_leaving(self, event: kinds.WorkerLeaving) -> None:
        self._worker(event.worker).state = "leaving"

    @_take.register
    def _worker_left(self, event: kinds.WorkerLeft) -> None:
        self.workers.pop(event.worker, None)

    @_take.register
    def _checkpoint_written(self, event: kinds.CheckpointWritten) -> None:
        self.checkpoint = (event.round, event.time)

    @_take.register
    def _worker_progress(self, event: kinds.WorkerProgress) -> None:
        worker = self._worker(event.worker)
        rows, total, before = event.rows, event.total_rows, worker.total_rows
        if worker.state == "lost":
            return
        if worker.loaded and total and rows >= total:  # loading told it better: without the rows to evaluate on
            worker.loaded_rows = round(worker.loaded_rows * min(1.0, total / (before or total)))  # gave some away
            worker.rows, worker.total_rows = worker.loaded_rows, total
        else:
            worker.rows, worker.total_rows, worker.loaded = rows, total, False

    @_take.register
    def _shard_loaded(self, event: kinds.ShardLoaded) -> None:
        worker = self._worker(event.worker)
        worker.loaded_rows += event.rows
        worker.reload_shards = max(0, worker.reload_shards - 1)
        if worker.reload_shards:
            return
        worker.rows, worker.loaded = worker.loaded_rows, True
        worker.total_rows = max(worker.rows, worker.total_rows or 0)
        worker.state = "reloaded" if worker.state in ("starting", "reloading") else worker.state

    @_take.register
    def _step_finished(self, event: kinds.StepFinished) -> None:
        if self.phase == RECOVER:  # a round is the surest sign of recovery
            self._enter("train", event.time)
        self._forget_rounds_from(event.round)
        self.round, self.rounds, self.waiting = event.round, event.rounds, ""
        if event.seconds is not None:
            self.round_seconds = [*self.round_seconds[1 - _RECENT_ROUNDS :], event.seconds]
        self.metrics = self._keep(event.round, event.metrics)
        if event.workers is None:
            return
        self.epoch = event
        rates = {pace.worker: pace.rows_per_second for pace in event.workers}
        for worker in self.workers.values():
            worker.rows_per_second = rates.get(worker.worker)

    @_take.register
    def _pairs_found(self, event: kinds.PairsFound) -> None:
        self.pairs, self.rows_are = event, event.noun

    @_take.register
    def _step_repeated(self, event: kinds.StepRepeated) -> None:
        self.repeated = event

    @_take.register
    def _unknown(self, event: kinds.UnknownEvent) -> None:
        self.unknown = event

    def _keep(self, round_: int, metrics: Mapping[str, float | None]) -> dict[str, float]:
        """Take in the metrics of a step, and return them without NaN, which comes as null from a job."""
        known = {name: value for name, value in metrics.items() if value is not None}
        for name, value in known.items():
            self.history.setdefault(name, {})[round_] = value
            self._see(name, value, round_)
        return known

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

    @_take.register
    def _threads_measured(self, event: kinds.ThreadsMeasured) -> None:
        worker = self._worker(event.worker)
        worker.threads, worker.ok = event.decided, event.ok

    @_take.register
    def _progress(self, event: kinds.Progress) -> None:
        self.counter = (event.done, event.total, event.unit)

    @_take.register
    def _warned(self, event: kinds.Warned) -> None:
        self.warnings.append((event.message, event.fix))

    @_take.register
    def _run_finished(self, event: kinds.RunFinished) -> None:
        self.result, self.ended = event.result, event.time

    @_take.register
    def _run_failed(self, event: kinds.RunFailed) -> None:
        self.failure, self.ended = (event.error, event.fix), event.time
        self.stopped = event.status == "stopped"
