"""One worker of a recommender's training, asked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dray.data.parquet import open_dataset
from dray.learners.factorization.calls import FactorPlan, Place
from dray.learners.factorization.events import RowRule
from dray.learners.factorization.explicit import ExplicitSettings, Scale, scale_of
from dray.learners.factorization.explicit_share import ExplicitPlan
from dray.learners.factorization.grid import lay_out, shape_for
from dray.learners.factorization.implicit import ImplicitSettings
from dray.learners.factorization.implicit_share import ImplicitPlan, shape_of
from dray.learners.factorization.known import Known, merge
from dray.learners.factorization.own_part import SplitRule
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

    def deal(self, units: tuple[int, ...], worker: FactorWorker | None = None) -> tuple[Any, ...]:
        blocks = self.plan.plan.user_blocks()
        return (worker or self.worker).deal(self.slices, self.rule, self.known.ids, blocks, units, DEFAULT, False)

    def load(self) -> list[Any]:
        self.worker.prepare(self.plan)
        _, *dealt = self.deal(self.units)
        return [self.worker.take(unit, rows)[0] for unit, rows in zip(self.units, dealt, strict=True)]

    def scale(self, reports: list[Any]) -> Scale:
        return scale_of(moment for report in reports for moment in report.moments)


@pytest.fixture
def explicit(tmp_path: Path) -> Stage:
    return Stage("explicit", tmp_path)


@pytest.fixture
def implicit(tmp_path: Path) -> Stage:
    return Stage("implicit", tmp_path)


def rows_of(dealt: Any) -> int:
    return sum(len(piece) for piece in dealt)


def test_a_worker_of_that_role_is_one() -> None:
    assert isinstance(find("factorization").worker_side(0, 1), FactorWorker)


def test_it_deals_the_rows_of_the_units_asked_for_and_no_others(explicit: Stage) -> None:
    report, *everything = explicit.deal(explicit.units)
    assert report.rows == ROWS == sum(rows_of(rows) for rows in everything)
    _, *some = explicit.deal((3, 1))
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
    explicit.worker.stand(Place(3, 0), scale, explicit.units, *(None,) * len(explicit.units))
    for stage in (explicit, implicit):
        stage.worker.abandon(3)
        stage.worker.abandon(2)  # told late: nothing comes back by it
    for call in (
        lambda: explicit.worker.stand(Place(3, 0), scale, (), *()),
        lambda: explicit.worker.turn(Place(3, 1), 0, 0.1, (), ()),
        lambda: explicit.worker.finish(Place(2, 0), explicit.units),
        lambda: implicit.worker.stand_part(Place(3, 0), "users", ()),
        lambda: implicit.worker.solve(Place(1, 0), "users"),
    ):
        with pytest.raises(InputGone):
            call()
    assert explicit.worker.finish(Place(4, 0), explicit.units)[0].finite  # type: ignore[union-attr]


def test_a_stopped_worker_does_nothing_more(explicit: Stage) -> None:
    explicit.load()
    explicit.worker.stop()
    for call in (
        lambda: explicit.worker.take(0),
        lambda: explicit.worker.finish(Place(9, 0), ()),
        lambda: explicit.worker.scan(explicit.slices, explicit.rule, DEFAULT, False),
    ):
        with pytest.raises(Stopped):
            call()


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
    _, *contents = stage.worker.hand_over((1, 3))
    other.receive((1, 3), *contents)
    for unit in (1, 3):
        for piece in range(stage.plan.plan.layout.shape.cells):
            (_, mine), (_, theirs) = stage.worker.seen(unit, piece), other.seen(unit, piece)
            assert np.array_equal(mine.users, theirs.users)
            assert np.array_equal(mine.items, theirs.items)
            assert np.array_equal(mine.values, theirs.values)


def test_items_that_are_handed_over_go_with_the_unit(implicit: Stage) -> None:
    implicit.load()
    _, *parts = implicit.worker.give_items(implicit.units, implicit.units)
    for unit, part in zip(implicit.units, parts, strict=True):
        assert part is not None
        implicit.worker.take_items(unit, part)
    other = FactorWorker(0, 1)
    other.prepare(implicit.plan)
    _, *contents = implicit.worker.hand_over((2,))
    other.receive((2,), *contents)
    first = implicit.worker.first_parts("users", implicit.units)[1:]
    solved = []
    for worker, units in ((implicit.worker, implicit.units), (other, (2,))):
        worker.stand_part(Place(1, 0), "items", units, *(None,) * len(units))
        result = dict(zip(units, worker.solve(Place(1, 1), "items", *first)[1:], strict=True))  # type: ignore[arg-type]
        solved.append(result[2].factors.tobytes())  # type: ignore[union-attr]
    assert solved[0] == solved[1]


def test_nothing_is_done_in_an_epoch_after_something_failed(explicit: Stage, implicit: Stage) -> None:
    scale, units = explicit.scale(explicit.load()), explicit.units
    none = (None,) * len(units)
    explicit.worker.stand(Place(1, 0), scale, units, *none)
    with pytest.raises(ValueError, match="shorter"):
        explicit.worker.turn(Place(1, 1), 0, 0.01, units, units)  # without what it takes
    with pytest.raises(ValueError, match="shorter"):  # what follows tells it again: nobody waits for a turn
        explicit.worker.finish(Place(1, 2), units)
    with pytest.raises(InputGone):  # and what was asked of another attempt does not count
        explicit.worker.turn(Place(2, 1), 0, 0.01, units, units, *none)
    explicit.worker.stand(Place(2, 0), scale, units, *none)
    explicit.worker.turn(Place(2, 1), 0, 0.01, units, units, *none)
    implicit.load()
    with pytest.raises(InputGone):
        implicit.worker.solve(Place(1, 1), "users")


def test_an_epoch_tells_whether_numbers_came_out(explicit: Stage) -> None:
    scale, units = explicit.scale(explicit.load()), explicit.units
    none = (None,) * len(units)
    for attempt, rate in ((1, 0.01), (2, 1e30)):
        explicit.worker.stand(Place(attempt, 0), scale, units, *none)
        with np.errstate(all="ignore"):
            for step in units:
                explicit.worker.turn(Place(attempt, 1 + step), step, rate, units, units, *none)
        report = explicit.worker.finish(Place(attempt, 1 + len(units)), units)[0]
        assert report.finite == (attempt == 1)  # type: ignore[union-attr]
        assert len(report.squares) == len(units) ** 2  # type: ignore[union-attr]
        assert report.rows == sum(len(held) for held in explicit.worker._explicit_share.units.values())  # type: ignore[union-attr]


def test_cores_are_judged_once(explicit: Stage) -> None:
    explicit.load()
    proof = explicit.worker.end_training()
    assert proof.decided == 1
    assert explicit.worker.end_training() is proof
    assert explicit.worker.status(0).proof is proof
