"""Functions that the tests of the map run over items, well-behaved and not; importable by the processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def double(item: int) -> int:
    return 2 * item


def nap(item: float) -> float:
    time.sleep(item)
    return item


def when(item: float) -> tuple[float, float]:
    """Begin and end, by a clock that all processes share."""
    begun = time.monotonic()
    time.sleep(item)
    return begun, time.monotonic()


def pid(_item: Any) -> int:
    return os.getpid()


def group(_item: Any) -> tuple[int, int]:
    return os.getpid(), os.getpgid(0)


def raises(item: int) -> int:
    if item == 3:
        raise ValueError("three is not allowed")
    return item


def misbehaves(item: int) -> int:
    """Every way to end badly, by item; the others are fine."""
    match item:
        case 10:
            raise KeyError("ten")
        case 20:
            os._exit(3)
        case 30:
            os.kill(os.getpid(), signal.SIGKILL)
        case 40:
            sys.exit("enough")
        case 50:
            return lambda: item  # type: ignore[return-value]  # pickles, by value
        case 60:
            return (number for number in range(3))  # type: ignore[return-value]
        case 70:
            os.kill(os.getpid(), signal.SIGSEGV)
    return item


def stubborn(item: int) -> int:
    """Cannot be interrupted by an exception: it is stuck in C with signals blocked."""
    if item == 2:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(60)
    return item


def hangs_up(item: int) -> int:
    """Closes all it has open, and lives on: as a process does in the moment before its end."""
    if item == 2:
        os.closerange(3, 1024)
        time.sleep(60)
    return item


def slow_at_two(item: int) -> int:
    if item == 2:
        time.sleep(60)
    return item


def swallows(item: int) -> int:
    if item == 2:
        try:
            time.sleep(60)
        except Exception:
            return -1
    return item


def killed_the_first_time(item: str) -> str:
    """`item` is a directory: the first try there dies."""
    try:
        (Path(item) / "tried").mkdir()
    except FileExistsError:
        return "second try"
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def forks(item: int) -> int:
    """Leaves a child that returns from the function as well, and one that stays."""
    if os.fork() == 0:
        return -item
    if os.fork() == 0:
        time.sleep(60)
    return item


def prints(item: int) -> int:
    print(f"out {item}")
    print(f"err {item}", file=sys.stderr)
    return item


def eats_memory(item: int) -> int:
    if item == 2:
        hog = [np.ones(10_000_000) for _ in range(60)]
        time.sleep(30)
        return len(hog)
    return item


def total(item: tuple[np.ndarray, int]) -> float:
    array, number = item
    return float(array[number])


def weighted(item: int, weights: np.ndarray) -> float:
    return float(weights[item])


def is_writable(item: np.ndarray) -> bool:
    return bool(item.flags.writeable)


def first_of(item: np.ndarray) -> float:
    return float(item[0])


def threads(_item: Any) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def variable(name: str) -> str | None:
    return os.environ.get(name)


def here(_item: Any) -> str:
    return str(Path.cwd())


def rows(batch: Any) -> int:
    return int(batch.num_rows)


def with_double(batch: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pa.table({"id": batch["id"], "doubled": pc.multiply(batch["id"], 2)})


def size_of_file(name: str) -> int:
    return Path(name).stat().st_size


def fails_on_second(batch: Any) -> int:
    if batch["id"][0].as_py() >= 100:
        raise ValueError("second file")
    return int(batch.num_rows)


def nap_and_pid(item: float) -> int:
    time.sleep(item)
    return os.getpid()
