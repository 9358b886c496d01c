"""Tests send signals: they are heard however the tests were started, as by `make test &` in a script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

WAIT = "import time; print(flush=True)\nfor _ in range(1200): time.sleep(0.05)"
"""Short sleeps: Python hears a signal that comes just before a sleep only when that sleep is over."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_a_test_starts_is_ended_by_a_signal(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAIT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        try:
            assert process.wait(20) == -number
        finally:
            process.kill()


def test_the_tests_themselves_are_interrupted() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("processes", ["0", "1"])
def test_signals_are_heard_though_the_parent_ignored_them(processes: str) -> None:
    here = Path(__file__)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", processes, str(here)]
    command += ["-k", "test_a_process or test_the_tests"]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT TERM; exec \"$@\"", "sh", *command],
        cwd=here.parents[2],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
