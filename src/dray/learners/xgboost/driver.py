"""The driver's side of a training of trees: what all workers agree on, the task of a fit, the model at the end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from dray.data.cuts import cut_points
from dray.data.features import Column
from dray.data.kept_rows import KeptRows
from dray.data.parquet import Dataset
from dray.data.sample import is_small, sample_columns
from dray.data.stream import give_memory_back
from dray.data.whole_numbers import is_wide, judged, may_collide
from dray.errors import ConfigError, DataError
from dray.events.kinds import Event, Warned
from dray.learners.attempt import Loads, Runner, Surveyors
from dray.learners.baseline import NO_BETTER, Baseline
from dray.learners.checkpoint import Checkpoint
from dray.learners.classes import MOST_CLASSES, are_whole, check_known, positive_class
from dray.learners.labels import (
    LabelSample,
    LabelSummary,
    check_class_count,
    check_eval_classes,
    check_labels,
    check_weights_add_up,
    choose_objective,
    classes_in,
    only_evaluated,
)
from dray.learners.layouts import RowSharding
from dray.learners.learner import Fit, FitPlan, Opened
from dray.learners.result import Identity
from dray.learners.row_mask import RowMask
from dray.learners.stratifying import ClassShares
from dray.learners.table import Roles, TableDriver, whole_range
from dray.learners.trained_bytes import TrainedBytes
from dray.learners.xgboost.baseline import constant_margins, what_is_constant
from dray.learners.xgboost.boosting import Outcome, Task, conclude
from dray.learners.xgboost.classing import Asked, Begun, named_classes
from dray.learners.xgboost.config import XGBoostConfig
from dray.learners.xgboost.constraints import by_position
from dray.learners.xgboost.coordinator import LabelSurvey, RingCoordinator
from dray.learners.xgboost.intercept import intercept
from dray.learners.xgboost.matrix import BinnedPreparation
from dray.learners.xgboost.metrics import check_metric_labels
from dray.learners.xgboost.model import Model
from dray.learners.xgboost.outputs import going_on
from dray.learners.xgboost.params import asked_objective, bins_of, broken_promise, class_count, complete, has_classes
from dray.learners.xgboost.previous import (
    CUTS,
    agreed_bins,
    as_before,
    cuts_as_table,
    make_cuts,
    read_previous,
    texts_as_begun,
    times_as_before,
)
from dray.learners.xgboost.rehearsal import rehearse
from dray.learners.xgboost.result import TrainResult
from dray.learners.xgboost.unknown import MODEL
from dray.learners.xgboost.worker import LoadReport
from dray.runs.directory import RunDirectory
from dray.runs.trained_on import HeldOut, as_split
from dray.storage import StorageOptions

NOT_MASKED = ("reg:absoluteerror", "reg:quantileerror", "survival:", "rank:", "multi:", "binary:hinge")
"""Objectives for which rows of weight 0 do not give the model of the other rows: leaves are quantiles of residuals,
rows are compared with each other, or XGBoost gives every row a hessian of 1e-16 at least, which decides ties."""

_ALIKE = "Write the labels of both alike, or leave those rows out: dray data ingest ... --filter or --transform."
_NEVER_PREDICTED = "The model cannot predict what it was not trained on: these rows count as errors in every metric. "
_OF_EVAL = "Leave them out of --eval, or train on such rows too."
_OF_SPLIT = "Without --eval-by and --split-by, --eval-fraction gives rows of every class to both sides."


class TreeDriver(TableDriver):
    """Implements `DriverSide`."""

    def __init__(self, config: XGBoostConfig, storage: StorageOptions, emit: Callable[[Event], object]) -> None:
        super().__init__(config, storage, emit)
        self.config: XGBoostConfig = config
        self._previous = read_previous(config.continue_from, storage) if config.continue_from else None
        self._bins = agreed_bins(config.params, self._previous)
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._points: Future[list[Any]] | None = None
        self._kept: KeptRows | None = None
        self._preparation: BinnedPreparation
        self._loads: Sequence[LoadReport] = ()
        self._task: Task
        if self._previous is not None:
            self.earlier = self._previous.trained_on

    def held_out(self) -> HeldOut | None:
        previous = self._previous
        classes = previous is None or has_classes(previous.model.objective)
        return as_split(super().held_out(), self.earlier, classes=classes)

    def assign_roles(self, schema: pa.Schema) -> Roles:
        roles = super().assign_roles(schema)
        return roles if self._previous is None else as_before(roles, schema, self._previous)

    def open(self, train: Dataset, evaluation: Dataset | None) -> Opened:
        opened = super().open(train, evaluation)
        self._rehearse(self.config)
        return opened

    def with_times(self, roles: Roles) -> Roles:
        return super().with_times(roles) if self._previous is None else times_as_before(roles, self.config)

    def begin(self, *, alone: bool) -> None:
        super().begin(alone=alone)
        if self._previous is None:
            if alone and is_small(self.train, len(self.train.schema)):
                self._kept = KeptRows()
            self._points = self._pool.submit(_sampled_cuts, self.train, self.roles, self._bins, self._kept)

    def survey(self, workers: Surveyors, latest: Checkpoint) -> RowSharding:
        points = [] if self._points is None else self._points.result()
        begun = Begun.of(latest.model)
        if begun is not None:
            self.roles = replace(self.roles, features=texts_as_begun(self.roles.features, begun.categories))
        self._settle_label(workers, begun)
        if self._previous is None:
            self._settle_whole_numbers(workers, begun)
        units, evaluation = self.units(workers)
        cuts, bins = make_cuts(self.roles, points, self._bins, self._previous, latest.model)
        common = self.preparation()
        self._preparation = BinnedPreparation(**_fields(common) | {"kept": self._kept}, cuts=cuts, bins=bins)
        return RowSharding(self._preparation, units, evaluation)

    def begin_fit(self, fit: Fit, loads: Loads, runner: Runner) -> FitPlan[Checkpoint]:
        config: XGBoostConfig = fit.config
        self._loads = loads.reports
        if self._kept is not None:
            self._kept.clear()
            give_memory_back()
        if fit.number == 1:
            self.warn_dropped(*self.dropped(self._loads))
            self._warn_unreadable()
        self._check_bins(config)
        if config is not self.config:
            self._rehearse(config)
        summary = LabelSummary.merge(load.labels for load in self._loads)
        if not summary.rows:
            raise DataError(
                "No row is left to train on: all of them are evaluated on, or have no label.",
                fix="Use a smaller --eval-fraction, and check --label.",
            )
        sample = LabelSample.merge(load.label_sample for load in self._loads)
        if fit.rows is not None:
            _refuse_group(self._preparation)
            if summary.missing:  # XGBoost takes no labels then, chosen or not
                check_labels(self._preparation.label, summary, "reg:squarederror", ranking=False, params={})
            summary, sample = self._chosen_labels(fit.rows, runner)
        self._task, reason = self._plan(config, fit, summary, sample)
        if fit.rows is not None:
            _refuse_mask(self._task, weighted=self._preparation.weight is not None)
        return FitPlan(
            RingCoordinator(self._task),
            self._task.objective,
            (f"objective: {self._task.objective} ({reason})", *self._positive()),
            config.rounds,
        )

    def conclude(self, end: Checkpoint, runner: Runner) -> TrainedTrees:  # noqa: ARG002  (the checkpoint is all)
        task = self._task
        outcome = conclude(task, end, self._preparation.features, self._preparation.label)
        broken = broken_promise(task.params, task.objective, weighted=self._preparation.weight is not None)
        if broken:
            self._warn(
                f"The promise of the same model for any number of workers does not hold: {broken}.",
                "Leave the parameter out to have it.",
            )
        if outcome.best_round == 0 and task.early_stop is not None:
            self._warn(
                "No round was better than the model that the run went on from: that model is kept.",
                "Use other data or parameters, such as a lower learning rate.",
            )
        dropped, eval_dropped = self.dropped(self._loads)
        return TrainedTrees(
            file=MODEL,
            content=outcome.model,
            parse=partial(Model.from_bytes, origin="the fit"),
            digest=outcome.digest,
            objective=task.objective,
            rows=sum(load.rows for load in self._loads),
            eval_rows=sum(load.eval_rows for load in self._loads),
            rounds=outcome.rounds,
            best_round=outcome.best_round,
            metrics=outcome.metrics,
            baseline=self._compared(outcome),
            identity=Identity(broken is None, broken or "shared cuts, one intercept, all rows in every round"),
            rows_dropped=dropped,
            eval_rows_dropped=eval_dropped,
            preparation=self._preparation,
        )

    def _compared(self, outcome: Outcome) -> Baseline:
        """Return what the model is compared with; say so if it is worse than that."""
        baseline = Baseline(what_is_constant(self._task.objective), outcome.baseline)
        gain = baseline.gain(outcome.metrics)
        if gain is not None and gain <= -NO_BETTER:  # what the verdict calls worse
            self._warn(
                f"The saved model is worse than no model: {baseline.verdict(outcome.metrics)}.",
                "Take smaller steps: --param learning_rate=0.05."
                if self._task.early_stop
                else "Keep its best round with --early-stop 10, or take smaller steps: --param learning_rate=0.1.",
            )
        return baseline

    def share_of_classes(self, workers: Surveyors) -> ClassShares | None:
        how, label = self.held_out(), self.roles.label
        if how is None or "stratify" not in how or self.roles.group is not None:
            return None
        if label.kind not in ("category", "boolean", "number"):
            return None
        objective = asked_objective(self.config.objective, self.config.params)
        if self._previous is not None:
            objective = self._previous.model.objective
        if objective is not None and not has_classes(objective):
            return None
        known = self.train.statistics.ranges.get(label.name)
        if label.kind == "number" and objective is None and known is not None and tuple(map(float, known)) != (0, 1):
            return None
        most = 2 if label.kind == "number" and not (objective or "").startswith("multi:") else MOST_CLASSES
        found = self.label_values(workers, self.train, most)
        if found.more or not found.counts or (label.kind == "number" and not are_whole(found.counts)):
            return None
        return ClassShares(label.name, found.counts, how["eval_fraction"], how["split_seed"])

    def close(self) -> None:
        super().close()
        self._pool.shutdown()

    def _settle_label(self, workers: Surveyors, begun: Begun | None) -> None:
        """Fix the classes of the label, before anything is encoded; refuse labels that are none of them."""
        config, label, previous = self.config, self.roles.label, self._previous
        if previous is None:
            objective = asked_objective(config.objective, config.params)
            if begun is not None:
                objective = begun.objective
            asked = Asked(objective, class_count(config.params), self.roles.group is not None)
            label = named_classes(label, self.train, asked, partial(self.label_values, workers, self.train))
            self.roles = replace(self.roles, label=label)
        if label.kind != "category":
            return
        self.settled |= {label.name}
        if previous is not None:
            found = self.label_values(workers, self.train, MOST_CLASSES)
            check_known(label, found.counts, of="rows", fix="Train a new model instead of continuing.")
        if self.evaluation is not None:
            found = self.label_values(workers, self.evaluation, MOST_CLASSES)
            check_known(label, found.counts, of="evaluation rows", fix=_ALIKE)

    def _settle_whole_numbers(self, workers: Surveyors, begun: Begun | None) -> None:
        """Make a category of whole numbers that float32 cannot tell apart, where they are names."""
        types = {field.name: field.type for field in self.train.schema}
        known = () if begun is None else begun.categories
        numbers = [f for f in self.roles.features if f.kind == "number" and f.part is None]
        wide = [f.name for f in numbers if is_wide(types[f.name])]
        doubtful = [name for name in wide if may_collide(whole_range(self.train, name))]
        if known:  # trees that were grown by another version of dray go on with what it decided
            names = [feature.name for feature in self.roles.features]
            doubtful = [name for name in doubtful if known[names.index(name)]]
        if not doubtful:
            return
        found = self.whole_numbers(workers, doubtful)
        columns = {feature.name: feature for feature in self.roles.features}
        for name in doubtful:
            verdict = judged(columns[name], types[name], found[name], self.train.rows)
            if verdict.message:
                self._warn(verdict.message, verdict.fix)
            columns[name] = verdict.column
        self.settled |= {name for name in doubtful if columns[name].kind == "category"}
        self.roles = replace(self.roles, features=tuple(columns.values()))

    def _rehearse(self, config: XGBoostConfig) -> None:
        """Have XGBoost refuse now what it would refuse later."""
        asked = asked_objective(config.objective, config.params)
        objective = asked if self._previous is None else self._previous.model.objective
        roles = self.roles
        rehearse(self._given(config), objective, roles.features, ranking=roles.group is not None)

    # The task

    def _positive(self) -> tuple[str, ...]:
        found = positive_class(self._preparation.label, self._task.objective)
        return () if found is None else (f"positive class: {json.dumps(found)}",)

    def _plan(self, config: XGBoostConfig, fit: Fit, summary: LabelSummary, sample: LabelSample) -> tuple[Task, str]:
        preparation, previous = self._preparation, self._previous
        label, ranking = preparation.label, preparation.group is not None
        objective, reason = self._objective(config, label, summary, ranking=ranking)
        given = self._given(config)
        check_labels(label, summary, objective, ranking=ranking, params=given)
        params = complete(
            by_position(given, preparation.features) | {"max_bin": preparation.bins},
            objective=objective,
            classes=classes_in(label, self._all_labels(summary), objective, class_count(given) if previous else 0),
            seed=config.seed,
        )
        check_class_count(label, class_count(params))
        evaluate = self._check_eval(params, summary)
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
            fit=fit.number,
            mask=fit.rows,
            any_label=summary.minimum,
            constant=constant_margins(params, sample) if evaluate else (),
        ), reason

    def _objective(
        self, config: XGBoostConfig, label: Column, summary: LabelSummary, *, ranking: bool
    ) -> tuple[str, str]:
        asked = asked_objective(config.objective, config.params)
        if self._previous is not None:
            before = self._previous.model.objective
            if asked not in (None, before):
                raise ConfigError(
                    f"The earlier run has the objective {before}, not {asked}.", fix="Leave the objective out."
                )
            return before, "that of the earlier run"
        return (asked, "as asked") if asked is not None else choose_objective(label, summary, ranking=ranking)

    def _given(self, config: XGBoostConfig) -> dict[str, Any]:
        """The parameters as given, with what stays as it was in the earlier run."""
        return dict(config.params) if self._previous is None else going_on(config.params, self._previous.model.booster)

    def _check_bins(self, config: XGBoostConfig) -> None:
        if "max_bin" in config.params and bins_of(config.params) != bins_of(self.config.params):
            raise ConfigError(
                f"The session's rows are binned with max_bin {bins_of(self.config.params)}, not "
                f"{config.params['max_bin']}.",
                fix="Open another session for other bins.",
            )

    def _chosen_labels(self, mask: RowMask, runner: Runner) -> tuple[LabelSummary, LabelSample]:
        found = runner.run(LabelSurvey(mask))
        summary = LabelSummary.merge(summary for summary, _ in found)
        if not summary.rows:
            raise DataError("rows= chooses no row that is trained on.", fix="Choose rows outside the evaluation set.")
        return summary, LabelSample.merge(sample for _, sample in found)

    def _all_labels(self, training: LabelSummary) -> LabelSummary:
        """Return the labels of all the data: a class may have all of its few rows held out."""
        held_out = [load.eval_labels for load in self._loads if load.eval_labels is not None]
        return training if self.config.eval else LabelSummary.merge([training, *held_out])

    def _check_eval(self, params: dict[str, Any], training: LabelSummary) -> bool:
        """Say whether there is an evaluation set; its labels must be as good as those of the training data."""
        preparation, loads = self._preparation, self._loads
        asked = self.config.eval or preparation.split is not None
        summaries = [load.eval_labels for load in loads if load.eval_labels is not None]
        if not asked:
            return False
        label, objective, ranking = preparation.label, params["objective"], preparation.group is not None
        if not summaries and self.config.eval:
            raise DataError(
                f'No evaluation row has a value in the label "{label.name}": there is nothing to evaluate on.',
                fix="Check --label, and that the evaluation data is complete.",
            )
        if not summaries:
            raise DataError("No row went to the evaluation set.", fix="Use a larger --eval-fraction.")
        summary = LabelSummary.merge(summaries)  # one outcome only is odd, yet evaluation works
        check_labels(label, summary, objective, ranking=ranking, params=params, may_be_constant=True)
        check_eval_classes(label, summary, class_count(params))
        if class_count(params) and self._previous is None and (told := only_evaluated(label, training, summary)):
            self._warn(told, _NEVER_PREDICTED + (_OF_EVAL if self.config.eval else _OF_SPLIT))
        check_metric_labels(label.name, summary, objective, params["eval_metric"], params)
        for name, count in _added(load.unseen for load in loads).items():
            self._warn(
                f'{_evaluated(count)} a value of "{name}" that training does not know.',
                "They count as missing there.",
            )
        return True

    def _warn_unreadable(self) -> None:
        for name, count in _added(load.eval_unreadable for load in self._loads).items():
            self._warn(
                f'{_evaluated(count)} a value of "{name}" that cannot be read as training reads the column.',
                "They count as missing there.",
            )
        for name, count in _added(load.unreadable for load in self._loads).items():
            self._warn(
                f'{count:,} rows have a text in "{name}" that is not a time of the form that its other texts have.',
                f"They count as missing there. --time-form '{name}=FORM' reads another form.",
            )

    def _warn(self, message: str, fix: str) -> None:
        self.emit(Warned(message, fix))


def _evaluated(count: int) -> str:
    return "1 evaluation row has" if count == 1 else f"{count:,} evaluation rows have"


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up the rows of each column, in the order of the columns' names."""
    total = sum(map(Counter, counts), Counter[str]())
    return {name: total[name] for name in sorted(total)}


@dataclass(frozen=True, kw_only=True)
class TrainedTrees(TrainedBytes):
    """A model with the cuts that it was trained with, for a run that goes on from it."""

    preparation: BinnedPreparation

    def write(self, location: str, storage: StorageOptions) -> None:
        if not location.endswith(".ubj"):
            raise ConfigError(f"{location} does not end in .ubj.", fix="Name a file such as model.ubj.")
        super().write(location, storage)

    def save(self, directory: RunDirectory) -> None:
        super().save(directory)
        table = cuts_as_table(self.preparation.features, self.preparation.cuts, self.preparation.bins)
        directory.write_table(CUTS, table)

    def result(self, directory: RunDirectory, common: Mapping[str, Any]) -> TrainResult:
        features = len(self.preparation.features)
        positive = positive_class(self.preparation.label, self.objective)
        return TrainResult(
            **common, **self.fields(directory), features=features, positive_class=positive, content=self.content
        )


def _refuse_group(preparation: BinnedPreparation) -> None:
    if preparation.group is not None:
        raise ConfigError(
            "rows= cannot be used in ranking: the rows of a group are compared with each other.",
            fix="Write the groups to train on to a file of their own, and open a session on it.",
        )


def _refuse_mask(task: Task, *, weighted: bool) -> None:
    """Refuse to train on some of the loaded rows where that would not give the model of those rows."""
    if task.objective.startswith(NOT_MASKED):
        raise ConfigError(
            f"rows= cannot be used with the objective {task.objective}: rows that do not count would still change its "
            "model.",
            fix="Write the rows to train on to a file of their own, and open a session on it.",
        )
    if broken := broken_promise(task.params, task.objective, weighted=weighted):
        raise ConfigError(
            f"rows= cannot be used here: the model would depend on the rows that are left out ({broken}).",
            fix="Leave the parameter out, or open a session on a file that holds just those rows.",
        )


def _fields(preparation: Any) -> dict[str, Any]:
    return {name: getattr(preparation, name) for name in preparation.__dataclass_fields__}


def _sampled_cuts(dataset: Dataset, roles: Roles, bins: int, kept: KeptRows | None) -> list[Any]:
    """Cut points of the numeric features: a few hundred values each instead of the sample."""
    with ThreadPoolExecutor() as pool:  # sorting lets go of the interpreter
        sample = sample_columns(dataset, roles.features, roles.others, kept)
        return list(pool.map(lambda column: cut_points(column, bins), sample))
