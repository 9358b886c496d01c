"""The steps of a training run, in order.

Order matters: what can be wrong is looked at before what takes time. The footers come first, the cluster starts
while the sample is read, and nothing is loaded before the plan stands.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from dray.config.run_file import WorkerRange
from dray.data.cuts import cut_points
from dray.data.parquet import Dataset
from dray.data.prepare import Preparation
from dray.data.sample import sample_columns
from dray.data.scan import Found
from dray.data.shards import Unit, assign
from dray.data.split import Split
from dray.elastic.membership import Membership
from dray.elastic.starting import started_workers
from dray.errors import ConfigError, DataError
from dray.learners.labels import (
    LabelSample,
    LabelSummary,
    check_eval_classes,
    check_labels,
    check_weights_add_up,
    choose_objective,
    classes_in,
)
from dray.learners.learner import Do
from dray.learners.xgboost.boosting import Outcome, Task, conclude
from dray.learners.xgboost.config import XGBoostConfig
from dray.learners.xgboost.constraints import by_position
from dray.learners.xgboost.intercept import intercept
from dray.learners.xgboost.metrics import check_metric_labels
from dray.learners.xgboost.outputs import going_on
from dray.learners.xgboost.params import asked_objective, broken_promise, class_count, complete
from dray.learners.xgboost.rehearsal import rehearse
from dray.learners.xgboost.unknown import MODEL
from dray.learners.xgboost.worker import LoadReport, Worker
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
from dray.training.dealt import Dealt
from dray.training.result import Identity, ThreadProof, TrainResult
from dray.training.ringmaster import RingMaster
from dray.training.run_steps import RunSteps, terms_of

LABELS_SEEN = 1_000_000
LABELS_SEED = 0x6C6162656C73


class Training(RunSteps):
    """One run, step by step. Made for one call of `run`."""

    config: XGBoostConfig

    def run(self) -> TrainResult:
        config = self.config
        self.telemetry.emit("phase", name="prepare")
        previous = read_previous(config.continue_from, self.storage) if config.continue_from else None
        train_data = self.open_data(config.data, lambda schema: assign_roles(config, schema, previous))
        roles = assign_roles(config, train_data.schema, previous)
        bins = agreed_bins(config.params, previous)
        asked = asked_objective(config.objective, config.params) if previous is None else previous.model.objective
        rehearse(self._given(previous), asked, roles.features, ranking=roles.group is not None)
        eval_data = None
        if config.eval:
            check_eval = functools.partial(check_eval_schema, roles)
            eval_data = self.open_data(config.eval, check_eval)
        if previous is not None:
            self.check_held_out(train_data, eval_data, previous.trained_on)
        self.note_data(train_data, eval_data, () if previous is None else previous.trained_on)
        least = config.workers.min if isinstance(config.workers, WorkerRange) else config.workers
        if isinstance(least, int) and roles.group is None:
            assign(units_of(train_data, roles, []), max(1, least))  # too few row groups: say it now
        self._tell_data(train_data, roles)
        cells = train_data.rows * len(roles.features)
        self.telemetry.emit("phase", name="start")
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
            sample = pool.submit(_sampled_cuts, train_data, roles, bins) if previous is None else None
            membership = stack.enter_context(
                started_workers(
                    config.workers,
                    config.threads,
                    config.cluster,
                    len(train_data.row_groups),
                    cells,
                    self.telemetry,
                    terms=terms_of(config),
                    on_copy=self.keeper.offer,
                    rounds_told=len(self.keeper.latest.rounds),
                    learner=config.model,
                )
            )
            self.note_workers(membership)
            columns = sample.result() if sample is not None else []
            self.times.append(time.perf_counter())
            self.telemetry.emit("phase", name="load")
            master, preparation = self._rows(membership, roles, train_data, eval_data, columns, bins, previous)
            loads = master.load()
            task, reason = self._task(preparation, loads, previous)
            self.telemetry.emit(
                "decided",
                workers=0 if membership.alone else len(membership.ready),
                threads=membership.threads,
                objective=task.objective,
                reasons=[*membership.reasons, f"objective: {task.objective} ({reason})"],
            )
            self.times.append(time.perf_counter())
            self.telemetry.emit("phase", name="train")
            outcome = self._train(membership, master, task, preparation)
            self.times.append(time.perf_counter())
            self.telemetry.emit("phase", name="save")
            self.directory.write_result(MODEL, outcome.model)
            self.directory.write_table(
                "cuts.parquet", cuts_as_table(preparation.features, preparation.cuts, preparation.bins)
            )
        return self._result(membership, master, preparation, loads, task, outcome)

    def _rows(
        self,
        membership: Membership,
        roles: Roles,
        train_data: Dataset,
        eval_data: Dataset | None,
        sample: Sequence[Any],
        bins: int,
        previous: Previous | None,
    ) -> tuple[RingMaster, Preparation]:
        """Find out what stands in no footer, and deal the rows."""
        config = self.config
        found = self._scan(membership, train_data, roles.categories, roles) if roles.needs_scan else []
        units = units_of(train_data, roles, found)
        assign(units, membership.limits.min_workers)  # too few whole groups for the workers: say it
        evals: list[Unit] = []
        if eval_data is not None:
            evals = units_of(eval_data, roles, self._scan(membership, eval_data, [], roles) if roles.group else [])
        roles = with_categories(roles, found) if roles.categories else roles
        cuts, bins = make_cuts(roles, sample, bins, previous, self.keeper.latest.model)
        preparation = Preparation(
            features=roles.features,
            label=roles.label,
            weight=roles.weight,
            group=roles.group,
            cuts=cuts,
            bins=bins,
            split=None if config.eval_fraction is None else Split(config.eval_fraction, config.split_seed),
            label_sample=Split(min(1.0, LABELS_SEEN / train_data.rows), LABELS_SEED),
            storage=self.storage,
        )
        dealt = Dealt.among(units, evals, membership.limits.max_workers)
        return RingMaster(membership, self.telemetry, dealt, preparation, self.keeper), preparation

    def _scan(self, membership: Membership, dataset: Dataset, categories: list[str], roles: Roles) -> list[Found]:
        shares = scan_shares(dataset, max(1, len(membership.ready)))
        return membership.run(Do(Worker.scan), [(share, categories, roles.group, self.storage) for share in shares])

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
        given = self._given(previous)
        check_labels(label, summary, objective, ranking=ranking, params=given)
        params = complete(
            by_position(given, preparation.features) | {"max_bin": preparation.bins},
            objective=objective,
            classes=classes_in(
                label, self._all_labels(summary, loads), objective, class_count(given) if previous else 0
            ),
            seed=config.seed,
        )
        evaluate = self._check_eval(preparation, loads, params)
        sample = LabelSample.merge(load.label_sample for load in loads)
        check_weights_add_up(sample, preparation.weight)
        if previous is None and "base_score" not in params:
            params["base_score"] = intercept(params, sample)
        return Task(
            params=params,
            objective=objective,
            rounds=config.rounds,
            early_stop=config.early_stop,
            evaluate=evaluate,
            start_model=None if previous is None else previous.content,
            before=0 if previous is None else previous.model.booster.num_boosted_rounds(),
        ), reason

    def _given(self, previous: Previous | None) -> dict[str, Any]:
        """The parameters as given, with what stays as it was in the earlier run."""
        return dict(self.config.params) if previous is None else going_on(self.config.params, previous.model.booster)

    def _all_labels(self, training: LabelSummary, loads: Sequence[LoadReport]) -> LabelSummary:
        """Return the labels of all the data: a class may have all of its few rows held out."""
        held_out = [load.eval_labels for load in loads if load.eval_labels is not None]
        return training if self.config.eval else LabelSummary.merge([training, *held_out])

    def _check_eval(self, preparation: Preparation, loads: Sequence[LoadReport], params: dict[str, Any]) -> bool:
        """Say whether there is an evaluation set; its labels must be as good as those of the training data."""
        asked = self.config.eval or self.config.eval_fraction is not None
        summaries = [load.eval_labels for load in loads if load.eval_labels is not None]
        if not asked:
            return False
        if not summaries:
            raise DataError("No row went to the evaluation set.", fix="Use a larger --eval-fraction.")
        label, objective, summary = preparation.label, params["objective"], LabelSummary.merge(summaries)
        ranking = preparation.group is not None  # one outcome only is odd, yet evaluation works
        check_labels(label, summary, objective, ranking=ranking, params=params, may_be_constant=True)
        check_eval_classes(label, summary, class_count(params))
        check_metric_labels(label.name, summary, objective, params["eval_metric"], params)
        unseen = {name: sum(load.unseen.get(name, 0) for load in loads) for load in loads for name in load.unseen}
        for name, count in unseen.items():
            self.telemetry.emit(
                "warning",
                message=f'{count:,} evaluation rows have a value of "{name}" that training does not know.',
                fix="They count as missing there.",
            )
        return True

    def _train(self, membership: Membership, master: RingMaster, task: Task, preparation: Preparation) -> Outcome:
        membership.watch.rounds = task.rounds
        self.begun = True
        try:
            standing = master.train(task)
        except (KeyboardInterrupt, SystemExit):
            master.say_goodbye()
            raise
        return conclude(task, standing, preparation.features, preparation.label)

    def _result(
        self,
        membership: Membership,
        master: RingMaster,
        preparation: Preparation,
        loads: Sequence[LoadReport],
        task: Task,
        outcome: Outcome,
    ) -> TrainResult:
        broken = broken_promise(task.params, task.objective, weighted=preparation.weight is not None)
        if broken:
            self.telemetry.emit(
                "warning",
                message=f"The promise of the same model for any number of workers does not hold: {broken}.",
                fix="Leave the parameter out to have it.",
            )
        if outcome.best_round == 0 and task.early_stop is not None:
            self.telemetry.emit(
                "warning",
                message="No round was better than the model that the run went on from: that model is kept.",
                fix="Use other data or parameters, such as a lower learning rate.",
            )
        return TrainResult(
            run=self.directory.run,
            directory=self.directory.location,
            model=self.directory.path(MODEL),
            model_digest=outcome.digest,
            learner=self.config.model,
            objective=task.objective,
            rows=sum(load.rows for load in loads),
            eval_rows=sum(load.eval_rows for load in loads),
            features=len(preparation.features),
            workers=0 if membership.alone else len(master.proofs),
            rounds=outcome.rounds,
            best_round=outcome.best_round,
            seconds=self.seconds(master.recovery_s),
            metrics=outcome.metrics,
            threads=tuple(
                ThreadProof(
                    worker,
                    membership.ready[worker].host if worker in membership.ready else "",
                    proof.decided,
                    round(proof.used, 2),
                    proof.verdict.ok,
                )
                for worker, proof in sorted(master.proofs.items())
            ),
            peak_memory_bytes=membership.watch.peak_memory_bytes,
            failures=membership.failures,
            rows_reloaded=master.rows_reloaded,
            identity=Identity(broken is None, broken or "shared cuts, one intercept, all rows in every round"),
            warnings=tuple(self.warnings),
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


def _sampled_cuts(dataset: Dataset, roles: Roles, bins: int) -> list[Any]:
    """Cut points of the numeric features: a few hundred values each instead of the sample."""
    with ThreadPoolExecutor() as pool:  # sorting lets go of the interpreter
        return list(pool.map(lambda column: cut_points(column, bins), sample_columns(dataset, roles.features)))
