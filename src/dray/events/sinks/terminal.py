"""A run on the terminal: a live view where there is one, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import singledispatchmethod
from typing import IO

from dray.events import kinds
from dray.events.epochs import describe_epoch, describe_pairs, describe_repetition, describe_unknown, name_worker
from dray.events.format import count, duration, many, metric, rate, size
from dray.events.run_view import RECOVER, RunView
from dray.events.sinks.summary import how_to_resume, summary
from dray.events.telemetry import Sample, Sink
from dray.events.visible import visible

PROGRESS_EVERY_S = 5.0
ROUNDS_EVERY_S = 60.0
STEPS_EVERY_S = 1.0
"""Steps that take less are not worth a line each: a short run fits on a screen."""
WAITING_EVERY_S = 60.0
_PHASES = {
    "start": "starting the workers",
    "evaluate": "ranking all items for the users of the test rows",
}
"""The other phases speak for themselves at once."""
_SAID_ALONE = ("workers: ", "threads: ")
"""Reasons that say nothing more than "this process, 2 threads" where there are no workers."""


def terminal(stream: IO[str], live: bool, speak: Callable[[str], str] = str) -> Sink:
    """Return a sink that shows a run on `stream`, which is stderr: stdout belongs to results.

    Ask for the live view when `stream` is a terminal; a log file gets lines, and so does a terminal that cannot
    move its cursor or show the symbols. `speak` puts what to do in the words of the caller.
    """
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
    if live and encoding == "utf8" and os.environ.get("TERM") not in ("dumb", "unknown"):
        from dray.events.sinks.live import LiveView  # rich is only loaded where it draws

        return LiveView(stream, speak=speak)
    return PlainLines(stream, speak)


class PlainLines:
    """Time-stamped lines: every step, a progress line every 5 s at most, every tenth of the rounds, every epoch."""

    def __init__(self, stream: IO[str], speak: Callable[[str], str] = str) -> None:
        self._stream = stream
        self._speak = speak
        self._progress = RunView()
        self._last_line = 0.0
        self._tenth = 0
        self._waiting: tuple[str, float] = ("", 0.0)

    def event(self, event: kinds.Event) -> None:
        self._progress.event(event)
        self._show(event)

    @singledispatchmethod
    def _show(self, _event: kinds.Event) -> None:
        """It is not worth a line."""

    @_show.register
    def _show_unknown(self, event: kinds.UnknownEvent) -> None:
        self._line(event, event.kind, describe_unknown(event))

    def sample(self, samples: list[Sample]) -> None:
        self._progress.sample(samples)

    def close(self) -> None:
        self._stream.flush()

    def _line(self, event: kinds.Event, label: str, text: str) -> None:
        stamp = time.strftime("%H:%M:%S", time.localtime(event.time))
        self._stream.write(f"{stamp}  {label:<8} {visible(text)}\n")
        self._stream.flush()

    @_show.register
    def _show_run_started(self, event: kinds.RunStarted) -> None:
        self._line(event, "run", f"{event.run} in {event.directory}")

    @_show.register
    def _show_phase_started(self, event: kinds.PhaseStarted) -> None:
        self._last_line = event.time
        text = _PHASES.get(event.name)
        if text and not event.alone:
            self._line(event, event.name, text)

    @_show.register
    def _show_data_found(self, event: kinds.DataFound) -> None:
        self._line(event, "data", describe_data(self._progress))

    @_show.register
    def _show_name_resolved(self, event: kinds.NameResolved) -> None:
        self._line(event, "name", describe_name(event))

    @_show.register
    def _show_source_converted(self, event: kinds.SourceConverted) -> None:
        made = f"copied to Parquet in {event.copy}"
        if not event.made:
            made = f"it has not changed since its Parquet copy{_of_when(event)} was made, {event.copy} is used"
        self._line(event, "data", f"{event.source} is {event.format}: {made}, {many(event.rows, 'rows')}")

    @_show.register
    def _show_decided(self, event: kinds.Decided) -> None:
        self._line(event, "decided", describe_decision(self._progress))
        for reason in event.reasons:
            if not (self._progress.alone and reason.startswith(_SAID_ALONE)):
                self._line(event, "", reason)

    @_show.register
    def _show_worker_started(self, event: kinds.WorkerStarted) -> None:
        if self._progress.alone:
            return
        again = " (replacement)" if event.replacement else ""
        threads = many(event.threads, "threads")
        self._line(event, "start", f"{name_worker(event.worker, event.host)}, {threads}{again}")

    @_show.register
    def _show_worker_busy(self, event: kinds.WorkerBusy) -> None:
        self._line(event, "start", event.doing)

    @_show.register
    def _show_worker_lost(self, event: kinds.WorkerLost) -> None:
        self._line(event, "lost", describe_loss(event, self._progress.word))

    @_show.register
    def _show_shard_loading(self, event: kinds.ShardLoading) -> None:
        self._line(event, "reload", f"worker {event.worker}: {many(event.rows, 'rows')} ({event.why})")

    @_show.register
    def _show_waiting(self, event: kinds.Waiting) -> None:
        why, (told, then) = self._progress.waiting, self._waiting
        # The words may count seconds: those are not worth a line each.
        if event.time - then >= (WAITING_EVERY_S if why == told else PROGRESS_EVERY_S):
            self._waiting = (why, event.time)
            self._line(event, "waiting", why)

    @_show.register
    def _show_attempt_started(self, event: kinds.AttemptStarted) -> None:
        self._waiting = ("", 0.0)
        if not event.round:  # it begins, as one expects
            return
        text = f"{many(event.members, 'members')} on {many(event.workers, 'workers')}"
        self._line(event, "ring", f"{text}, training goes on after {self._progress.word} {event.round}")

    @_show.register
    def _show_recovered(self, event: kinds.Recovered) -> None:
        reloaded = f", {many(event.rows_reloaded, 'rows')} reloaded" if event.rows_reloaded else ""
        following = f"{self._progress.word} {event.round + 1} is next"
        self._line(event, "recover", f"{duration(event.seconds)}{reloaded}, {following}")

    @_show.register
    def _show_worker_joined(self, event: kinds.WorkerJoined) -> None:
        since = f"from {self._progress.word} {event.round} on"
        self._line(event, "joined", f"{name_worker(event.worker, event.host)}: {many(event.rows, 'rows')} {since}")

    @_show.register(kinds.WorkerLeaving)
    @_show.register(kinds.WorkerLeft)
    def _show_departure(self, event: kinds.WorkerLeaving | kinds.WorkerLeft) -> None:
        self._line(event, event.kind, f"{name_worker(event.worker, event.host)}: {event.why}")

    @_show.register
    def _show_run_resumed(self, event: kinds.RunResumed) -> None:
        progress = self._progress
        self._tenth = 10 * progress.round // progress.rounds if progress.rounds else 0
        source = event.from_
        elsewhere = f", from {source}" if source and source != progress.directory else ""
        self._line(event, "resumed", f"after {progress.word} {progress.round}{elsewhere}")

    @_show.register
    def _show_worker_progress(self, event: kinds.WorkerProgress) -> None:
        if self._progress.phase in ("load", RECOVER):  # a joining worker loads beside the training
            self._paced_line(event)

    @_show.register
    def _show_progress(self, event: kinds.Progress) -> None:
        self._paced_line(event)

    @_show.register
    def _show_shard_loaded(self, event: kinds.ShardLoaded) -> None:
        by = "" if self._progress.alone else f"worker {event.worker}: "
        self._line(event, "load", f"{by}{many(event.rows, 'rows')} in {duration(event.seconds)}")

    @_show.register
    def _show_pairs_found(self, event: kinds.PairsFound) -> None:
        self._line(event, "events", describe_pairs(event))

    @_show.register
    def _show_step_repeated(self, event: kinds.StepRepeated) -> None:
        self._line(event, "diverged", describe_repetition(event))

    @_show.register
    def _show_step_finished(self, event: kinds.StepFinished) -> None:
        progress = self._progress
        since = event.time - self._last_line
        if since < (STEPS_EVERY_S if progress.metrics else PROGRESS_EVERY_S):
            return
        if progress.epoch:  # takes seconds or minutes, and is worth a line
            self._last_line = event.time
            self._line(event, "train", describe_epoch(event, progress.rows_are, alone=progress.alone))
            return
        tenth = 10 * progress.round // progress.rounds if progress.rounds else 0
        if tenth == self._tenth and since < ROUNDS_EVERY_S:
            return
        self._tenth, self._last_line = tenth, event.time
        bar = progress.bar(event.time)
        eta = f", {duration(bar.eta_s)} left" if bar and bar.eta_s else ""
        self._line(event, "train", f"round {progress.round} of {progress.rounds}{describe_metrics(progress)}{eta}")

    @_show.register
    def _show_warned(self, event: kinds.Warned) -> None:
        self._line(event, "warning", self._speak(f"{event.message} {event.fix}".rstrip()))

    @_show.register
    def _show_run_finished(self, event: kinds.RunFinished) -> None:
        for label, text in summary(self._progress, event.time):
            self._line(event, label.lower(), self._speak(text))

    @_show.register
    def _show_run_failed(self, event: kinds.RunFailed) -> None:
        self._line(event, "stopped" if self._progress.stopped else "failed", event.error)
        if command := how_to_resume(self._progress):
            self._line(event, "next", command)

    def _paced_line(self, event: kinds.Event) -> None:
        bar = self._progress.bar(event.time)
        if bar is None or event.time - self._last_line < PROGRESS_EVERY_S:
            return
        self._last_line = event.time
        eta = f", {duration(bar.eta_s)} left" if bar.eta_s else ""
        text = many(bar.done, bar.unit)
        if bar.total is not None:
            text = f"{count(bar.done)} of {many(bar.total, bar.unit)} ({bar.fraction:.0%}){eta}"
        if bar.rate and bar.unit == "items":
            text += f", {rate(bar.rate)} items/s"
        self._line(event, self._progress.phase or "work", text)


def describe_name(event: kinds.NameResolved) -> str:
    return f"{event.name} is {event.location}"


def describe_loss(lost: kinds.WorkerLost, word: str = "round") -> str:
    """Return "worker 1 on host-b (pid 1234): its process was killed (SIGKILL); noticed after 0.3 s, about round 51"."""
    pid = f" (pid {lost.pid})" if lost.pid is not None else ""
    text = f"{name_worker(lost.worker, lost.host)}{pid}: {lost.cause}; noticed after {duration(lost.noticed_after_s)}"
    return f"{text}, about {word} {lost.round}" if lost.round else f"{text}, in phase {lost.phase}"


def describe_data(progress: RunView) -> str:
    """Return "1,000,000 rows x 100 features in 16 files (412 MB)"."""
    data, converted = progress.data, progress.converted
    if data is None:
        return ""
    text = many(data.rows, "rows")
    text += f" x {many(data.features, 'features')}" if data.features is not None else ""
    text += f" in {many(data.files, 'files')} ({size(data.bytes)})"
    if converted is None:
        return text
    when = "" if converted.made else _of_when(converted).replace(" of ", " made ", 1)
    return f"{text}, a Parquet copy of {converted.format}{when}"


def _of_when(converted: kinds.SourceConverted) -> str:
    """Return " of 2026-01-31 12:00 UTC"; nothing of a copy that does not say when it was made."""
    return f" of {converted.made_at[:16].replace('T', ' ')} UTC" if converted.made_at else ""


def describe_decision(progress: RunView) -> str:
    """Return "2 workers x 4 threads, binary:logistic"; nothing before it is decided."""
    if (decided := progress.decided) is None:
        return ""
    text = f"{many(decided.workers, 'workers')} x " if decided.workers else "this process, "
    return f"{text}{many(decided.threads, 'threads')}, {decided.objective}"


def describe_metrics(progress: RunView) -> str:
    """Return ", eval-auc 0.83121 (best 0.83140 at round 84)" for each metric."""
    text = ""
    for name, value in progress.metrics.items():
        best = progress.best.get(name)
        text += f", {name} {metric(value)}"
        text += f" (best {metric(best.value)} at round {best.round})" if best and best.round != progress.round else ""
    return text
