"""One worker of a recommender's training, asked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dray.data.parquet import open_dataset
from dray.learners.factorization.calls import CallPlace, FactorPlan
from dray.learners.factorization.events import RowRule
from dray.learners.factorization.explicit import ExplicitSettings, Scale, scale_of
from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.grid import lay_out, shape_for
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.implicit_share import ImplicitPlan, shape_of
from dray.learners.factorization.known import Known, merge
from dray.learners.factorization.unit_pairs import SplitRule
from dray.learners.factorization.worker import FactorWorker
from dray.learners.learner import InputGone
from dray.learners.registry import find
from dray.learners.status import Stopped
from dray.storage import DEFAULT
from rating_files import ROWS, rated, write

RULES = {"explicit": RowRule(user="u", item="i", rating="r"), "implicit": RowRule(user="u", item="i")}


class Stage:
    """One worker that holds everything."""

    def __init__(self, kind: str, path: Path) -> None:
        self.rule = RULES[kind]
        self.slices = open_dataset([write(path / "rows.parquet", rated())], DEFAULT).row_groups
        self.worker = FactorWorker(0, 1)
        self.known: Known = merge([self.worker.scan(self.slices, self.rule, DEFAULT, False)])
        size = ROWS, len(self.known.user_ids), len(self.known.item_ids)
        shape = shape_for(*size) if kind == "explicit" else shape_of(*size)
        layout = lay_out(self.known.user_counts, self.known.item_counts, shape, 0)
        plan: Any = (
            ExplicitPlan(layout, ExplicitSettings(factors=4))
            if kind == "explicit"
            else ImplicitPlan(layout, ImplicitSettings(factors=4))
        )
        self.plan = FactorPlan(plan, SplitRule(how="random", share=0.2), None)
        self.units = tuple(range(plan.units))

    def read(self, units: tuple[int, ...], worker: FactorWorker | None = None) -> tuple[Any, ...]:
        blocks = self.plan.plan.user_blocks()
        return (worker or self.worker).read(self.slices, units, False, self.rule, self.known.ids, blocks, DEFAULT)

    def load(self) -> list[Any]:
        self.worker.prepare(self.plan)
        _, *read = self.read(self.units)
        reports = [self.worker.build(unit, rows)[0] for unit, rows in zip(self.units, read, strict=True)]
        if self.rule is RULES["implicit"]:
            _, *given = self.worker.give(self.units, self.units)
            for unit, part in zip(self.units, given, strict=True):
                self.worker.complete(unit, part)
        self.worker.keep(self.units)
        return reports

    def scale(self, reports: list[Any]) -> Scale:
        return scale_of(moment for report in reports for moment in report.moments)


@pytest.fixture
def explicit(tmp_path: Path) -> Stage:
    return Stage("explicit", tmp_path)


@pytest.fixture
def implicit(tmp_path: Path) -> Stage:
    return Stage("implicit", tmp_path)


def rows_of(read: Any) -> int:
    return sum(len(piece) for piece in read)


def test_a_worker_of_that_role_is_one() -> None:
    assert isinstance(find("factorization").worker_side(0, 1), FactorWorker)


def test_it_reads_the_rows_of_the_units_asked_for_and_no_others(explicit: Stage) -> None:
    report, *everything = explicit.read(explicit.units)
    assert report.rows == ROWS == sum(rows_of(rows) for rows in everything)
    _, *some = explicit.read((3, 1))
    assert [rows_of(rows) for rows in some] == [rows_of(everything[3]), rows_of(everything[1])]


def test_it_tells_how_many_rows_it_has_read(explicit: Stage) -> None:
    explicit.load()
    status = explicit.worker.status(0)
    assert (status.rows, status.total_rows) == (ROWS, ROWS)
    assert status.rounds == ()


def test_units_report_what_they_hold(explicit: Stage) -> None:
    reports = explicit.load()
    assert [report.unit for report in reports] == list(explicit.units)
    pairs = sum(report.pairs + report.test_pairs for report in reports)
    assert sum(report.item_counts.sum() for report in reports) == sum(report.pairs for report in reports)
    assert pairs <= ROWS


def test_calls_of_an_attempt_that_was_given_up_are_not_done(explicit: Stage, implicit: Stage) -> None:
    scale = explicit.scale(explicit.load())
    implicit.load()
    explicit.worker.restore(CallPlace(3, 0, 0), scale, explicit.units, *(None,) * len(explicit.units))
    for stage in (explicit, implicit):
        stage.worker.interrupt(3)
        stage.worker.interrupt(2)  # told late: nothing comes back by it
    for call in (
        lambda: explicit.worker.restore(CallPlace(3, 0, 0), scale, (), *()),
        lambda: explicit.worker.turn(CallPlace(3, 0, 1), 0, 0.1, (), ()),
        lambda: explicit.worker.finish(CallPlace(2, 0, 0), explicit.units),
        lambda: implicit.worker.restore_side(CallPlace(3, 0, 0), "users", ()),
        lambda: implicit.worker.solve(CallPlace(1, 0, 0), "users"),
    ):
        with pytest.raises(InputGone):
            call()
    assert explicit.worker.finish(CallPlace(4, 0, 0), explicit.units)[0].finite  # type: ignore[union-attr]


def test_a_stopped_worker_does_nothing_more(explicit: Stage) -> None:
    explicit.load()
    explicit.worker.stop()
    for call in (
        lambda: explicit.worker.build(0),
        lambda: explicit.worker.finish(CallPlace(9, 0, 0), ()),
        lambda: explicit.worker.scan(explicit.slices, explicit.rule, DEFAULT, False),
    ):
        with pytest.raises(Stopped):
            call()


@pytest.mark.parametrize("kind", ["explicit", "implicit"])
def test_units_that_come_while_others_are_trained_wait_until_they_are_kept(kind: str, tmp_path: Path) -> None:
    stage = Stage(kind, tmp_path)
    stage.load()
    worker, whole = stage.worker, dict(stage.worker.pair_counts(stage.units))
    worker.keep((0, 1))
    _, *read = stage.read((2,))
    worker.build(2, *read)
    _, *contents = worker.export((1, 2))  # one that is trained, one that is not yet
    assert set(worker._share.units) == {0, 1}
    if kind == "implicit":
        _, given = worker.give((0, 1, 2), (2,))
        worker.complete(2, given)
        assert set(worker._implicit_share.by_item) == {0, 1}
    worker.keep((0, 2))
    assert set(worker._share.units) == {0, 2}
    assert [len(one) for one in worker.pair_counts((2,))[2]] == [len(one) for one in whole[2]]
    assert all(held is not None for held, _ in contents)
    with pytest.raises(KeyError):  # what came was not kept twice
        worker.keep((0, 1))


def test_another_fit_has_its_own_settings_and_proof(explicit: Stage) -> None:
    explicit.load()
    first = explicit.worker.end_fit(False)
    settings = ExplicitSettings(factors=4, learning_rate=0.5)
    explicit.worker.train_with(1, settings)
    assert explicit.worker.status(0).proof is first  # the same fit, in another attempt
    explicit.worker.train_with(2, settings)
    assert (explicit.worker.status(0).fit, explicit.worker.status(0).proof) == (2, None)
    assert explicit.worker._explicit_share.plan.settings == settings
    assert explicit.worker.end_fit(True) is not first


def test_only_the_last_fit_drops_what_another_one_would_need(implicit: Stage) -> None:
    implicit.load()
    implicit.worker.end_fit(False)
    assert set(implicit.worker._implicit_share.by_item) == set(implicit.units)
    implicit.worker.end_fit(True)
    assert not implicit.worker._implicit_share.by_item
    assert set(implicit.worker.pair_counts(implicit.units)) == set(implicit.units)  # the pairs are saved yet


def test_it_keeps_only_what_it_shall_hold(explicit: Stage, implicit: Stage) -> None:
    for stage in (explicit, implicit):
        stage.load()
        stage.worker.keep((1, 2))
        assert set(stage.worker.pair_counts((1, 2))) == {1, 2}
        for unit in (0, 3):
            with pytest.raises(KeyError):
                stage.worker.seen(unit, 0)


@pytest.mark.parametrize("kind", ["explicit", "implicit"])
def test_units_that_are_handed_over_are_the_same(kind: str, tmp_path: Path) -> None:
    stage = Stage(kind, tmp_path)
    stage.load()
    other = FactorWorker(0, 1)
    other.prepare(stage.plan)
    _, *contents = stage.worker.export((1, 3))
    other.adopt((1, 3), *contents)
    other.keep((1, 3))
    for unit in (1, 3):
        for piece in range(stage.plan.plan.layout.shape.cells):
            (_, mine), (_, theirs) = stage.worker.seen(unit, piece), other.seen(unit, piece)
            assert np.array_equal(mine.users, theirs.users)
            assert np.array_equal(mine.items, theirs.items)
            assert np.array_equal(mine.values, theirs.values)


def test_items_that_are_handed_over_go_with_the_unit(implicit: Stage) -> None:
    implicit.load()
    other = FactorWorker(0, 1)
    other.prepare(implicit.plan)
    _, *contents = implicit.worker.export((2,))
    other.adopt((2,), *contents)
    other.keep((2,))
    first = implicit.worker.first_parts("users", implicit.units)[1:]
    solved = []
    for worker, units in ((implicit.worker, implicit.units), (other, (2,))):
        worker.restore_side(CallPlace(1, 0, 0), "items", units, *(None,) * len(units))
        result = dict(zip(units, worker.solve(CallPlace(1, 0, 1), "items", *first)[1:], strict=True))  # type: ignore[arg-type]
        solved.append(result[2].factors.tobytes())  # type: ignore[union-attr]
    assert solved[0] == solved[1]


def test_nothing_is_done_in_an_epoch_after_something_failed(explicit: Stage, implicit: Stage) -> None:
    scale, units = explicit.scale(explicit.load()), explicit.units
    none = (None,) * len(units)
    explicit.worker.restore(CallPlace(1, 0, 0), scale, units, *none)
    with pytest.raises(ValueError, match="shorter"):
        explicit.worker.turn(CallPlace(1, 0, 1), 0, 0.01, units, units)  # without what it takes
    with pytest.raises(ValueError, match="shorter"):  # what follows reports it again: no call waits for a turn
        explicit.worker.finish(CallPlace(1, 0, 2), units)
    with pytest.raises(InputGone):  # and what was asked of another attempt does not count
        explicit.worker.turn(CallPlace(2, 0, 1), 0, 0.01, units, units, *none)
    explicit.worker.restore(CallPlace(2, 0, 0), scale, units, *none)
    explicit.worker.turn(CallPlace(2, 0, 1), 0, 0.01, units, units, *none)
    with pytest.raises(InputGone):  # nor what was asked in another series of the same attempt
        explicit.worker.turn(CallPlace(2, 1, 2), 0, 0.01, units, units, *none)
    implicit.load()
    with pytest.raises(InputGone):
        implicit.worker.solve(CallPlace(1, 0, 1), "users")


def test_an_epoch_tells_whether_numbers_came_out(explicit: Stage) -> None:
    scale, units = explicit.scale(explicit.load()), explicit.units
    none = (None,) * len(units)
    for attempt, rate in ((1, 0.01), (2, 1e30)):
        explicit.worker.restore(CallPlace(attempt, 0, 0), scale, units, *none)
        with np.errstate(all="ignore"):
            for step in units:
                explicit.worker.turn(CallPlace(attempt, 0, 1 + step), step, rate, units, units, *none)
        report = explicit.worker.finish(CallPlace(attempt, 0, 1 + len(units)), units)[0]
        assert report.finite == (attempt == 1)  # type: ignore[union-attr]
        assert len(report.squares) == len(units) ** 2  # type: ignore[union-attr]
        assert report.rows == sum(len(held) for held in explicit.worker._explicit_share.units.values())  # type: ignore[union-attr]


def test_cores_are_judged_once(explicit: Stage) -> None:
    explicit.load()
    proof = explicit.worker.end_fit(True)
    assert proof.decided == 1
    assert explicit.worker.end_fit(True) is proof
    assert explicit.worker.status(0).proof is proof
