"""Rings over workers that come and go, played on a stage: no Ray, no XGBoost, no waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest

from dray.data.shards import Slice
from dray.elastic.group import Lost
from dray.elastic.policy import Level
from dray.errors import DataError, WorkerError
from dray.events.telemetry import Telemetry
from dray.learners.checkpoint import START, Checkpoint, Step
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.shard import Shard
from dray.learners.status import Proof
from dray.learners.xgboost.boosting import Task
from dray.learners.xgboost.worker import Ended, LoadReport
from dray.runs.checkpoints import WrittenCheckpoint
from dray.threads.verify import Verdict
from dray.training import ringmaster
from dray.training.dealt import Dealt
from dray.training.keeper import Keeper
from dray.training.ringmaster import RingMaster, RunStopped
from fake_group import FakeGroup, Never, make_membership

ROWS = 10_000
"""Of a unit; a part of the first dealing has two."""
PROOF = Proof(1, 1.0, Verdict(True))
NO_LABELS = LabelSample(np.empty(0, np.int64), np.empty(0, np.float32), None)
TASK = Task({}, "binary:logistic", 20, None, evaluate=True)


class FakeRendezvous:
    """Counts those that were given up."""

    abandoned = 0

    def __init__(self, members: int, host: str, ports: object) -> None:
        self.address = {"members": members, "host": host}

    def abandon(self) -> None:
        FakeRendezvous.abandoned += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class NoCheckpoints:
    def write(self, checkpoint: WrittenCheckpoint) -> None:
        pass


def standing_at(done: int, *, known: int | None = None) -> Checkpoint:
    rounds = tuple(Step(number, 0.1, {"eval-auc": number / 100}) for number in range(1, done + 1))
    return Checkpoint(done, b"model %d" % done, rounds[:known]) if done else START


class Stage:
    """Workers that hold parts, stand at rounds and train, with a script of what happens whenever all else is quiet.

    When the script is over, the ring that is at work finishes the training.
    """

    def __init__(self, workers: int, level: Level = "elastic", *, at: int = 0, **limits: Any) -> None:
        self.membership, self.group, self.told = make_membership(workers, level, **limits)
        FakeRendezvous.abandoned = 0
        units = tuple(
            (Slice("data", index, 0, ROWS, index * ROWS),) for index in range(2 * self.membership.limits.max_workers)
        )
        self.dealt = Dealt.among(units, (), self.membership.limits.max_workers)
        self.keeper = Keeper(NoCheckpoints(), Telemetry([self.told]), standing_at(at))  # type: ignore[arg-type]
        self.script: list[Callable[[], None]] = []
        self.held: dict[int, set[Shard]] = {}
        self.stood: dict[tuple[int, Shard], int] = {}
        self.round: dict[int, int] = {}
        self.rings: list[dict[int, tuple[Shard, ...]]] = []
        """Who held what in each ring."""
        self.began: list[int] = []
        """The round that each ring went on from."""
        self.pausing: set[int] = set()
        self.ends: dict[int, Ended] = {}
        for method in ("load", "forget", "stand", "train", "standing"):
            self.group.answer(method, getattr(self, f"_{method}"))
        self.group.listen("pause", lambda worker, ring: self.pausing.add(worker))
        self.group.listen("free", self._free)
        self.group.on_idle = self._go_on
        self.group.on_start = self._start

    def play(self, *script: Callable[[], None]) -> Checkpoint:
        """Begin, load, and train by the script."""
        self.load()
        self.script += script
        return self.master.train(TASK)

    def load(self) -> list[LoadReport]:
        self.membership.begin()
        self.master = RingMaster(self.membership, Telemetry([self.told]), self.dealt, None, self.keeper)  # type: ignore[arg-type]
        return self.master.load()

    # What a script may say

    def train(self, rounds: int, **more: int) -> Callable[[], None]:
        """All members of the ring have done so many rounds; `more` by worker_N."""

        def act() -> None:
            for worker in self.rings[-1]:
                self.round[worker] += rounds + more.get(f"worker_{worker}", 0)

        return act

    def lose(self, *workers: int) -> Callable[[], None]:
        def act() -> None:
            for worker in workers:
                self.group.lose(worker)

        return act

    def give_room(self) -> None:
        self.group.no_room.clear()

    def leave(self, worker: int) -> Callable[[], None]:
        return lambda: self.group.going.update({worker: "its node is drained"})

    def copy(self) -> None:
        """The first member's copy of the model reaches the driver."""
        self.keeper.offer(standing_at(max(self.round.values())))

    # How workers act

    def _start(self, worker: int) -> None:
        self.held[worker] = set()
        self.round[worker] = 0
        self.stood = {key: done for key, done in self.stood.items() if key[0] != worker}
        self.ends.pop(worker, None)

    def _load(self, worker: int, preparation: None, part: Shard, train: Any, other_eval: Any) -> LoadReport:
        self.held[worker].add(part)
        rows = ROWS * len(train)
        return LoadReport(rows, 0, LabelSummary(rows, 0, 0.0, 1.0, whole=True), NO_LABELS, None, {}, 0.5)

    def _forget(self, worker: int, parts: tuple[Shard, ...]) -> None:
        self.held[worker] -= set(parts)

    def _stand(self, worker: int, task: Task, at: Checkpoint, parts: tuple[Shard, ...]) -> None:
        assert set(parts) <= self.held[worker]
        self.stood |= {(worker, part): at.round for part in parts}
        self.round[worker] = at.round

    def _train(self, worker: int, task: Task, seats: list[tuple[int, Shard]], address: Any, ring: int) -> Any:
        if ring > len(self.rings):
            self.rings.append({})
            self.began.append(self.stood[worker, seats[0][1]])
            self.pausing, self.ends = set(), {}
        if worker not in self.rings[-1]:
            for _, part in seats:
                assert part in self.held[worker]
                assert self.stood[worker, part] == self.began[-1], "all members stand at the same round"
            self.rings[-1][worker] = tuple(part for _, part in seats)
            if sum(map(len, self.rings[-1].values())) == address["members"]:
                units = sorted(unit for parts in self.rings[-1].values() for part in parts for unit in part.units)
                assert units == list(range(len(self.dealt.units))), "all rows, and none twice"
        return self.ends.pop(worker, Never())

    def _standing(self, worker: int, task: Task) -> Checkpoint:
        return standing_at(self.round[worker])

    def _free(self, worker: int, ring: int) -> None:
        assert ring == len(self.rings)
        self._end(worker, "broken")

    def _end(self, worker: int, how: Any) -> None:
        parts = self.rings[-1][worker] if how != "broken" else ()
        self.stood |= {(worker, part): self.round[worker] for part in parts}
        self.ends[worker] = Ended(how, self.round[worker], parts, PROOF, "Connection reset" if how == "broken" else "")

    def _go_on(self) -> None:
        training = {call.worker for call in self.group.pending if call.method == "train"}
        if self.pausing and training and self.pausing >= training:
            done = max(self.round[worker] for worker in training) + 1
            for worker in training:
                self.round[worker] = done
                self._end(worker, "paused")
        elif self.script:
            self.script.pop(0)()
        elif training:
            for worker in training:
                self.round[worker] = TASK.rounds
                self._end(worker, "finished")


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ringmaster, "Rendezvous", FakeRendezvous)


def parts_loaded(group: FakeGroup) -> list[tuple[int, int]]:
    """Worker and base of every load, in order."""
    return [(call.worker, call.arguments[1].base) for call in group.of("load")]


def told_to(group: FakeGroup, method: str) -> list[int]:
    return sorted(worker for worker, told, _ in group.told if told == method)


def test_an_undisturbed_training_is_one_ring() -> None:
    stage = Stage(3)
    assert stage.play() == standing_at(20)
    assert parts_loaded(stage.group) == [(0, 0), (1, 1), (2, 2)]
    assert stage.told.of("ring") == [{"members": 3, "workers": 3, "round": 0}]
    assert len(stage.group.of("stand")) == 3
    assert stage.master.rows_reloaded == stage.master.recovery_s == stage.membership.failures == 0
    assert sorted(stage.master.proofs) == [0, 1, 2]
    unwanted = {"worker_lost", "reload", "recovered", "joined", "waiting", "warning"}
    assert not unwanted & set(stage.told.kinds)


def test_a_resumed_training_goes_on_from_its_standing() -> None:
    stage = Stage(2, at=12)
    assert stage.play().round == 20
    assert stage.began == [12]
    assert stage.told.of("ring")[0]["round"] == 12


def test_a_training_that_is_over_needs_no_ring() -> None:
    stage = Stage(2, at=20)
    assert stage.play() == standing_at(20)
    assert not stage.rings


def test_one_lost_while_loading_is_replaced_and_only_its_part_is_loaded_again() -> None:
    stage = Stage(3)
    lost = iter([True])
    load = stage._load

    def once(worker: int, *arguments: Any) -> Any:
        return Lost(worker, "it was killed", 0.2) if worker == 1 and next(lost, False) else load(worker, *arguments)

    stage.group.answer("load", once)
    reports = stage.load()
    assert sum(report.rows for report in reports) == 6 * ROWS
    assert parts_loaded(stage.group) == [(0, 0), (1, 1), (2, 2), (1, 1)]
    [event] = stage.told.of("worker_lost")
    assert (event["worker"], event["phase"], event["round"], event["cause"]) == (1, "load", 0, "it was killed")
    assert [e["worker"] for e in stage.told.of("worker_started") if e["replacement"]] == [1]
    assert len(stage.told.of("recovered")) == 1
    assert stage.master.rows_reloaded == 0  # they had never been loaded


def test_one_lost_in_a_ring_is_replaced_and_nothing_else_is_loaded() -> None:
    stage = Stage(3)
    assert stage.play(stage.train(7, worker_2=1), stage.lose(1)) == standing_at(20)
    assert told_to(stage.group, "free") == [0, 2]
    assert FakeRendezvous.abandoned == 1
    assert stage.group.of("standing")[0].worker == 2  # it was one round ahead
    assert parts_loaded(stage.group) == [(0, 0), (1, 1), (2, 2), (1, 1)]
    assert stage.began == [0, 8]
    assert stage.rings[0] == stage.rings[1]
    events = [kind for kind in stage.told.kinds if kind in ("worker_lost", "reload", "ring", "recovered", "joined")]
    assert events == ["ring", "worker_lost", "reload", "ring", "recovered"]
    [lost], [reload], [recovered] = (stage.told.of(kind) for kind in ("worker_lost", "reload", "recovered"))
    assert lost["phase"] == "train"
    assert reload == {"worker": 1, "rows": 2 * ROWS, "why": "replacement"}
    assert (recovered["round"], recovered["rows_reloaded"], recovered["workers"]) == (8, 2 * ROWS, 3)
    assert stage.master.rows_reloaded == 2 * ROWS
    assert stage.membership.failures == 1


def test_one_that_does_not_return_from_a_freed_ring_is_ended_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ringmaster, "RETURN_S", 0.2)
    stage = Stage(3)
    stage.group.listen("free", lambda worker, ring: None if worker == 2 else stage._free(worker, ring))

    def wait_for_the_loss() -> None:
        if len(stage.told.of("worker_lost")) < 2:
            time.sleep(0.01)
            stage.script.insert(0, wait_for_the_loss)

    assert stage.play(stage.train(7), stage.lose(1), wait_for_the_loss) == standing_at(20)
    assert told_to(stage.group, "free") == [0, 2]
    assert stage.group.ended == [2]
    assert [(event["worker"], event["cause"]) for event in stage.told.of("worker_lost")] == [
        (1, "it was killed"),
        (2, "it did not return within 0 s after its ring was given up"),
    ]
    assert stage.began == [0, 7]
    assert stage.rings[0] == stage.rings[1]
    assert stage.membership.failures == 2


def test_one_whose_rounds_take_long_has_two_of_them_to_return() -> None:
    stage = Stage(2)
    stage.load()
    assert stage.master._longest_return_s() == ringmaster.RETURN_S
    stage.keeper.offer(Checkpoint(1, b"model 1", (Step(1, 50.0, {"eval-auc": 0.1}),)))
    assert stage.master._longest_return_s() == 100


def test_a_newer_copy_of_one_who_is_lost_is_not_given_up() -> None:
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
    assert parts_loaded(stage.group)[4:] == [(0, 0), (1, 1), (3, 3)]
    assert stage.began == [0, 5]


def test_when_all_are_lost_the_newest_copy_is_gone_on_from() -> None:
    stage = Stage(2)
    assert stage.play(stage.train(5), stage.copy, stage.train(3), stage.lose(0, 1)).round == 20
    assert stage.began == [0, 5]


def test_losses_in_every_phase_of_a_recovery_are_lived_through() -> None:
    stage = Stage(3, failures_in_round=10)
    stands = iter([False, False, False, True])
    stand = stage._stand

    def sometimes(worker: int, *arguments: Any) -> Any:
        return Lost(worker, "it was killed", 0.1) if next(stands, False) else stand(worker, *arguments)

    stage.group.answer("stand", sometimes)
    assert stage.play(stage.train(4), stage.lose(1), stage.train(2), stage.lose(2), stage.lose(0)).round == 20
    assert stage.membership.failures == 4


def test_a_newcomer_loads_beside_the_training_and_joins_at_a_pause() -> None:
    stage = Stage(2)
    stage.group.no_room = {1}
    assert stage.play(stage.train(3), stage.give_room).round == 20
    assert parts_loaded(stage.group)[:2] == [(0, 0), (0, 1)]
    assert len(parts_loaded(stage.group)) == 3
    assert told_to(stage.group, "pause") == [0]
    assert not told_to(stage.group, "free")
    assert stage.began == [0, 4]
    assert {worker: len(parts) for worker, parts in stage.rings[1].items()} == {0: 1, 1: 1}
    assert [call.worker for call in stage.group.of("forget")] == [0]
    [joined] = stage.told.of("joined")
    assert joined == {"worker": 1, "host": "host-1", "rows": 2 * ROWS, "round": 5}
    assert [event["why"] for event in stage.told.of("reload")] == ["joining"]
    assert "recovered" not in stage.told.kinds
    assert stage.membership.failures == 0


def test_a_newcomer_stands_where_the_ring_paused_and_not_where_it_began() -> None:
    """Whenever the driver got a copy of the model, and however long the newcomer took."""
    for copies in range(3):
        stage = Stage(2)
        stage.group.no_room = {1}
        pause = stage._go_on

        def copy_first(stage: Stage = stage, pause: Callable[[], None] = pause, copies: int = copies) -> None:
            if stage.pausing and copies:
                stage.keeper.offer(standing_at(max(stage.round.values()) + copies - 1))
            pause()

        stage.group.on_idle = copy_first
        assert stage.play(stage.train(3), stage.give_room).round == 20
        assert stage.began == [0, 4]
        newcomer = [call for call in stage.group.of("stand") if call.worker == 1]
        assert [call.arguments[1].round for call in newcomer] == [4]


def test_a_newcomer_that_is_lost_does_not_disturb_the_ring() -> None:
    stage = Stage(2)
    stage.group.no_room = {1}
    stage.group.answer("load", self_unless_newcomer(stage))
    assert stage.play(stage.train(3), stage.give_room, stage.lose(1), stage.train(1)).round == 20
    assert stage.began[0] == 0
    assert not told_to(stage.group, "free")
    assert "recovered" not in stage.told.kinds


def self_unless_newcomer(stage: Stage) -> Callable[..., Any]:
    """A load that never ends for the first newcomer."""
    load = stage._load
    return lambda worker, *rest: Never() if worker == 1 and stage.membership.failures == 0 else load(worker, *rest)


def test_one_who_is_leaving_hands_its_rows_over_without_a_break() -> None:
    stage = Stage(2)
    assert stage.play(stage.train(3), stage.leave(1)).round == 20
    assert stage.told.of("leaving") == [{"worker": 1, "host": "host-1", "why": "its node is drained"}]
    assert parts_loaded(stage.group) == [(0, 0), (1, 1), (2, 1)]
    assert stage.began == [0, 4]
    assert sorted(stage.rings[1]) == [0, 2]
    assert [event["why"] for event in stage.told.of("reload")] == ["handing over"]
    assert [event["worker"] for event in stage.told.of("joined")] == [2]
    assert stage.group.ended == [1]
    assert not told_to(stage.group, "free")
    assert stage.membership.failures == 0
    assert "worker_lost" not in stage.told.kinds


def test_without_a_replacement_one_who_is_leaving_hands_over_to_the_others() -> None:
    stage = Stage(2, "shrink")
    assert stage.play(stage.train(3), stage.leave(1)).round == 20
    assert sorted(stage.rings[1]) == [0]
    assert stage.group.started == [0, 1]


def test_one_who_ends_its_ring_in_order_and_is_lost_then_leaves_nothing_to_its_replacement() -> None:
    stage = Stage(2)
    stage.group.no_room = set()
    stage.load()

    def end_one_and_lose_it() -> None:
        stage.round[1] = 6
        stage._end(1, "paused")

    def end_the_other() -> None:
        stage.round[0] = 6
        stage._end(0, "paused")

    stage.script += [stage.train(5), end_one_and_lose_it, stage.lose(1), end_the_other]
    assert stage.master.train(TASK).round == 20
    assert stage.began == [0, 6]
    assert parts_loaded(stage.group) == [(0, 0), (1, 1), (1, 1)]


def test_a_ring_that_broke_between_a_tree_and_its_metrics_makes_up_for_them() -> None:
    stage = Stage(2)
    stage.group.answer("standing", lambda worker, task: standing_at(5, known=4))
    stage.load()

    def know_all() -> None:
        stage.group.answer("standing", stage._standing)

    stage.script += [stage.train(5), stage.lose(1), know_all]
    assert stage.master.train(TASK) == standing_at(20)
    assert [call.arguments[1] for call in stage.group.of("stand")][2:] == [standing_at(5, known=4)] * 2


@pytest.mark.parametrize("phase", ["load", "stand", "train"])
def test_a_mistake_that_a_worker_finds_ends_the_run(phase: str) -> None:
    stage = Stage(2)
    stage.group.answer(phase, lambda worker, *rest: DataError("Bad.", fix="Mend it."))
    with pytest.raises(DataError, match="Bad"):
        stage.play()
    assert "worker_lost" not in stage.told.kinds


@pytest.mark.parametrize("phase", ["load", "stand", "train", "standing"])
def test_a_worker_that_raises_anything_else_is_replaced(phase: str) -> None:
    stage = Stage(2)
    errors = iter([MemoryError("no room")])
    usual = getattr(stage, f"_{phase}")
    stage.group.answer(
        phase, lambda worker, *rest: next(errors, None) or usual(worker, *rest) if worker == 1 else usual(worker, *rest)
    )
    script = [stage.train(3, worker_1=1), stage.lose(0)] if phase == "standing" else []
    assert stage.play(*script).round == 20
    causes = [event["cause"] for event in stage.told.of("worker_lost")]
    assert "it raised MemoryError: no room" in causes
    assert 1 in stage.group.ended


def test_on_failure_stop_a_loss_stops_the_run_with_the_model_so_far() -> None:
    stage = Stage(2, "stop")
    with pytest.raises(RunStopped, match=r"on_failure: stop.*Worker 1 on host-1: it was killed") as caught:
        stage.play(stage.train(6), stage.lose(1))
    assert "resume" in caught.value.fix
    assert stage.keeper.latest == standing_at(6)
    assert len(stage.rings) == 1


def test_too_many_losses_stop_the_run() -> None:
    stage = Stage(2, failures=2)
    with pytest.raises(RunStopped, match=r"Lost 3 workers in this run; 2 may be"):
        stage.play(*[act for _ in range(3) for act in (stage.train(2), stage.lose(1))])
    assert stage.keeper.latest == standing_at(6)


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
        stage.master.train(TASK)
    [waiting] = stage.told.of("waiting")  # once, not at every look
    assert waiting["limit_s"] == 0.05
    assert stage.keeper.latest == standing_at(4)


def test_a_replacement_is_waited_for_and_the_user_is_told_why() -> None:
    stage = Stage(2)
    stage.load()
    stage.group.slow = {1}
    stage.script += [stage.train(4), stage.lose(1), lambda: None, stage.group.slow.clear]
    assert stage.master.train(TASK).round == 20
    [waiting] = stage.told.of("waiting")
    assert "worker 1" in waiting["why"]


def test_on_failure_restart_all_begin_anew_from_the_newest_model() -> None:
    stage = Stage(3, "restart")
    assert stage.play(stage.train(6), stage.lose(1)).round == 20
    assert stage.began == [0, 6]
    assert sorted(stage.group.started) == [0, 0, 1, 1, 1, 2, 2]  # 1 was asked for when it was lost, too
    assert parts_loaded(stage.group)[3:] == [(0, 0), (1, 1), (2, 2)]
    assert stage.membership.failures == 1
    assert stage.master.rows_reloaded == 6 * ROWS


def test_a_goodbye_fetches_the_model_of_the_last_round() -> None:
    stage = Stage(2)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage.play(stage.train(6), interrupt)
    for worker in (0, 1):
        stage.group.listen("stop", lambda worker: stage._end(worker, "paused"))
    stage.master.say_goodbye()
    assert told_to(stage.group, "stop") == [0, 1]
    assert stage.keeper.latest == standing_at(6)


def test_a_goodbye_to_nobody_returns_at_once() -> None:
    stage = Stage(2)
    stage.load()
    stage.master.say_goodbye()
    assert not stage.group.told


def test_a_ring_of_less_than_all_rows_is_never_formed() -> None:
    stage = Stage(2)
    stage.load()
    stage.group.answer("load", lambda *rest: None)
    held = {0: (stage.dealt.parts[0],)}
    with pytest.raises(WorkerError, match="never trains on less"):
        stage.master._form(held)


def test_the_first_dealing_has_a_part_for_every_worker_or_for_every_unit() -> None:
    units = [(Slice("a", index, 0, 10 * (index + 1), 0),) for index in range(3)]
    evals = [(Slice("b", 0, 0, 5, 0),)]
    few = Dealt.among(units, evals, 2)
    assert few.parts == (Shard(0, (2,), (0,)), Shard(1, (0, 1)))
    assert few.rows == (10, 20, 30)
    assert few.shards(few.parts[0]) == ((units[2],), (evals[0],))
    assert [part.base for part in Dealt.among(units, [], 9).parts] == [0, 1, 2]


def test_workers_that_cannot_reach_each_other_in_two_rings_are_parted() -> None:
    stage = Stage(3)

    def part(rounds: int) -> Callable[[], None]:
        def act() -> None:
            for worker in stage.rings[-1]:
                stage.round[worker] += rounds
                stage._end(worker, "broken")
                if worker == 0:  # its member is 0, that of worker 2 is 2
                    stage.ends[worker] = replace(stage.ends[worker], unreachable=frozenset({(0, 2)}))

        return act

    assert stage.play(part(3), part(2)) == standing_at(20)
    assert [sorted(ring) for ring in stage.rings] == [[0, 1, 2], [0, 1, 2], [0, 1]]
    assert stage.began == [0, 3, 5]
    (warning,) = stage.told.of("warning")
    assert "worker 0 on" in warning["message"]
    assert "worker 2 on" in warning["message"]
    assert [lost["worker"] for lost in stage.told.of("worker_lost")] == [2]
