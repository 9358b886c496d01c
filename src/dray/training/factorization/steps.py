"""The steps of a recommender's training, in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from dray.data.parquet import Dataset
from dray.data.stream import give_memory_back
from dray.elastic.membership import Membership
from dray.elastic.starting import started_workers
from dray.errors import DataError
from dray.learners.factorization.calls import FactorPlan
from dray.learners.factorization.config import FactorizationConfig
from dray.learners.factorization.events import RowRule, require_columns
from dray.learners.factorization.explicit import Scale, scale_of
from dray.learners.factorization.explicit_share import ExplicitPlan, UnitReport
from dray.learners.factorization.factors import Factors, Longs
from dray.learners.factorization.grid import lay_out, shape_for
from dray.learners.factorization.implicit_share import ImplicitPlan, shape_of
from dray.learners.factorization.known import Known, merge
from dray.learners.factorization.model import FactorModel
from dray.learners.factorization.own_part import Ageing, PartNotes, SplitRule
from dray.learners.factorization.settings import explicit_settings, implicit_settings
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import Do
from dray.learners.status import Proof
from dray.training.factorization.alternation import Alternation
from dray.training.factorization.copies import Copy, tokens
from dray.training.factorization.dealing import in_order
from dray.training.factorization.descent import Descent
from dray.training.factorization.epochs import Course, Trained
from dray.training.factorization.foreman import Foreman, Rows, Weight
from dray.training.factorization.measuring import TestPart
from dray.training.factorization.previous import Previous, read_previous
from dray.training.factorization.result import FactorResult
from dray.training.factorization.saving import collect_seen, explicit_factors, forget_untrained, implicit_factors
from dray.training.result import Identity, ThreadProof
from dray.training.run_steps import RunSteps, terms_of

MODEL = "model"
"""The directory of the model, within that of the run."""


class FactorTraining(RunSteps):
    """One run, step by step. Made for one call of `run`."""

    config: FactorizationConfig

    def run(self) -> FactorResult:
        config, emit = self.config, self.telemetry.emit
        emit("phase", name="prepare")
        previous = read_previous(config, self.storage)
        rule = _rule(config)
        train_data = self._open(config.data, rule)
        eval_data = self._open(config.eval, rule) if config.eval else None
        if previous is not None and config.kind == "explicit":  # lists are never judged by pairs that were trained on
            self.check_held_out(train_data, eval_data, previous.trained_on)
        self.note_data(train_data, eval_data, () if previous is None else previous.trained_on)
        emit(
            "data",
            rows=train_data.rows,
            files=len(train_data.files),
            row_groups=len(train_data.row_groups),
            bytes=train_data.bytes,
        )
        emit("phase", name="start")
        settings = self._settings(previous)
        with started_workers(
            config.workers,
            config.threads,
            config.cluster,
            len(train_data.row_groups),
            train_data.rows * settings.factors,
            self.telemetry,
            terms=terms_of(config),
            rounds_told=len(self.keeper.latest.rounds),
            learner=config.model,
        ) as membership:
            self.note_workers(membership)
            self.times.append(time.perf_counter())
            emit("phase", name="load")
            known = self._known(membership, rule, train_data, eval_data, previous)
            plan = self._plan(known, settings)
            foreman = self._foreman(membership, plan, rule, known, train_data, eval_data, previous)
            loaded = _Loaded.of(foreman.load(), self.config)
            self._tell(membership, foreman, plan, known, loaded)
            self.times.append(time.perf_counter())
            emit("phase", name="train")
            trained, proofs = self._train(membership, foreman, plan, known, loaded, previous)
            self.times.append(time.perf_counter())
            emit("phase", name="save")
            model = self._model(membership, foreman, plan, known, loaded, trained)
            location = self.directory.path(MODEL)
            model.save(location, self.storage)
            self._warn_of(trained)
            return FactorResult(
                run=self.directory.run,
                directory=self.directory.location,
                model=location,
                model_digest=model.digest,
                learner="factorization",
                objective=config.kind,
                rows=known.rows,
                pairs=loaded.pairs,
                eval_rows=loaded.notes.test_rows,
                users=len(known.user_ids),
                items=len(known.item_ids),
                factors=settings.factors,
                workers=0 if membership.alone else len(membership.ready),
                rounds=len(trained.rounds),
                best_round=trained.epoch,
                seconds=self.seconds(foreman.recovery_s),
                metrics=trained.metrics,
                evaluation=trained.evaluation,
                threads=tuple(
                    ThreadProof(worker, host, proof.decided, round(proof.used, 2), proof.verdict.ok)
                    for worker, (host, proof) in sorted(proofs.items())
                ),
                peak_memory_bytes=membership.watch.peak_memory_bytes,
                failures=membership.failures,
                rows_reloaded=foreman.rows_reloaded,
                identity=Identity(True, "the order of the blocks follows from the data and the seed alone"),
                warnings=tuple(self.warnings),
                storage=self.storage,
            )

    # What there is

    def _open(self, locations: Sequence[str], rule: RowRule) -> Dataset:
        return self.open_data(locations, partial(require_columns, rule=rule))

    def _settings(self, previous: Previous | None) -> Any:
        config = self.config
        params = dict(config.params)
        if previous is not None:
            params["factors"] = previous.model.describe()["factors"]
        make = explicit_settings if config.kind == "explicit" else implicit_settings
        return make(params, config.rounds, config.seed)

    def _known(
        self, membership: Membership, rule: RowRule, train: Dataset, test: Dataset | None, previous: Previous | None
    ) -> Known:
        """Have every worker look through some rows, and put together what they found."""
        readers = max(1, len(membership.ready))
        tasks = [(share, rule, self.storage, False) for share in in_order(train.row_groups, readers) if share]
        if test is not None:
            tasks += [(share, rule, self.storage, True) for share in in_order(test.row_groups, readers) if share]
        found = membership.run(Do(FactorWorker.scan), tasks)
        return merge([*found, *([previous.found()] if previous is not None else [])])

    def _plan(self, known: Known, settings: Any) -> FactorPlan:
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
        size = int(known.user_counts.sum()), len(known.user_ids), len(known.item_ids)
        implicit = config.kind == "implicit"
        layout = lay_out(
            known.user_counts, known.item_counts, shape_of(*size) if implicit else shape_for(*size), config.seed
        )
        return FactorPlan((ImplicitPlan if implicit else ExplicitPlan)(layout, settings), split, ageing)

    def _foreman(
        self,
        membership: Membership,
        plan: FactorPlan,
        rule: RowRule,
        known: Known,
        train: Dataset,
        test: Dataset | None,
        previous: Previous | None,
    ) -> Foreman:
        unit_of_user = plan.plan.user_blocks()
        before = previous.pairs(known, unit_of_user, plan.plan.units) if previous is not None else ()
        rows = Rows(train.row_groups, test.row_groups if test else (), rule, known.ids, self.storage, before)
        own = work = np.bincount(unit_of_user, known.user_counts, plan.plan.units).astype(np.int64)
        if isinstance(plan.plan, ImplicitPlan):
            work = own + np.bincount(plan.plan.layout.items.piece, known.item_counts, plan.plan.units).astype(np.int64)
        weights = [Weight(int(rows), int(whole)) for rows, whole in zip(own, work, strict=True)]
        if len(membership.ready) > plan.plan.units:
            self._warn(
                f"{len(membership.ready)} workers for {plan.plan.units} blocks: the others only read.",
                f"Use --workers {plan.plan.units}: so much data cannot be divided further.",
            )
        return Foreman(membership, self.telemetry, plan, rows, weights)

    def _tell(self, membership: Membership, foreman: Foreman, plan: FactorPlan, known: Known, loaded: _Loaded) -> None:
        config, notes = self.config, loaded.notes
        self.telemetry.emit(
            "events",
            rows=known.rows,
            pairs=loaded.pairs,
            users=len(known.user_ids),
            items=len(known.item_ids),
            by_host=foreman.rows_by_host,
            types=known.events,
            noun="ratings" if config.kind == "explicit" else "pairs",
        )
        if config.kind == "explicit" and notes.duplicates:
            self._warn(f"{notes.duplicates:,} ratings are of a pair that had one before: the last one counts.", "")
        if notes.cancelled:
            self._warn(
                f"The weights of {notes.cancelled:,} pairs come to 0: they were left out.",
                "Change event_weights if they should count.",
            )
        blocks = f"{plan.plan.units} blocks of users"
        if isinstance(plan.plan, ExplicitPlan) and plan.plan.layout.shape.cells > 1:
            blocks += f", {plan.plan.layout.shape.cells} x {plan.plan.layout.shape.cells} cells each"
        self.telemetry.emit(
            "decided",
            workers=0 if membership.alone else len(membership.ready),
            threads=membership.threads,
            objective=f"{config.kind} factorization",
            reasons=[*membership.reasons, f"grid: {blocks} (by the number of rows)"],
        )

    # Training

    def _train(
        self,
        membership: Membership,
        foreman: Foreman,
        plan: FactorPlan,
        known: Known,
        loaded: _Loaded,
        previous: Previous | None,
    ) -> tuple[Trained, dict[int, tuple[str, Proof]]]:
        """Train; return what came of it, and whether the threads were used. All copies go with the course."""
        config, share = self.config, membership.group.share
        early = config.kind == "implicit" and config.early_stop is not None
        test = TestPart(
            loaded.test_pairs, tuple(config.eval_at), loaded.item_counts, len(known.user_ids), each_epoch=early
        )
        first = Copy.beginning(plan.plan.units)
        method: Descent | Alternation
        if isinstance(plan.plan, ExplicitPlan):
            scale = loaded.scale
            if previous is not None:  # its biases are those from its own mean
                scale = replace(scale, mean=previous.model.mean)
                users, items = previous.blocks(known, plan.plan, scale)
                first = Copy(0, tokens(users, share), tokens(items, share))
            loaded.scale = scale
            method = Descent(foreman, plan.plan, scale, test, share)
        else:
            if previous is not None:
                parts = previous.parts(known, plan.plan)
                first = Copy(0, tokens(parts[0], share), tokens(parts[1], share))
            method = Alternation(foreman, plan.plan)
        course = Course(config, membership, foreman, method, test, self.keeper, self.telemetry, first)
        self.begun = True
        return course.run(), course.end()

    def _model(
        self,
        membership: Membership,
        foreman: Foreman,
        plan: FactorPlan,
        known: Known,
        loaded: _Loaded,
        trained: Trained,
    ) -> FactorModel:
        factors: Factors
        limits = None
        about: dict[str, Any] = asdict(plan.plan.settings)
        if isinstance(plan.plan, ExplicitPlan):
            factors = explicit_factors(plan.plan, trained.users, trained.items, loaded.scale)
            limits = (loaded.scale.low, loaded.scale.high)
            about |= {"epochs": trained.epoch, "learning_rate": trained.rate, "unit": loaded.scale.unit}
        else:
            factors = implicit_factors(plan.plan, trained.users, trained.items)
        trained.users, trained.items = [], []
        give_memory_back()  # for the pairs
        seen = collect_seen(foreman, membership, plan.plan.layout)
        forget_untrained(factors, seen, loaded.item_counts)
        as_of = plan.ageing.as_of if plan.ageing is not None else None
        return FactorModel.of(
            self.config.kind, factors, known.user_ids, known.item_ids, seen, about, limits=limits, as_of=as_of
        )

    def _warn_of(self, trained: Trained) -> None:
        found = trained.evaluation
        if trained.halvings:
            self._warn(
                f"Training diverged, and went on with smaller steps: the learning rate was halved "
                f"{trained.halvings} times, to {trained.rate:g}.",
                f"Begin with it: --param learning_rate={trained.rate:g}.",
            )
        ours, popular = (trained.metrics.get(f"{who}-ndcg@{self.config.eval_at[0]}") for who in ("eval", "popular"))
        if self.config.kind == "implicit" and ours is not None and popular is not None and popular >= ours:
            self._warn(
                f"Showing everybody what is popular does as well: NDCG {popular:.4f}, the model {ours:.4f}.",
                "Give more events, or try other factors, alpha and regularization (--param); or show what is popular.",
            )
        if found.get("pairs_of_unseen_items"):
            self._warn(
                f"{found['pairs_of_unseen_items']:,} of {found['pairs']:,} test pairs have an item that nobody had in "
                "the training part: no list can hold it, each counts as a miss.",
                "Fold new items in, or train on more recent events.",
            )
        if found.get("users_without_training"):
            self._warn(
                f"{found['users_without_training']:,} of {found['users']:,} test users have no training event: they "
                "are shown what is popular.",
                "",
            )

    def _warn(self, message: str, fix: str) -> None:
        self.telemetry.emit("warning", message=message, fix=fix)


class _Loaded:
    """What the units came to together."""

    def __init__(self, reports: Sequence[UnitReport], notes: PartNotes) -> None:
        self.notes = notes
        self.pairs = sum(report.pairs for report in reports)
        self.test_pairs = sum(report.test_pairs for report in reports)
        self.item_counts: Longs = np.sum([report.item_counts for report in reports], axis=0, dtype=np.int64)
        moments = [moment for report in reports for moment in report.moments]
        self.scale: Scale = scale_of(moments) if any(moment.count for moment in moments) else Scale(0, 0, 0, 0, 0)

    @staticmethod
    def of(reports: Sequence[tuple[UnitReport, PartNotes]], config: FactorizationConfig) -> _Loaded:
        loaded = _Loaded([report for report, _ in reports], reduce(PartNotes.__add__, (notes for _, notes in reports)))
        if not loaded.pairs:
            raise DataError(
                "No pair is left to train on: all are in the test part, or their weights come to 0.",
                fix="Set less aside (eval_fraction, eval_last), or look at event_weights.",
            )
        wants_test = config.eval or config.eval_fraction is not None or config.eval_last is not None
        if wants_test and not loaded.test_pairs:
            raise DataError(
                "No pair is left to evaluate on.",
                fix="Set more aside (eval_fraction, eval_last), or leave the evaluation out.",
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
    )
