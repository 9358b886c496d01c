"""Following a log: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import count

import pytest

from dray.jobs import follow
from dray.jobs.client import JobInfo, Unreachable
from dray.jobs.follow import ConnectionLost, Follower

LOG = "".join(f"line {number}\n" for number in range(200))


class Fake:
    """A job that prints LOG bit by bit, at an endpoint that fails when it is told to."""

    def __init__(self, *, bytes_a_look: int = 100, fails: frozenset[int] = frozenset(), cut_after: int = 3) -> None:
        self._printed = 0
        self._pace = bytes_a_look
        self._fails = fails
        self._cut_after = cut_after
        self._calls = count()
        self.streams = 0

    def info(self, job: str) -> JobInfo:
        self._fail()
        self._print()
        status = "SUCCEEDED" if self._printed >= len(LOG) else "RUNNING"
        return JobInfo(job, "PENDING" if self._printed <= self._pace else status)

    def logs(self, _: str) -> str:
        self._fail()
        return LOG[: self._printed]

    async def tail(self, _: str) -> AsyncIterator[str]:
        """As Ray's: from the beginning, and it may break off at any moment."""
        self.streams += 1
        told = 0
        for _ in range(self._cut_after):
            self._print()
            if told < self._printed:
                yield LOG[told : self._printed]
                told = self._printed
            await asyncio.sleep(0.005)
        raise RuntimeError("cut")

    def _print(self) -> None:
        self._printed = min(len(LOG), self._printed + self._pace)

    def _fail(self) -> None:
        if next(self._calls) in self._fails:
            raise Unreachable("no answer", "")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"POLL_S": 0.001, "STATUS_S": 0.02, "POLL_FOR_S": 0.01}.items():
        monkeypatch.setattr(follow, name, value)


def heard(fake: Fake) -> str:
    return "".join(Follower(fake, "job").pieces())


def test_a_log_is_heard_whole_and_once() -> None:
    assert heard(Fake()) == LOG


def test_streams_that_break_off_are_opened_again_where_they_were() -> None:
    fake = Fake(bytes_a_look=40, cut_after=2)
    assert heard(fake) == LOG
    assert fake.streams > 1


@pytest.mark.parametrize("failing", [{0, 1}, {3, 4, 5}, {1, 3, 5, 7}, set(range(2, 40, 3))])
def test_requests_that_fail_for_a_while_lose_and_double_nothing(failing: set[int]) -> None:
    assert heard(Fake(fails=frozenset(failing))) == LOG


def test_an_endpoint_that_stays_away_is_given_up_and_nothing_is_claimed_of_the_job() -> None:
    fake = Fake(fails=frozenset(range(3, 10_000)))
    follower = Follower(fake, "dray-1", how_to_follow="dray job logs dray-1 --follow", patience_s=0.1)
    words = r"has not answered since \d\d:\d\d:\d\d, for 0 s: no answer The job dray-1 may still run"
    with pytest.raises(ConnectionLost, match=words) as caught:
        list(follower.pieces())
    assert "goes on" not in caught.value.what
    assert caught.value.exit_code == 1
    assert "dray job logs dray-1 --follow" in caught.value.fix


def test_following_can_be_interrupted_and_goes_on_where_it_was() -> None:
    follower = Follower(Fake(), "job")
    first = next(follower.pieces())
    assert first + "".join(follower.pieces()) == LOG


def test_following_ends_when_enough_was_heard() -> None:
    heard: list[str] = []
    for piece in Follower(Fake(bytes_a_look=20), "job").pieces(until=lambda: "line 9\n" in "".join(heard)):
        heard.append(piece)
    assert len("".join(heard)) < len(LOG)
    assert LOG.startswith("".join(heard))


def test_where_no_stream_comes_through_the_log_is_asked_for_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoStreams(Fake):
        async def tail(self, _: str) -> AsyncIterator[str]:
            self.streams += 1
            raise RuntimeError("a proxy")
            yield ""

    monkeypatch.setattr(follow, "SELDOM_S", 0.002)
    fake = NoStreams(bytes_a_look=20)
    pieces = list(Follower(fake, "job").pieces())
    assert "".join(pieces) == LOG
    assert len(pieces) > 10
    assert fake.streams == follow.TRIES


def test_a_log_that_ray_cannot_read_does_not_hide_the_end() -> None:
    class Unreadable(Fake):
        def logs(self, _: str) -> str:
            raise Unreachable("500: UnicodeDecodeError", "")

        async def tail(self, _: str) -> AsyncIterator[str]:
            raise RuntimeError("cut")
            yield ""

    follower = Follower(Unreadable(bytes_a_look=400), "job", patience_s=0)
    assert "cannot be read" in "".join(follower.pieces())
    assert follower.info is not None and follower.info.over


def test_a_stream_that_says_nothing_does_not_hold_up_the_end() -> None:
    class Silent(Fake):
        async def tail(self, _: str) -> AsyncIterator[str]:
            self.streams += 1
            await asyncio.sleep(3600)
            yield ""

    started = time.monotonic()
    assert heard(Silent()) == LOG
    assert time.monotonic() - started < 5
