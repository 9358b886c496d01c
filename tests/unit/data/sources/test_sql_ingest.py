"""An ingest from PostgreSQL that is killed, while others change the table, and gone on with: no range is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from postgres_server import PASSWORD, PostgresServer

from dray.batch.options import Options
from dray.data.open_source import open_source
from dray.data.sources.sql_database import Database
from dray.errors import DataError
from dray.events.kinds import Event, Warned
from dray.ingesting import plan
from dray.ingesting.ingest import ingest
from dray.ingesting.recipe import Recipe

Execute = Callable[..., None]
TASK_BYTES = 4_000
KILLED = f"""
import os, signal, sys
from dray.data.open_source import open_source
from dray.ingesting import plan
from dray.ingesting.ingest import ingest
from dray.ingesting.recipe import Recipe
from dray.batch.options import Options

address, out, last = sys.argv[1:]
plan.LEAST_TASK_BYTES = {TASK_BYTES}

def die(batch):
    if max(batch["id"].to_pylist()) > int(last):
        os.kill(os.getpid(), signal.SIGKILL)
    return batch

source = open_source(address, table="events", key="id")
ingest(source, out, Recipe(transform="die"), function=die, options=Options(where="here"))
"""


@pytest.fixture
def execute(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Execute]:
    """A table of 1,000 events with the ids 1 to 1,000, and how to change it."""

    def act(*statements: str) -> None:
        with closing(Database(postgres.address).connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    act("CREATE TABLE events (id bigint, text text)", add(1, 1000))
    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", TASK_BYTES)
    yield act
    monkeypatch.setenv("DRAY_TEST_PASSWORD", PASSWORD)
    act("DROP TABLE events")


def add(first: int, last: int) -> str:
    return f"INSERT INTO events SELECT i, repeat('x', 50) FROM generate_series({first}, {last}) AS i"


def killed(postgres: PostgresServer, out: Path, after: int) -> int:
    """Start an ingest that is killed behind an id; return how many tasks it had done."""
    command = [sys.executable, "-c", KILLED, postgres.address, str(out), str(after)]
    assert subprocess.run(command).returncode == -9
    return len(list((out / "_ingest").glob("task-*.json")))


def gone_on(postgres: PostgresServer, out: Path, **options: Any) -> tuple[list[int], Any, str]:
    """Go on with it; return the ids in the output, the result and what was told."""
    told: list[str] = []

    def emit(event: Event) -> None:
        told.extend([event.message] if isinstance(event, Warned) else [])

    source = open_source(postgres.address, **({"table": "events", "key": "id"} | options))
    result = ingest(
        source,
        str(out),
        Recipe(transform="die"),
        function=lambda batch: batch,
        options=Options(where="here"),
        emit=emit,
    )
    return sorted(pq.read_table(out)["id"].to_pylist()), result, "\n".join(told)


def test_a_window_that_moved_meanwhile_is_read_as_it_is_now_and_told(
    postgres: PostgresServer, execute: Execute, tmp_path: Path
) -> None:
    done = killed(postgres, tmp_path / "out", after=600)
    assert done > 2
    execute("DELETE FROM events WHERE id < 300", add(1001, 1299))  # as many rows as before
    ids, result, told = gone_on(postgres, tmp_path / "out")
    assert ids == list(range(300, 1300))
    assert (result.rows_read, result.rows_kept) == (1000, 1000)
    assert 0 < result.resumed < done
    assert "finished tasks have another number of rows now and are read again" in told
    assert "299 rows of" in told and 'their "id" is below 1 or above 1000' in told


def test_rows_that_came_later_are_told_and_nothing_is_read_twice(
    postgres: PostgresServer, execute: Execute, tmp_path: Path
) -> None:
    done = killed(postgres, tmp_path / "out", after=600)
    execute(add(1001, 1007))
    ids, result, told = gone_on(postgres, tmp_path / "out")
    assert ids == list(range(1, 1008))
    assert result.resumed == done
    assert "7 rows of" in told
    assert "1,000 rows were counted when the ingest began, 1,007 were read" in told


def test_a_table_that_is_as_it_was_is_gone_on_with_and_nothing_is_told_of_it(
    postgres: PostgresServer, execute: Execute, tmp_path: Path
) -> None:
    done = killed(postgres, tmp_path / "out", after=600)
    ids, result, told = gone_on(postgres, tmp_path / "out")
    assert ids == list(range(1, 1001))
    assert result.resumed == done
    assert told.splitlines() == [f"Continuing: {done} of {_tasks(tmp_path / 'out')} tasks are already done."]


def test_another_key_does_not_go_on(postgres: PostgresServer, execute: Execute, tmp_path: Path) -> None:
    killed(postgres, tmp_path / "out", after=600)
    with pytest.raises(DataError, match='its source has changed: key was "id" from 1 to 1000 and is -id from'):
        gone_on(postgres, tmp_path / "out", key="-id")


def _tasks(out: Path) -> int:
    return len(list(out.glob("part-*.parquet")))
