"""Blocks as bytes, and when a checkpoint is made of them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dray.errors import ModelError
from dray.learners.checkpoint import START, Checkpoint
from dray.learners.factorization import checkpointing
from dray.learners.factorization.blocks import Blocks, FactorPart, WrittenBlocks, as_bytes, from_bytes
from dray.learners.factorization.checkpointing import Checkpointing, State
from dray.learners.factorization.explicit import FactorBlock
from dray.learners.factorization.implicit_share import PartFactors
from dray.learners.learner import InputGone


def blocks(count: int, seed: int = 0) -> tuple[FactorPart, ...]:
    random = np.random.default_rng(seed)
    return tuple(
        FactorBlock(random.normal(size=(3 + n, 4)).astype(np.float32), random.normal(size=3 + n).astype(np.float32))
        for n in range(count)
    )


def parts(count: int) -> tuple[FactorPart, ...]:
    random = np.random.default_rng(9)
    return tuple(PartFactors.of(random.normal(size=(2 + n, 4)).astype(np.float32)) for n in range(count))


def same(left: tuple[FactorPart, ...], right: tuple[FactorPart, ...]) -> bool:
    names = ("factors", "bias", "gram")
    return len(left) == len(right) and all(
        type(one) is type(other)
        and all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names if hasattr(one, name))
        for one, other in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("make", [blocks, parts])
def test_bytes_bring_back_every_bit(make: Any) -> None:
    written = WrittenBlocks(7, 2, 5, make(12), make(12), make(12), make(12))
    read = from_bytes(as_bytes(written))
    assert (read.epoch, read.halvings, read.best_epoch) == (7, 2, 5)
    for side in ("users", "items", "best_users", "best_items"):
        assert same(getattr(read, side), getattr(written, side))


def test_without_a_best_epoch_there_are_no_best_blocks() -> None:
    read = from_bytes(as_bytes(WrittenBlocks(3, 0, 0, blocks(2), blocks(2))))
    assert (read.best_users, read.best_items) == ((), ())


def test_a_block_without_users_is_kept_too() -> None:
    empty = FactorBlock(np.zeros((0, 4), np.float32), np.zeros(0, np.float32))
    assert from_bytes(as_bytes(WrittenBlocks(1, 0, 0, (empty,), blocks(1)))).users[0].factors.shape == (0, 4)


@pytest.mark.parametrize(
    "content", [b"", b"nothing of the kind", as_bytes(WrittenBlocks(1, 0, 0, blocks(1), blocks(1)))[:-40]]
)
def test_damaged_bytes_are_an_error_that_says_so(content: bytes) -> None:
    with pytest.raises(ModelError, match="damaged"):
        from_bytes(content)


def test_bytes_without_what_they_are_about_are_damaged() -> None:
    stream = io.BytesIO()
    np.savez(stream, other=np.zeros(3))
    with pytest.raises(ModelError, match="damaged"):
        from_bytes(stream.getvalue())


class FakeAttempt:
    """Takes what it is offered, and fetches what it is given."""

    def __init__(self) -> None:
        self.latest: Checkpoint = START

    def offer(self, checkpoint: Checkpoint) -> None:
        self.latest = checkpoint

    def fetch(self, kept: Sequence[Any]) -> list[Any]:
        return list(kept)


class GoneAttempt(FakeAttempt):
    def fetch(self, kept: Sequence[Any]) -> list[Any]:
        raise InputGone("gone", fix="")


def state(epoch: int, best: int | None = None) -> State:
    after = Blocks(epoch, blocks(2, epoch), blocks(2, epoch + 100))
    best_blocks = after if best == epoch else Blocks(best, blocks(2, best), blocks(2, best + 100)) if best else None
    return State(after, best_blocks, 1, ())


def test_not_every_epoch_is_fetched_but_the_newest_is_at_the_end() -> None:
    attempt, making = FakeAttempt(), Checkpointing(3)
    for epoch in (1, 2, 3):
        making.offer(state(epoch), attempt, last=False)  # type: ignore[arg-type]
    assert attempt.latest is START
    making.flush(attempt)  # type: ignore[arg-type]
    assert attempt.latest.round == 3 and attempt.latest.model is not None
    assert from_bytes(attempt.latest.model).epoch == attempt.latest.fit == 3


@pytest.mark.parametrize(("best", "kept"), [(None, 0), (4, 0), (2, 2)])
def test_the_best_epoch_is_kept_beside_the_newest_unless_they_are_one(
    best: int | None, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "EVERY_S", 0.0)
    attempt, making = FakeAttempt(), Checkpointing(3)
    making.offer(state(4, best), attempt, last=False)  # type: ignore[arg-type]
    making.flush(attempt)  # type: ignore[arg-type]
    assert attempt.latest.model is not None
    written = from_bytes(attempt.latest.model)
    assert (written.best_epoch, written.halvings, len(written.best_users)) == (best or 0, 1, kept)
    if kept:
        assert same(written.best_users, blocks(2, 2))


def test_blocks_that_went_with_a_machine_leave_the_checkpoint_before() -> None:
    attempt, making = GoneAttempt(), Checkpointing(3)
    making.offer(state(2), attempt, last=False)  # type: ignore[arg-type]
    making.flush(attempt)  # type: ignore[arg-type]
    assert attempt.latest is START


def test_what_a_checkpoint_is_about_is_plain_json() -> None:
    with np.load(io.BytesIO(as_bytes(WrittenBlocks(2, 1, 0, blocks(1), blocks(1))))) as arrays:
        assert json.loads(arrays["about"].tobytes()) == {"epoch": 2, "halvings": 1, "best_epoch": 0}


def test_the_last_epoch_is_fetched_only_if_the_run_ends_before_its_model_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpointing, "EVERY_S", 0.0)
    attempt, making = FakeAttempt(), Checkpointing(3)
    making.offer(state(4), attempt, last=True)  # type: ignore[arg-type]
    making.close()
    assert attempt.latest is START
    making.flush(attempt)  # type: ignore[arg-type]
    assert attempt.latest.round == 4
