"""One run from its first event to its last, however it ends."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from typing import Any

from dray.config.run_file import RunConfig
from dray.elastic.checkpoint_writer import CheckpointWriter
from dray.elastic.membership import Membership
from dray.elastic.stopped import RunStopped
from dray.errors import DrayError, StorageError
from dray.events.kinds import Event, PastStep, RunFailed, RunFinished, RunResumed, RunStarted, SourceConverted, Warned
from dray.events.telemetry import Sample, Sink, Telemetry
from dray.learners.checkpoint import START, Checkpoint
from dray.learners.learner import TrainedModel
from dray.learners.registry import find
from dray.learners.result import RunResult, Seconds
from dray.runs.checkpoints import Checkpoints
from dray.runs.directory import RunDirectory
from dray.storage import StorageOptions
from dray.training.run_data import Opened, RunData
from dray.training.session import Session


def run(
    config: RunConfig,
    storage: StorageOptions,
    directory: RunDirectory,
    sinks: Sequence[Sink],
    *,
    latest: Checkpoint = START,
    resumed: Sequence[str] | None = None,
    opened: Opened | None = None,
) -> RunResult:
    """Train from `latest` on; `resumed` are warnings about a run that was begun before, None for a new one.

    `opened`: the data, if it had to be open before the run began; the sinks were told then.
    """
    warnings, conversions, word = _Warnings(), _Conversions(), find(config.model).words.step
    own: list[Sink] = [directory, warnings, conversions]
    telemetry = Telemetry([*own, *sinks])
    directory.on_problem = lambda what, fix: telemetry.emit(Warned(what, fix))
    checkpoints = Checkpoints(directory)
    writer = CheckpointWriter(checkpoints, telemetry, latest)
    work = _Run(config, storage, directory, telemetry, writer, warnings.messages, opened)
    try:
        telemetry.emit(RunStarted(directory.run, directory.location, config.model_dump(), step=word))
        if resumed is not None:
            rounds = [PastStep(done.round, done.metrics) for done in latest.rounds]
            telemetry.emit(RunResumed(round=latest.round, rounds=rounds, from_=directory.location))
        for message in resumed or ():
            telemetry.emit(Warned(message))
        if opened is not None:
            for event in opened.told:
                Telemetry(own).emit(event)
        result = work.result()
        writer.close(write=False)
        directory.finish(result.to_json())  # not left to a sink: a result that cannot be written is a failure
        telemetry.emit(RunFinished(result=result.to_json()))
    except BaseException as error:
        conversions.name_sources(error)
        writer.close(write=work.begun)
        _end_badly(error, directory, telemetry, word, keep=writer.written > 0 or resumed is not None)
        raise
    with suppress(StorageError):  # they only take up room
        checkpoints.clear()
    telemetry.close()
    return result


class _Run:
    """One session with one fit. Made for one call of `result`."""

    def __init__(
        self,
        config: RunConfig,
        storage: StorageOptions,
        directory: RunDirectory,
        telemetry: Telemetry,
        writer: CheckpointWriter,
        warnings: list[str],
        opened: Opened | None,
    ) -> None:
        self._config = config
        self._storage = storage
        self._directory = directory
        self._telemetry = telemetry
        self._writer = writer
        self._warnings = warnings
        self._opened = opened
        self._session: Session | None = None

    @property
    def begun(self) -> bool:
        """Rounds are being trained: what comes of them is worth keeping."""
        return self._session is not None and self._session.begun

    def result(self) -> RunResult:
        if self._opened is None:
            data = RunData(self._config, self._storage, self._telemetry, self._directory)
        else:
            data = self._opened.data
            data.go_on(self._telemetry, self._directory)
        with closing(data):
            session = Session(
                self._config,
                self._storage,
                self._telemetry,
                data,
                latest=self._writer.latest,
                on_start=self._note_workers,
            )
            self._session = session
            with closing(session):
                trained = session.train(writer=self._writer, last=True)
                trained.save(self._directory)
        return _in_place(trained.result(self._directory, self._common(session, data, trained)), self._directory)

    def _common(self, session: Session, data: RunData, trained: TrainedModel) -> dict[str, Any]:
        """Return the fields of the result that do not depend on the learner."""
        return {
            "run": self._directory.run,
            "directory": self._directory.location,
            "learner": self._config.model,
            "workers": session.workers,
            "baseline": dict(trained.baseline.metrics),
            "verdict": trained.baseline.verdict(trained.metrics),
            "seconds": _seconds(session, data.copy_s),
            "threads": session.threads,
            "peak_memory_bytes": session.membership.watch.peak_memory_bytes,
            "failures": session.membership.failures,
            "rows_reloaded": session.rows_reloaded,
            "warnings": tuple(self._warnings),
        }

    def _note_workers(self, membership: Membership) -> None:
        workers = [asdict(member) for member in membership.ready.values()]
        self._directory.describe(cluster={"name": membership.cluster, "workers": workers})


def _in_place(result: RunResult, directory: RunDirectory) -> RunResult:
    """Return the result with the places that hold when the run has taken that of another."""
    now, final = directory.location, directory.final
    if now == final:
        return result
    return replace(result, directory=final, model=final + result.model.removeprefix(now))


def _seconds(session: Session, copy_s: float) -> Seconds:
    begin, started, loaded, trained = session.times
    total = time.perf_counter() - begin
    return Seconds(started - begin - copy_s, loaded - started, trained - loaded, session.recovery_s, total, copy_s)


def _end_badly(error: BaseException, directory: RunDirectory, telemetry: Telemetry, word: str, *, keep: bool) -> None:
    """A mistake leaves nothing behind; a failure leaves what explains it, and a run that can be resumed."""
    if isinstance(error, DrayError):
        what, fix = error.what, error.fix
    elif isinstance(error, KeyboardInterrupt | SystemExit):
        what, fix = "The run was interrupted.", f"dray resume goes on from the last complete {word}." if keep else ""
    else:
        what, fix = f"{type(error).__name__}: {error}".rstrip(": "), ""
    stopped = isinstance(error, RunStopped | KeyboardInterrupt | SystemExit)
    mistake = isinstance(error, DrayError) and error.exit_code == 2 and not keep
    trace = None if mistake or stopped else "".join(traceback.format_exception(error))
    telemetry.emit(RunFailed(what, fix, "stopped" if stopped else None, trace))
    telemetry.close()
    if mistake:
        directory.remove()


class _Warnings:
    """A sink that keeps the warnings, for the result."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def event(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.messages.append(f"{event.message} {event.fix}".rstrip())

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


class _Conversions:
    """A sink that keeps which Parquet copies were made of the user's data, for an error to name what the user did."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}

    def event(self, event: Event) -> None:
        if isinstance(event, SourceConverted):
            self._sources[event.copy] = event.source

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass

    def name_sources(self, error: BaseException) -> None:
        """Put "the Parquet copy of events.jsonl" in the place of a file in the cache."""
        if not isinstance(error, DrayError):
            return
        what, fix, *more = error.args
        for copy, source in self._sources.items():
            file, words = rf"{re.escape(copy)}(/\S+?\.parquet)?", f"the Parquet copy of {source}".replace("\\", r"\\")
            what, fix = (re.sub(file, words, str(text)) for text in (what, fix))
        error.args = (what, fix, *more)
