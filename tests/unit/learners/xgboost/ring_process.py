"""What one member of a ring does: importable, so that a process of its own can run it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from dray.data.prepare import Preparation
from dray.data.shards import Units
from dray.learners.checkpoint import START, Checkpoint, Step
from dray.learners.shard import Shard
from dray.learners.xgboost.boosting import Outcome, PartLearner, Task, conclude
from dray.learners.xgboost.intercept import intercept
from dray.learners.xgboost.params import complete
from dray.learners.xgboost.ring import RingDoor
from dray.learners.xgboost.worker import Worker
from dray.rings.rendezvous import Rendezvous, RingAddress


@dataclass(frozen=True)
class Trained:
    """What a member tells after a training."""

    how: str
    standing: Checkpoint
    outcome: Outcome | None
    """Of a training that is over."""
    rounds: list[Step]
    """As they were told: those of this ring."""
    rows: int
    eval_rows: int
    unseen: dict[str, int]


def train_member(
    preparation: Preparation,
    train: Units,
    other_eval: Units,
    task: Task,
    address: RingAddress | None = None,
    worker: int = 0,
    at: Checkpoint = START,
    pause_after: int | None = None,
    threads: int = 1,
) -> Trained:
    """Train from `at` on, with a pause after a round if told so."""
    learner = PartLearner(threads)
    learner.load(preparation, train, other_eval, lambda rows: None)
    rounds: list[Step] = []
    learner.stand(task, at)
    how = learner.train(
        task,
        RingDoor(address),
        worker,
        on_round=lambda _, done: rounds.append(done),
        wants_pause=lambda: pause_after is not None and learner.done(task) >= pause_after,
    )
    standing = learner.standing(task)
    outcome = conclude(task, standing, preparation.features, preparation.label) if task.is_over_at(standing) else None
    assert learner.train_part is not None
    eval_rows = learner.eval_part.rows if learner.eval_part else 0
    return Trained(how, standing, outcome, rounds, learner.train_part.rows, eval_rows, learner.unseen)


def train_worker(
    preparation: Preparation, seats: dict[int, Units], task: Task, address: RingAddress
) -> tuple[str, Checkpoint]:
    """Train as a worker that has several seats in a ring."""
    worker = Worker(0, len(seats))
    parts = {member: Shard(member, (member,)) for member in seats}
    for member, shard in seats.items():
        worker.load(preparation, parts[member], shard, ())
    worker.stand(task, START, list(parts.values()))
    ended = worker.train(task, list(parts.items()), address, 1)
    assert ended.whole == tuple(parts.values()), ended
    return ended.how, worker.standing(task)


def make_task(
    preparation: Preparation,
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
    learner = PartLearner(1)
    learner.load(preparation, shard, (), lambda rows: None)
    full["base_score"] = intercept(full, learner.label_sample)
    return Task(full, objective, rounds, early_stop, evaluate)


def train_ring(
    processes: ProcessPoolExecutor,
    preparation: Preparation,
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
