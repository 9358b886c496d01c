"""The controller with rings of trees over workers that come and go (`ring_stage.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dray.elastic.group import Lost
from dray.elastic.row_shards import assigned
from dray.elastic.stopped import RunStopped
from dray.errors import DataError, WorkerError
from dray.learners.shard import Shard
from fake_group import Asked, Never
from ring_stage import ROWS, FakeRendezvous, Stage, checkpoint_at, loaded, no_sockets, told_to

pytestmark = pytest.mark.usefixtures("no_sockets")
__all__ = ["no_sockets"]


def test_an_undisturbed_training_is_one_ring() -> None:
    stage = Stage(3)
    assert stage.play() == checkpoint_at(20)
    assert loaded(stage.group) == [(0, 0), (1, 1), (2, 2)]
    assert stage.told.of("ring") == [{"members": 3, "workers": 3, "round": 0}]
    assert len(stage.group.of("restore")) == 3
    assert stage.controller.rows_reloaded == stage.controller.recovery_s == stage.membership.failures == 0
    assert sorted(stage.controller.proofs) == [0, 1, 2]
    unwanted = {"worker_lost", "reload", "recovered", "joined", "waiting", "warning"}
    assert not unwanted & set(stage.told.kinds)


def test_a_resumed_training_goes_on_from_its_checkpoint() -> None:
    stage = Stage(2, at=12)
    assert stage.play().round == 20
    assert stage.began == [12]
    assert stage.told.of("ring")[0]["round"] == 12


def test_a_training_that_is_over_needs_no_ring() -> None:
    stage = Stage(2, at=20)
    assert stage.play() == checkpoint_at(20)
    assert not stage.rings


def test_one_lost_while_loading_is_replaced_and_only_its_shard_is_loaded_again() -> None:
    stage = Stage(3)
    lost = iter([True])
    load = stage._load

    def once(worker: int, *arguments: Any) -> Any:
        return Lost(worker, "it was killed", 0.2) if worker == 1 and next(lost, False) else load(worker, *arguments)

    stage.group.answer("load", once)
    reports = stage.load().reports
    assert sum(report.rows for report in reports) == 6 * ROWS
    assert loaded(stage.group) == [(0, 0), (1, 1), (2, 2), (1, 1)]
    [event] = stage.told.of("worker_lost")
    assert (event["worker"], event["phase"], event["round"], event["cause"]) == (1, "load", 0, "it was killed")
    assert [e["worker"] for e in stage.told.of("worker_started") if e["replacement"]] == [1]
    assert len(stage.told.of("recovered")) == 1
    assert stage.controller.rows_reloaded == 0  # they had never been loaded


def test_one_lost_in_a_ring_is_replaced_and_nothing_else_is_loaded() -> None:
    stage = Stage(3)
    assert stage.play(stage.train(7, worker_2=1), stage.lose(1)) == checkpoint_at(20)
    assert told_to(stage.group, "interrupt") == [0, 2]
    assert FakeRendezvous.abandoned == 1
    assert stage.group.of("checkpoint")[0].worker == 2  # it was one round ahead
    assert loaded(stage.group) == [(0, 0), (1, 1), (2, 2), (1, 1)]
    assert stage.began == [0, 8]
    assert stage.rings[0] == stage.rings[1]
    events = [kind for kind in stage.told.kinds if kind in ("worker_lost", "reload", "ring", "recovered", "joined")]
    assert events == ["ring", "worker_lost", "reload", "ring", "recovered"]
    [lost], [reload], [recovered] = (stage.told.of(kind) for kind in ("worker_lost", "reload", "recovered"))
    assert lost["phase"] == "train"
    assert reload == {"worker": 1, "rows": 2 * ROWS, "why": "replacement"}
    assert (recovered["round"], recovered["rows_reloaded"], recovered["workers"]) == (8, 2 * ROWS, 3)
    assert stage.controller.rows_reloaded == 2 * ROWS
    assert stage.membership.failures == 1


def test_a_newer_checkpoint_of_a_lost_worker_is_not_given_up() -> None:
    stage = Stage(3)
    stage.play(stage.train(7, worker_0=1), stage.copy, stage.lose(0))
    assert stage.began == [0, 8]


def test_without_a_replacement_the_others_share_the_lost_rows() -> None:
    stage = Stage(3, "shrink")
    assert stage.play(stage.train(5), stage.lose(1)).round == 20
    assert stage.group.started == [0, 1, 2]
    assert [(call.worker, call.arguments[1]) for call in stage.group.of("load")][3:] == [
        (0, Shard(1, (1,))),
        (2, Shard(1, (4,))),
    ]
    assert stage.told.of("ring")[1] == {"members": 4, "workers": 2, "round": 5}
    assert [event["why"] for event in stage.told.of("reload")] == ["takes over lost rows"] * 2


def test_all_but_one_may_be_lost_at_once() -> None:
    stage = Stage(4)
    assert stage.play(stage.train(5), stage.lose(0, 1, 3)).round == 20
    assert loaded(stage.group)[4:] == [(0, 0), (1, 1), (3, 3)]
    assert stage.began == [0, 5]


def test_when_all_are_lost_training_goes_on_from_the_newest_checkpoint() -> None:
    stage = Stage(2)
    assert stage.play(stage.train(5), stage.copy, stage.train(3), stage.lose(0, 1)).round == 20
    assert stage.began == [0, 5]


def test_losses_in_every_phase_of_a_recovery_are_lived_through() -> None:
    stage = Stage(3, failures_in_round=10)
    restores = iter([False, False, False, True])
    restore = stage._restore

    def sometimes(worker: int, *arguments: Any) -> Any:
        return Lost(worker, "it was killed", 0.1) if next(restores, False) else restore(worker, *arguments)

    stage.group.answer("restore", sometimes)
    assert stage.play(stage.train(4), stage.lose(1), stage.train(2), stage.lose(2), stage.lose(0)).round == 20
    assert stage.membership.failures == 4


def test_a_new_worker_loads_beside_the_training_and_joins_at_a_pause() -> None:
    stage = Stage(2)
    stage.group.no_room = {1}
    assert stage.play(stage.train(3), stage.give_room).round == 20
    assert loaded(stage.group)[:2] == [(0, 0), (0, 1)]
    assert len(loaded(stage.group)) == 3
    assert told_to(stage.group, "pause") == [0]
    assert not told_to(stage.group, "interrupt")
    assert stage.began == [0, 4]
    assert {worker: len(shards) for worker, shards in stage.rings[1].items()} == {0: 1, 1: 1}
    assert [call.lane for call in stage.group.of("load")] == ["main", "main", "beside"]
    assert [worker for worker, _, at in stage.restored if at == 4] == [1]  # the other one is there already
    assert [call.worker for call in stage.group.of("drop")] == [0]
    [joined] = stage.told.of("joined")
    assert joined == {"worker": 1, "host": "host-1", "rows": 2 * ROWS, "round": 5}
    assert [event["why"] for event in stage.told.of("reload")] == ["joining"]
    assert "recovered" not in stage.told.kinds
    assert stage.membership.failures == 0


def test_a_new_worker_is_restored_to_where_the_ring_paused_and_not_to_where_it_began() -> None:
    """Whenever the driver got a checkpoint, and however long the new worker took."""
    for copies in range(3):
        stage = Stage(2)
        stage.group.no_room = {1}
        pause = stage._go_on

        def copy_first(stage: Stage = stage, pause: Callable[[], None] = pause, copies: int = copies) -> None:
            if stage.pausing and copies:
                stage.writer.offer(checkpoint_at(max(stage.round.values()) + copies - 1))
            pause()

        stage.group.on_idle = copy_first
        assert stage.play(stage.train(3), stage.give_room).round == 20
        assert stage.began == [0, 4]
        new = [call for call in stage.group.of("restore") if call.worker == 1]
        assert [call.arguments[1].round for call in new] == [4]


def test_a_new_worker_that_is_lost_does_not_disturb_the_ring() -> None:
    stage = Stage(2)
    stage.group.no_room = {1}
    stage.group.answer("load", never_for_the_new_worker(stage))
    assert stage.play(stage.train(3), stage.give_room, stage.lose(1), stage.train(1)).round == 20
    assert stage.began[0] == 0
    assert not told_to(stage.group, "interrupt")
    assert "recovered" not in stage.told.kinds


def never_for_the_new_worker(stage: Stage) -> Callable[..., Any]:
    """A load that never ends for the first new worker."""
    load = stage._load
    return lambda worker, *rest: Never() if worker == 1 and stage.membership.failures == 0 else load(worker, *rest)


def test_a_leaving_worker_hands_its_rows_over_without_a_break() -> None:
    stage = Stage(2)
    assert stage.play(stage.train(3), stage.leave(1)).round == 20
    assert stage.told.of("leaving") == [{"worker": 1, "host": "host-1", "why": "its node is drained"}]
    assert loaded(stage.group) == [(0, 0), (1, 1), (2, 1)]
    assert stage.began == [0, 4]
    assert sorted(stage.rings[1]) == [0, 2]
    assert [event["why"] for event in stage.told.of("reload")] == ["handing over"]
    assert [event["worker"] for event in stage.told.of("joined")] == [2]
    assert stage.group.ended == [1]
    assert not told_to(stage.group, "interrupt")
    assert stage.membership.failures == 0
    assert "worker_lost" not in stage.told.kinds


def test_without_a_replacement_a_leaving_worker_hands_over_to_the_others() -> None:
    stage = Stage(2, "shrink")
    assert stage.play(stage.train(3), stage.leave(1)).round == 20
    assert sorted(stage.rings[1]) == [0]
    assert stage.group.started == [0, 1]


def test_a_worker_that_ends_its_ring_in_order_and_is_lost_then_leaves_nothing_to_its_replacement() -> None:
    stage = Stage(2)
    stage.group.no_room = set()
    stage.load()

    def end_one_and_lose_it() -> None:
        stage.round[1] = 6
        stage.end(1, "paused")

    def end_the_other() -> None:
        stage.round[0] = 6
        stage.end(0, "paused")

    stage.script += [stage.train(5), end_one_and_lose_it, stage.lose(1), end_the_other]
    assert stage.fit().round == 20
    assert stage.began == [0, 6]
    assert loaded(stage.group) == [(0, 0), (1, 1), (1, 1)]


def test_a_ring_that_broke_between_a_tree_and_its_metrics_makes_up_for_them() -> None:
    stage = Stage(2)
    stage.group.answer("checkpoint", lambda worker, task: checkpoint_at(5, known=4))
    stage.load()

    def know_all() -> None:
        stage.group.answer("checkpoint", stage._checkpoint)

    stage.script += [stage.train(5), stage.lose(1), know_all]
    assert stage.fit() == checkpoint_at(20)
    assert [call.arguments[1] for call in stage.group.of("restore")][2:] == [checkpoint_at(5, known=4)] * 2


@pytest.mark.parametrize("phase", ["load", "restore", "train"])
def test_a_mistake_that_a_worker_finds_ends_the_run(phase: str) -> None:
    stage = Stage(2)
    stage.group.answer(phase, lambda worker, *rest: DataError("Bad.", fix="Mend it."))
    with pytest.raises(DataError, match="Bad"):
        stage.play()
    assert "worker_lost" not in stage.told.kinds


@pytest.mark.parametrize("phase", ["load", "restore", "train", "checkpoint"])
def test_a_worker_that_raises_anything_else_is_replaced(phase: str) -> None:
    stage = Stage(2)
    errors = iter([MemoryError("no room")])
    usual = getattr(stage, f"_{phase}")
    stage.group.answer(
        phase, lambda worker, *rest: next(errors, None) or usual(worker, *rest) if worker == 1 else usual(worker, *rest)
    )
    script = [stage.train(3, worker_1=1), stage.lose(0)] if phase == "checkpoint" else []
    assert stage.play(*script).round == 20
    causes = [event["cause"] for event in stage.told.of("worker_lost")]
    assert "it raised MemoryError: no room" in causes
    assert 1 in stage.group.ended


def test_on_failure_stop_a_loss_stops_the_run_with_the_model_so_far() -> None:
    stage = Stage(2, "stop")
    with pytest.raises(RunStopped, match=r"on_failure: stop.*Worker 1 on host-1: it was killed") as caught:
        stage.play(stage.train(6), stage.lose(1))
    assert "resume" in caught.value.fix
    assert stage.writer.latest == checkpoint_at(6)
    assert len(stage.rings) == 1


def test_too_many_losses_stop_the_run() -> None:
    stage = Stage(2, failures=2)
    with pytest.raises(RunStopped, match=r"Lost 3 workers in this run; 2 may be"):
        stage.play(*[act for _ in range(3) for act in (stage.train(2), stage.lose(1))])
    assert stage.writer.latest == checkpoint_at(6)


def test_one_round_that_is_interrupted_again_and_again_stops_the_run() -> None:
    stage = Stage(2, failures_in_round=2)
    with pytest.raises(RunStopped, match=r"One round was interrupted 3 times; 2 may be"):
        stage.play(stage.train(4), *[stage.lose(1)] * 3)
    assert stage.began == [0, 4, 4]


def test_interruptions_of_different_rounds_do_not_add_up() -> None:
    stage = Stage(2, failures_in_round=1)
    assert stage.play(*[act for _ in range(4) for act in (stage.train(2), stage.lose(1))]).round == 20


def test_too_few_workers_for_too_long_stop_the_run() -> None:
    stage = Stage(2, least=2, wait_s=0.05)
    stage.load()
    stage.group.no_room = {1}
    stage.script += [stage.train(4), stage.lose(1)]
    with pytest.raises(RunStopped, match=r"Only 1 of at least 2 workers ready after 0.05 s"):
        stage.fit()
    [waiting] = stage.told.of("waiting")  # once, not at every look
    assert waiting["limit_s"] == 0.05
    assert stage.writer.latest == checkpoint_at(4)


def test_a_replacement_is_waited_for_and_the_user_is_told_why() -> None:
    stage = Stage(2)
    stage.load()
    stage.group.slow = {1}
    stage.script += [stage.train(4), stage.lose(1), lambda: None, stage.group.slow.clear]
    assert stage.fit().round == 20
    [waiting] = stage.told.of("waiting")
    assert "worker 1" in waiting["why"]


def test_on_failure_restart_all_begin_anew_from_the_newest_model() -> None:
    stage = Stage(3, "restart")
    assert stage.play(stage.train(6), stage.lose(1)).round == 20
    assert stage.began == [0, 6]
    assert sorted(stage.group.started) == [0, 0, 1, 1, 1, 2, 2]  # 1 was asked for when it was lost, too
    assert loaded(stage.group)[3:] == [(0, 0), (1, 1), (2, 2)]
    assert stage.membership.failures == 1
    assert stage.controller.rows_reloaded == 6 * ROWS


def test_on_failure_restart_the_loss_of_a_worker_outside_the_ring_has_it_pause_first() -> None:
    stage = Stage(3, "restart")
    stage.group.slow.add(3)  # the replacement of the leaving worker

    def fail_to_start() -> None:
        stage.group.starting.remove(3)
        stage.group.going.clear()
        stage.group.lose(3)

    assert stage.play(stage.train(4), stage.leave(1), fail_to_start).round == 20
    assert stage.began[:2] == [0, 5]  # the round that it paused after
    assert [event["worker"] for event in stage.told.of("worker_lost")] == [3]
    assert not told_to(stage.group, "interrupt")


def test_a_worker_that_raises_twice_at_once_is_lost_once() -> None:
    stage = Stage(2)
    stage.load()
    lost = stage.membership.failures
    stage.group.answer("twice", lambda worker: WorkerError("It cannot.", fix=""))
    for _ in range(2):
        stage.group.call(1, Asked("twice"))
    poll = stage.group.poll
    stage.group.poll = lambda timeout_s: [*poll(timeout_s), *poll(timeout_s)]  # type: ignore[method-assign]
    stage.controller.events()
    assert stage.membership.failures == lost + 1


def test_an_attempt_on_less_than_all_rows_is_never_begun() -> None:
    stage = Stage(2)
    stage.load()
    first, _ = assigned(stage.units, (), 2)
    with pytest.raises(WorkerError, match="never trains on less"):
        stage.controller._begin({0: first[:1]})


def test_rings_that_break_without_a_loss_are_counted_too() -> None:
    stage = Stage(2, failures_in_round=2)

    def break_it() -> None:
        for worker in stage.rings[-1]:
            stage.end(worker, "broken")

    with pytest.raises(RunStopped, match=r"One round was interrupted 3 times; 2 may be"):
        stage.play(stage.train(4), *[break_it] * 3)
    assert stage.began == [0, 4, 4]
    assert stage.membership.failures == 0


# Another fit on the same workers


def test_another_fit_loads_nothing_and_begins_from_nothing() -> None:
    stage = Stage(2)
    assert stage.play() == checkpoint_at(20)
    stage.begin_another_fit()
    assert stage.fit(stage.train(3)) == checkpoint_at(20)
    assert stage.began == [0, 0]
    assert len(stage.group.of("load")) == 2
    assert [event["round"] for event in stage.told.of("round")] == [*range(1, 21)] * 2
    assert [event["worker"] for event in stage.told.of("threads")] == [0, 1] * 2
    assert sorted(stage.controller.proofs) == [0, 1]
    assert stage.attempts == [1, 2]  # an attempt's number is never used again: an interrupt of it means no other


def test_breaks_of_an_earlier_fit_do_not_count_in_another() -> None:
    stage = Stage(2, failures_in_round=1)
    assert stage.play(stage.train(2), stage.lose(1)).round == 20
    stage.begin_another_fit()
    assert stage.fit(stage.lose(1), stage.train(2), stage.lose(1)).round == 20
    assert stage.began == [0, 2, 0, 0, 2]


def test_a_worker_that_comes_between_two_fits_loads_before_the_second_begins() -> None:
    stage = Stage(2)
    stage.group.slow = {1}
    stage.group.no_room = {1}
    assert stage.play().round == 20
    stage.begin_another_fit()
    stage.give_room()
    stage.group.slow.clear()
    while 1 not in stage.membership.ready:
        stage.controller.events()
    assert stage.fit().round == 20
    assert sorted(stage.rings[1]) == [0, 1]
    assert stage.controller.rows_reloaded == 2 * ROWS
