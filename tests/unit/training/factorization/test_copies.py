"""Where a training stands, as bytes, and when it is fetched."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from dray.errors import ModelError
from dray.learners.checkpoint import START, Checkpoint
from dray.learners.factorization.explicit import FactorBlock
from dray.learners.factorization.implicit_share import PartFactors
from dray.learners.learner import InputGone
from dray.training.factorization import copier
from dray.training.factorization.copier import Copier, Stand
from dray.training.factorization.copies import Copy, FactorPart, Written, as_bytes, from_bytes


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
    written = Written(7, 2, 5, make(12), make(12), make(12), make(12))
    read = from_bytes(as_bytes(written))
    assert (read.epoch, read.halvings, read.best_epoch) == (7, 2, 5)
    for side in ("users", "items", "best_users", "best_items"):
        assert same(getattr(read, side), getattr(written, side))


def test_without_a_best_epoch_there_are_no_best_blocks() -> None:
    read = from_bytes(as_bytes(Written(3, 0, 0, blocks(2), blocks(2))))
    assert (read.best_users, read.best_items) == ((), ())


def test_a_block_of_nobody_is_kept_too() -> None:
    empty = FactorBlock(np.zeros((0, 4), np.float32), np.zeros(0, np.float32))
    assert from_bytes(as_bytes(Written(1, 0, 0, (empty,), blocks(1)))).users[0].factors.shape == (0, 4)


@pytest.mark.parametrize(
    "content", [b"", b"nothing of the kind", as_bytes(Written(1, 0, 0, blocks(1), blocks(1)))[:-40]]
)
def test_damaged_bytes_are_an_error_that_says_so(content: bytes) -> None:
    with pytest.raises(ModelError, match="damaged"):
        from_bytes(content)


def test_bytes_without_what_they_are_about_are_damaged() -> None:
    stream = io.BytesIO()
    np.savez(stream, other=np.zeros(3))
    with pytest.raises(ModelError, match="damaged"):
        from_bytes(stream.getvalue())


class Keeper:
    """Takes what it is offered."""

    def __init__(self) -> None:
        self.latest: Checkpoint = START

    def offer(self, standing: Checkpoint) -> None:
        self.latest = standing


def fetched(tokens: Any) -> list[Any]:
    return list(tokens)


def stand(epoch: int, best: int | None = None) -> Stand:
    copy = Copy(epoch, blocks(2, epoch), blocks(2, epoch + 100))
    best_copy = copy if best == epoch else Copy(best, blocks(2, best), blocks(2, best + 100)) if best else None
    return Stand(copy, best_copy, 1, ())


def test_not_every_epoch_is_fetched_but_the_newest_is_at_the_end() -> None:
    keeper = Keeper()
    copying = Copier(keeper, fetched)  # type: ignore[arg-type]
    for epoch in (1, 2, 3):
        copying.offer(stand(epoch), last=False)
    assert keeper.latest is START
    copying.flush()
    assert keeper.latest.round == 3 and keeper.latest.model is not None
    assert from_bytes(keeper.latest.model).epoch == 3


@pytest.mark.parametrize(("best", "kept"), [(None, 0), (4, 0), (2, 2)])
def test_the_best_epoch_is_kept_beside_the_newest_unless_they_are_one(
    best: int | None, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "EVERY_S", 0.0)
    keeper = Keeper()
    copying = Copier(keeper, fetched)  # type: ignore[arg-type]
    copying.offer(stand(4, best), last=False)
    copying.flush()
    assert keeper.latest.model is not None
    written = from_bytes(keeper.latest.model)
    assert (written.best_epoch, written.halvings, len(written.best_users)) == (best or 0, 1, kept)
    if kept:
        assert same(written.best_users, blocks(2, 2))


def test_blocks_that_went_with_a_machine_leave_the_copy_before() -> None:
    def gone(_tokens: Any) -> list[Any]:
        raise InputGone("gone", fix="")

    keeper = Keeper()
    copying = Copier(keeper, gone)  # type: ignore[arg-type]
    copying.offer(stand(2), last=False)
    copying.flush()
    assert keeper.latest is START


def test_what_a_copy_is_about_is_plain_json() -> None:
    with np.load(io.BytesIO(as_bytes(Written(2, 1, 0, blocks(1), blocks(1))))) as arrays:
        assert json.loads(arrays["about"].tobytes()) == {"epoch": 2, "halvings": 1, "best_epoch": 0}


def test_the_last_epoch_is_fetched_only_if_the_run_ends_before_its_model_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copier, "EVERY_S", 0.0)
    keeper = Keeper()
    copying = Copier(keeper, fetched)  # type: ignore[arg-type]
    copying.offer(stand(4), last=True)
    copying.close()
    assert keeper.latest is START
    copying.flush()
    assert keeper.latest.round == 4
