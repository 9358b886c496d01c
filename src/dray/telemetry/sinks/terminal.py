"""A run on the terminal: a live view where there is one, plain lines elsewhere."""

from __future__ import annotations

import os
import time
from typing import IO, Any

from dray.telemetry.epochs import describe_divergence, describe_epoch, describe_events
from dray.telemetry.events import Event, Sample, Sink
from dray.telemetry.format import count, duration, many, metric, rate, size
from dray.telemetry.progress import RECOVER, Progress
from dray.telemetry.sinks.summary import how_to_resume, summary

PROGRESS_EVERY_S = 5.0
ROUNDS_EVERY_S = 60.0
WAITING_EVERY_S = 60.0
_PHASES = {
    "start": "starting the workers",
    "evaluate": "ranking all items for the users of the test part",
    "save": "writing the model",
}
"""The other phases speak for themselves at once."""


def terminal(stream: IO[str], live: bool) -> Sink:
    """Return a sink that shows a run on `stream`, which is stderr: stdout belongs to results.

    Ask for the live view when `stream` is a terminal; a log file gets lines, and so does a terminal that cannot
    move its cursor or show the symbols.
    """
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
    if live and encoding == "utf8" and os.environ.get("TERM") not in ("dumb", "unknown"):
        from dray.telemetry.sinks.live import LiveView  # rich is only loaded where it draws

        return LiveView(stream)
    return PlainLines(stream)


class PlainLines:
    """Time-stamped lines: every step, a progress line every 5 s at most, every tenth of the rounds, every epoch."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._progress = Progress()
        self._last_line = 0.0
        self._tenth = 0
        self._waiting: tuple[str, float] = ("", 0.0)

    def event(self, event: Event) -> None:
        self._progress.event(event)
        handle = getattr(self, f"_on_{event.kind}", None)
        if handle is not None:
            handle(event)

    def sample(self, samples: list[Sample]) -> None:
        self._progress.sample(samples)

    def close(self) -> None:
        self._stream.flush()

    def _line(self, event: Event, label: str, text: str) -> None:
        stamp = time.strftime("%H:%M:%S", time.localtime(event.time))
        self._stream.write(f"{stamp}  {label:<8} {text}\n")
        self._stream.flush()

    def _on_run_started(self, event: Event) -> None:
        self._line(event, "run", f"{event.data.get('run')} in {event.data.get('directory')}")

    def _on_phase(self, event: Event) -> None:
        self._last_line = event.time
        text = _PHASES.get(event.data["name"])
        if text:
            self._line(event, event.data["name"], text)

    def _on_data(self, event: Event) -> None:
        self._line(event, "data", describe_data(self._progress))

    def _on_copied(self, event: Event) -> None:
        data = event.data
        made = f"copied to Parquet in {data['copy']}"
        if not data["made"]:
            made = f"it has not changed since its Parquet copy{_of_when(data)} was made, {data['copy']} is used"
        self._line(event, "data", f"{data['source']} is {data['format']}: {made}, {many(data['rows'], 'rows')}")

    def _on_decided(self, event: Event) -> None:
        self._line(event, "decided", describe_decision(self._progress))
        for reason in event.data.get("reasons") or []:
            self._line(event, "", str(reason))

    def _on_worker_started(self, event: Event) -> None:
        data = event.data
        again = " (replacement)" if data.get("replacement") else ""
        threads = f", {many(data['threads'], 'threads')}" if data.get("threads") is not None else ""
        self._line(event, "start", f"{_worker(data)}{threads}{again}")

    def _on_worker_lost(self, event: Event) -> None:
        self._line(event, "lost", describe_loss(event.data, self._progress.word))

    def _on_reload(self, event: Event) -> None:
        why = f" ({event.data['why']})" if event.data.get("why") else ""
        self._line(event, "reload", f"worker {event.data['worker']}: {many(event.data['rows'], 'rows')}{why}")

    def _on_waiting(self, event: Event) -> None:
        why, (told, then) = self._progress.waiting, self._waiting
        # The words may count seconds: those are not worth a line each.
        if event.time - then >= (WAITING_EVERY_S if why == told else PROGRESS_EVERY_S):
            self._waiting = (why, event.time)
            self._line(event, "waiting", why)

    def _on_ring(self, event: Event) -> None:
        self._waiting = ("", 0.0)
        data = event.data
        if data["members"] == 1 and not data["round"]:  # no ring to speak of
            return
        text = f"{many(data['members'], 'members')} on {many(data['workers'], 'workers')}"
        goes_on = f"goes on after {self._progress.word} {data['round']}" if data["round"] else "begins"
        self._line(event, "ring", f"{text}, training {goes_on}")

    def _on_recovered(self, event: Event) -> None:
        data = event.data
        reloaded = f", {many(data['rows_reloaded'], 'rows')} reloaded" if data.get("rows_reloaded") else ""
        following = f"{self._progress.word} {data['round'] + 1} is next"
        self._line(event, "recover", f"{duration(data['seconds'])}{reloaded}, {following}")

    def _on_joined(self, event: Event) -> None:
        data = event.data
        since = f"from {self._progress.word} {data['round']} on"
        self._line(event, "joined", f"{_worker(data)}: {many(data['rows'], 'rows')} {since}")

    def _on_leaving(self, event: Event) -> None:
        self._line(event, "leaving", f"{_worker(event.data)}: {event.data.get('why')}")

    def _on_left(self, event: Event) -> None:
        self._line(event, "left", f"{_worker(event.data)}: {event.data.get('why')}")

    def _on_resumed(self, event: Event) -> None:
        progress = self._progress
        self._tenth = 10 * progress.round // progress.rounds if progress.rounds else 0
        source = event.data.get("from")
        elsewhere = f", from {source}" if source and source != progress.directory else ""
        self._line(event, "resumed", f"after {progress.word} {progress.round}{elsewhere}")

    def _on_worker_progress(self, event: Event) -> None:
        if self._progress.phase in ("load", RECOVER):  # a newcomer loads beside the training
            self._paced_line(event)

    def _on_progress(self, event: Event) -> None:
        self._paced_line(event)

    def _on_worker_loaded(self, event: Event) -> None:
        data = event.data
        seconds = f" in {duration(data['seconds'])}" if data.get("seconds") is not None else ""
        self._line(event, "load", f"worker {data['worker']}: {many(data['rows'], 'rows')}{seconds}")

    def _on_events(self, event: Event) -> None:
        self._line(event, "events", describe_events(event.data))

    def _on_diverged(self, event: Event) -> None:
        self._line(event, "diverged", describe_divergence(event.data))

    def _on_round(self, event: Event) -> None:
        progress = self._progress
        if progress.epoch:  # takes seconds or minutes, and is worth a line
            self._last_line = event.time
            self._line(event, "train", describe_epoch(event.data, progress.rows_are, alone=progress.alone))
            return
        tenth = 10 * progress.round // progress.rounds if progress.rounds else 0
        if tenth == self._tenth and event.time - self._last_line < ROUNDS_EVERY_S:
            return
        self._tenth, self._last_line = tenth, event.time
        bar = progress.bar(event.time)
        eta = f", {duration(bar.eta_s)} left" if bar and bar.eta_s else ""
        self._line(event, "train", f"round {progress.round} of {progress.rounds}{describe_metrics(progress)}{eta}")

    def _on_threads(self, event: Event) -> None:
        data = event.data
        if data.get("used") is not None:
            self._line(event, "threads", f"worker {data['worker']}: {data['used']:.2f} of {data['decided']} cores used")

    def _on_warning(self, event: Event) -> None:
        self._line(event, "warning", f"{event.data.get('message')} {event.data.get('fix') or ''}".rstrip())

    def _on_run_finished(self, event: Event) -> None:
        for label, text in summary(self._progress, event.time):
            self._line(event, label.lower(), text)

    def _on_run_failed(self, event: Event) -> None:
        self._line(event, "stopped" if self._progress.stopped else "failed", str(event.data.get("error")))
        if command := how_to_resume(self._progress):
            self._line(event, "next", command)

    def _paced_line(self, event: Event) -> None:
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


def describe_loss(data: dict[str, Any], word: str = "round") -> str:
    """Return "worker 1 on host-b (pid 1234): its process was killed (SIGKILL); noticed after 0.3 s, about round 51"."""
    pid = f" (pid {data['pid']})" if data.get("pid") is not None else ""
    text = f"{_worker(data)}{pid}: {data.get('cause') or 'no sign of life'}"
    noticed = data.get("noticed_after_s")
    text += f"; noticed after {duration(noticed)}" if noticed is not None else ""
    if data.get("round"):
        return f"{text}, about {word} {data['round']}"
    return text + (f", in phase {data['phase']}" if data.get("phase") else "")


def _worker(data: dict[str, Any]) -> str:
    return f"worker {data['worker']}" + (f" on {data['host']}" if data.get("host") else "")


def describe_data(progress: Progress) -> str:
    """Return "1,000,000 rows x 100 features in 16 files (412 MB)"."""
    data = progress.data
    text = many(data["rows"], "rows") if data.get("rows") is not None else ""
    text += f" x {many(data['features'], 'features')}" if data.get("features") is not None else ""
    text += f" in {many(data['files'], 'files')}" if data.get("files") else ""
    text += f" ({size(data['bytes'])})" if data.get("bytes") else ""
    if not (text and progress.copied):
        return text
    when = "" if progress.copied["made"] else _of_when(progress.copied).replace(" of ", " made ", 1)
    return f"{text}, a Parquet copy of {progress.copied['format']}{when}"


def _of_when(copied: dict[str, Any]) -> str:
    """Return " of 2026-01-31 12:00 UTC"; nothing of a copy that does not say when it was made."""
    made_at = copied.get("made_at")
    return f" of {made_at[:16].replace('T', ' ')} UTC" if made_at else ""


def describe_decision(progress: Progress) -> str:
    """Return "2 workers x 4 threads, binary:logistic"."""
    decided = progress.decided
    workers, threads = decided.get("workers"), decided.get("threads")
    text = f"{many(workers, 'workers')} x " if workers else "this process, "
    text += many(threads, "threads") if threads is not None else "all threads"
    return text + (f", {decided['objective']}" if decided.get("objective") else "")


def describe_metrics(progress: Progress) -> str:
    """Return ", eval-auc 0.83121 (best 0.83140 at round 84)" for each metric."""
    text = ""
    for name, value in progress.metrics.items():
        best = progress.best.get(name)
        text += f", {name} {metric(value)}"
        text += f" (best {metric(best.value)} at round {best.round})" if best and best.round != progress.round else ""
    return text
