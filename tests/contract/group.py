"""The contract of `dray.elastic.group.Group`: inherit from `GroupContract` and give it a group.

    class TestMine(GroupContract):
        @pytest.fixture
        def group(self) -> Iterator[Group]: ...

A group of several workers also passes `SeveralWorkersContract`, which has `lose` end a worker as a failure would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dray.elastic.group import Group, GroupEvent, Lost, Raised, Ready, Returned
from dray.errors import DataError
from dray.learners.learner import InputGone, Op

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Note(Op[..., list[Any]]):
    """Returns all that was noted on this worker so far, this one included."""

    what: str

    def __call__(self, side: Any, *inputs: Any, **_: Any) -> list[Any]:
        side.noted = [*getattr(side, "noted", ()), self.what, *inputs]
        return list(side.noted)


@dataclass(frozen=True)
class Tell(Op[..., None]):
    """As `Note`, for `tell`."""

    what: str
    lane = "control"

    def __call__(self, side: Any, *_: Any, **__: Any) -> None:
        side.told = self.what


@dataclass(frozen=True)
class Told(Op[..., Any]):
    """Returns what the worker was told last."""

    def __call__(self, side: Any, *_: Any, **__: Any) -> Any:
        return getattr(side, "told", None)


@dataclass(frozen=True)
class Keep(Op[..., Any]):
    """Keeps two arrays on the worker."""

    first: int
    keeps = 2

    def __call__(self, side: Any, *_: Any, **__: Any) -> Any:
        return "kept", np.full(3, self.first), np.full(2, self.first + 1)


@dataclass(frozen=True)
class Fail(Op[..., Any]):
    """Raises a mistake of the user's; keeps what is never made."""

    keeps = 1

    def __call__(self, side: Any, *_: Any, **__: Any) -> Any:
        raise DataError("The rows are wrong.", fix="Mend them.")


@dataclass(frozen=True)
class Add(Op[..., int]):
    """Returns the sum of the arrays that it is given."""

    def __call__(self, side: Any, *inputs: Any, **_: Any) -> int:
        return sum(int(array.sum()) for array in inputs)


@dataclass(frozen=True)
class Sleep(Op[..., None]):
    """Keeps the worker busy."""

    seconds: float

    def __call__(self, side: Any, *_: Any, **__: Any) -> None:
        time.sleep(self.seconds)


def poll_until(group: Group, is_enough: Callable[[list[GroupEvent]], bool]) -> list[GroupEvent]:
    """Return all that happened until it is enough."""
    found: list[GroupEvent] = []
    deadline = time.monotonic() + PATIENCE_S
    while not is_enough(found):
        assert time.monotonic() < deadline, f"it does not come; so far: {found}"
        found += group.poll(0.5)
    return found


def answers(group: Group, calls: Iterable[int]) -> dict[int, Any]:
    """Return what calls returned or raised, by their numbers; nothing else may happen."""
    wanted = list(calls)
    found = poll_until(group, lambda events: len(events) >= len(wanted))
    assert sorted(event.call for event in found if isinstance(event, Returned | Raised)) == sorted(wanted)
    return {
        event.call: event.value if isinstance(event, Returned) else event.error
        for event in found
        if isinstance(event, Returned | Raised)
    }


def value_of(group: Group, call: int) -> Any:
    """Return what a call returned or raised, whatever else happens before."""
    found = poll_until(group, lambda events: any(getattr(event, "call", None) == call for event in events))
    (event,) = [event for event in found if isinstance(event, Returned | Raised) and event.call == call]
    return event.value if isinstance(event, Returned) else event.error


def started(group: Group, *workers: int) -> Group:
    for worker in workers:
        group.start(worker)
    found = poll_until(group, lambda events: len(events) >= len(workers))
    assert sorted(event.member.worker for event in found if isinstance(event, Ready)) == sorted(workers)
    return group


class GroupContract:
    """Of a group that has at least the worker 0, and has not started it."""

    @pytest.fixture
    def group(self) -> Any:
        raise NotImplementedError("a group that has not started a worker")

    def test_a_worker_that_was_asked_for_is_ready_once(self, group: Group) -> None:
        group.start(0)
        (ready,) = poll_until(group, bool)
        assert isinstance(ready, Ready)
        assert (ready.member.worker, ready.member.threads) == (0, 1)
        assert ready.member.host
        assert group.poll(0.0) == []
        assert (group.expected(), group.leaving()) == (frozenset(), {})

    def test_a_call_returns_under_its_number(self, group: Group) -> None:
        started(group, 0)
        calls = [group.call(0, Note(what)) for what in ("a", "b", "c")]
        assert len({call.number for call in calls}) == 3
        assert [call.kept for call in calls] == [[], [], []]
        assert list(answers(group, [call.number for call in calls]).values()) == [["a"], ["a", "b"], ["a", "b", "c"]]

    def test_calls_of_a_worker_run_in_order_whatever_they_wait_for(self, group: Group) -> None:
        started(group, 0)
        made = group.call(0, Keep(1))
        waits = group.call(0, Add(), *made.kept)
        later = group.call(0, Note("later"))
        found = answers(group, [made.number, waits.number, later.number])
        assert list(found) == [made.number, waits.number, later.number]
        assert found[waits.number] == 3 * 1 + 2 * 2

    def test_a_mistake_comes_back_as_it_is_and_the_worker_lives(self, group: Group) -> None:
        started(group, 0)
        failed = group.call(0, Fail()).number
        error = answers(group, [failed])[failed]
        assert isinstance(error, DataError)
        assert (error.what, error.fix) == ("The rows are wrong.", "Mend them.")
        again = group.call(0, Note("here")).number
        assert answers(group, [again]) == {again: ["here"]}

    def test_what_is_kept_can_be_fetched_and_passed_on(self, group: Group) -> None:
        started(group, 0)
        call = group.call(0, Keep(5))
        assert answers(group, [call.number]) == {call.number: "kept"}
        three, two = group.fetch(call.kept)
        assert (three.tolist(), two.tolist()) == ([5, 5, 5], [6, 6])
        added = group.call(0, Add(), *call.kept).number
        assert answers(group, [added]) == {added: 27}

    def test_an_input_that_was_never_made_is_told_as_such(self, group: Group) -> None:
        started(group, 0)
        failed = group.call(0, Fail())
        waits = group.call(0, Add(), *failed.kept)
        found = answers(group, [failed.number, waits.number])
        assert isinstance(found[waits.number], InputGone)
        with pytest.raises(InputGone):
            group.fetch(failed.kept)

    def test_what_is_posted_is_there_for_the_calls_behind_it(self, group: Group) -> None:
        """Whether anything tells of the posted call itself is left open: nothing waits for it."""
        started(group, 0)
        kept = group.post(0, Post(2), np.full(4, 2))
        assert len(kept) == 1
        assert value_of(group, group.call(0, Add(), *kept).number) == 16

    def test_a_posted_call_that_fails_is_told_by_what_needs_it(self, group: Group) -> None:
        started(group, 0)
        kept = group.post(0, Fail())
        assert isinstance(value_of(group, group.call(0, Add(), *kept).number), InputGone)

    def test_a_shared_value_arrives_as_it_is(self, group: Group) -> None:
        started(group, 0)
        shared = group.share(np.arange(10))
        calls = [group.call(0, Add(), shared).number for _ in range(2)]
        assert list(answers(group, calls).values()) == [45, 45]
        assert group.fetch([shared])[0].tolist() == list(range(10))

    def test_what_a_worker_is_told_needs_no_answer(self, group: Group) -> None:
        started(group, 0)
        group.tell(0, Tell("stop"))
        deadline = time.monotonic() + PATIENCE_S
        said = None
        while said != "stop":
            assert time.monotonic() < deadline
            call = group.call(0, Told()).number
            said = answers(group, [call])[call]

    def test_a_group_may_be_closed_twice(self, group: Group) -> None:
        started(group, 0)
        group.close()
        group.close()


@dataclass(frozen=True)
class Post(Op[..., Any]):
    """Keeps its input, so many times over. An op that is posted has no value."""

    times: int
    keeps = 1

    def __call__(self, side: Any, *inputs: Any, **_: Any) -> Any:
        return None, inputs[0] * self.times


class SeveralWorkersContract(GroupContract):
    """Of a group with room for the workers 0 and 1."""

    def lose(self, group: Group, worker: int, pid: int) -> None:
        """End the worker's process as a failure would."""
        raise NotImplementedError

    def test_workers_are_apart(self, group: Group) -> None:
        started(group, 0, 1)
        calls = [group.call(worker, Note(f"to {worker}")).number for worker in (0, 1)]
        assert answers(group, calls) == {calls[0]: ["to 0"], calls[1]: ["to 1"]}

    def test_what_one_worker_keeps_another_one_gets(self, group: Group) -> None:
        started(group, 0, 1)
        made = group.call(0, Keep(3))
        added = group.call(1, Add(), *made.kept)
        assert answers(group, [made.number, added.number])[added.number] == 3 * 3 + 2 * 4

    def test_nothing_is_heard_of_a_worker_that_was_ended(self, group: Group) -> None:
        started(group, 0, 1)
        group.call(0, Sleep(0.0))
        group.end(0)
        other = group.call(1, Note("here")).number
        assert answers(group, [other]) == {other: ["here"]}
        assert group.poll(0.3) == []

    def test_a_lost_worker_is_told_once_with_its_calls_and_can_be_started_again(self, group: Group) -> None:
        group.start(0)
        group.start(1)
        ready = poll_until(group, lambda events: len(events) == 2)
        pids = {event.member.worker: event.member.pid for event in ready if isinstance(event, Ready)}
        noted = group.call(0, Note("before")).number
        answers(group, [noted])
        group.call(0, Sleep(600))
        self.lose(group, 0, pids[0])
        (lost,) = poll_until(group, bool)
        assert isinstance(lost, Lost)
        assert lost.worker == 0
        assert lost.cause
        other = group.call(1, Note("here")).number
        assert answers(group, [other]) == {other: ["here"]}
        started(group, 0)
        fresh = group.call(0, Note("anew")).number
        assert answers(group, [fresh]) == {fresh: ["anew"]}

    def test_what_a_lost_worker_had_made_outlives_it(self, group: Group) -> None:
        group.start(0)
        group.start(1)
        ready = poll_until(group, lambda events: len(events) == 2)
        pids = {event.member.worker: event.member.pid for event in ready if isinstance(event, Ready)}
        made = group.call(0, Keep(2))
        answers(group, [made.number])
        self.lose(group, 0, pids[0])
        poll_until(group, lambda events: any(isinstance(event, Lost) for event in events))
        added = group.call(1, Add(), *made.kept).number
        assert answers(group, [added]) == {added: 3 * 2 + 2 * 3}

    def test_what_a_lost_worker_was_to_make_is_gone(self, group: Group) -> None:
        group.start(0)
        group.start(1)
        ready = poll_until(group, lambda events: len(events) == 2)
        pids = {event.member.worker: event.member.pid for event in ready if isinstance(event, Ready)}
        group.call(0, Sleep(600))
        made = group.call(0, Keep(2))
        waits = group.call(1, Add(), *made.kept).number
        self.lose(group, 0, pids[0])
        found = poll_until(group, lambda events: len(events) == 2)
        assert [event.worker for event in found if isinstance(event, Lost)] == [0]
        (raised,) = [event for event in found if isinstance(event, Raised)]
        assert (raised.worker, raised.call) == (1, waits)
        assert isinstance(raised.error, InputGone)
