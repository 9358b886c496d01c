"""One run from its first event to its last, however it ends."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Protocol

from dray.config.run_file import RunConfig
from dray.errors import DrayError, StorageError
from dray.events.kinds import Event, PastStep, RunFailed, RunFinished, RunResumed, RunStarted, SourceConverted, Warned
from dray.events.telemetry import Sample, Sink, Telemetry
from dray.learners.checkpoint import START, Checkpoint
from dray.learners.registry import find
from dray.runs.checkpoints import Checkpoints
from dray.runs.directory import RunDirectory
from dray.storage import StorageOptions
from dray.training.keeper import Keeper
from dray.training.outcome import Result
from dray.training.steps import Training
from dray.training.stopped import RunStopped


class Trainable(Protocol):
    """The steps of a run, of either model. Made for one call of `run`."""

    begun: bool
    """Rounds are being trained: what comes of them is worth keeping."""

    def run(self) -> Result: ...
    def close(self) -> None: ...


def conduct(
    config: RunConfig,
    storage: StorageOptions,
    directory: RunDirectory,
    sinks: Sequence[Sink],
    *,
    standing: Checkpoint = START,
    resumed: Sequence[str] | None = None,
) -> Result:
    """Train from `standing` on; `resumed` are warnings about a run that was begun before, None for a new one."""
    warnings, copies, word = _Warnings(), _Copies(), find(config.model).words.step
    telemetry = Telemetry([directory, warnings, copies, *sinks])
    directory.on_problem = lambda what, fix: telemetry.emit(Warned(what, fix))
    checkpoints = Checkpoints(directory)
    keeper = Keeper(checkpoints, telemetry, standing)
    training = _steps(config, storage, directory, telemetry, keeper, warnings.messages)
    try:
        telemetry.emit(RunStarted(directory.run, directory.location, config.model_dump(), step=word))
        if resumed is not None:
            rounds = [PastStep(done.round, done.metrics) for done in standing.rounds]
            telemetry.emit(RunResumed(round=standing.round, rounds=rounds, from_=directory.location))
        for message in resumed or ():
            telemetry.emit(Warned(message))
        with closing(training):
            result = training.run()
        keeper.close(write=False)
        directory.finish(result.to_json())  # not left to a sink: a result that cannot be written is a failure
        telemetry.emit(RunFinished(result=result.to_json()))
    except BaseException as error:
        copies.name_sources(error)
        keeper.close(write=training.begun)
        _end_badly(error, directory, telemetry, word, keep=keeper.written > 0 or resumed is not None)
        raise
    with suppress(StorageError):  # they only take up room
        checkpoints.clear()
    telemetry.close()
    return result


def _steps(
    config: RunConfig,
    storage: StorageOptions,
    directory: RunDirectory,
    telemetry: Telemetry,
    keeper: Keeper,
    warnings: list[str],
) -> Trainable:
    if config.model == "factorization":
        from dray.training.factorization.steps import FactorTraining

        return FactorTraining(config, storage, directory, telemetry, keeper, warnings)
    return Training(config, storage, directory, telemetry, keeper, warnings)


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


class _Copies:
    """A sink that keeps which Parquet copies stand for the user's data, for an error to name what the user did."""

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
