"""A few of the soak's random runs; `make soak` has 200."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parent.parent.parent / "benchmarks" / "soak.py"


@pytest.mark.timeout(1800)
def test_randomly_disturbed_runs_come_to_the_same_model_and_leave_nothing() -> None:
    done = subprocess.run(
        [sys.executable, str(SOAK), "--runs", "10"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
