"""A session: workers with loaded data, on which one fit after another runs.

Order matters when it opens: what can be wrong is looked at before what takes time. The footers come first, the workers
start while the learner reads its sample, and nothing is loaded before it is known what each worker shall hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self, TypeVar

from dray.clusters.resolve import Remote, resolve
from dray.config.run_file import RunConfig
from dray.elastic.checkpoint_writer import CheckpointWriter
from dray.elastic.controller import Controller
from dray.elastic.membership import Membership
from dray.elastic.starting import started_workers, trains_alone
from dray.errors import ConfigError
from dray.events.kinds import DataFound, Decided, PhaseStarted
from dray.events.telemetry import Sink, Telemetry
from dray.hints import speaks_python
from dray.learners.attempt import Coordinator, Loads
from dray.learners.checkpoint import START, Checkpoint
from dray.learners.configs import make_config
from dray.learners.learner import Fit, TrainedModel
from dray.learners.registry import find
from dray.learners.result import FitResult, ThreadProof
from dray.learners.row_mask import RowMask
from dray.storage import StorageOptions
from dray.training.checks import check_learner, require_library
from dray.training.run_data import RunData, terms_of

E = TypeVar("E")


class Session:
    """Owns the workers and what they hold, until `close`. One thread, one fit at a time."""

    def __init__(
        self,
        config: RunConfig,
        storage: StorageOptions,
        telemetry: Telemetry,
        data: RunData,
        *,
        latest: Checkpoint = START,
        on_start: Callable[[Membership], None] | None = None,
    ) -> None:
        """Open the data, start the workers and load.

        `latest` is the checkpoint of a run that is resumed; `on_start` is called when the workers have started.
        """
        self._config = config
        self._storage = storage
        self._is_closed = False
        self._learner = find(config.model)
        self._telemetry = telemetry
        self._data = data
        self._writer: CheckpointWriter | None = None
        self._fits = 0
        self.begun = False
        """Rounds are being trained: what comes of them is worth keeping."""
        self.times = [data.began]
        """When it began, when the workers had started, when all rows were loaded."""
        self._closing: list[Callable[[], None]] = []
        self._open = ExitStack()
        try:
            self._driver = self._learner.driver_side(config, storage, telemetry.emit)
            self._open.callback(self._driver.close)
            self._prepare()
            self.membership = self._start(latest)
            if on_start is not None:
                on_start(self.membership)
            self._controller, self._loads = self._load(latest)
            self._runner = _ClosingRunner(self._controller, self)
        except BaseException:
            self.close()
            raise

    @property
    def rows(self) -> int:
        """Of the training data."""
        return self._train.rows

    @property
    def recovery_s(self) -> float:
        return self._controller.recovery_s

    @property
    def rows_reloaded(self) -> int:
        return self._controller.rows_reloaded

    @property
    def workers(self) -> int:
        """Workers of the last fit; 0 is the driver's process."""
        return 0 if self.membership.alone else len(self._controller.proofs)

    @property
    def threads(self) -> tuple[ThreadProof, ...]:
        """How many cores each worker used in the last fit."""
        return tuple(
            ThreadProof(worker, host, proof.decided, round(proof.used, 2), proof.verdict.ok)
            for worker, (host, proof) in sorted(self._controller.proofs.items())
        )

    @speaks_python
    def fit(self, *, rows: Any = None, **changes: Any) -> FitResult:
        """Train once on the loaded data; may be called again and again.

        `changes` are keys of the run file that differ from the session's own, such as params and rounds. `rows` chooses
        the rows to train on: an array with one boolean for each row of the data, in its order. The model is the one
        that a session on just those rows would give with the same cuts.
        """
        began = time.perf_counter()
        writer = CheckpointWriter(None, self._telemetry)
        try:
            trained = self.train(changes, rows=rows, writer=writer)
        finally:
            writer.close(write=False)
        return FitResult(
            learner=self._learner.name,
            objective=trained.objective,
            rounds=trained.rounds,
            best_round=trained.best_round,
            metrics=trained.metrics,
            baseline=dict(trained.baseline.metrics),
            verdict=trained.baseline.verdict(trained.metrics),
            model_digest=trained.digest,
            seconds=time.perf_counter() - began,
            trained=trained,
            storage=self._storage,
        )

    def train(
        self,
        changes: Mapping[str, Any] | None = None,
        *,
        rows: Any = None,
        writer: CheckpointWriter,
        last: bool = False,
    ) -> TrainedModel:
        """As `fit`; `writer` keeps the checkpoints, and with `last` what is loaded may be dropped on the way."""
        if self._is_closed:
            raise ConfigError(
                "The session is closed: it was left, or a fit was interrupted or failed.",
                fix="Open another one: dray.session(...)",
            )
        config = self._fit_config(changes or {})
        mask = None if rows is None else RowMask.of(rows, self.rows)
        self._fits += 1
        self._writer = writer
        fit = Fit(self._fits, config, writer.latest, last, mask)
        plan = self._driver.begin_fit(fit, self._loads, self._runner)
        if fit.number == 1:
            self.times.append(time.perf_counter())
        self._telemetry.emit(
            Decided(
                workers=0 if self.membership.alone else len(self.membership.ready),
                threads=self.membership.threads,
                objective=plan.objective,
                reasons=[*self.membership.reasons, *plan.reasons],
            )
        )
        self._telemetry.emit(PhaseStarted("train"))
        self._controller.begin_fit(fit.number, writer, plan.rounds)
        self.begun = True
        end = self._runner.run(plan.coordinator)
        del plan  # with the coordinator goes what it was trained with: concluding needs the room
        self.times[3:] = [time.perf_counter()]
        self._telemetry.emit(PhaseStarted("save"))
        return self._driver.conclude(end, self._runner)

    def close(self) -> None:
        """End the workers, and the cluster if it was started here."""
        self._is_closed = True
        self._open.close()
        while self._closing:
            self._closing.pop()()

    def on_close(self, act: Callable[[], None]) -> None:
        """Have something done when the workers have ended."""
        self._closing.append(act)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Opening

    def _prepare(self) -> None:
        config, data, driver = self._config, self._data, self._driver
        self._telemetry.emit(PhaseStarted("prepare"))
        self._train = data.open(config.data, partial(driver.check_schema, evaluation=False))
        evaluation = None
        if config.eval:
            evaluation = data.open(config.eval, partial(driver.check_schema, evaluation=True), self._train)
        self._opened = driver.open(self._train, evaluation)
        if driver.earlier and driver.rows_must_be_new:
            data.check_held_out(self._train, evaluation, driver.held_out(), driver.earlier)
        data.note(self._train, evaluation, driver.earlier)
        self._telemetry.emit(
            DataFound(
                rows=self._train.rows,
                files=len(self._train.files),
                row_groups=len(self._train.row_groups),
                bytes=self._train.bytes,
                features=self._opened.features,
            )
        )

    def _start(self, latest: Checkpoint) -> Membership:
        config = self._config
        alone = trains_alone(config.workers, config.cluster)
        self._telemetry.emit(PhaseStarted("start", alone=alone or None))
        self._driver.begin(alone=alone)
        return self._open.enter_context(
            started_workers(
                config.workers,
                config.threads,
                config.cluster,
                len(self._train.row_groups),
                self._opened.cells,
                self._telemetry,
                terms=terms_of(config),
                on_copy=self._offer,
                rounds_told=len(latest.rounds),
                learner=config.model,
            )
        )

    def _load(self, latest: Checkpoint) -> tuple[Controller, Loads]:
        self.times.append(time.perf_counter())
        self._telemetry.emit(PhaseStarted("load"))
        sharding = self._driver.survey(self.membership, latest)
        controller = Controller(self.membership, self._telemetry, sharding)
        return controller, controller.load()

    def _offer(self, checkpoint: Checkpoint) -> None:
        """Take in a checkpoint that a worker has at hand; one of an earlier fit comes too late. Any thread."""
        if self._writer is not None and checkpoint.fit == self._fits:
            self._writer.offer(checkpoint)

    def _fit_config(self, changes: Mapping[str, Any]) -> RunConfig:
        allowed = self._learner.fit_fields
        if others := sorted(changes.keys() - allowed):
            raise ConfigError(
                f"{', '.join(others)} cannot change from one fit to the next: the loaded data depends on "
                f"{'them' if len(others) > 1 else 'it'}.",
                fix=f"Open another session. A fit may change: {', '.join(sorted(allowed))}.",
            )
        if not changes:
            return self._config
        values = self._config.model_dump(exclude_unset=True) | dict(changes)
        config = make_config(values, origin="the fit")
        self._learner.check(config)
        return config


def open_session(config: RunConfig, sinks: Sequence[Sink] = ()) -> Session:
    """Start the workers that the configuration asks for and load its data. The caller closes the session."""
    where = resolve(config.cluster)
    if isinstance(where, Remote):
        raise ConfigError(
            f"A session cannot run at {where.word}: this process must be part of the cluster that holds its data.",
            fix="Use cluster local, auto or host:port; or submit a script that opens the session: dray job submit",
        )
    check_learner(config)
    require_library(config.model)
    storage, telemetry = StorageOptions(**config.storage.model_dump()), Telemetry(sinks)
    try:
        session = Session(config, storage, telemetry, RunData(config, storage, telemetry))
    except BaseException:
        telemetry.close()
        raise
    session.on_close(telemetry.close)
    return session


class _ClosingRunner:
    """Runs coordinators; one that does not end leaves workers in the middle of something: the session is closed."""

    def __init__(self, controller: Controller, session: Session) -> None:
        self._controller = controller
        self._session = session

    def run(self, coordinator: Coordinator[E]) -> E:
        try:
            return self._controller.run(coordinator)
        except BaseException:
            self._session.close()
            raise
