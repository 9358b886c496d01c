"""Rings that break: real processes and threads on loopback."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
import xgboost
from ring_peer import PARAMS, matrix, rows, train
from xgboost.core import XGBoostError

from dray.learners import xgboost_ring as ring
from dray.learners.xgboost_ring import RingBrokenError, RingDoor, Tracker, is_ring_failure
from dray.learners.xgboost_sockets import native_sockets

HOST = "127.0.0.1"
SOON_S = 10.0
"""Far less than the hours that a member waits for a peer, and more than a busy machine makes of a moment."""


class Member(threading.Thread):
    """A member in a thread of this process."""

    def __init__(self, door: RingDoor, number: int, body: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.door, self.number, self.body = door, number, body
        self.joined = threading.Event()
        self.result: object = None
        self.error: BaseException | None = None
        self.ended_at = 0.0
        self.start()

    def run(self) -> None:
        try:
            with self.door.join(self.number):
                self.joined.set()
                self.result = self.body()
        except BaseException as error:
            self.error = error
        self.ended_at = time.monotonic()

    def end(self) -> object:
        self.join(20)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result

    def fails(self, since: float) -> str:
        """Return the text of the ring's failure, which must have come soon."""
        self.join(20)
        assert isinstance(self.error, XGBoostError)
        assert is_ring_failure(self.error), str(self.error)
        assert self.ended_at - since < SOON_S
        return str(self.error)


@contextmanager
def peer(tracker: Tracker, number: int, what: str) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own, which is ended here."""
    script = str(Path(__file__).with_name("ring_peer.py"))
    command = [sys.executable, script, str(tracker.address["dmlc_tracker_port"]), str(number), what]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def agree_for_ever() -> None:
    while not ring.agree(False):
        pass


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def natives() -> int:
    """Threads and native sockets of this process."""
    return len(list(Path("/proc/self/task").iterdir())) + len(native_sockets())


@contextmanager
def connection(*, inheritable: bool = False) -> Iterator[Callable[[], bool]]:
    """An unrelated TCP connection of this process; yields whether it still carries data both ways."""
    with socket.create_server((HOST, 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            for end in (server, one, other):
                end.set_inheritable(inheritable)

            def works() -> bool:
                one.sendall(b"x")
                other.sendall(b"y")
                return one.recv(1) == b"y" and other.recv(1) == b"x"

            yield works


def test_members_in_threads_and_processes_train_the_trees_of_one_process() -> None:
    alone = train(matrix(0, 1, 2))
    with Tracker(3, HOST) as tracker, peer(tracker, 2, "train") as process:
        door = RingDoor(tracker.address)
        data = [matrix(0), matrix(1)]
        members = [Member(door, number, lambda number=number: train(data[number])) for number in range(2)]
        boosters = [member.end() for member in members]
        process.wait(10)
    for booster in boosters:
        assert isinstance(booster, xgboost.Booster)
        trees, wanted = booster.trees_to_dataframe(), alone.trees_to_dataframe()
        for column in ("Tree", "Node", "Feature", "Split", "Yes", "No"):
            assert trees[column].equals(wanted[column])
        np.testing.assert_allclose(trees["Gain"], wanted["Gain"], rtol=1e-5)


def test_members_agree_gather_and_are_told() -> None:
    with Tracker(3, HOST) as tracker:
        door = RingDoor(tracker.address)

        def talk() -> object:
            said = ring.rank() == 1
            return ring.agree(said), ring.agree(False), ring.tell_all(f"from {ring.rank()}"), ring.rank()

        members = [Member(door, number, talk) for number in (10, 2, 7)]
        assert [member.end() for member in members] == [(True, False, "from 0", place) for place in (2, 0, 1)]


def test_alone_there_is_nobody_to_ask_and_nothing_to_free() -> None:
    door = RingDoor(None)
    with door.join(0):
        assert ring.agree(True)
        assert not ring.agree(False)
        door.free()
        assert ring.rank() == 0


def test_survivor_of_a_killed_peer_fails_soon() -> None:
    with Tracker(2, HOST) as tracker, peer(tracker, 1, "agree") as process:
        survivor = Member(RingDoor(tracker.address), 0, agree_for_ever)
        assert survivor.joined.wait(20)
        killed_at = time.monotonic()
        process.kill()
        text = survivor.fails(since=killed_at)
    assert "Poll error" in text  # not an end of file, which sometimes makes XGBoost wait for ever


def test_freed_from_a_frozen_peer_a_survivor_trains_on_in_a_new_ring_with_its_matrix() -> None:
    data = matrix(0)
    start = train(data).save_raw()
    before = natives()
    with Tracker(2, HOST) as tracker, peer(tracker, 1, "agree") as process:
        door = RingDoor(tracker.address)
        with connection() as works, connection(inheritable=True) as older_works:
            survivor = Member(door, 0, agree_for_ever)
            assert survivor.joined.wait(20)
            with connection(inheritable=True) as younger_works:
                process.send_signal(signal.SIGSTOP)
                time.sleep(0.1)
                freed_at = time.monotonic()
                door.free()
                assert "Poll error" in survivor.fails(since=freed_at)
                assert works()
                assert older_works()
                assert younger_works()
    with pytest.raises(RingBrokenError), door.join(0):
        pass
    with Tracker(2, HOST) as tracker, peer(tracker, 1, "train"):
        booster = Member(RingDoor(tracker.address), 0, lambda: train(data, start)).end()
    wait_for(lambda: natives() <= before)
    assert isinstance(booster, xgboost.Booster)
    assert booster.num_boosted_rounds() == 6


def test_frozen_in_the_middle_of_a_training_the_survivor_is_freed() -> None:
    """Both train in rounds without end; the peer is frozen somewhere inside one."""
    data = matrix(0)
    with Tracker(2, HOST) as tracker, peer(tracker, 1, "train for ever") as process:
        door = RingDoor(tracker.address)
        survivor = Member(door, 0, lambda: xgboost.train(PARAMS, data, 1_000_000))
        assert survivor.joined.wait(20)
        time.sleep(0.3)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        freed_at = time.monotonic()
        door.free()
        survivor.fails(since=freed_at)
    assert train(data).num_boosted_rounds() == 3


@pytest.mark.parametrize("how", ["free", "abandon"])
def test_waiting_for_a_member_that_never_comes_ends(how: str) -> None:
    before = natives()
    tracker = Tracker(2, HOST)
    with closing_tracker(tracker):
        door = RingDoor(tracker.address)
        with connection() as works:
            member = Member(door, 0, agree_for_ever)
            wait_for(lambda: len(native_sockets()) >= 3)  # two that listen, one to the relay
            with connection() as younger_works:
                freed_at = time.monotonic()
                door.free() if how == "free" else tracker.abandon()
                member.fails(since=freed_at)
                assert works()
                assert younger_works()
    wait_for(lambda: natives() <= before)


@contextmanager
def closing_tracker(tracker: Tracker) -> Iterator[None]:
    try:
        yield
    finally:
        tracker.abandon()


class FakePeer:
    """Speaks to the tracker as a member does, and then does what the test wants."""

    def __init__(self, tracker: Tracker, number: int) -> None:
        self.server = socket.create_server((HOST, 0))
        self.tracker = socket.create_connection((HOST, int(tracker.address["dmlc_tracker_port"])))
        self.tracker.settimeout(10)
        self.tracker.sendall(struct.pack("<i", 0xFF99))
        assert self._receive(4) == struct.pack("<i", 0xFF99)
        self._say({"world_size": -1, "rank": 0, "task_id": f"{number:06d}"})
        self._say({"cmd": 1, "port": self.server.getsockname()[1], "error_port": 1})
        self._hear()

    def next(self) -> tuple[str, int]:
        """Where the next member in the ring listens; told when all have come."""
        told = self._hear()
        return str(told["host"]), int(told["port"])

    def close(self) -> None:
        self.tracker.close()
        self.server.close()

    def _say(self, message: dict[str, object]) -> None:
        text = json.dumps(message).encode()
        self.tracker.sendall(struct.pack("<i", len(text)) + text)

    def _hear(self) -> dict[str, int]:
        (size,) = struct.unpack("<i", self._receive(4))
        return json.loads(self._receive(size))

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self.tracker.recv(size - len(data))
        return data


def test_waiting_for_a_peer_that_met_the_tracker_and_never_calls_ends() -> None:
    """XGBoost waits for that call without a timeout."""
    before = natives()
    with Tracker(2, HOST) as tracker, closing(FakePeer(tracker, 1)) as fake:
        door = RingDoor(tracker.address)
        member = Member(door, 0, agree_for_ever)
        fake.next()
        called, _ = fake.server.accept()
        with called:
            time.sleep(0.1)
            assert member.is_alive()
            freed_at = time.monotonic()
            door.free()
            member.fails(since=freed_at)
    wait_for(lambda: natives() <= before)


def test_waiting_for_a_peer_that_calls_and_says_nothing_ends() -> None:
    before = natives()
    with Tracker(2, HOST) as tracker, closing(FakePeer(tracker, 1)) as fake:
        door = RingDoor(tracker.address)
        member = Member(door, 0, agree_for_ever)
        with socket.create_connection(fake.next()), connection() as works:
            time.sleep(0.1)
            assert member.is_alive()
            freed_at = time.monotonic()
            door.free()
            member.fails(since=freed_at)
            assert works()
    wait_for(lambda: natives() <= before)


def test_peer_that_died_after_it_met_the_tracker_fails_the_ring_soon() -> None:
    with Tracker(2, HOST) as tracker, closing(FakePeer(tracker, 1)) as fake:
        fake.server.close()
        joined_at = time.monotonic()
        member = Member(RingDoor(tracker.address), 0, agree_for_ever)
        member.fails(since=joined_at)


def test_member_that_died_while_it_waited_for_the_last_one_does_not_end_the_driver() -> None:
    """XGBoost's own tracker aborts its process here."""
    with Tracker(3, HOST) as tracker:
        FakePeer(tracker, 1).close()
        joined_at = time.monotonic()
        door = RingDoor(tracker.address)
        members = [Member(door, number, agree_for_ever) for number in (0, 2)]
        for member in members:
            member.fails(since=joined_at)


def test_connecting_to_a_host_that_does_not_answer_ends() -> None:
    """A full backlog drops the call, as a host that is cut off does."""
    with socket.create_server((HOST, 0), backlog=0) as server, socket.create_connection(server.getsockname()):
        door = RingDoor({"dmlc_tracker_uri": HOST, "dmlc_tracker_port": server.getsockname()[1]})
        member = Member(door, 0, agree_for_ever)
        time.sleep(0.2)
        assert member.is_alive()
        freed_at = time.monotonic()
        door.free()
        member.fails(since=freed_at)


def test_freeing_an_ended_ring_leaves_the_next_one_alone() -> None:
    doors = []
    for _ in range(2):
        with Tracker(2, HOST) as tracker:
            door = RingDoor(tracker.address)
            doors.append(door)

            def talk() -> bool:
                doors[0].free() if len(doors) == 2 else None
                time.sleep(0.2)
                return ring.agree(True)

            assert all(member.end() for member in [Member(door, number, talk) for number in range(2)])


def test_freeing_a_ring_that_never_formed_leaves_the_next_one_alone() -> None:
    with Tracker(2, HOST) as stuck, Tracker(2, HOST) as tracker:
        old, new = RingDoor(stuck.address), RingDoor(tracker.address)
        waiting = Member(old, 0, agree_for_ever)
        wait_for(lambda: len(native_sockets()) >= 3)
        start = threading.Barrier(2)

        def talk() -> bool:
            if start.wait(10) == 0:
                old.free()
            time.sleep(0.3)
            return ring.agree(True)

        members = [Member(new, number, talk) for number in range(2)]
        assert all(member.end() for member in members)
        waiting.join(5)
        assert waiting.error is not None


def test_body_that_raises_ends_the_ring_for_the_other_members() -> None:
    with Tracker(2, HOST) as tracker:
        door = RingDoor(tracker.address)

        def fail() -> None:
            raise ValueError("no rows")

        other = Member(door, 0, agree_for_ever)
        failing = Member(door, 1, fail)
        with pytest.raises(ValueError, match="no rows"):
            failing.end()
        other.fails(since=failing.ended_at)


def test_ring_that_did_its_work_ends_well_without_its_tracker() -> None:
    before = natives()
    tracker = Tracker(2, HOST)
    with closing_tracker(tracker):
        door = RingDoor(tracker.address)

        def work() -> bool:
            tracker.abandon()
            return ring.agree(True)

        assert all(member.end() for member in [Member(door, number, work) for number in range(2)])
    wait_for(lambda: natives() <= before)


def test_broken_rings_leave_nothing_behind() -> None:
    def break_one(*, formed: bool) -> None:
        with Tracker(2, HOST) as tracker:
            door = RingDoor(tracker.address)
            members = [Member(door, number, agree_for_ever) for number in range(2 if formed else 1)]
            if formed:
                assert members[0].joined.wait(10)
            else:
                wait_for(lambda: len(native_sockets()) >= 3)  # two that listen, one to the relay
            tracker.abandon() if not formed else door.free()
            for member in members:
                member.join(10)
                assert member.error is not None

    before = natives()
    for _ in range(10):
        break_one(formed=True)
        break_one(formed=False)
    wait_for(lambda: natives() <= before)


def test_abandoned_with_a_frozen_member_the_tracker_ends() -> None:
    """The tracker reads from a member that connected and says nothing; its own way to free it would wait."""
    before = natives()
    tracker = Tracker(2, HOST)
    with socket.create_connection((HOST, int(tracker.address["dmlc_tracker_port"]))):
        time.sleep(0.1)
        begun_at = time.monotonic()
        tracker.abandon()
        tracker.abandon()
        assert time.monotonic() - begun_at < SOON_S
    wait_for(lambda: natives() <= before)


def test_faults_of_parameters_and_data_are_no_ring_failures() -> None:
    features, labels = rows(0)
    faults: list[Callable[[], object]] = [
        lambda: xgboost.train({"max_depth": -3}, matrix(0), 1),
        lambda: xgboost.train({"objective": "nonsense"}, matrix(0), 1),
        lambda: xgboost.train({"objective": "binary:logistic"}, matrix(0), 1),
        lambda: xgboost.DMatrix(features, labels[:-1]),
        lambda: xgboost.train({}, xgboost.DMatrix(features), 1),
    ]
    for fault in faults:
        with pytest.raises(XGBoostError) as raised:
            fault()
        assert not is_ring_failure(raised.value)
    assert not is_ring_failure(ValueError("] /src/collective/result.cc:83:"))
