"""What one member of a ring does: importable, so that a process of its own can run it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from dray.data.shards import Units
from dray.learners.checkpoint import START, Checkpoint, Step
from dray.learners.shard import Shard
from dray.learners.xgboost.baseline import constant_margins
from dray.learners.xgboost.boosting import Outcome, ShardLearner, Task, conclude
from dray.learners.xgboost.intercept import intercept
from dray.learners.xgboost.matrix import BinnedPreparation
from dray.learners.xgboost.params import complete
from dray.learners.xgboost.ring import RingDoor
from dray.learners.xgboost.worker import Worker
from dray.rings.rendezvous import Rendezvous, RingAddress


@dataclass(frozen=True)
class Trained:
    """What a member tells after a training."""

    how: str
    checkpoint: Checkpoint
    outcome: Outcome | None
    """Of a training that is over."""
    rounds: list[Step]
    """As they were told: those of this ring."""
    rows: int
    eval_rows: int
    unseen: dict[str, int]


def train_member(
    preparation: BinnedPreparation,
    train: Units,
    evaluation: Units,
    task: Task,
    address: RingAddress | None = None,
    worker: int = 0,
    at: Checkpoint = START,
    pause_after: int | None = None,
    threads: int = 1,
) -> Trained:
    """Train from `at` on, with a pause after a round if told so."""
    learner = ShardLearner(threads)
    learner.load(preparation, train, evaluation, lambda rows: None)
    rounds: list[Step] = []
    learner.restore(task, at)
    how = learner.train(
        task,
        RingDoor(address),
        worker,
        on_round=lambda _, done: rounds.append(done),
        wants_pause=lambda: pause_after is not None and learner.done(task) >= pause_after,
    )
    checkpoint = learner.checkpoint(task)
    outcome = None
    if task.is_over_at(checkpoint):
        outcome = conclude(task, checkpoint, preparation.features, preparation.label)
    assert learner.train_rows is not None
    eval_rows = learner.eval_rows.rows if learner.eval_rows else 0
    return Trained(how, checkpoint, outcome, rounds, learner.train_rows.rows, eval_rows, learner.unseen)


def train_worker(
    preparation: BinnedPreparation, seats: dict[int, Units], task: Task, address: RingAddress
) -> tuple[str, Checkpoint]:
    """Train as a worker that has several seats in a ring."""
    worker = Worker(0, len(seats))
    shards = {member: Shard(member, (member,)) for member in seats}
    for member, shard in seats.items():
        worker.load(preparation, shards[member], shard, ())
    worker.restore(task, START, list(shards.values()))
    ended = worker.train(task, list(shards.items()), address, 1)
    return ended.how, worker.checkpoint(task)


def make_task(
    preparation: BinnedPreparation,
    shard: Units,
    objective: str,
    *,
    params: dict[str, Any] | None = None,
    classes: int = 0,
    rounds: int = 5,
    early_stop: int | None = None,
    evaluate: bool = True,
) -> Task:
    """The task that the driver would make of all the rows."""
    full = complete(params or {}, objective=objective, classes=classes, seed=3)
    learner = ShardLearner(1)
    learner.load(preparation, shard, (), lambda rows: None)
    full["base_score"] = intercept(full, learner.label_sample)
    constant = constant_margins(full, learner.label_sample)
    return Task(full, objective, rounds, early_stop, evaluate, constant=constant)


def train_ring(
    processes: ProcessPoolExecutor,
    preparation: BinnedPreparation,
    shards: list[Units],
    task: Task,
    eval_shards: list[Units] | None = None,
    at: Checkpoint = START,
    pause_after: int | None = None,
) -> list[Trained]:
    """Train with one process a shard; each member waits for the others, so no process takes two of them."""
    with Rendezvous(len(shards), "127.0.0.1") as meeting:
        members = [
            processes.submit(train_member, preparation, shard, own, task, meeting.address, worker, at, pause_after)
            for worker, (shard, own) in enumerate(zip(shards, eval_shards or [()] * len(shards), strict=True))
        ]
        return [member.result(timeout=60) for member in members]
