"""The engine: every item comes to a result or to an error, once, in order, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.batch import blame
from dray.batch.engine import AHEAD_BATCHES, Engine, Items
from dray.batch.options import Options
from dray.errors import ItemError
from dray.events.kinds import Event
from fake_executor import FakeExecutor


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blame, "FIRST_WAIT_S", 0.0)


def outcomes(executor: FakeExecutor, items: Any, **options: Any) -> list[tuple[int, Any, str | None]]:
    engine = Engine(executor, Items(items), Options(**options))
    return [
        (chunk.first + offset, value, chunk.errors[offset].kind if offset in chunk.errors else None)
        for chunk in engine.chunks()
        for offset, value in enumerate(engine.values(chunk))
    ]


def double(item: int) -> int:
    return 2 * item


def picky(item: int) -> int:
    if item % 7 == 3:
        raise ValueError(f"not {item}")
    return 2 * item


@settings(deadline=None, max_examples=150)
@given(
    count=st.integers(0, 300),
    slots=st.integers(1, 5),
    seed=st.integers(0, 2**32),
    kills=st.dictionaries(st.integers(0, 299), st.integers(1, 9), max_size=6),
    tells=st.booleans(),
    loses=st.sampled_from([0.0, 0.1, 0.4]),
    ordered=st.booleans(),
    sized=st.booleans(),
    retries=st.integers(0, 3),
)
def test_every_item_has_one_outcome_in_order(
    count: int,
    slots: int,
    seed: int,
    kills: dict[int, int],
    tells: bool,
    loses: float,
    ordered: bool,
    sized: bool,
    retries: int,
) -> None:
    executor = FakeExecutor(picky, slots, seed=seed, kills=kills, tells_suspect=tells, loses=loses)
    items = range(count) if sized else iter(range(count))
    found = outcomes(executor, items, on_error="skip", ordered=ordered, retries=retries)
    indices = [index for index, _, _ in found]
    assert sorted(indices) == list(range(count))
    assert not ordered or indices == sorted(indices)
    for index, value, kind in found:
        if kind is None:
            assert value == 2 * index
        elif kind == "raised":
            assert index % 7 == 3
        else:  # it killed often enough, alone or as the suspect; blameless losses beyond belief count too
            assert kills.get(index, 0) > (retries if tells and not loses else 0) or loses
    assert executor.closed == [True]


def test_a_single_killer_costs_only_itself_without_a_suspect() -> None:
    executor = FakeExecutor(double, kills={77: 100}, tells_suspect=False)
    found = outcomes(executor, range(200), on_error="skip", batch=50)
    assert [index for index, _, kind in found if kind] == [77]
    assert all(value == 2 * index for index, value, kind in found if not kind)


def test_an_item_that_was_killed_from_outside_has_its_result_after_all() -> None:
    assert outcomes(FakeExecutor(double, kills={5: 2}), range(10)) == [(i, 2 * i, None) for i in range(10)]


def test_no_more_is_on_its_way_than_the_slots_and_their_queue() -> None:
    executor = FakeExecutor(double, slots=3)
    outcomes(executor, range(5000))
    assert executor.most_waiting <= 6


def test_an_endless_iterator_is_not_read_ahead() -> None:
    taken = 0

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    executor = FakeExecutor(double, slots=2)
    chunks = Engine(executor, Items(endless()), Options(batch=10)).chunks()
    seen = sum(next(chunks).count for _ in range(50))
    assert taken <= seen + 10 * (AHEAD_BATCHES * 2 + 4)
    chunks.close()
    assert executor.closed == [False]


def test_after_a_failure_nothing_new_is_started() -> None:
    executor = FakeExecutor(picky, slots=1)
    chunks = Engine(executor, Items(range(100_000)), Options(batch=1)).chunks()
    found = [chunk for chunk in chunks if chunk.errors]
    assert [chunk.first for chunk in found] == [3]
    assert len(executor.runs) <= 6


def test_what_the_iterator_raises_comes_after_the_results_before_it() -> None:
    def broken() -> Iterator[int]:
        yield from range(5)
        raise OSError("the file is gone")

    engine = Engine(FakeExecutor(double), Items(broken()), Options())
    seen: list[int] = []
    with pytest.raises(OSError, match="the file is gone"):
        for chunk in engine.chunks():
            seen += engine.values(chunk)
    assert seen == [0, 2, 4, 6, 8]


def test_an_error_names_the_item_and_the_way_out() -> None:
    engine = Engine(FakeExecutor(picky), Items([10]), Options())
    (error,) = next(engine.chunks()).errors.values()
    assert isinstance(error, ItemError)
    assert str(error).startswith("Item 0 (10) failed: ValueError: not 10")
    assert 'on_error="skip"' in error.fix
    assert isinstance(error.__cause__, ValueError)
    assert "picky" in error.traceback


def test_progress_is_told_with_the_total_if_it_is_known() -> None:
    events: list[Event] = []
    engine = Engine(FakeExecutor(double), Items(range(40)), Options(), events.append)
    list(engine.chunks())
    assert events[-1].data == {"done": 40, "total": 40, "unit": "items"}


def test_it_goes_on_in_a_better_executor_without_losing_anything() -> None:
    first, second = FakeExecutor(double, seed=1), FakeExecutor(double, slots=4, seed=2)
    engine = Engine(
        first, Items(range(500)), Options(batch=5), move=lambda engine: (lambda: second) if engine.done > 50 else None
    )
    values = [value for chunk in engine.chunks() for value in engine.values(chunk)]
    assert values == [2 * i for i in range(500)]
    assert first.closed == [True]
    assert second.closed == [True]
    assert len(first.runs) < 100 < len(second.runs)
