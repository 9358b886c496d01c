"""The driver's side of a recommender's training: ids, units, the way to train, the model at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from dray.data.parquet import Dataset
from dray.data.stream import give_memory_back
from dray.data.times import Look
from dray.errors import ConfigError, DataError
from dray.events.kinds import Event, PairsFound, Warned
from dray.learners.attempt import Loads, Runner, Surveyors
from dray.learners.baseline import Baseline
from dray.learners.checkpoint import Checkpoint
from dray.learners.factorization.alternation import Alternation
from dray.learners.factorization.blocks import FactorPart
from dray.learners.factorization.calls import FactorPlan
from dray.learners.factorization.config import FactorizationConfig
from dray.learners.factorization.coordinator import EpochCoordinator, Trained
from dray.learners.factorization.descent import Descent
from dray.learners.factorization.events import RowRule, require_columns
from dray.learners.factorization.explicit import ExplicitSettings, Scale, rmse_of_mean, scale_of
from dray.learners.factorization.explicit_share import ExplicitPlan, UnitReport
from dray.learners.factorization.factors import Factors, Longs
from dray.learners.factorization.grid import lay_out, shape_for
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.implicit_share import ImplicitPlan, shape_of
from dray.learners.factorization.known import Known, merge
from dray.learners.factorization.measuring import TestPairs, list_baseline, poor, rating_baseline
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.odd_users import odd_users
from dray.learners.factorization.previous import read_previous
from dray.learners.factorization.result import FactorResult
from dray.learners.factorization.saving import PairCollection, explicit_factors, forget_untrained, implicit_factors
from dray.learners.factorization.settings import explicit_settings, implicit_settings
from dray.learners.factorization.time_look import look_at_times, never_old, reason
from dray.learners.factorization.unit_pairs import Ageing, PairNotes, SplitRule
from dray.learners.factorization.worker import FactorWorker
from dray.learners.layouts import KeyedSharding, Weight, in_order
from dray.learners.learner import Do, Fit, FitPlan, Opened
from dray.learners.result import Identity
from dray.runs.directory import RunDirectory
from dray.runs.trained_on import HeldOut, held_out
from dray.storage import StorageOptions

MODEL = "model"
"""The directory of the model, within that of the run."""


class FactorDriver:
    """Implements `DriverSide`."""

    def __init__(self, config: FactorizationConfig, storage: StorageOptions, emit: Callable[[Event], object]) -> None:
        self.config = config
        self._storage = storage
        self._emit = emit
        self._previous = read_previous(config, storage)
        self._rule = _rule(config)
        self._times = Look()
        self._train: Dataset
        self._test: Dataset | None = None
        self._known: Known
        self._plan: FactorPlan
        self._loaded: _Loaded
        self._fit: Fit
        self._settings: ExplicitSettings | ImplicitSettings
        self.earlier = () if self._previous is None else self._previous.trained_on
        self.rows_must_be_new = config.kind == "explicit"  # lists are never judged by pairs that were trained on

    def held_out(self) -> HeldOut | None:
        return held_out(self.config.model_dump())

    def check_schema(self, schema: pa.Schema, *, evaluation: bool) -> None:  # noqa: ARG002  (both alike)
        require_columns(schema, rule=self._rule)

    def open(self, train: Dataset, evaluation: Dataset | None) -> Opened:
        self._train, self._test = train, evaluation
        self._settings = self._settings_of(self.config)
        if (time := self._rule.time) is not None:
            self._times = look_at_times(train, time, self.config.time_form.get(time))
            self._rule = replace(self._rule, time_form=self._times.form)
        return Opened(cells=train.rows * self._settings.factors)

    def begin(self, *, alone: bool) -> None:
        """There is nothing to read beforehand."""

    def survey(self, workers: Surveyors, latest: Checkpoint) -> KeyedSharding:  # noqa: ARG002
        self._known = known = self._survey(workers)
        self._plan = self._planned(known)
        plan = self._plan.plan
        unit_of_user = plan.user_blocks()
        if workers.count > plan.units:
            self._warn(
                f"{workers.count} workers for {plan.units} blocks: the others only read.",
                f"Use --workers {plan.units}: so much data cannot be divided further.",
            )
        own = work = np.bincount(unit_of_user, known.user_counts, plan.units).astype(np.int64)
        implicit = isinstance(plan, ImplicitPlan)
        if implicit:
            work = own + np.bincount(plan.layout.items.piece, known.item_counts, plan.units).astype(np.int64)
        return KeyedSharding(
            preparation=self._plan,
            reading=(self._rule, known.ids, unit_of_user, self._storage),
            train=self._train.row_groups,
            test=self._test.row_groups if self._test else (),
            weights=[Weight(int(rows), int(whole)) for rows, whole in zip(own, work, strict=True)],
            # Neighbouring blocks of users share blocks of items, which then travel less; ALS needs all of them.
            neighbours=not implicit,
            exchanges=implicit,
            earlier=() if self._previous is None else self._previous.pairs(known, unit_of_user, plan.units),
        )

    def begin_fit(self, fit: Fit, loads: Loads, runner: Runner) -> FitPlan[Trained]:  # noqa: ARG002
        config: FactorizationConfig = fit.config
        if fit.rows is not None:
            raise ConfigError(
                "rows= cannot be used with a recommender: a pair is made of all of its rows.",
                fix="Open a session on the rows to train on.",
            )
        self._fit, self._settings = fit, self._settings_of(config)
        self._loaded = loaded = _Loaded.of(loads.reports, config)
        if fit.number == 1:
            self._report(loads)
        plan = self._plan.plan
        blocks = f"{plan.units} blocks of users"
        if isinstance(plan, ExplicitPlan) and plan.layout.shape.cells > 1:
            blocks += f", {plan.layout.shape.cells} x {plan.layout.shape.cells} cells each"
        early = config.kind == "implicit" and config.early_stop is not None
        users = len(self._known.user_ids)
        test = TestPairs(loaded.test_pairs, tuple(config.eval_at), loaded.item_counts, users, each_epoch=early)
        coordinator = self._coordinator(config, fit, test)
        return FitPlan(
            coordinator,
            f"{config.kind} factorization",
            (f"grid: {blocks} (by the number of rows)", *reason(self._rule.time, self._times)),
            config.rounds,
        )

    def conclude(self, end: Trained, runner: Runner) -> TrainedFactors:
        plan, known, loaded = self._plan, self._known, self._loaded
        kind = plan.kind
        factors: Factors
        limits = None
        about: dict[str, Any] = asdict(self._settings)
        if isinstance(plan.plan, ExplicitPlan):
            factors = explicit_factors(plan.plan, end.users, end.items, loaded.scale)
            limits = (loaded.scale.low, loaded.scale.high)
            about |= {"epochs": end.epoch, "learning_rate": end.rate, "unit": loaded.scale.unit}
        else:
            factors = implicit_factors(plan.plan.layout, self._settings.factors, end.users, end.items)
        if self._rule.time_form:
            about["time_form"] = self._rule.time_form
        end.users, end.items = [], []
        give_memory_back()  # for the pairs
        seen = runner.run(PairCollection(plan.plan.layout, last=self._fit.last))
        forget_untrained(factors, seen, loaded.item_counts)
        as_of = plan.ageing.as_of if plan.ageing is not None else None
        model = FactorModel.of(kind, factors, known.user_ids, known.item_ids, seen, about, limits=limits, as_of=as_of)
        self._warn_of(end)
        config = self._fit.config
        return TrainedFactors(model, end, loaded, known, self._settings, self._storage, config.kind, config.eval_at)

    def close(self) -> None:
        """Nothing goes on beside."""

    def _settings_of(self, config: FactorizationConfig) -> ExplicitSettings | ImplicitSettings:
        params = dict(config.params)
        if self._previous is not None:
            params["factors"] = self._previous.model.describe()["factors"]
        make = explicit_settings if config.kind == "explicit" else implicit_settings
        return make(params, config.rounds, config.seed)

    def _survey(self, workers: Surveyors) -> Known:
        """Have every worker look through some rows, and put together what they found."""
        readers = max(1, workers.count)
        tasks = [
            (share, self._rule, self._storage, test)
            for data, test in ((self._train, False), (self._test, True))
            if data is not None
            for share in in_order(data.row_groups, readers)
            if share
        ]
        found = workers.run(Do(FactorWorker.scan), tasks)
        known = merge([*found, *([self._previous.found()] if self._previous is not None else [])])
        if dropped := known.dropped + known.test_dropped:
            rows = self._train.rows + (0 if self._test is None else self._test.rows)
            self._warn(
                f'{dropped:,} of {rows:,} rows have no "{self._rule.user}" or no "{self._rule.item}".',
                "They are left out. To have them refused: --missing-id error."
                if self._rule.drops_missing
                else "They are left out: their events weigh 0.",
            )
        return known

    def _planned(self, known: Known) -> FactorPlan:
        config = self.config
        split = SplitRule(seed=config.split_seed)
        if config.eval_last is not None:
            split = replace(split, how="last", last=config.eval_last)
        elif config.eval_fraction is not None and config.eval_by == "time":
            split = replace(split, how="time", moment=known.moment(config.eval_fraction))
        elif config.eval_fraction is not None:
            split = replace(split, how="random", share=config.eval_fraction)
        ageing = None
        if config.half_life_days is not None and (as_of := known.newest(split.moment)) is not None:
            ageing = Ageing(half_life_s=config.half_life_days * 86_400, as_of=as_of)
            for message, fix in never_old(self._rule.time, self._times, as_of):
                self._warn(message, fix)
        size = int(known.user_counts.sum()), len(known.user_ids), len(known.item_ids)
        implicit = config.kind == "implicit"
        shape = shape_of(*size) if implicit else shape_for(*size)
        layout = lay_out(known.user_counts, known.item_counts, shape, config.seed)
        settings: Any = self._settings
        return FactorPlan((ImplicitPlan if implicit else ExplicitPlan)(layout, settings), split, ageing)

    def _coordinator(self, config: FactorizationConfig, fit: Fit, test: TestPairs) -> EpochCoordinator:
        settings: Any = self._settings
        plan: Any = replace(self._plan.plan, settings=settings)
        first: tuple[Sequence[FactorPart], Sequence[FactorPart]] | None = None
        method: Descent | Alternation
        if isinstance(plan, ExplicitPlan):
            scale = self._loaded.scale
            if self._previous is not None:  # its biases are those from its own mean
                scale = self._loaded.scale = replace(scale, mean=self._previous.model.mean)
                first = self._previous.blocks(self._known, plan, scale)
            method = Descent(plan, scale, test)
        else:
            if self._previous is not None:
                first = self._previous.parts(self._known, plan)
            method = Alternation(plan)
        return EpochCoordinator(config, plan, method, test, first, fit=fit.number, last=fit.last)

    def _report(self, loads: Loads) -> None:
        config, notes, known = self.config, self._loaded.notes, self._known
        self._emit(
            PairsFound(
                rows=known.rows,
                pairs=self._loaded.pairs,
                users=len(known.user_ids),
                items=len(known.item_ids),
                by_host=loads.rows_by_host,
                types=known.events,
                noun="ratings" if config.kind == "explicit" else "pairs",
            )
        )
        for what, fix in odd_users(config.user, known.user_ids, known.user_counts):
            self._warn(what, fix)
        if config.kind == "explicit" and notes.duplicates:
            self._warn(f"{notes.duplicates:,} ratings are of a pair that had one before: the last one counts.", "")
        if notes.cancelled:
            self._warn(
                f"The weights of {notes.cancelled:,} pairs come to 0: they were left out.",
                "Change --event-weight if they should count.",
            )

    def _warn_of(self, trained: Trained) -> None:
        found = trained.evaluation
        if trained.halvings:
            self._warn(
                f"Training diverged, and went on with smaller steps: the learning rate was halved "
                f"{trained.halvings} times, to {trained.rate:g}.",
                f"Begin with it: --param learning_rate={trained.rate:g}.",
            )
        for note in poor(self.config.kind, trained.metrics, self._fit.config.eval_at, self._loaded.rmse_of_mean):
            self._warn(note.what, note.fix)
        if found.get("pairs_of_unseen_items"):
            self._warn(
                f"{found['pairs_of_unseen_items']:,} of {found['pairs']:,} test pairs have an item that no user had in "
                "the training rows: no list can hold it, each counts as a miss.",
                "Fold new items in, or train on more recent events.",
            )
        if found.get("users_without_training"):
            self._warn(
                f"{found['users_without_training']:,} of {found['users']:,} test users have no training event: they "
                "are shown what is popular.",
                "",
            )

    def _warn(self, message: str, fix: str) -> None:
        self._emit(Warned(message, fix))


@dataclass(frozen=True)
class TrainedFactors:
    """Implements `TrainedModel`."""

    model: FactorModel
    trained: Trained
    loaded: _Loaded
    known: Known
    settings: ExplicitSettings | ImplicitSettings
    storage: StorageOptions
    objective: str
    ks: Sequence[int]
    """Lengths of the lists that were judged."""

    @property
    def digest(self) -> str:
        return self.model.digest

    @property
    def rounds(self) -> int:
        return len(self.trained.rounds)

    @property
    def best_round(self) -> int:
        return self.trained.epoch

    @property
    def metrics(self) -> dict[str, float]:
        return self.trained.metrics

    @property
    def baseline(self) -> Baseline:
        """Lists are compared with what is popular, and beside them ratings with their mean, which decides there."""
        lists = list_baseline(self.metrics, self.ks)
        if self.objective == "implicit" or self.loaded.rmse_of_mean is None:
            return lists
        ratings = rating_baseline(self.loaded.rmse_of_mean)
        return replace(ratings, metrics={**lists.metrics, **ratings.metrics})

    def write(self, location: str, storage: StorageOptions) -> None:
        self.model.save(location, storage)

    def save(self, directory: RunDirectory) -> None:
        self.write(directory.path(MODEL), self.storage)

    def result(self, directory: RunDirectory, common: Mapping[str, Any]) -> FactorResult:
        return FactorResult(
            **common,
            model=directory.path(MODEL),
            model_digest=self.digest,
            objective=self.objective,
            rows=self.known.rows,
            pairs=self.loaded.pairs,
            eval_rows=self.loaded.notes.test_rows,
            users=len(self.known.user_ids),
            items=len(self.known.item_ids),
            factors=self.settings.factors,
            rounds=self.rounds,
            best_round=self.best_round,
            metrics=self.metrics,
            evaluation=self.trained.evaluation,
            rows_dropped=self.known.dropped,
            eval_rows_dropped=self.known.test_dropped,
            identity=Identity(True, "the order of the blocks follows from the data and the seed alone"),
            storage=self.storage,
        )


class _Loaded:
    """What the units came to together."""

    def __init__(self, reports: Sequence[UnitReport], notes: PairNotes) -> None:
        self.notes = notes
        self.pairs = sum(report.pairs for report in reports)
        self.test_pairs = sum(report.test_pairs for report in reports)
        self.item_counts: Longs = np.sum([report.item_counts for report in reports], axis=0, dtype=np.int64)
        moments = [moment for report in reports for moment in report.moments]
        self.scale: Scale = scale_of(moments) if any(moment.count for moment in moments) else Scale(0, 0, 0, 0, 0)
        tested = [report.test_moments for report in reports if report.test_moments.count]
        self.rmse_of_mean = rmse_of_mean(self.scale.mean, tested) if tested else None

    @staticmethod
    def of(reports: Sequence[tuple[UnitReport, PairNotes]], config: FactorizationConfig) -> _Loaded:
        loaded = _Loaded([report for report, _ in reports], reduce(PairNotes.__add__, (notes for _, notes in reports)))
        if not loaded.pairs:
            raise DataError(
                "No pair is left to train on: all are held out, or their weights come to 0.",
                fix="Set less aside with --eval-fraction or --eval-last, or look at --event-weight.",
            )
        wants_test = config.eval or config.eval_fraction is not None or config.eval_last is not None
        if wants_test and not loaded.test_pairs:
            raise DataError(
                "No pair is left to evaluate on.",
                fix="Set more aside with --eval-fraction or --eval-last, or leave the evaluation out.",
            )
        return loaded


def _rule(config: FactorizationConfig) -> RowRule:
    """Return what is read of a row: its time only if something is made of it."""
    assert config.user is not None and config.item is not None
    timed = config.half_life_days is not None or config.eval_by == "time" or config.eval_last is not None
    return RowRule(
        user=config.user,
        item=config.item,
        rating=config.rating,
        event=config.event,
        time=config.time if timed or config.kind == "explicit" else None,
        weights=dict(config.event_weights),
        drops_missing=config.missing_id == "drop",
    )
