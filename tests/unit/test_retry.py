"""Which errors pass, how long to wait for them, and uploads through a burst."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from dray import retry
from dray.errors import StorageError
from dray.retry import Retrier, is_transient, wait_before_try_s
from dray.storage import DEFAULT, expand, open_storage, translate_errors, write_atomically
from faulty_s3 import Fault, FaultyS3, serve_faulty
from s3_server import S3Server

PASSING = [
    OSError("AWS Error SLOW_DOWN during GetObject operation: Please reduce your request rate."),
    OSError("When reading information for key 'a': AWS Error UNKNOWN (HTTP status 503) during HeadObject operation"),
    OSError("AWS Error INTERNAL_FAILURE during GetObject operation: We encountered an internal error."),
    OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 7, Could not connect to server"),
    OSError("AWS Error NO_SUCH_UPLOAD during CompleteMultipartUpload operation: "),
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
]
STAYING = [
    OSError("AWS Error ACCESS_DENIED during GetObject operation: Access Denied"),
    OSError("AWS Error INVALID_ACCESS_KEY_ID during ListObjectsV2 operation"),
    OSError("AWS Error RESOURCE_NOT_FOUND during GetObject operation: "),
    OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 60, SSL peer certificate"),
    OSError(errno.ENOSPC, "No space left on device"),
    FileNotFoundError(errno.ENOENT, "No such file"),
    OSError("Unexpected end of stream"),
    pa.ArrowInvalid("Parquet magic bytes not found"),
    StorageError("The path is empty."),
]


@pytest.mark.parametrize("error", PASSING, ids=str)
def test_overload_and_the_network_pass(error: OSError) -> None:
    assert is_transient(error)
    with pytest.raises(StorageError) as raised, translate_errors("s3://bucket/key"):
        raise error
    assert is_transient(raised.value)


def test_a_port_that_is_closed_when_a_worker_first_connects_passes(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match="cannot be reached") as raised:
        open_storage(s3_server.url())
    assert is_transient(raised.value)
    assert is_transient(TimeoutError("timed out"))


@pytest.mark.parametrize("error", STAYING, ids=str)
def test_everything_else_stays(error: Exception) -> None:
    assert not is_transient(error)


def test_waits_double_up_to_a_limit() -> None:
    assert [wait_before_try_s(failures, 1.0) for failures in range(1, 8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert wait_before_try_s(10_000, 0.5) == 2.5


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retry, "time", clock)
    monkeypatch.setattr(retry, "_given_up", set())
    return clock


def busy() -> StorageError:
    error = StorageError("The store is busy.", fix="Wait.")
    error.__cause__ = PASSING[0]
    return error


def fail_for_ever(retrier: Retrier) -> StorageError:
    with pytest.raises(StorageError) as raised:
        while True:
            retrier.wait_after(busy())
    return raised.value


def test_retries_end_at_the_limit_with_the_last_error(clock: Clock) -> None:
    error = fail_for_ever(Retrier("store"))
    assert clock.now == pytest.approx(retry.LIMIT_S)
    assert error.what.startswith("The store is busy. Tried ")
    assert error.what.endswith("times in 90 s.")
    assert error.fix == "Wait."


def test_after_a_success_the_limit_starts_again(clock: Clock) -> None:
    retrier = Retrier("store")
    for _ in range(100):
        retrier.wait_after(busy())
        retrier.wait_after(busy())
        retrier.succeeded()
    began = clock.now
    fail_for_ever(retrier)
    assert clock.now - began == pytest.approx(retry.LIMIT_S)


def test_a_store_given_up_is_not_waited_for_again_until_it_answers(clock: Clock) -> None:
    fail_for_ever(Retrier("store"))
    began = clock.now
    fail_for_ever(Retrier("store"))
    assert clock.now == began
    fail_for_ever(Retrier("another"))
    assert clock.now > began
    Retrier("store").succeeded()
    Retrier("store").wait_after(busy())


def test_a_thread_that_waits_for_a_store_that_another_gives_up_tells_how_long_it_has_waited(clock: Clock) -> None:
    waiting = Retrier("store")
    waiting.wait_after(busy())
    fail_for_ever(Retrier("store"))
    given_up_at = clock.now
    with pytest.raises(StorageError, match=r"Tried 2 times in \d+ s\."):
        waiting.wait_after(busy())
    assert clock.now == given_up_at


def test_what_stays_is_raised_as_it_is(clock: Clock) -> None:
    error = StorageError("No permission.")
    with pytest.raises(StorageError) as raised:
        Retrier("store").wait_after(error)
    assert raised.value is error
    assert clock.now == 0


@pytest.fixture
def faulty(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.02)
    with serve_faulty(s3_server) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.endpoint)
        open_storage(s3_server.url())
        yield faulty


@pytest.mark.parametrize(("fault", "after"), [("slow_down", 0), ("reset", 1), ("cut", 2)])
def test_a_file_is_written_through_a_burst_and_made_once(fault: Fault, after: int, faulty: FaultyS3) -> None:
    content = os.urandom(1 << 20)
    made = []

    def write(file: pa.NativeFile) -> None:
        made.append(file.write(content))

    faulty.fail(fault, requests=5, after=after)
    write_atomically(faulty.server.url("runs/file"), DEFAULT, write)
    assert (faulty.server.directory / "runs/file").read_bytes() == content
    assert faulty.failed >= 1
    assert len(made) == 1


def test_a_large_file_is_written_while_the_port_is_closed(faulty: FaultyS3) -> None:
    content = os.urandom(24 << 20)
    faulty.fail("refuse", seconds=3, after=2)
    write_atomically(faulty.server.url("file"), DEFAULT, lambda file: file.write(content))
    assert (faulty.server.directory / "file").read_bytes() == content


def test_a_write_that_is_denied_is_tried_once(faulty: FaultyS3) -> None:
    faulty.fail("denied")
    with pytest.raises(StorageError, match="denied"):
        write_atomically(faulty.server.url("file"), DEFAULT, lambda file: file.write(b"x"))
    assert len(faulty.seen) == 1


def test_a_write_into_an_outage_that_stays_ends_in_an_error(faulty: FaultyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LIMIT_S", 1.0)
    faulty.fail("internal")
    with pytest.raises(StorageError, match=r"fails for .* Tried \d+ times"):
        write_atomically(faulty.server.url("file"), DEFAULT, lambda file: file.write(b"x"))
    retry._given_up.clear()


def test_finding_the_data_is_not_retried(faulty: FaultyS3) -> None:
    faulty.fail("slow_down")
    with pytest.raises(StorageError):
        expand([faulty.server.url("data")])
    assert len(faulty.seen) <= 3
