"""Processes for rings: started once, because each takes a second to import XGBoost."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that a process of its own finds ring_process.py


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(max_workers=3, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool
