"""The functions that every way of mapping runs: fixed work, so that a busy core costs all of them the same.

Plain Python at the top: a way that starts fresh processes would otherwise be timed on loading numpy.
"""

import os
import signal
import time

ROUNDS = 620
"""About 20 microseconds on the machine of the published figures; the loop's time tells what they are here."""


def small(item: int) -> int:
    total = item
    for number in range(ROUNDS):
        total += number
    return total


def nap(item: int) -> int:
    """Waits instead of working: what is measured is the map, not the machine's other guests."""
    time.sleep(0.2)
    return item


def nap_or_kill(item: int) -> int:
    if item % 50 == 25:
        os.kill(os.getpid(), signal.SIGKILL)
    return nap(item)


def row_sum(item: tuple) -> float:
    array, row = item
    return float(array[row * 1000 : (row + 1) * 1000].sum())


def middle(item) -> float:
    import numpy as np

    return float(np.median(item))
