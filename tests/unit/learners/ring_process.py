"""What one member of a ring does: importable, so that a process of its own can run it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from dray.data.prepare import Preparation
from dray.data.shards import Shard
from dray.learners.xgboost import Outcome, Round, ShardLearner, Task
from dray.learners.xgboost_intercept import intercept
from dray.learners.xgboost_params import complete
from dray.learners.xgboost_ring import RingAddress, Tracker


@dataclass(frozen=True)
class Trained:
    """What a member tells after a training."""

    outcome: Outcome | None
    rounds: list[Round]
    rows: int
    eval_rows: int
    unseen: dict[str, int]


def train_member(
    preparation: Preparation,
    train: Shard,
    other_eval: Shard,
    task: Task,
    address: RingAddress | None = None,
    worker: int = 0,
    threads: int = 1,
) -> Trained:
    learner = ShardLearner(threads)
    learner.load(preparation, train, other_eval, lambda rows: None)
    rounds: list[Round] = []
    outcome = learner.train(task, address, worker, rounds.append)
    assert learner.train_part is not None
    eval_rows = learner.eval_part.rows if learner.eval_part else 0
    return Trained(outcome, rounds, learner.train_part.rows, eval_rows, learner.unseen)


def make_task(
    preparation: Preparation,
    shard: Shard,
    objective: str,
    *,
    params: dict[str, Any] | None = None,
    classes: int = 0,
    rounds: int = 5,
    early_stop: int | None = None,
    evaluate: bool = True,
    start_model: bytes | None = None,
) -> Task:
    """The task that the driver would make of all the rows."""
    full = complete(params or {}, objective=objective, classes=classes, seed=3)
    learner = ShardLearner(1)
    learner.load(preparation, shard, (), lambda rows: None)
    if start_model is None:
        full["base_score"] = intercept(full, learner.label_sample)
    return Task(full, objective, rounds, early_stop, evaluate, start_model)


def train_ring(
    processes: ProcessPoolExecutor,
    preparation: Preparation,
    shards: list[Shard],
    task: Task,
    eval_shards: list[Shard] | None = None,
) -> list[Trained]:
    """Train with one process a shard; each member waits for the others, so no process takes two of them."""
    with Tracker(len(shards), "127.0.0.1") as tracker:
        members = [
            processes.submit(train_member, preparation, shard, own, task, tracker.address, worker)
            for worker, (shard, own) in enumerate(zip(shards, eval_shards or [()] * len(shards), strict=True))
        ]
        return [member.result(timeout=60) for member in members]
