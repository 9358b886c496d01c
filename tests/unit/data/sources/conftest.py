from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests find reading.py in any import mode

from postgres_server import PASSWORD, PostgresServer, program, serve_postgres


@pytest.fixture(scope="session")
def postgres_process() -> Iterator[PostgresServer]:
    if program("postgres") is None or program("initdb") is None:
        if os.getuid() == 0 and shutil.which("apt-get"):
            pytest.fail("PostgreSQL is not installed: make system")
        pytest.skip("PostgreSQL is not installed, and only root can install it, with apt-get")
    with serve_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_process: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    """A real PostgreSQL, and the variable with its password."""
    monkeypatch.setenv("DRAY_TEST_PASSWORD", PASSWORD)
    return postgres_process
