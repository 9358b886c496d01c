"""The live view of a run, drawn with rich.

One thread draws, at most twice a second and only when something has changed (or a second has passed, for
the clock); events and samples merely update the state, so that reporting costs training nothing.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dray.events.epochs import describe_pairs, describe_repetition, describe_unknown, pace
from dray.events.figures import Bar
from dray.events.format import brief, clock, count, duration, many, metric, rate, size, sparkline
from dray.events.kinds import Event, NameResolved, StepFinished
from dray.events.run_view import COPY, PHASES, RECOVER, RunView
from dray.events.sinks.console import SafeConsole
from dray.events.sinks.summary import describe_failures, how_to_resume, summary
from dray.events.sinks.terminal import describe_data, describe_decision, describe_name
from dray.events.telemetry import DRIVER, Sample
from dray.events.worker_view import State, WorkerView

REFRESH_S = 0.5
CLOCK_S = 1.0
_MAX_WARNINGS = 3
_STATES: dict[State, str] = {"lost": "bold red", "leaving": "yellow", "joined": "green"}


class LiveView:
    """A sink that keeps a view of the run on the terminal, and leaves a summary when it ends."""

    def __init__(self, stream: IO[str], console: Console | None = None, *, speak: Callable[[str], str] = str) -> None:
        self._speak = speak
        self._console = console or SafeConsole(file=stream, highlight=False)
        self._progress = RunView()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closing = threading.Event()
        self._failure: Exception | None = None
        # transient: the summary takes the place of the view. stdout stays as it is, it belongs to results.
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._drawer = threading.Thread(target=self._draw_on_change, name="live-view", daemon=True)
        self._live.start()
        self._drawer.start()
        atexit.register(self.close)  # an exit without close must not leave the cursor hidden

    def event(self, event: Event) -> None:
        self._raise_failure()
        if isinstance(event, NameResolved):  # above the view, where it stays
            self._console.print(Text(describe_name(event), style="dim"))
        with self._lock:
            self._progress.event(event)
        self._changed.set()

    def sample(self, samples: list[Sample]) -> None:
        with self._lock:
            self._progress.sample(samples)
        self._changed.set()

    def close(self) -> None:
        if self._closing.is_set():
            return
        atexit.unregister(self.close)
        self._closing.set()
        self._changed.set()
        self._drawer.join()
        self._live.stop()
        self._console.print(ending(self._progress, time.time(), self._speak), end="")

    def _draw_on_change(self) -> None:
        try:
            while not self._closing.is_set():
                self._changed.wait(CLOCK_S)
                self._changed.clear()
                with self._lock:
                    picture = view(self._progress, time.time(), self._console)
                self._live.update(picture, refresh=True)
                self._closing.wait(REFRESH_S)
        except Exception as error:  # told by the next event, which drops this sink
            self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def view(progress: RunView, now: float, console: Console) -> RenderableType:
    """Return the picture of a run at `now`, to fit the console."""
    parts: list[RenderableType] = [_head(progress, now)]
    if progress.phase is not None:
        parts.append(_phases(progress, now))
    facts = " · ".join(text for text in (describe_data(progress), describe_decision(progress)) if text)
    if facts:
        parts.append(Text(facts, style="dim", no_wrap=True, overflow="ellipsis"))
    if progress.pairs:
        parts.append(Text(describe_pairs(progress.pairs), style="dim", no_wrap=True, overflow="ellipsis"))
    if progress.doing:
        parts.append(Text(progress.doing, style="dim", no_wrap=True, overflow="ellipsis"))
    bar = progress.bar(now)
    if bar is not None:
        parts += [Text(), _bar(progress, bar, console.width)]
    if progress.epoch:
        parts.append(_epoch(progress.epoch, progress.rows_are))
    if progress.metrics:
        parts.append(_metrics(progress, console.width))
    events = _events(progress, now)
    parts += events
    used = (
        10
        + len(progress.metrics)
        + len(events)
        + bool(progress.pairs)
        + bool(progress.epoch)
        + 2 * min(len(progress.warnings), _MAX_WARNINGS)
    )
    workers = progress.shown_workers
    if workers:
        parts += [Text(), *_workers(workers, max(2, console.height - used), progress.rows_are)]
    if progress.warnings:
        parts += [Text(), _warnings(progress.warnings, _MAX_WARNINGS)]
    return Group(*parts)


def ending(progress: RunView, now: float, speak: Callable[[str], str] = str) -> RenderableType:
    """Return what stays on the terminal: the warnings, then the summary of a finished run."""
    parts: list[RenderableType] = []
    if progress.warnings:
        spoken = [(speak(message), speak(fix)) for message, fix in progress.warnings]
        parts.append(_warnings(spoken, len(spoken)))
    if progress.result is not None:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for label, text in summary(progress, now):
            table.add_row(label, Text(speak(text), style="bold" if label in ("Metric", "Next") else ""))
        parts += [Text(f"✓ Done in {duration(progress.elapsed(now))}", style="bold green"), table]
    elif progress.failure is not None:
        where = f" in phase {progress.phase}" if progress.phase else ""
        word, style = ("■ Stopped", "bold yellow") if progress.stopped else ("✗ Failed", "bold red")
        parts.append(Text(f"{word} after {duration(progress.elapsed(now))}{where}", style=style))
        if command := how_to_resume(progress):
            parts.append(Text.assemble("  To go on: ", (command, "bold")))
    return Group(*parts)


def _head(progress: RunView, now: float) -> RenderableType:
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    title = Text.assemble(("dray", "bold cyan"), "  ", (progress.run, "bold"))
    grid.add_row(title, Text(clock(progress.elapsed(now)), style="cyan"))
    return grid


def _phases(progress: RunView, now: float) -> Text:
    seconds = progress.seconds_by_phase(now)
    names = list(seconds)
    if progress.phase in (*PHASES, COPY, RECOVER):
        first, *others, last = PHASES
        copy = [COPY] if COPY in seconds else []
        names = [first, *copy, *others, *(name for name in seconds if name not in (*PHASES, COPY)), last]
    text = Text(no_wrap=True, overflow="ellipsis")
    for name in names:
        if name == progress.phase:
            text.append(f"● {name} {duration(seconds[name])}   ", style="bold yellow")
        elif name == "train" and progress.phase == RECOVER:
            text.append(f"○ {name} {duration(seconds[name])}   ", style="dim")
        elif name in seconds:
            text.append("✓ ", style="green").append(f"{name} ").append(f"{duration(seconds[name])}   ", style="dim")
        else:
            text.append(f"○ {name}   ", style="dim")
    return text


def _bar(progress: RunView, bar: Bar, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    amount = many(bar.done, bar.unit) if bar.total is None else f"{count(bar.done)}/{many(bar.total, bar.unit)}"
    done = Text(amount, no_wrap=True)
    speed = Text(no_wrap=True)
    if bar.unit == f"{progress.word}s" and progress.round_seconds:
        mean = sum(progress.round_seconds) / len(progress.round_seconds)
        speed.append(f"{duration(mean)}/{progress.word}", style="dim")
    elif bar.rate:
        speed.append(f"{rate(bar.rate)} {bar.unit}/s", style="dim")
    eta = Text(f"ETA {clock(bar.eta_s + 0.5)}" if bar.eta_s else "", style="cyan", no_wrap=True)
    picture = ProgressBar(
        total=1.0,
        completed=bar.fraction,
        width=max(10, min(50, width - 60)),
        complete_style="cyan",
        finished_style="green",
    )
    if bar.total is None:  # no end to compare with
        grid.add_row(done, speed)
    else:
        grid.add_row(picture, Text(f"{bar.fraction:4.0%}", style="bold"), done, eta, speed)
    return grid


def _epoch(done: StepFinished, rows_are: str) -> Text:
    """The newest epoch: its time, and the pace of all workers; the table has that of each."""
    rates = [told.rows_per_second for told in done.workers or []]
    words = [f"epoch {done.round}", duration(done.seconds) if done.seconds is not None else ""]
    words.append(pace(sum(rate or 0.0 for rate in rates), rows_are) if any(rates) else "")
    if done.learning_rate and done.halvings:
        words.append(f"learning rate {done.learning_rate:.3g}")
    return Text(", ".join(word for word in words if word), style="dim", no_wrap=True, overflow="ellipsis")


def _metrics(progress: RunView, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, value in progress.metrics.items():
        best = progress.best.get(name)
        text = Text(f"best {metric(best.value)} at {progress.word} {best.round}" if best else "", style="dim")
        text.no_wrap = True
        values = list(progress.history[name].values())
        course = Text(sparkline(values, max(8, min(32, width - 60))), style="magenta", no_wrap=True)
        grid.add_row(Text(name, style="bold"), Text(metric(value), style="bold green"), course, text)
    return grid


def _events(progress: RunView, now: float) -> list[RenderableType]:
    """What keeps the run from its straight way, and how much of it is safe; a line each."""
    lines = []
    if failures := describe_failures(progress.failures):
        lines.append(Text.assemble(("Failures  ", "bold yellow"), (failures, "yellow")))
    if progress.repeated:
        lines.append(Text.assemble(("Diverged  ", "bold yellow"), describe_repetition(progress.repeated)))
    if progress.unknown:
        lines.append(Text(f"{progress.unknown.kind}  {describe_unknown(progress.unknown)}", style="dim"))
    if progress.waiting:
        lines.append(Text.assemble(("Waiting  ", "bold yellow"), progress.waiting))
    if progress.checkpoint is not None:
        round_, then = progress.checkpoint
        lines.append(Text(f"checkpoint: {progress.word} {round_}, {_ago(now - then)} ago", style="dim"))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return list(lines)


def _ago(seconds: float) -> str:
    return f"{max(0.0, seconds):.0f} s" if seconds < 120 else clock(seconds)


def _workers(workers: list[WorkerView], room: int, rows_are: str = "rows") -> list[RenderableType]:
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("worker", no_wrap=True)
    table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=32)
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("cores used", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    told = [_rate] if any(worker.rows_per_second for worker in workers) else []
    if told:
        table.add_column(f"{rows_are}/s", justify="right", no_wrap=True)
    if any(worker.state for worker in workers):
        told.append(_state)
        table.add_column("state", no_wrap=True)
    shown = workers if len(workers) <= room else workers[: room - 1]
    for worker in shown:
        table.add_row(
            "driver" if worker.worker == DRIVER else str(worker.worker),
            worker.host,
            _rows(worker),
            _cores(worker),
            size(worker.memory_bytes) if worker.memory_bytes is not None else "",
            *(tell(worker) for tell in told),
        )
    if len(shown) == len(workers):
        return [table]
    rest = workers[len(shown) :]
    cores, memory = sum(w.cores or 0 for w in rest), sum(w.memory_bytes or 0 for w in rest)
    rows = sum(w.rows for w in rest)
    text = f"and {len(rest)} more: {many(rows, 'rows')}, {cores:.1f} cores, {size(memory)}"
    return [table, Text(text, style="dim")]


def _rows(worker: WorkerView) -> Text:
    if worker.worker == DRIVER:
        return Text()
    if worker.loaded or not worker.total_rows or worker.state:
        return Text(count(worker.rows) if worker.rows else "")
    return Text.assemble(count(worker.rows), (f" {worker.rows / worker.total_rows:4.0%}", "yellow"))


def _rate(worker: WorkerView) -> Text:
    return Text(brief(worker.rows_per_second) if worker.rows_per_second else "")


def _state(worker: WorkerView) -> Text:
    share = f" {worker.reloaded:.0%}" if worker.state == "reloading" else ""
    return Text(f"{worker.state}{share}", style=_STATES.get(worker.state, "yellow"))


def _cores(worker: WorkerView) -> Text:
    if worker.cores is None:
        return Text("")
    if not worker.threads:
        return Text(f"{worker.cores:.1f}", style="dim" if worker.worker == DRIVER else "")
    filled = round(8 * min(1.0, worker.cores / worker.threads))
    color = "green" if worker.ok else "red"
    number = f" {worker.cores:.1f} of {worker.threads}"
    return Text.assemble(("■" * filled, color), ("■" * (8 - filled), "grey37"), number)


def _warnings(warnings: list[tuple[str, str]], at_most: int) -> Text:
    text = Text()
    for message, fix in warnings[-at_most:]:
        text.append("! ", style="bold yellow").append(message, style="yellow")
        text.append(f" {fix}\n" if fix else "\n")
    text.rstrip()
    return text
