"""`dray train`: from a configuration to a run directory with a model.

Order matters: what can be wrong is looked at before what takes time. The footers come first, the cluster starts
while the sample is read, and nothing is loaded before the plan stands.
"""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from dray.config.run_file import RunConfig
from dray.data.cuts import cut_points
from dray.data.parquet import Dataset, open_dataset
from dray.data.prepare import Preparation
from dray.data.sample import sample_columns
from dray.data.scan import Found
from dray.data.shards import Shard, deal
from dray.data.split import Split
from dray.errors import ConfigError, DataError, DrayError
from dray.learners.labels import LabelSample, LabelSummary, check_labels, choose_objective, classes_in
from dray.learners.xgboost import Outcome, Task
from dray.learners.xgboost_intercept import intercept
from dray.learners.xgboost_params import (
    asked_objective,
    bins_of,
    broken_promise,
    check_constraints,
    check_params,
    complete,
)
from dray.learners.xgboost_ring import Tracker
from dray.storage import StorageOptions
from dray.telemetry.events import Event, Sample, Sink, Telemetry
from dray.telemetry.run_directory import RunDirectory, new_run_id
from dray.training.agree import (
    Previous,
    Roles,
    agreed_bins,
    assign_roles,
    check_eval_schema,
    cuts_as_table,
    make_cuts,
    read_previous,
    scan_shares,
    units_of,
    with_categories,
)
from dray.training.result import Identity, Seconds, ThreadProof, TrainResult
from dray.workers.crew import Crew, started_crew
from dray.workers.watch import Watch
from dray.workers.worker import LoadReport, TrainReport

LABELS_SEEN = 1_000_000
LABELS_SEED = 0x6C6162656C73


def train(config: RunConfig, sinks: Sequence[Sink] = ()) -> TrainResult:
    """Train as the configuration says. A mistake of the user's leaves no run directory behind."""
    check_params(config.params)
    asked_objective(config.objective, config.params)
    bins_of(config.params)
    run = new_run_id()
    storage = StorageOptions(**config.storage.model_dump())
    directory = RunDirectory.create(
        config.out or f"runs/{run}", storage, run=run, config=config.model_dump(mode="json"), versions=_versions()
    )
    warnings = _Warnings()
    telemetry = Telemetry([directory, warnings, *sinks])
    try:
        result = _Training(config, storage, directory, telemetry, warnings).run()
        directory.finish(result.to_json())  # not left to a sink: a result that cannot be written is a failure
        telemetry.emit("run_finished", result=result.to_json())
    except BaseException as error:
        _end_badly(error, directory, telemetry)
        raise
    telemetry.close()
    return result


class _Training:
    """One run, step by step. Made for one call of `run`."""

    def __init__(
        self,
        config: RunConfig,
        storage: StorageOptions,
        directory: RunDirectory,
        telemetry: Telemetry,
        warnings: _Warnings,
    ) -> None:
        self.config = config
        self.storage = storage
        self.directory = directory
        self.telemetry = telemetry
        self.warnings = warnings
        self.times = [time.perf_counter()]

    def run(self) -> TrainResult:
        config = self.config
        self.telemetry.emit(
            "run_started", run=self.directory.run, directory=self.directory.location, config=config.model_dump()
        )
        self.telemetry.emit("phase", name="prepare")
        previous = read_previous(config.continue_from, self.storage) if config.continue_from else None
        train_data = open_dataset(config.data, self.storage)
        roles = assign_roles(config, train_data.schema, previous)
        bins = agreed_bins(config.params, previous)
        check_constraints(config.params, [feature.name for feature in roles.features])
        eval_data = open_dataset(config.eval, self.storage) if config.eval else None
        if eval_data is not None:
            check_eval_schema(roles, eval_data.schema)
        if isinstance(config.workers, int) and roles.group is None:
            deal(units_of(train_data, roles, []), max(1, config.workers))  # too few row groups: say it now
        self._tell_data(train_data, roles)
        cells = train_data.rows * len(roles.features)
        self.telemetry.emit("phase", name="start")
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
            sample = pool.submit(_sampled_cuts, train_data, roles, bins) if previous is None else None
            crew = stack.enter_context(
                started_crew(config.workers, config.threads, config.cluster, len(train_data.row_groups), cells)
            )
            self._tell_crew(crew)
            watch = Watch(self.telemetry, len(crew.group.members), shared=crew.workers == 0)
            columns = sample.result() if sample is not None else []
            self.times.append(time.perf_counter())
            self.telemetry.emit("phase", name="load")
            preparation, loads = self._load(crew, watch, roles, train_data, eval_data, columns, bins, previous)
            task, reason = self._task(preparation, loads, previous)
            self.telemetry.emit(
                "decided",
                workers=crew.workers,
                threads=crew.threads,
                objective=task.objective,
                reasons=[*crew.reasons, f"objective: {task.objective} ({reason})"],
            )
            self.times.append(time.perf_counter())
            self.telemetry.emit("phase", name="train")
            outcome, reports = self._train(crew, watch, task)
            self.times.append(time.perf_counter())
            self.telemetry.emit("phase", name="save")
            self.directory.write_bytes("model.ubj", outcome.model)
            self.directory.write_table("cuts.parquet", cuts_as_table(preparation.features, preparation.cuts))
        return self._result(crew, watch, preparation, loads, task, outcome, reports)

    def _load(
        self,
        crew: Crew,
        watch: Watch,
        roles: Roles,
        train_data: Dataset,
        eval_data: Dataset | None,
        sample: Sequence[Any],
        bins: int,
        previous: Previous | None,
    ) -> tuple[Preparation, list[LoadReport]]:
        config = self.config
        workers = len(crew.group.members)
        found = self._scan(crew, watch, train_data, roles.categories, roles) if roles.needs_scan else []
        shards = deal(units_of(train_data, roles, found), workers)
        eval_shards: list[Shard] = [()] * workers
        if eval_data is not None:
            eval_found = self._scan(crew, watch, eval_data, [], roles) if roles.group else []
            eval_shards = deal(units_of(eval_data, roles, eval_found), workers, may_be_empty=True)
        roles = with_categories(roles, found) if roles.categories else roles
        preparation = Preparation(
            features=roles.features,
            label=roles.label,
            weight=roles.weight,
            group=roles.group,
            cuts=make_cuts(roles, sample, bins, previous),
            bins=bins,
            split=None if config.eval_fraction is None else Split(config.eval_fraction, config.seed),
            label_sample=Split(min(1.0, LABELS_SEEN / train_data.rows), LABELS_SEED),
            storage=self.storage,
        )
        arguments = [(preparation, own, own_eval) for own, own_eval in zip(shards, eval_shards, strict=True)]
        return preparation, crew.group.each("load", arguments, watch)

    def _scan(self, crew: Crew, watch: Watch, dataset: Dataset, categories: list[str], roles: Roles) -> list[Found]:
        shares = scan_shares(dataset, len(crew.group.members))
        arguments = [(share, categories, roles.group, self.storage) for share in shares]
        return crew.group.each("scan", arguments, watch)

    def _task(
        self, preparation: Preparation, loads: Sequence[LoadReport], previous: Previous | None
    ) -> tuple[Task, str]:
        config, label, ranking = self.config, preparation.label, preparation.group is not None
        summary = LabelSummary.merge(load.labels for load in loads)
        asked = asked_objective(config.objective, config.params)
        if previous is not None:
            if asked not in (None, previous.model.objective):
                raise ConfigError(
                    f"The earlier run has the objective {previous.model.objective}, not {asked}.",
                    fix="Leave the objective out.",
                )
            objective, reason = previous.model.objective, "that of the earlier run"
        elif asked is not None:
            objective, reason = asked, "as asked"
        else:
            objective, reason = choose_objective(label, summary, ranking=ranking)
        check_labels(label, summary, objective, ranking=ranking)
        evaluate = self._check_eval(preparation, loads, objective)
        params = complete(
            config.params | {"max_bin": preparation.bins},
            objective=objective,
            classes=classes_in(label, summary, objective),
            seed=config.seed,
        )
        if previous is None and "base_score" not in params:
            params["base_score"] = intercept(params, LabelSample.merge(load.label_sample for load in loads))
        return Task(
            params=params,
            objective=objective,
            rounds=config.rounds,
            early_stop=config.early_stop,
            evaluate=evaluate,
            start_model=None if previous is None else previous.content,
        ), reason

    def _check_eval(self, preparation: Preparation, loads: Sequence[LoadReport], objective: str) -> bool:
        """Say whether there is an evaluation set; its labels must be as good as those of the training data."""
        asked = self.config.eval or self.config.eval_fraction is not None
        summaries = [load.eval_labels for load in loads if load.eval_labels is not None]
        if not asked:
            return False
        if not summaries:
            raise DataError("No row went to the evaluation set.", fix="Use a larger --eval-fraction.")
        summary = LabelSummary.merge(summaries)
        if summary.minimum != summary.maximum:  # one outcome only is odd, yet evaluation works
            check_labels(preparation.label, summary, objective, ranking=preparation.group is not None)
        elif summary.missing:
            raise DataError("The evaluation set has rows without a label.", fix="Drop those rows.")
        unseen = {name: sum(load.unseen.get(name, 0) for load in loads) for load in loads for name in load.unseen}
        for name, count in unseen.items():
            self.telemetry.emit(
                "warning",
                message=f'{count:,} evaluation rows have a value of "{name}" that training does not know.',
                fix="They count as missing there.",
            )
        return True

    def _train(self, crew: Crew, watch: Watch, task: Task) -> tuple[Outcome, list[TrainReport]]:
        watch.rounds = task.rounds
        members = crew.group.members
        with Tracker(len(members), crew.group.ring_host) if crew.workers else nullcontext() as tracker:
            address = None if tracker is None else tracker.address
            reports: list[TrainReport] = crew.group.each("train", [(task, address)] * len(members), watch)
        [outcome] = [report.outcome for report in reports if report.outcome is not None]
        return outcome, reports

    def _result(
        self,
        crew: Crew,
        watch: Watch,
        preparation: Preparation,
        loads: Sequence[LoadReport],
        task: Task,
        outcome: Outcome,
        reports: Sequence[TrainReport],
    ) -> TrainResult:
        begin, started, loaded, trained = self.times
        broken = broken_promise(task.params, task.objective, weighted=preparation.weight is not None)
        if broken:
            self.telemetry.emit(
                "warning",
                message=f"The promise of the same model for any number of workers does not hold: {broken}.",
                fix="Leave the parameter out to have it.",
            )
        return TrainResult(
            run=self.directory.run,
            directory=self.directory.location,
            model=self.directory.path("model.ubj"),
            model_digest=outcome.digest,
            learner="xgboost",
            objective=task.objective,
            rows=sum(load.rows for load in loads),
            eval_rows=sum(load.eval_rows for load in loads),
            features=len(preparation.features),
            workers=crew.workers,
            rounds=outcome.rounds,
            best_round=outcome.best_round,
            seconds=Seconds(started - begin, loaded - started, trained - loaded, time.perf_counter() - begin),
            metrics=outcome.metrics,
            threads=tuple(
                ThreadProof(
                    member.worker,
                    member.host,
                    report.proof.decided,
                    round(report.proof.used, 2),
                    report.proof.verdict.ok,
                )
                for member, report in zip(crew.group.members, reports, strict=True)
            ),
            peak_memory_bytes=watch.peak_memory_bytes,
            failures=0,
            identity=Identity(broken is None, broken or "shared cuts, one intercept, all rows in every round"),
            warnings=tuple(self.warnings.messages),
            content=outcome.model,
        )

    def _tell_data(self, data: Dataset, roles: Roles) -> None:
        self.telemetry.emit(
            "data",
            rows=data.rows,
            features=len(roles.features),
            files=len(data.files),
            row_groups=len(data.row_groups),
            bytes=data.bytes,
        )

    def _tell_crew(self, crew: Crew) -> None:
        self.directory.describe(
            cluster={"name": crew.cluster, "workers": [asdict(member) for member in crew.group.members]}
        )
        for member in crew.group.members:
            self.telemetry.emit("worker_started", **asdict(member))


class _Warnings:
    """A sink that keeps the warnings, for the result."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def event(self, event: Event) -> None:
        if event.kind == "warning":
            self.messages.append(f"{event.data['message']} {event.data['fix']}".rstrip())

    def sample(self, samples: list[Sample]) -> None:
        pass

    def close(self) -> None:
        pass


def _sampled_cuts(dataset: Dataset, roles: Roles, bins: int) -> list[Any]:
    """Cut points of the numeric features: a few hundred values each instead of the sample."""
    with ThreadPoolExecutor() as pool:  # sorting lets go of the interpreter
        return list(pool.map(lambda column: cut_points(column, bins), sample_columns(dataset, roles.features)))


def _end_badly(error: BaseException, directory: RunDirectory, telemetry: Telemetry) -> None:
    """A mistake leaves nothing behind; a failure leaves what explains it."""
    if isinstance(error, DrayError):
        what, fix = error.what, error.fix
    else:
        what, fix = f"{type(error).__name__}: {error}".rstrip(": "), ""
    mistake = isinstance(error, DrayError) and error.exit_code == 2
    trace = {} if mistake else {"traceback": "".join(traceback.format_exception(error))}
    telemetry.emit("run_failed", error=what, fix=fix, **trace)
    telemetry.close()
    if mistake:
        directory.remove()


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("dray", "xgboost", "ray", "pyarrow", "numpy")}
    return packages | {"python": platform.python_version(), "platform": platform.platform()}
