"""Trees on workers that come and go, played on a stage: no Ray, no XGBoost, no sockets, no waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest

from dray.data.shards import Slice
from dray.elastic.checkpoint_writer import CheckpointWriter
from dray.elastic.controller import Controller
from dray.elastic.policy import Level
from dray.events.telemetry import Telemetry
from dray.learners.attempt import Loads
from dray.learners.checkpoint import START, Checkpoint, Step
from dray.learners.labels import LabelSample, LabelSummary
from dray.learners.layouts import RowSharding
from dray.learners.shard import Shard
from dray.learners.status import Proof
from dray.learners.xgboost import coordinator
from dray.learners.xgboost.boosting import Task
from dray.learners.xgboost.coordinator import RingCoordinator
from dray.learners.xgboost.worker import Ended, LoadReport
from dray.runs.checkpoints import WrittenCheckpoint
from dray.threads.verify import Verdict
from fake_group import FakeGroup, Never, make_membership

ROWS = 10_000
"""Of a unit; a shard of the first assignment has two."""
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


def checkpoint_at(done: int, *, known: int | None = None) -> Checkpoint:
    rounds = tuple(Step(number, 0.1, {"eval-auc": number / 100}) for number in range(1, done + 1))
    return Checkpoint(done, b"model %d" % done, rounds[:known]) if done else START


class Stage:
    """Workers that hold shards, are at rounds and train, with a script of what happens whenever all else is quiet.

    When the script is over, the ring that is under way finishes the training.
    """

    def __init__(self, workers: int, level: Level = "elastic", *, at: int = 0, **limits: Any) -> None:
        self.membership, self.group, self.told = make_membership(workers, level, **limits)
        FakeRendezvous.abandoned = 0
        count = 2 * self.membership.limits.max_workers
        self.units = tuple((Slice("data", index, 0, ROWS, index * ROWS),) for index in range(count))
        self.writer = CheckpointWriter(NoCheckpoints(), Telemetry([self.told]), checkpoint_at(at))  # type: ignore[arg-type]
        self.number = 1
        self.coordinator = RingCoordinator(TASK)
        self.script: list[Callable[[], None]] = []
        self.held: dict[int, set[Shard]] = {}
        self.at: dict[tuple[int, Shard], int] = {}
        """The round of each shard whose booster can go on as it is."""
        self.restored: list[tuple[int, Shard, int]] = []
        """Worker, shard and round of each shard that was really restored: it was not there already."""
        self.round: dict[int, int] = {}
        self.rings: list[dict[int, tuple[Shard, ...]]] = []
        """What each worker held in each ring."""
        self.began: list[int] = []
        """The round that each ring went on from."""
        self.attempts: list[int] = []
        """The number of each ring."""
        self.pausing: set[int] = set()
        self.ends: dict[int, Ended] = {}
        for method in ("load", "drop", "restore", "train", "checkpoint"):
            self.group.answer(method, getattr(self, f"_{method}"))
        self.group.listen("pause", lambda worker, ring: self.pausing.add(worker))
        self.group.listen("interrupt", self._interrupt)
        self.group.on_idle = self._go_on
        self.group.on_start = self._start

    def play(self, *script: Callable[[], None]) -> Checkpoint:
        """Begin, load, and train by the script."""
        self.load()
        return self.fit(*script)

    def load(self) -> Loads:
        self.membership.begin()
        self.controller = Controller(self.membership, Telemetry([self.told]), RowSharding(None, self.units, ()))
        return self.controller.load()

    def fit(self, *script: Callable[[], None]) -> Checkpoint:
        self.script += script
        self.controller.begin_fit(self.number, self.writer, TASK.rounds)
        return self.controller.run(self.coordinator)

    def begin_another_fit(self) -> None:
        """What is fitted from now on begins anew, on the same workers."""
        self.number += 1
        self.writer = CheckpointWriter(NoCheckpoints(), Telemetry([self.told]), START)  # type: ignore[arg-type]
        self.coordinator = RingCoordinator(replace(TASK, fit=self.number))
        self.at.clear()

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
        """The first member's checkpoint reaches the driver."""
        self.writer.offer(checkpoint_at(max(self.round.values())))

    # How workers act

    def _start(self, worker: int) -> None:
        self.held[worker] = set()
        self.round[worker] = 0
        self.at = {key: done for key, done in self.at.items() if key[0] != worker}
        self.ends.pop(worker, None)

    def _load(self, worker: int, preparation: None, shard: Shard, train: Any, evaluation: Any) -> LoadReport:
        self.held[worker].add(shard)
        rows = ROWS * len(train)
        labels = LabelSummary(rows, 0, 0.0, 1.0, whole=True)
        return LoadReport(
            rows=rows, eval_rows=0, labels=labels, label_sample=NO_LABELS, eval_labels=None, unseen={}, seconds=0.5
        )

    def _drop(self, worker: int, shards: tuple[Shard, ...]) -> None:
        self.held[worker] -= set(shards)

    def _restore(self, worker: int, task: Task, at: Checkpoint, shards: tuple[Shard, ...]) -> None:
        assert set(shards) <= self.held[worker]
        self.restored += [(worker, shard, at.round) for shard in shards if self.at.get((worker, shard)) != at.round]
        self.at |= {(worker, shard): at.round for shard in shards}
        self.round[worker] = at.round

    def _train(self, worker: int, task: Task, seats: list[tuple[int, Shard]], address: Any, ring: int) -> Any:
        if ring not in self.attempts:
            self.attempts.append(ring)
            self.rings.append({})
            self.began.append(self.at[worker, seats[0][1]])
            self.pausing, self.ends = set(), {}
        if worker not in self.rings[-1]:
            for _, shard in seats:
                assert shard in self.held[worker]
                assert self.at[worker, shard] == self.began[-1], "all members are at the same round"
            self.rings[-1][worker] = tuple(shard for _, shard in seats)
            if sum(map(len, self.rings[-1].values())) == address["members"]:
                units = sorted(unit for held in self.rings[-1].values() for shard in held for unit in shard.units)
                assert units == list(range(len(self.units))), "all rows, and none twice"
        return self.ends.pop(worker, Never())

    def _checkpoint(self, worker: int, task: Task) -> Checkpoint:
        return checkpoint_at(self.round[worker])

    def _interrupt(self, worker: int, attempt: int) -> None:
        if attempt in self.attempts:  # else it broke before its ring was formed
            assert attempt == self.attempts[-1]
            if worker not in self.ends:
                self.end(worker, "broken")

    def end(self, worker: int, how: Any) -> None:
        """Have a worker return from the ring."""
        for shard in self.rings[-1].get(worker, ()):
            if how == "broken":
                self.at.pop((worker, shard), None)
            else:
                self.at[worker, shard] = self.round[worker]
        self.ends[worker] = Ended(how, self.round[worker], PROOF, "Connection reset" if how == "broken" else "")

    def _go_on(self) -> None:
        training = {call.worker for call in self.group.pending if call.method == "train"}
        if self.pausing and training and self.pausing >= training:
            done = max(self.round[worker] for worker in training) + 1
            for worker in training:
                self.round[worker] = done
                self.end(worker, "paused")
        elif self.script:
            self.script.pop(0)()
        elif training:
            for worker in training:
                self.round[worker] = TASK.rounds
                self.end(worker, "finished")


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "Rendezvous", FakeRendezvous)


def loaded(group: FakeGroup) -> list[tuple[int, int]]:
    """Worker and base of every load, in order."""
    return [(call.worker, call.arguments[1].base) for call in group.of("load")]


def told_to(group: FakeGroup, method: str) -> list[int]:
    return sorted(worker for worker, told, _ in group.told if told == method)
